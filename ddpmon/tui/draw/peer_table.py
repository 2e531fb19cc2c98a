"""A rank beside the others as a table: this, others, difference; and marked ranks beside each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from ddpmon.diagnose.kinds import KINDS
from ddpmon.format import plural
from ddpmon.report.finding_rows import costs_word
from ddpmon.report.peers import (
    RHYTHM,
    TORCH_MEMORY,
    Comparison,
    Row,
    compare,
    now_and_then,
    now_and_then_words,
)
from ddpmon.report.verdicts import is_restart, marked_ranks, restarted_alone, until_words
from ddpmon.report.wording import last_steps
from ddpmon.snapshot import Finding, Snapshot
from ddpmon.tui.draw.findings import one_line
from ddpmon.tui.draw.header import finding_style
from ddpmon.tui.draw.panel import title
from ddpmon.tui.lines import Line, clip, fit, fit_all, left, wrap
from ddpmon.tui.theme import Look

NAME, NUMBER, NUMBER_LEAST = 18, 9, 7
NAMES = (22, 18, 17, 16)  # cells of a figure's name beside one rank, and of the title above, the widest first
COLUMN_LEAST = 40  # cells of a rank's figures from which on two columns of them stand side by side
OTHERS_MOST = 13  # cells of the others of marked ranks, where their median is that of 256 of them
NAME_LEAST = 14  # cells of a figure's name where the ranks need the others
CELL_LEAST, CELL_MOST = 8, 24  # of a marked rank
VALUE_LEAST, MORE_LEAST, MORE = 10, 7, 9  # of these for the value and its sign, and for the difference from the first
GAP, SIGN = 2, 2  # before a value and behind it
SAID_MOST, SAID_LEAST = 3, 70  # findings below the figures of marked ranks, and cells of one that is late now and then
SAID_FROM = 9  # of a rank's figures with the headings: with more room the last line may say how many are left out
HEADS, FIGURES_LEAST = 2, 4  # lines above the figures, and the figures and what has no room that such findings leave
# What is left out first where room is short.
WORTH = (
    "GPU memory", TORCH_MEMORY, "GPU temp", "resident", "step", "barrier", "run-queue wait", "CPU", "loss", "GPU",
    "other", "optimizer", "GPU clock", "GPU power",
)  # fmt: skip


def _figure(row: Row, value: float, look: Look) -> str:
    return look.clean(row.words(value, look.unknown))


def _difference(row: Row, look: Look) -> str:
    """By how much the figure of the only rank exceeds that of the others; empty where it cannot be compared."""
    other = row.others if math.isfinite(row.difference()) else math.nan
    return look.clean(row.difference_words(row.own[0], other))


def peer_lines(
    snapshot: Snapshot,
    rank: int,
    width: int,
    room: int,
    look: Look,
    findings: Sequence[Finding] = (),
    compared: Comparison | None = None,
    key: str = "",
) -> list[Line]:
    """Title and a row a quantity: this rank, the median of the others, the difference; at most `room` lines.

    What one of the `findings` blames is marked. `compared` is the rank beside the others, where that is known already.
    Where not all figures have room, they stand in two columns if these are wide enough. Where that is not enough
    either, the last line says how many more there are, and which `key` shows them, if there is one; not where
    `SAID_FROM` lines of both columns or fewer have room.
    """
    if room < 2:
        return []
    found = (compared or compare(snapshot, [rank])).rows
    columns = 2 if len(found) >= room and width >= 2 * COLUMN_LEAST else 1
    is_short = len(found) > columns * (room - 1) and columns * room > SAID_FROM
    rows = _fitting(found, columns * (room - 1 - is_short), [rank], findings)
    high = max(-(-len(rows) // columns), 1)
    parts = [rows[first : first + high] for first in range(0, max(len(rows), 1), high)]
    cells = (width,) if columns == 1 else ((width - 1) // 2, width // 2)
    over = _over(snapshot, rank, min(map(_name_cells, cells)))
    drawn = [_column(part, rank, over, own, look, findings) for part, own in zip(parts, cells, strict=False)]
    lines = [_beside(line, width) for line in zip_longest(*drawn, fillvalue=list[Segment]())]
    if is_short:
        shown_by = f"  [{key}]" if key else ""
        lines.append([Segment(f" {plural(len(found) - len(rows), 'more figure')}{shown_by}", look.dim)])
    return lines


def _beside(lines: Sequence[Line], width: int) -> Line:
    """A line of each column, with a gap between them."""
    apart = (part for line in lines for part in (Segment(" "), *line))
    return fit(list(apart)[1:], width)


def _name_cells(width: int) -> int:
    """The cells that the names have in a column of this width."""
    return next((cells for cells in NAMES if width >= cells + 3 * NUMBER_LEAST + 2), NAMES[-1])


def _column(
    rows: Sequence[Row], rank: int, steps: str, width: int, look: Look, findings: Sequence[Finding]
) -> list[Line]:
    """A title that says of which `steps` the times are, headings, and a row for each quantity."""
    name = _name_cells(width)
    number = min(NUMBER, max((width - name - 2) // 3, NUMBER_LEAST))
    heading = f"{'this':>{number}}{'others':>{number}}{'diff':>{number}}"
    over = steps if not rows or any(row.quantity.unit == "ms" for row in rows) else "newest"
    lines = [_heading(over, [Segment(heading, look.dim)], name, width, look)]
    for row in rows:
        finding = blaming(row, rank, findings)
        style, sign = _tone(row, 0, look, finding)
        apart = now_and_then_words(finding, number - 1) or _difference(row, look)
        cells = [
            Segment(f"{_figure(row, row.own[0], look):>{number}}", _own_tone(row, 0, look, finding)),
            Segment(f"{_figure(row, row.others, look):>{number}}", look.dim),
            Segment(f"{apart or look.unknown:>{number}}", style if sign else look.dim),
            Segment(f" {sign}", style),
        ]
        lines.append(fit([*_name(row, name, look), *cells], width))
    return lines


def _heading(name: str, heading: Line, cells: int, width: int, look: Look) -> Line:
    return fit([*title(name, "", cells - 1, look), Segment(" ", look.dim), *heading], width)


def _over(snapshot: Snapshot, rank: int, cells: int) -> str:
    """Which steps the times are of, in so many cells of a title: the other figures are the newest ones."""
    newest = -1 if snapshot.ranks is None else int(snapshot.ranks.step[rank])
    steps, until = last_steps(newest), until_words(snapshot, newest)
    brief = steps.removeprefix("last ")
    said = (f"ms: {steps}", f"ms: {brief}", f"ms {brief}") if steps else ("ms",)
    said = (f"ms: {until}", f"ms: {until.removeprefix('up ')}", *said) if steps and until else said
    return next((words for words in said if len(words) <= cells - 5), said[-1])


def _name(row: Row, cells: int, look: Look) -> Line:
    unit = row.quantity.unit if not look.ascii_only else row.quantity.unit.replace("°", "")
    return [Segment(f" {left(f'{row.quantity.name} {unit}'.strip(), cells - 1, look.glyphs.more)}", look.dim)]


def blaming(row: Row, rank: int, findings: Sequence[Finding]) -> Finding | None:
    """The first of these findings that blames this figure of this rank.

    What is late now and then is so in a phase and in all of the work: no median over steps shows it.
    """
    name = row.quantity.name
    for finding in findings:
        memory = finding.kind.startswith("gpu_memory_") and name == TORCH_MEMORY
        late = KINDS[finding.kind].late and finding.phase == name
        rare = name == "work" and now_and_then(finding) is not None
        if rank in finding.ranks and (memory or late or rare):
            return finding
    return None


def _tone(row: Row, place: int, look: Look, finding: Finding | None) -> tuple[Style, str]:
    """The accent, and a sign, for what a finding blames, unless it is noise, and for what is worse than elsewhere."""
    alone = math.isnan(row.others) and row.compared[place] and math.isfinite(row.own[place])
    late = alone or row.shown_difference(place) > 0 or bool(now_and_then_words(finding, 0))
    blamed = finding is not None and late
    return (look.accent, look.glyphs.mark) if blamed or row.is_worse(place) else (look.text, "")


def _own_tone(row: Row, place: int, look: Look, finding: Finding | None) -> Style:
    """The accent for a median that is marked; not where only some steps are late, which the difference tells."""
    style, _ = _tone(row, place, look, None if now_and_then_words(finding, 0) else finding)
    return style


def _fitting(rows: list[Row], room: int, who: Sequence[int], findings: Sequence[Finding]) -> list[Row]:
    """As many rows as fit, in their order; those that matter least are left out."""
    blamed = {row.quantity.name for row in rows if any(blaming(row, rank, findings) for rank in who)}
    names = [row.quantity.name for row in rows]
    dropped = [name for name in WORTH if name in names and name not in blamed][: max(len(rows) - room, 0)]
    calm = [row for row in rows if row.quantity.name not in dropped or row.is_worse()]
    return calm[:room]


def table_size(snapshot: Snapshot, who: Sequence[int], findings: Sequence[Finding]) -> tuple[int, int]:
    """Cells and lines that marked ranks take where there is room for all of them and all their figures."""
    found = compare(snapshot, who)
    cells = _wanted(snapshot, found, who, findings).cell * len(who) + len(_others_words(found, OTHERS_MOST))
    said = loud_findings(who, findings)
    return max(NAME + cells + 1, SAID_LEAST if said else 0), HEADS + len(found.rows) + len(said)


class Widths(NamedTuple):
    """Cells of a marked rank: of the value with its sign, and of the difference from the first, 0 without room."""

    value: int
    more: int

    @property
    def cell(self) -> int:
        """Of both together."""
        return self.value + self.more


def _wanted(snapshot: Snapshot, found: Comparison, who: Sequence[int], findings: Sequence[Finding]) -> Widths:
    """What the ranks' names, hosts and figures need; all ranks get the same."""
    cells = ((row, place, blaming(row, rank, findings)) for row in found.rows for place, rank in enumerate(who))
    differences = [_difference_within(*cell, MORE) for cell in cells]
    more = MORE if max(map(len, differences), default=0) >= MORE_LEAST else MORE_LEAST
    values = [row.words(value) for row in found.rows for value in row.own if math.isfinite(value)]
    value = GAP + max(len(text) for text in [*(f"rank {rank}" for rank in who), *values]) + SIGN
    hosts = () if snapshot.ranks is None else (snapshot.ranks.host[rank] for rank in who)
    longest = min(max(map(len, hosts), default=0) + 1, CELL_MOST)
    return Widths(max(value, longest - more), more)


