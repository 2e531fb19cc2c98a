"""Which keys a tick reads: all of a small run's, and of a large one's a part in turn, so that a tick stays cheap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

AT_ONCE = 2048  # ranks that every tick reads
HOSTS_AT_ONCE = 128
RANK_TURNS, HOST_TURNS = 2, 3  # at most: nobody is to look silent because he is not asked


class Turns:
    """Deals numbers out over a few ticks.

    Args:
        numbers: of the ranks or hosts.
        at_once: how many a tick reads without hardship.
        most: turns at most, however many there are.
    """

    def __init__(self, numbers: Sequence[int], at_once: int, most: int) -> None:
        self._turns = min(most, max(1, -(-len(numbers) // at_once)))
        self._parts = [list(numbers[turn :: self._turns]) for turn in range(self._turns)]
        self._all = list(numbers)
        self._turn = -1

    @property
    def round(self) -> bool:
        """Whether everybody has been asked since this last was so."""
        return self._turn % self._turns == 0

    def next(self, always: Iterable[int] = ()) -> list[int]:
        """The numbers to ask now, ascending: the first time all, then a part in turn and whoever is in `always`."""
        self._turn += 1
        if self._turn == 0 or self._turns == 1:
            return self._all
        part = self._parts[self._turn % self._turns]
        return sorted({*part, *always}) if always else part
