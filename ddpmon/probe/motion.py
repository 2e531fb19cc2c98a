"""Whether a training thread that finishes no step gets on all the same: where it is, its CPU time, what is written.

Python's own view of another thread is biased: it is had where that thread lets the interpreter go, mostly in its
heaviest call. So a thread that computes gets on if it was seen in several functions, or nearly always in calls: these
are made again and again, or take long. In a loop of its own that never ends it is seen at the turn, too (unless the
loop calls, which looks like work). A thread that mostly sleeps gets on only if it sleeps in many places: who polls
sleeps in one. And a GPU is waited for by computing, in one call.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from time import monotonic, sleep

import torch

from ddpmon.probe import stacks
from ddpmon.sensors.reading import read_file, read_table

_BURST, _BURST_EVERY_S = 10, 0.01  # positions a turn
_POSITIONS, _FEWEST = 80, 30
_COMPUTES = 0.5  # of the time on a CPU, or ready for one
_SAME_PLACE = 0.5  # of the positions, of a thread that mostly sleeps
_SEEN = 0.05  # of the positions: one alone may be anything, such as garbage collection
_HOLD_S = 10.0  # a checkpoint is written by fits and starts


class Motion:
    """What a silent rank does, from looks at it once a turn of the publisher.

    Attributes:
        note: why nothing could be found out, "" if nothing went wrong.
    """

    def __init__(self) -> None:
        self.note = ""
        self._positions: deque[stacks.Position] = deque(maxlen=_POSITIONS)
        self._busy: deque[tuple[float, float]] = deque(maxlen=_POSITIONS // _BURST + 1)
        self._written: deque[tuple[float, int]] = deque(maxlen=64)
        self._moved = float("-inf")

    def clear(self) -> None:
        """Steps finish: forget what was seen."""
        self._positions.clear()
        self._busy.clear()
        self._written.clear()
        self._moved = float("-inf")

    def look(self, thread: int, wait: Callable[[float], object] = sleep) -> None:
        """Look at the training thread, which Python calls `thread`, `wait`ing 0.1 s in between; never raises."""
        try:
            self._follow(thread, wait)
            self._account(thread)
            if self._is_moving():
                self._moved = monotonic()
        except Exception as error:
            self.note = f"whether it gets on is unknown: {type(error).__name__}: {error}"

    @property
    def moves(self) -> bool:
        """Whether the training thread got about within the last seconds."""
        return monotonic() - self._moved <= _HOLD_S

    @property
    def write_bytes_s(self) -> float:
        """Bytes a second that the process has written to disks in the last ten seconds, 0 where unknown."""
        if len(self._written) < 2:
            return 0.0
        (since, before), (now, written) = self._written[0], self._written[-1]
        return (written - before) / max(now - since, 1e-3)

    def _follow(self, thread: int, wait: Callable[[float], object]) -> None:
        for again in range(_BURST):
            if again:
                wait(_BURST_EVERY_S)
            if (position := stacks.position(thread)) is None:
                self._positions.clear()
            else:
                self._positions.append(position)

    def _account(self, thread: int) -> None:
        now = monotonic()
        if (busy := _busy_s(thread)) is not None:
            self._busy.append((now, busy))
        if (written := _written()) is not None:
            self._written.append((now, written))
        while len(self._written) > 2 and now - self._written[1][0] >= _HOLD_S:
            self._written.popleft()

    def _is_moving(self) -> bool:
        if len(self._positions) < _FEWEST:
            return False
        return self._works() if self._computes() else self._gets_about()

    def _works(self) -> bool:
        """Of a thread that computes: whether it is in several functions, or in calls and hardly ever at a turn."""
        few, places = _SEEN * len(self._positions), Counter(self._positions)
        functions = Counter(place.functions for place in self._positions)
        if len(self._positions) - max(functions.values()) >= few:
            return True
        at_turns = sum(place.turns for place in self._positions)
        in_several = sum(times >= few for times in places.values()) > 1
        return at_turns < few and (in_several or not torch.cuda.is_initialized())

    def _gets_about(self) -> bool:
        """Of a thread that mostly sleeps: whether it does in many places."""
        functions = {place.functions for place in self._positions}
        most = max(Counter(self._positions).values())
        return len(functions) > 1 and most <= _SAME_PLACE * len(self._positions)

    def _computes(self) -> bool:
        if len(self._busy) < 2:
            return False
        (since, before), (now, busy) = self._busy[0], self._busy[-1]
        return busy - before >= _COMPUTES * (now - since)


def _busy_s(thread: int) -> float | None:
    """Seconds that the thread has been on a CPU, or ready for one; None where the kernel does not say."""
    native = next((each.native_id for each in threading.enumerate() if each.ident == thread), None)
    try:
        on_cpu, waited = read_file(f"/proc/self/task/{native}/schedstat").split()[:2]
    except (OSError, ValueError):
        return None
    return (int(on_cpu) + int(waited)) / 1e9


def _written() -> int | None:
    try:
        return read_table("/proc/self/io")["write_bytes"]
    except (OSError, LookupError):
        return None
