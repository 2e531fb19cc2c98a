"""How many ranks share a cell of the heat-map, and how many lines that takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fold:
    """Ranks folded into bands.

    Attributes:
        size: ranks a band.
        bands: how many bands there are.
        halves: two bands share a line, one in each half of a character.
        lines: lines that all bands take.
    """

    size: int
    bands: int
    halves: bool
    lines: int


def fold(ranks: int, room: int, *, halves: bool) -> Fold:
    """The smallest bands with which all ranks fit `room` lines.

    Shared bands hold 2, 4 or a multiple of 8 ranks, so that they end where hosts do.
    """
    room = max(room, 1)
    if ranks <= room:
        return Fold(1, ranks, False, ranks)
    cells = room * 2 if halves else room
    least = -(-ranks // cells)
    size = next((small for small in (1, 2, 4) if small >= least), -(-least // 8) * 8)
    bands = -(-ranks // size)
    return Fold(size, bands, halves, -(-bands // 2) if halves else bands)
