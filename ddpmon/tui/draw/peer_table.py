"""A rank beside the others as a table: this, others, difference; and marked ranks beside each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style

from ddpmon.format import plural
from ddpmon.report.peers import Row, compare
from ddpmon.snapshot import Snapshot
from ddpmon.tui.draw.panel import title
from ddpmon.tui.lines import Line, clip, fit, fit_all, left, wrap
from ddpmon.tui.theme import Look

NAME, NUMBER, NUMBER_LEAST = 20, 9, 7
NAME_LEAST = 14  # cells of a figure's name where the ranks need the others
CELL_LEAST, CELL_MOST, MORE = 8, 24, 9  # of a marked rank: cells, and of them for the difference from the first
# What is left out first where room is short.
WORTH = (
    "GPU memory", "GPU temp", "resident", "step", "barrier", "run-queue wait", "CPU", "loss", "GPU", "other",
    "optimizer", "GPU clock", "GPU power",
)  # fmt: skip


def difference(row: Row, place: int = 0) -> str:
    """`+158`, `-375`, `±0`; empty where one of both is unknown. As many digits as the figures beside it."""
    more = row.difference(place)
    if not math.isfinite(more):
        return ""
    return _difference(more, _decimals(row))


def _difference(more: float, decimals: int) -> str:
    text = f"{more:+,.{decimals}f}"
    return text if any(digit in text for digit in "123456789") else "±0"


def _decimals(row: Row) -> int:
    """The digits behind the point that leave three digits of the largest figure."""
    size = max((abs(value) for value in (*row.own, row.others) if math.isfinite(value)), default=0.0)
    return 0 if size >= 99.5 or size == 0 else 1 if size >= 9.95 else 2


def _number(value: float, row: Row, look: Look) -> str:
    return look.unknown if not math.isfinite(value) else f"{value:,.{_decimals(row)}f}"


def peer_lines(
    snapshot: Snapshot, rank: int, width: int, room: int, look: Look, blamed: str | None = None
) -> list[Line]:
    """Title and a row a quantity: this rank, the median of the others, the difference; at most `room` lines."""
    if room < 2:
        return []
    rows = _fitting(compare(snapshot, [rank]).rows, room - 1)
    name = NAME if width >= NAME + 3 * NUMBER_LEAST + 2 else NAME_LEAST + 2
    number = min(NUMBER, max((width - name - 2) // 3, NUMBER_LEAST))
    heading = f"{'this':>{number}}{'others':>{number}}{'diff':>{number}}"
    lines = [_heading("last 20 steps" if name == NAME else "20 steps", heading, name, width, look)]
    for row in rows:
        style, sign = _tone(row, 0, look, blamed)
        cells = [
            Segment(f"{_number(row.own[0], row, look):>{number}}", style if sign else look.text),
            Segment(f"{_number(row.others, row, look):>{number}}", look.dim),
            Segment(f"{look.clean(difference(row)) or look.unknown:>{number}}", style if sign else look.dim),
            Segment(f" {sign}", style),
        ]
        lines.append(fit([*_name(row, name, look), *cells], width))
    return lines


def _heading(name: str, heading: str, cells: int, width: int, look: Look) -> Line:
    return fit([*title(name, "", cells - 1, look), Segment(f" {heading}", look.dim)], width)


def _name(row: Row, cells: int, look: Look) -> Line:
    unit = row.quantity.unit if not look.ascii_only else row.quantity.unit.replace("°", "")
    return [Segment(f" {left(f'{row.quantity.name} {unit}'.strip(), cells - 1, look.glyphs.more)}", look.dim)]


def _tone(row: Row, place: int, look: Look, blamed: str | None) -> tuple[Style, str]:
    """The accent, and a sign, for the phase that a finding blames and for what is worse than on the others."""
    bad = row.is_worse(place) or (blamed is not None and row.quantity.name == blamed)
    return (look.accent, look.glyphs.mark) if bad else (look.text, "")


def _fitting(rows: list[Row], room: int) -> list[Row]:
    """As many rows as fit, in their order; those that matter least are left out."""
    dropped = [name for name in WORTH if any(row.quantity.name == name for row in rows)][: max(len(rows) - room, 0)]
    calm = [row for row in rows if row.quantity.name not in dropped or row.is_worse()]
    return calm[:room]


def table_size(snapshot: Snapshot, who: Sequence[int]) -> tuple[int, int]:
    """Cells and lines that marked ranks take where there is room for all of them and all their figures."""
    return NAME + len(who) * CELL_MOST + NUMBER + 1, 2 + len(compare(snapshot, who).rows)


def marked_lines(
    snapshot: Snapshot, who: Sequence[int], width: int, height: int, look: Look, blamed: str | None = None
) -> list[Line]:
    """Two to four marked ranks side by side: each one's figures, and by how much they exceed those of the first.

    Where ranks or figures do not fit, the last lines say how many.
    """
    found = compare(snapshot, who)
    name = NAME if NAME + NUMBER + 1 + len(who) * CELL_LEAST <= width else NAME_LEAST
    room = width - name - NUMBER - 1
    shown = who[: max(room // CELL_LEAST, 1)]
    cell = max(min(room // len(shown), CELL_MOST), CELL_LEAST)
    names = "".join(f"{f'rank {rank}':>{cell - _more_room(cell) - 2}}{'':{_more_room(cell) + 2}}" for rank in shown)
    lines = [_heading("compare", f"{names}{'others':>{NUMBER}}", name, width, look)]
    lines.append(_hosts(snapshot, shown, found.others, name, cell, look))
    missing = _missing(len(who) - len(shown), len(found.rows) - (height - 2), width)
    rows = _fitting(found.rows, max(height - 2 - len(missing), 0))
    lines += [fit(_compared(row, len(shown), name, cell, look, blamed), width) for row in rows]
    lines += [[Segment(f" {text}", look.accent)] for text in missing]
    return fit_all(lines, width, height)


def _missing(ranks: int, figures: int, width: int) -> list[str]:
    """What of a comparison has no room, as lines."""
    said = [f"{plural(ranks, 'more rank')}: {ranks * CELL_LEAST} more columns"] if ranks > 0 else []
    said += [f"more figures: {figures} more lines"] if figures > 0 else []
    return wrap("; ".join(said), width - 2) if said else []


def _compared(row: Row, ranks: int, name: int, cell: int, look: Look, blamed: str | None) -> Line:
    """A figure of each of the ranks, and of the others."""
    line = _name(row, name, look)
    for place in range(ranks):
        line += _one(row, place, cell, look, blamed if row.is_worse(place) else None)
    return [*line, Segment(f"{_number(row.others, row, look):>{NUMBER}}", look.dim)]


def _more_room(cell: int) -> int:
    """Cells for the difference from the first rank."""
    return MORE if cell >= MORE + 9 else 0


def _one(row: Row, place: int, cell: int, look: Look, blamed: str | None) -> Line:
    """One rank's figure, and where there is room by how much it exceeds the first one's."""
    style, sign = _tone(row, place, look, blamed)
    room = _more_room(cell)
    more = row.own[place] - row.own[0] if place else math.nan
    text = _difference(more, _decimals(row)) if room and math.isfinite(more) else ""
    value = _number(row.own[place], row, look)
    return [
        Segment(f"{value:>{cell - room - 2}}", style if sign else look.text),
        Segment(f"{look.clean(text):>{room}}", look.dim),
        Segment(f" {sign or ' '}", style),
    ]


def _hosts(snapshot: Snapshot, who: Sequence[int], others: int, name: int, cell: int, look: Look) -> Line:
    """Which rank the differences are against, the hosts below the ranks' names, and how many ranks the others are."""
    room = _more_room(cell)
    against = f" diff to rank {who[0]}" if room and len(who) > 1 else ""
    line: Line = [Segment(left(against, name, look.glyphs.more), look.dim)]
    for rank in who:
        host = look.clean(snapshot.ranks.host[rank]) if snapshot.ranks is not None else ""
        shown = clip(host or look.unknown, cell - room - 3, look.glyphs.more)
        line.append(Segment(f"{shown:>{cell - room - 2}}{'':{room + 2}}", look.dim))
    return [*line, Segment(plural(others, "rank").rjust(NUMBER), look.dim)]
