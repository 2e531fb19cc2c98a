"""Python's garbage collector: how long it held up the training thread, whatever phase it fell into."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import repeat
from threading import get_ident
from time import perf_counter_ns

_MAX_MARKS = 4096  # without a step to take them nothing may grow

Mark = tuple[bool, int, int]  # whether a collection begins, the thread that runs it, host clock in nanoseconds


class Collections:
    """Marks where each collection of this process begins and ends.

    Attributes:
        marks: those that nobody has taken yet.
        callback: for `gc.callbacks`; runs no Python code, not even its own. An exception that a signal's handler raises
            would otherwise end in it, where Python drops it: a Ctrl-C during a collection would be lost.
    """

    def __init__(self) -> None:
        self.marks: deque[Mark] = deque(maxlen=_MAX_MARKS)
        begins, ends = (property(partial(next, _marking(self.marks, begins))) for begins in (True, False))
        self.callback: Callable[[str, dict[str, int]], object] = partial(
            getattr, type("_Phases", (), {"start": begins, "stop": ends})()
        )
        self._began = 0

    def take(self, thread: int) -> int:
        """How long `thread` has been in collections since the last call, in nanoseconds.

        A collection in another thread holds the interpreter too, but the training thread may be in C++ meanwhile.
        """
        spent = 0
        for _ in range(len(self.marks)):
            begins, where, at = self.marks.popleft()
            if where == thread and not begins and self._began:
                spent += at - self._began
            self._began = at if begins and where == thread else 0
        return spent


def _marking(marks: deque[Mark], begins: bool) -> map[None]:
    """Each `next` of it adds a mark."""
    return map(marks.append, zip(repeat(begins), iter(get_ident, None), iter(perf_counter_ns, None)))


def hook_collector(collections: Collections) -> Callable[[], None]:
    """Mark every collection; returns what undoes it."""
    callback = collections.callback

    def undo() -> None:
        if callback in gc.callbacks:
            gc.callbacks.remove(callback)

    gc.callbacks.append(callback)
    return undo
