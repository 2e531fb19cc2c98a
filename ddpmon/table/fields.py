"""The columns of a table: their names, what may stand in a cell, and which quantity of the wire each one is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ddpmon.parts import MAX_RANKS

Array = NDArray[Any]
LARGEST_MS = 1e9
LARGEST_STEP = 1 << 48
MISSING = {"", "-", "na", "n/a", "nan", "none", "null"}


class Column(Struct, frozen=True):
    """One column of numbers.

    Attributes:
        wire: the quantity's name in `schema.STEP_COLUMNS`; None where it is no quantity of a step.
        expected: what may stand in a cell, in words.
        fits: [n] numbers -> [n] whether each may stand there. A missing number is not asked about.
        needed: whether a row without it says nothing.
        read: what makes numbers of its cells, as `numbers` does.
    """

    wire: str | None
    expected: str
    fits: Callable[[Array], Array]
    needed: bool = False
    read: Callable[[tuple[str, ...]], tuple[Array, Array, Array]] | None = None


def _whole(largest: int) -> Callable[[Array], Array]:
    return lambda values: (values >= 0) & (values <= largest) & (values == np.floor(values))


def _milliseconds(wire: str) -> Column:
    return Column(wire, "milliseconds, 0 or more", lambda values: (values >= 0) & (values <= LARGEST_MS))


STEP_AND_RANK = {
    "step": Column(None, "a whole number, 0 or more", _whole(LARGEST_STEP), needed=True),
    "rank": Column(None, f"a whole number from 0 to {MAX_RANKS - 1}", _whole(MAX_RANKS - 1), needed=True),
}
COLUMNS = {
    **STEP_AND_RANK,
    "duration_ms": _milliseconds("duration"),
    "work_ms": _milliseconds("work"),
    "exposed_ms": _milliseconds("exposed"),
    "input_ms": _milliseconds("input"),
    "forward_ms": _milliseconds("forward"),
    "backward_ms": _milliseconds("backward"),
    "optimizer_ms": _milliseconds("optimizer"),
    "barrier_ms": _milliseconds("barrier"),
    "gc_ms": _milliseconds("gc"),
    "marked_ms": _milliseconds("marked"),
    "loss": Column("loss", "a number", lambda values: np.ones(len(values), bool)),
    "samples": Column("samples", "a number, 0 or more", lambda values: (values >= 0) & (values <= 1e15)),
}
NODE = "node"


def normal(name: str) -> str:
    """A heading as it is compared: without regard to case, spaces and dashes."""
    return "_".join(name.lower().replace("-", " ").replace("_", " ").split())


def numbers(cells: tuple[str, ...]) -> tuple[Array, Array, Array]:
    """Cells as numbers.

    Returns:
        [n] float64, NaN where there is none; [n] whether the cell is left empty or says that it is missing; [n]
        whether it says something that is no number.
    """
    none = np.zeros(len(cells), bool)
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
        return values, none, none
    except ValueError:
        return _one_by_one(cells)


def _one_by_one(cells: tuple[str, ...]) -> tuple[Array, Array, Array]:
    values = np.full(len(cells), np.nan)
    missing, strange = np.zeros(len(cells), bool), np.zeros(len(cells), bool)
    for at, cell in enumerate(cells):
        try:
            values[at] = float(cell)
        except ValueError:
            missing[at] = cell.strip().lower() in MISSING
            strange[at] = not missing[at]
    return values, missing, strange
