"""Follows many runs: finds them, reads each one in a thread of its own, and hands over one picture after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ddpmon.snapshot import Snapshot
from ddpmon.store.base import StoreUnavailable, TargetError
from ddpmon.watcher.observer import Observer

TICK_S = 2.0  # frames overlap by more, and what is judged depends on the steps alone
FIND_S = 5.0  # between looks for new runs: a run that crashes at its start is announced for some seconds only
IDLE_S = 60.0  # after which an address at which no run was seen makes room for others; chosen, as a run's `leave_s`
MOST_RUNS = 64  # that are followed at once; chosen: each costs a thread and a connection


@dataclass(frozen=True, slots=True)
class Look:
    """A picture of the run at an address."""

    address: str
    snapshot: Snapshot


class Follower(threading.Thread):
    """Reads one run until told to stop, and once more then.

    Args:
        address: what the Observer takes.
        hand: is called in this thread with each picture; it may block.
        warn: is called with a sentence if the watcher itself breaks, once for each type of error; another watcher takes
            its place.
        every_s: seconds between two looks.

    Attributes:
        began_at: when it was made, on the monotonic clock.
        has_seen: whether there has been a run.

    Raises:
        TargetError: the address makes no sense.
    """

    def __init__(
        self, address: str, hand: Callable[[Look], None], warn: Callable[[str], None], every_s: float = TICK_S
    ) -> None:
        super().__init__(name="ddpmon-reader", daemon=True)
        self._address, self._hand, self._warn, self._every_s = address, hand, warn, every_s
        self._observer = Observer(address)
        self._leave, self._drop = threading.Event(), False
        self._broke: set[str] = set()  # types of errors that were told
        self.began_at, self.has_seen = time.monotonic(), False

    def run(self) -> None:
        """Look at the run again and again."""
        while True:
            last = self._leave.is_set()
            if not self._drop:
                self._look()
            if last or self._drop:
                self._observer.close()
                return
            self._leave.wait(self._every_s)

    def _look(self) -> None:
        try:
            snapshot = self._observer.tick()
            self.has_seen = self.has_seen or snapshot.run is not None
            self._hand(Look(self._address, snapshot))
        except Exception as error:  # a defect of ours must not leave a run without a guard
            self._mend(error)

    def _mend(self, error: Exception) -> None:
        """Begin again with another watcher."""
        name = type(error).__name__
        if name not in self._broke:
            self._broke.add(name)
            self._warn(f"the watcher of a run broke and is started again: {name}: {error}")
        with suppress(Exception):
            self._observer.close()
        self._observer = Observer(self._address)

    def leave(self) -> None:
        """Look once more and end."""
        self._leave.set()

    def drop(self) -> None:
        """End without another look."""
        self._drop = True
        self._leave.set()


class Fleet:
    """The runs that are followed; all its methods are called in one thread, except by the thread that looks for runs.

    Args:
        find: names the addresses of all runs there are, newest first; may block for seconds.
        hand: is called with each picture, in the thread of its run.
        warn: is called with a sentence, once for as long as it stays the same.
        tick_s, find_s: seconds between two looks at a run, and for new runs.

    Attributes:
        trouble: why not all runs are found or followed, "" for none.

    Raises:
        TargetError: a target makes no sense.
    """

    def __init__(
        self,
        find: Callable[[], Sequence[str]],
        hand: Callable[[Look], None],
        warn: Callable[[str], None],
        tick_s: float = TICK_S,
        find_s: float = FIND_S,
    ) -> None:
        self._find, self._hand, self._warn, self._tick_s, self._find_s = find, hand, warn, tick_s, find_s
        self._followers: dict[str, Follower] = {}
        self._dropped: set[str] = set()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.trouble = ""

    def start(self) -> None:
        """Look for runs from now on."""
        threading.Thread(target=self._go, name="ddpmon-finder", daemon=True).start()

    @property
    def addresses(self) -> set[str]:
        """What is followed."""
        with self._lock:
            return {*self._followers}

    def drop(self, address: str) -> None:
        """Follow it no more, as long as it is found there."""
        with self._lock:
            self._dropped.add(address)
            follower = self._followers.pop(address, None)
        if follower is not None:
            follower.drop()

    def leave(self) -> list[threading.Thread]:
        """Let each run be looked at once more; the threads that do it."""
        self._stopping.set()
        with self._lock:
            followers = [*self._followers.values()]
        for follower in followers:
            follower.leave()
        return [*followers]

    def _go(self) -> None:
        while not self._stopping.is_set():
            trouble = ""
            try:
                trouble = self._follow(self._find())
            except (StoreUnavailable, TargetError, OSError) as error:
                trouble = str(error)
            if trouble and trouble != self.trouble:
                self._warn(trouble)
            self.trouble = trouble
            self._stopping.wait(self._find_s)

    def _follow(self, found: Sequence[str]) -> str:
        """Follow what is new; returns a sentence if there are too many."""
        with self._lock:
            self._dropped &= {*found}
            new = [address for address in found if address not in self._followers and address not in self._dropped]
            self._make_room(found, len(new))
            room = MOST_RUNS - len(self._followers)
            for address in new[:room]:
                if not self._stopping.is_set():
                    self._start(address)
        if len(new) <= room:
            return ""
        return f"{len(new) - room} runs are not followed: {MOST_RUNS} at once are the most"

    def _make_room(self, found: Sequence[str], wanted: int) -> None:
        """End followers that have never seen a run: those not found any more, and idle ones if others need their room.

        An address that the user has named is always found, and a run may come there at any time.
        """
        now = time.monotonic()
        unseen = {address: each for address, each in self._followers.items() if not each.has_seen}
        gone = [address for address in unseen if address not in found]
        idle = [address for address, each in unseen.items() if address in found and now - each.began_at > IDLE_S]
        lacking = max(0, wanted - (MOST_RUNS - len(self._followers) + len(gone)))
        for address in [*gone, *idle[:lacking]]:
            self._followers.pop(address).drop()

    def _start(self, address: str) -> None:
        try:
            self._followers[address] = follower = Follower(address, self._hand, self._warn, self._tick_s)
        except TargetError as error:
            self._dropped.add(address)
            self._warn(str(error))
        else:
            follower.start()
