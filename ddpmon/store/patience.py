"""A store whose every operation has a deadline: a stopped or half-open server must not hold the watcher."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

from ddpmon.store.base import Ageing, Store, StoreSilent, StoreUnavailable

T = TypeVar("T")
_MOST_LEFT_BEHIND = 8  # threads at an address


class PatientStore:
    """Runs another store in a daemon thread of its own.

    An operation that outlasts its deadline goes on in that thread; the next call first waits for it, so that a server
    that was merely stopped is taken up again where it stood. A thread that is left behind in one, since nothing can end
    it, is remembered: while there are too many of an address, it is not opened again.

    Args:
        opener: opens the store; runs in the thread too.
        address: how to call the store in messages.
        patience_s: the longest that a caller waits.

    Raises:
        StoreSilent: the store could not be opened in time, or earlier threads still wait for it.
        StoreUnavailable: it could not be opened.
    """

    def __init__(self, opener: Callable[[], Store], address: str, patience_s: float) -> None:
        _left_behind.make_sure_of_few(address)
        self._address = address
        self._patience_s = patience_s
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._late: Future[Any] | None = None
        threading.Thread(target=_work, args=(self._jobs,), name="ddpmon-store", daemon=True).start()
        try:
            self._store: Store = self._call(opener)
        except StoreUnavailable:
            self._jobs.put(None)
            _left_behind.add(address, self._late)
            raise

    def put(self, key: str, value: bytes) -> None:
        """Set `key` to `value`."""
        self._call(lambda: self._store.put(key, value))

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values of `keys`; None for a key that is missing or empty."""
        wanted = list(keys)
        return self._call(lambda: self._store.get_many(wanted))

    def ages(self, keys: Sequence[str]) -> list[float | None]:
        """Seconds since each of `keys` was put; None where the store cannot tell."""
        store, wanted = self._store, list(keys)
        return self._call(lambda: store.ages(wanted)) if isinstance(store, Ageing) else [None] * len(wanted)

    def close(self) -> None:
        """Let go of the store, at once."""
        self._jobs.put((self._store.close, Future()))
        self._jobs.put(None)
        _left_behind.add(self._address, self._late)

    def _call(self, job: Callable[[], T]) -> T:
        if self._late is not None:
            self._wait(self._late)
        future: Future[T] = Future()
        self._late = future
        self._jobs.put((job, future))
        return self._wait(future)

    def _wait(self, future: Future[T]) -> T:
        try:
            result = future.result(self._patience_s)
        except FutureTimeout:
            raise StoreSilent(f"the store at {self._address} does not answer") from None
        except BaseException:
            self._late = None
            raise
        self._late = None
        return result


class _LeftBehind:
    """Operations that nobody waits for any more, each of which holds a thread and a socket."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[str, list[Future[Any]]] = {}

    def add(self, address: str, late: Future[Any] | None) -> None:
        """Remember one, if it has not ended."""
        if late is not None and not late.done():
            with self._lock:
                self._futures.setdefault(address, []).append(late)

    def make_sure_of_few(self, address: str) -> None:
        """Forget those that have ended.

        Raises:
            StoreSilent: there are too many at this address.
        """
        with self._lock:
            left = {where: [late for late in lates if not late.done()] for where, lates in self._futures.items()}
            self._futures = {where: lates for where, lates in left.items() if lates}
            waiting = len(self._futures.get(address, ()))
        if waiting >= _MOST_LEFT_BEHIND:
            raise StoreSilent(
                f"the store at {address} does not answer: {waiting} connections wait for its answer, and no other is "
                f"opened before one of them ends"
            )


_left_behind = _LeftBehind()


def _work(jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]) -> None:
    while (item := jobs.get()) is not None:
        job, future = item
        try:
            future.set_result(job())
        except Exception as error:
            future.set_exception(error)
