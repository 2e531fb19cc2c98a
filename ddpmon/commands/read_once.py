"""One answer about a run, within a limit."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue

from ddpmon.commands.looks import Looks
from ddpmon.snapshot import Snapshot
from ddpmon.store.base import StoreUnavailable, TargetError
from ddpmon.store.discovery import discover
from ddpmon.store.tcp import load_torch

LIMIT_S = 10.0
LOAD_LIMIT_S = 60.0  # for loading torch, which takes seconds on a cold disk or a busy host: no fault of the store's


def look_once(target: str | None, looks: Looks | None = None) -> Snapshot:
    """A snapshot of the run after as many `looks` as are needed, by default one.

    It is read in a thread of its own, so that a store that hangs cannot hang us.

    Raises:
        TargetError: a TARGET that makes no sense.
        StoreUnavailable: nothing was read within the limit.
    """
    looks = looks or Looks(for_s=0.0)
    loaded = threading.Event()
    answers: SimpleQueue[Snapshot | BaseException] = SimpleQueue()
    threading.Thread(target=_look, args=(target, looks, loaded, answers), daemon=True).start()
    loaded.wait(LOAD_LIMIT_S)
    try:
        answer = answers.get(timeout=LIMIT_S + looks.limit_s)
    except Empty:
        raise StoreUnavailable(f"the store did not answer within {LIMIT_S:.0f} s") from None
    if isinstance(answer, TargetError):
        raise answer
    if isinstance(answer, BaseException):
        raise StoreUnavailable(f"the run cannot be read: {answer}") from answer
    return answer


def _look(
    target: str | None, looks: Looks, loaded: threading.Event, answers: SimpleQueue[Snapshot | BaseException]
) -> None:
    try:
        from ddpmon.watcher.observer import Observer

        if (target is not None and target.startswith("tcp:")) or (target is None and discover()):
            with suppress(StoreUnavailable):
                _load_torch()
        loaded.set()
        observer = Observer(target)
        answers.put(looks.at(observer.tick))
        observer.close()
    except BaseException as error:  # whatever it is, the main thread tells it in a sentence
        answers.put(error)
        loaded.set()


def _load_torch() -> None:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # its C++ warnings are not for the screen
    load_torch()
