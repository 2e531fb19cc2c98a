"""How often a run of many ranks is read whole: as seldom as that must be for a watcher to stay within its budget."""

from __future__ import annotations

from collections import deque
from statistics import fmean
from time import monotonic, process_time

_SHARE = 0.045  # of a core, on average: 5 % is the budget, and turns to come may cost more than those before
# Ticks of a second. Not more: a rank that was heard a second before its turn must not look silent before the next one.
_FEWEST, _MOST = 2, 3
_LOOKED_BACK, _NEEDED = 8, 3  # turns; those in which ranks come or go cost up to three times as much. Chosen.


class Pace:
    """Says of each tick whether all ranks are read in it: every second one, or every third where a turn costs much.

    A turn costs the CPU time of the whole process since the turn before, so that judging and drawing count, and how
    fast the machine is. Ticks that come less often than once a second are turns once as many seconds have passed.
    """

    def __init__(self) -> None:
        self._costs: deque[float] = deque(maxlen=_LOOKED_BACK)  # of the last turns, in ticks of one core
        self._ticks, self._every = 0, _FEWEST
        self._is_usual = False  # whether all ticks of the turn under way cost what those to come will
        self._cpu_s, self._turned_at = process_time(), monotonic()

    def is_turn(self, *, counts: bool) -> bool:
        """Whether this tick is a turn; `counts` is whether reading it so far has cost what later ticks will cost."""
        self._ticks += 1
        self._is_usual &= counts
        now, cpu_s = monotonic(), process_time()
        waited_s = now - self._turned_at
        if self._ticks < self._every and waited_s < self._every:
            return False
        if self._is_usual and waited_s > 0.0:
            self._costs.append((cpu_s - self._cpu_s) * self._ticks / waited_s)
        self._ticks, self._cpu_s, self._turned_at, self._is_usual = 0, cpu_s, now, counts
        is_dear = len(self._costs) >= _NEEDED and fmean(self._costs) > _SHARE * _FEWEST
        self._every = _MOST if is_dear else _FEWEST
        return True
