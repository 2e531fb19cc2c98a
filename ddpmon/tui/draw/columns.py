"""The columns of the rank table: what each shows, how wide it is, and which ones fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ddpmon.report.peers import RHYTHM, shared_decimals
from ddpmon.snapshot import Floats, Ints, Ranks

Values = Callable[[Ranks, Ints], Floats]


@dataclass(frozen=True, slots=True)
class Column:
    """One numeric column.

    Attributes:
        key: its name, also for sorting.
        heading: name and unit.
        width: cells, without the gap before it.
        worth: columns of higher worth are kept when room is short.
        values: one value for each of some ranks, NaN where unknown.
        family: columns of one family share their decimals.
        is_difference: it is written with its sign.
    """

    key: str
    heading: str
    width: int
    worth: int
    values: Values
    family: str = ""
    is_difference: bool = False


def _gpu(field: str) -> Values:
    def values(ranks: Ranks, rows: Ints) -> Floats:
        gpus = [ranks.gpu[rank] for rank in rows.tolist()]
        return np.array([None if gpu is None else getattr(gpu, field) for gpu in gpus], np.float64)  # None is NaN

    return values


def _step(ranks: Ranks, rows: Ints) -> Floats:
    steps = ranks.step[rows]
    return np.where(steps < 0, np.nan, steps)


def _own(name: str, factor: float = 1.0) -> Values:
    """A column of the ranks by its name."""
    return lambda ranks, rows: ranks.column(name)[rows] / factor


COLUMNS = (
    Column("rank", "rank", 5, 100, lambda _ranks, rows: rows.astype(np.float64)),
    Column("late", "late", 6, 97, _own("lateness_ms"), "late", is_difference=True),
    Column("step", "step", 7, 50, _step),
    Column("loss", "loss", 6, 70, _own("loss"), "loss"),
    Column("work", "work", 5, 99, _own("work_ms"), "ms"),
    Column("wait", "wait", 5, 98, _own("wait_ms"), "ms"),
    Column("barrier", "barrier", 7, 40, _own("barrier_ms"), "ms"),
    Column("allreduce", "reduce", 6, 20, _own("allreduce_ms"), "ms"),
    Column("gpu", "gpu%", 4, 60, _gpu("utilization_pct"), "pct"),
    Column("clock", "MHz", 5, 34, _gpu("sm_clock_mhz"), "clock"),
    Column("power", "power", 5, 32, _gpu("power_w"), "power"),
    Column("cpu", "cpu%", 5, 45, _own("cpu_pct"), "cpu"),
    Column("rss", "GiB", 5, 30, _own("rss_bytes", 2**30), "rss"),
    Column("age", "age s", 5, 65, _own("age_s"), "age"),
)
BY_KEY = {column.key: column for column in COLUMNS}
AFTER_BAR = ("gpu", "clock", "power", "cpu", "rss", "age")
GPU_COLUMNS = ("gpu", "clock", "power")
ALWAYS = ("rank", "late", "work", "wait")
SORTS = ("worst", "rank", "node", *(column.key for column in COLUMNS[1:]))
LETTERS = {  # shift and this letter sorts; H is the host, and R and H stand at the left
    "R": "rank", "H": "node", "S": "step", "O": "loss", "W": "work", "I": "wait", "B": "barrier", "L": "late",
    "A": "allreduce", "U": "gpu", "K": "clock", "P": "power", "C": "cpu", "M": "rss", "E": "age",
}  # fmt: skip
HOST_HEADING = "host"
SORT_WORDS = {"worst": "worst", "host": "node"} | {
    word.lower(): column.key for column in COLUMNS for word in (column.heading, column.key)
}  # what a user may call an order
DECIMALS = {"step": 0, "rank": 0, "gpu": 0, "clock": 0, "power": 0, "cpu": 0}
MARGIN = 4  # cursor, marker, state, gap
BAR_MIN, BAR_GOOD = 16, 30


@dataclass(frozen=True, slots=True)
class Sheet:
    """The columns that a table of some width shows."""

    before: tuple[Column, ...]
    after: tuple[Column, ...]
    host: int  # cells of the host column, 0 without it
    bar: int  # cells of the phase bar


def heading(key: str) -> str:
    """What a column is called over the table."""
    return HOST_HEADING if key == "node" else BY_KEY[key].heading


def sheet(width: int, ranks: Ranks, host_width: int, sort: str = "", *, rhythm: bool = False) -> Sheet:
    """Choose columns by worth until the bar would become too short; the one that sorts is always there.

    With `rhythm` the lateness has room for how often a rank is late.
    """
    chosen = [*ALWAYS]
    if sort in BY_KEY and sort not in chosen:
        chosen.append(sort)
    columns = tuple(replace(c, width=RHYTHM) if rhythm and c.key == "late" else c for c in COLUMNS)
    room = width - MARGIN - sum(column.width + 1 for column in columns if column.key in chosen) - 3
    host = min(max(host_width, 4), 16)
    host = host if host_width and (room - host - 1 >= BAR_GOOD or sort == "node") else 0
    room -= host + 1 if host else 0
    for column in sorted(_eligible(ranks), key=lambda column: -column.worth):
        if column.key not in chosen and room - column.width - 1 >= max(BAR_GOOD, int(width * 0.44)):
            chosen.append(column.key)
            room -= column.width + 1
    before = tuple(column for column in columns if column.key in chosen and column.key not in AFTER_BAR)
    after = tuple(column for column in columns if column.key in chosen and column.key in AFTER_BAR)
    return Sheet(before, after, host, max(room, min(BAR_MIN, room)))


def _eligible(ranks: Ranks) -> list[Column]:
    has_gpu = any(gpu is not None for gpu in ranks.gpu)
    return [c for c in COLUMNS if c.key not in ALWAYS and (has_gpu or c.key not in GPU_COLUMNS)]


def decimals_for(values: Floats) -> int:
    """Decimals that show three significant digits of the column's largest value, so that points line up."""
    seen = np.abs(values[np.isfinite(values)])
    return shared_decimals(float(seen.max()) if seen.size else 0.0)


def difference(value: float, decimals: int, width: int, unknown: str) -> str:
    """One difference with its sign, right-aligned; what rounds to nothing is ±0."""
    if not math.isfinite(value):
        return unknown.rjust(width)
    text = f"{value:+,.{decimals}f}" if abs(value) < 99_999 else f"{value / 1e3:+,.0f}k"
    return ("±0" if float(text.strip("k").replace(",", "")) == 0 else text).rjust(width)


def cell(value: float, decimals: int, width: int, unknown: str) -> str:
    """One number, right-aligned to exactly `width`."""
    if not math.isfinite(value):
        return unknown.rjust(width)
    for factor, form, unit in (
        (1.0, f",.{decimals}f", ""),
        (1.0, f".{decimals}f", ""),
        (1.0, ".0f", ""),
        (1e3, ".0f", "k"),
    ):
        text = format(value / factor, form) + unit
        if len(text) <= width:
            return text.rjust(width)
    return f"{value / 1e6:.0f}M".rjust(width)[-width:]
