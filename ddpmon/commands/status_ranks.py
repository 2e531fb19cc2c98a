"""The ranks that matter, as `ddpmon status` prints them: their figures, or where all ranks are while the run hangs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.commands.console import printable
from ddpmon.format import age, loss_brief, plural
from ddpmon.report.peers import ShownLateness
from ddpmon.report.rank_places import Place, is_hanging, places, rank_ranges
from ddpmon.report.trace import frame_text
from ddpmon.report.verdicts import compared_ranks, is_standing_still, marked_ranks, median_of
from ddpmon.snapshot import Ranks, Snapshot

MAX_ROWS, LEAST_ROWS = 16, 3
QUIET = ("running", "finished", "unknown")  # states in which a rank is shown only for its figures
HOST_WIDTH, RANGES_WIDTH, OPERATION_WIDTH = 16, 40, 32
COLUMNS = (  # heading, column of Ranks, digits after the point; None where the figure has a form of its own
    ("loss", "loss", None),
    ("step ms", "step_ms", 1),
    ("work", "work_ms", 1),
    ("wait", "wait_ms", 1),
    ("late", "lateness_ms", None),
    ("input", "input_ms", 1),
    ("forward", "forward_ms", 1),
    ("backward", "backward_ms", 1),
    ("optim", "optimizer_ms", 1),
    ("other", "other_ms", 1),
    ("cpu %", "cpu_pct", 0),
)
LEFT = ("host", "state", "phase", "collective", "at")  # columns whose cells are aligned to the left


def rank_lines(snapshot: Snapshot, ranks: Ranks, *, all_ranks: bool) -> Iterator[str]:
    """The lines of the tables: of the places while the run hangs, and then the figures only if `all_ranks` is set."""
    if is_hanging(snapshot):
        yield from _places(ranks)
        if not all_ranks:
            return
        yield ""
    if is_standing_still(snapshot):
        yield "No step finishes. The times in the table are medians of the last 20 finished steps."
    yield from _table(snapshot, ranks, all_ranks=all_ranks)


def _places(ranks: Ranks) -> Iterator[str]:
    """A row for each place: those where ranks wait for others come last."""
    found = places(ranks)
    shown = found if len(found) <= MAX_ROWS + 1 else found[:MAX_ROWS]
    headings = ["ranks", "number", "host", "phase", "for", "collective", "at"]
    yield from _aligned([headings, *(_place(ranks, place) for place in shown)])
    if len(found) > len(shown):
        left = sum(len(place.ranks) for place in found[len(shown) :])
        yield f"and {plural(left, 'more rank')} at {plural(len(found) - len(shown), 'other place')}"


def _place(ranks: Ranks, place: Place) -> list[str]:
    hosts, frame = {ranks.host[rank] for rank in place.ranks}, place.frame
    number = f" #{place.sequence}" if place.operation and place.sequence is not None else ""
    return [
        _ranges(place.ranks),
        f"{len(place.ranks):,}",
        plural(len(hosts), "host") if len(hosts) > 1 else printable(hosts.pop())[:HOST_WIDTH] or "-",
        printable(place.name)[:HOST_WIDTH] or "-",
        age(place.seconds, "-"),
        f"{printable(place.operation)[:OPERATION_WIDTH]}{number}" or "-",
        "-" if frame is None else printable(frame_text(frame)),
    ]


def _ranges(ranks: tuple[int, ...]) -> str:
    """`0-20, 22-63`; of many ranges as many as have room, and `...`."""
    ranges = rank_ranges(ranks)
    return ranges if len(ranges) <= RANGES_WIDTH else f"{ranges[: RANGES_WIDTH - 4].rpartition(', ')[0]}, ..."


def _table(snapshot: Snapshot, ranks: Ranks, *, all_ranks: bool) -> Iterator[str]:
    """The ranks that findings name or that do not run, then the latest ones, and how alike the others are."""
    order, named, late = _worst_first(ranks), marked_ranks(snapshot.findings), ShownLateness(snapshot)
    # While no step finishes nearly all ranks are stalled, and most of them only wait.
    quiet = (*QUIET, "stalled") if is_standing_still(snapshot) else QUIET
    matter = [rank for rank in order if rank in named or ranks.state[rank] not in quiet]
    order = list(dict.fromkeys([*matter, *order]))
    most = min(max(len(matter), LEAST_ROWS), MAX_ROWS)
    # A line for one rank tells more than a count.
    shown = order if all_ranks or len(order) <= most + 1 else order[:most]
    headings = ["rank", "host", "state", "step", *(heading for heading, _, _ in COLUMNS)]
    yield from _aligned([headings, *(_row(ranks, rank, late.words([rank], "-")) for rank in shown)])
    if len(order) > len(shown):
        yield f"and {_others(ranks, order[len(shown) :])}"


def _others(ranks: Ranks, left: list[int]) -> str:
    """How many other ranks there are, and how far the work of those that are compared lies from their median."""
    more, known = plural(len(left), "more rank"), _with_work(ranks)
    if not known.any():
        return more
    alike, alone = known[left].sum(), len(left) - known[left].sum()
    if not alike:
        return f"{more}, which cannot be compared"
    median_ms = median_of(ranks.work_ms[known])
    if not median_ms > 0:
        return more
    spread = np.abs(ranks.work_ms[left] / median_ms - 1)[known[left]]
    within = f"within {max(math.ceil(100 * float(spread.max())), 1)} % of the median work"
    return f"{more}: {alike:,} {within}; {alone:,} cannot be compared" if alone else f"{more}, {within}"


def _with_work(ranks: Ranks) -> NDArray[np.bool_]:
    """[world] whether a rank's work is compared; while no step finishes, whether that of its last steps is known."""
    compared = compared_ranks(ranks)
    return compared if compared.any() else np.isfinite(ranks.work_ms)


def _worst_first(ranks: Ranks) -> list[int]:
    lateness = ranks.lateness_ms.tolist()
    return sorted(range(len(ranks)), key=lambda rank: (math.isnan(lateness[rank]), -lateness[rank], rank))


def _row(ranks: Ranks, rank: int, late: str) -> list[str]:
    step = int(ranks.step[rank])
    own = {"lateness_ms": late, "loss": loss_brief(float(ranks.loss[rank]), "-")}
    figures = [
        own[column] if digits is None else figure(ranks.column(column)[rank], digits) for _, column, digits in COLUMNS
    ]
    host = printable(ranks.host[rank])[:HOST_WIDTH] or "-"
    return [str(rank), host, printable(ranks.state[rank]), "-" if step < 0 else f"{step:,}", *figures]


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows below their headings, each column as wide as it must be."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        columns = zip(rows[0], row, widths, strict=True)
        cells = (cell.ljust(width) if name in LEFT else cell.rjust(width) for name, cell, width in columns)
        yield "  ".join(cells).rstrip()


def figure(value: float | None, digits: int) -> str:
    """`1,204.5`; `-` where it is not known."""
    return "-" if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"