def _difference_within(row: Row, place: int, finding: Finding | None, cells: int) -> str:
    """What stands under `diff` in so many cells: by how much a rank exceeds the first; empty at other steps.

    Of a rank that is late now and then it is that of usual steps, and how often it is late: `±0 1/5`. By how much it is
    late is told by the finding below the figures, which compares it with all others.
    """
    other = row.own[0] if place and math.isfinite(row.difference_from_first(place)) else math.nan
    words = row.difference_words(row.own[place], other)
    often = f"{words} {now_and_then_words(finding, RHYTHM).partition(' ')[2]}".strip()
    return often if len(often) < cells else words


def _widths(wanted: Widths, ranks: int, room: int) -> Widths:
    """The same in so many cells for all the ranks."""
    cell = max(min(room // ranks, wanted.cell), CELL_LEAST)
    more = next((more for more in (wanted.more, MORE_LEAST) if cell >= VALUE_LEAST + more), 0)
    return Widths(cell - more, more)


def loud_findings(who: Sequence[int], findings: Sequence[Finding]) -> list[Finding]:
    """The first of these findings that name one of the ranks, without information but that it restarted alone."""
    named = [finding for finding in findings if not {*who}.isdisjoint(finding.ranks)]
    return [finding for finding in named if finding.severity != "info" or is_restart(finding)][:SAID_MOST]


def ranks_fitting(width: int) -> int:
    """How many marked ranks so many cells have room for at most."""
    return (width - NAME_LEAST - NUMBER - 1) // CELL_LEAST


def marked_lines(
    snapshot: Snapshot,
    who: Sequence[int],
    width: int,
    height: int,
    look: Look,
    findings: Sequence[Finding] = (),
    *,
    scrolls: bool = False,
) -> list[Line]:
    """Two to four marked ranks side by side: each one's figures, and by how much they exceed those of the first.

    Below stands what the findings on them say, a line each: a narrow cell has no room for it. They leave some figures
    there. Where ranks or figures do not fit, the last lines say how many. In a text that `scrolls` they come first.
    """
    found, shown = compare(snapshot, who), who[: max(ranks_fitting(width), 1)]
    name = NAME if NAME + NUMBER + 1 + len(who) * CELL_LEAST <= width else NAME_LEAST
    widths = _widths(_wanted(snapshot, found, who, findings), len(shown), width - name - NUMBER - 1)
    many = _others_words(found, width - name - 1 - len(shown) * widths.cell)
    heading = [*_rank_names(shown, widths, findings, look), Segment(f"{'others':>{len(many)}}", look.dim)]
    lines = [_heading("compare", heading, name, width, look)]
    lines.append([*_hosts(snapshot, shown, name, widths, look), Segment(many, look.dim)])
    most = max(height - HEADS - FIGURES_LEAST, 0)
    loud = loud_findings(who, findings)[:most]
    said = [one_line(finding, width, look, costs=costs_word(snapshot)) for finding in loud]
    room, missing = height - HEADS - len(said), list[str]()
    for _ in range(2):  # to say what is missing takes a line or two of the figures
        missing = _missing(len(who) - len(shown), len(found.rows) - max(room - len(missing), 0), width)
    rows = _fitting(found.rows, max(room - len(missing), 0), who, findings)
    below: list[Line] = [*said, *([Segment(f" {text}", look.dim)] for text in missing)]
    lines += below if scrolls else []
    for row in rows:
        middle = Segment(f"{_figure(row, row.others, look):>{len(many)}}", look.dim)
        lines.append(fit([*_compared(row, shown, name, widths, look, findings), middle], width))
    lines += [] if scrolls else below
    return fit_all(lines, width, height)


def _others_words(found: Comparison, room: int) -> str:
    """How many ranks the others are: `62 ranks`, `none`, `256 of 1,022` where the median is that of some of them.

    As wide as the column of the others.
    """
    if found.others == found.all_others:
        return f"{plural(found.others, 'rank') if found.others else 'none':>{NUMBER}}"
    long, short = (f"{found.others}{between}{found.all_others:,}" for between in (" of ", "/"))
    return f" {long}" if len(long) < room else f"{short:>{NUMBER}}"


def _rank_names(who: Sequence[int], widths: Widths, findings: Sequence[Finding], look: Look) -> Line:
    """The ranks over their figures, each with its sign, and a heading over the differences.

    The sign is that one restarted alone, else that of the worst finding that names it.
    """
    marked, alone = marked_ranks(findings), restarted_alone(findings)
    line: Line = []
    for place, rank in enumerate(who):
        sign, style = finding_style(marked[rank], look) if rank in marked else (" ", look.dim)
        sign, style = (look.glyphs.restarted, look.accent) if rank in alone else (sign, style)
        line += [Segment(f"{f'rank {rank}':>{widths.value - SIGN}} ", look.dim), Segment(sign, style)]
        line.append(Segment(f"{'diff' if place and widths.more else '':>{widths.more}}", look.dim))
    return line


def _missing(ranks: int, figures: int, width: int) -> list[str]:
    """What of a comparison has no room, as lines."""
    said = [f"{plural(ranks, 'more rank')}: {ranks * CELL_LEAST} more columns"] if ranks > 0 else []
    said += [plural(figures, "more figure")] if figures > 0 else []
    return wrap("; ".join(said), width - 2) if said else []


def _compared(row: Row, who: Sequence[int], name: int, widths: Widths, look: Look, findings: Sequence[Finding]) -> Line:
    """A figure of each of the ranks."""
    line = _name(row, name, look)
    for place, rank in enumerate(who):
        line += _one(row, place, widths, look, blaming(row, rank, findings))
    return line


def _one(row: Row, place: int, widths: Widths, look: Look, finding: Finding | None) -> Line:
    """One rank's figure with its sign, and where there is room by how much it exceeds the first one's."""
    style, sign = _tone(row, place, look, finding)
    room, is_rare = widths.more, bool(now_and_then_words(finding, 0))
    difference = look.clean(_difference_within(row, place, finding, room)) or (look.unknown if place else "")
    return [
        Segment(f"{_figure(row, row.own[place], look):>{widths.value - SIGN}}", _own_tone(row, place, look, finding)),
        Segment(f" {sign or ' '}", style),
        Segment(f"{difference if room else '':>{room}}", style if is_rare else look.dim),
    ]


def _against(who: Sequence[int], cells: int) -> str:
    """`rank 7 - rank 3`: what is taken from what, the first rank from each of the others, in so many cells."""
    first, other = who[0], f"{who[-1]}" if len(who) == 2 else ""
    name = f"rank {other}" if other else "each"
    forms = (f"diff: {name} - rank {first}", f"{name} - rank {first}", f"diff: {other or 'each'} - {first}")
    return next((form for form in forms if len(form) <= cells), f"{other or 'each'} - {first}")


def _hosts(snapshot: Snapshot, who: Sequence[int], name: int, widths: Widths, look: Look) -> Line:
    """What the differences are, or the width that they need; and the hosts below the ranks' names."""
    room, cell = widths.more, widths.cell
    least = NAME + NUMBER + 1 + len(who) * (VALUE_LEAST + MORE_LEAST)
    against = f" {_against(who, name - 1)}" if room else f" diff: {least} columns"
    against = against if len(who) > 1 else ""
    line: Line = [Segment(left(against, name, look.glyphs.more), look.dim)]
    for rank in who:
        host = look.clean(snapshot.ranks.host[rank]) if snapshot.ranks is not None else ""
        shown = clip(host or look.unknown, cell - 1 if room else cell - 3, look.glyphs.more)
        line.append(Segment(f"{shown:>{widths.value - SIGN}}".ljust(cell), look.dim))
    return line
