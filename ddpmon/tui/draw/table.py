"""The rank table: one row a rank, its phase bar on a scale common to all; only visible rows are formatted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.segment import Segment
from rich.style import Style

from ddpmon.format import age, figure, known, loss_brief
from ddpmon.report.base_step import noise_ms
from ddpmon.report.comparison import excesses, rare_excess, shares_by_phase
from ddpmon.report.peers import as_shown, lateness_decimals, now_and_then, now_and_then_words
from ddpmon.report.silence import silent_ranks
from ddpmon.report.verdicts import firing, is_past, marked_ranks, restarted_alone
from ddpmon.report.wording import one_step_of
from ddpmon.run.model import SILENT_S
from ddpmon.schema import PHASES
from ddpmon.snapshot import Finding, Floats, Ints, Ranks, Snapshot
from ddpmon.tui.draw.bars import bar, common_scale, legend
from ddpmon.tui.draw.columns import (
    DECIMALS,
    HOST_HEADING,
    Column,
    Sheet,
    cell,
    decimals_for,
    difference,
    heading,
    sheet,
)
from ddpmon.tui.draw.header import finding_style
from ddpmon.tui.draw.panel import narrowed, no_match, title, title_within
from ddpmon.tui.lines import Line, fit, fit_all, left
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState

GONE = ("lost", "failed")
HEAD = 2  # title and column headings
MARKED = "+"  # before a rank that the reader has marked, to compare it
RARE_MOST = 16  # ranks of a finding whose late steps count for the scale of the bars although they are out of sight
SORT_NAMES = {"worst": ("worst first, the rest by rank", "worst first")}  # in fewer and fewer words


@dataclass(frozen=True, slots=True)
class TableView:
    """What the reader has done to the table.

    Attributes:
        order: rank numbers in row order, already filtered.
        top: the first row in sight.
        cursor: the row under the cursor.
        focused: whether keys go to the table.
        sort: the name of the sort column, `reverse` its direction.
        wanted: the filter's words.
    """

    order: Ints
    top: int = 0
    cursor: int = 0
    focused: bool = True
    sort: str = "worst"
    reverse: bool = False
    wanted: str = ""

    def places(self, room: int) -> Sequence[int]:
        """The rows in sight of so many lines: those from `top` on, the last of them the cursor's where it is below."""
        last = min(self.top + room, len(self.order))
        if not self.top < last <= self.cursor < len(self.order):
            return range(self.top, last)
        return [*range(self.top, last - 1), self.cursor]

    def part(self, room: int) -> str:
        """`rows 1 to 7 and 16 of 16`: which rows are in sight; empty where all are."""
        shown, total = self.places(room), len(self.order)
        if not total > room > 0:
            return ""
        run = [place for at, place in enumerate(shown) if place == self.top + at]
        parts = [" to ".join(f"{place + 1:,}" for place in dict.fromkeys((run[0], run[-1])))] if run else []
        parts += [f"{shown[-1] + 1:,}"] if len(run) < len(shown) else []
        return f"{'rows' if len(shown) > 1 else 'row'} {' and '.join(parts)} of {total:,}"


def table_lines(picture: ViewState, view: TableView, width: int, height: int) -> list[Line]:
    """Title, headings and as many rows as fit."""
    snapshot, look = picture.snapshot, picture.look
    if snapshot.ranks is None:
        return fit_all([title("ranks", "", width, look)], width, height)
    room = max(height - HEAD, 0)
    places = view.places(room)
    rows = view.order[list(places)]
    page = _Page(snapshot, look, width, rows, view.sort, picture.marked)
    steps, part = page.rhythm
    said = [f"{part}: in {steps}"] if part else []
    remarks = ["; ".join([*said, words]) for words in _subtitles(view, room, len(snapshot.ranks), look)]
    lines = [title_within("ranks", remarks, width, look)]
    lines.append(page.headings(view, width))
    lines += [page.row(int(view.order[place]), width, view.focused and place == view.cursor) for place in places]
    if not len(view.order):
        lines += no_match("rank", width, look)
    return fit_all(lines, width, height)


def heading_at(picture: ViewState, view: TableView, width: int, x: int) -> str | None:
    """The key of the column whose heading stands at the cell `x`."""
    if picture.snapshot.ranks is None:
        return None
    page, end = _Page(picture.snapshot, picture.look, width, view.order[:0], view.sort), 0
    for text, key in page.heads():
        end += len(text)
        if x < end:
            return key
    return None


def _subtitles(view: TableView, room: int, total: int, look: Look) -> list[str]:
    """What the filter leaves, which rows are in sight, and the order, in fewer words, last without the order."""
    shown = len(view.order)
    parts = [narrowed(view.wanted, shown, total, look)] if view.wanted else []
    if part := view.part(room):
        parts.append(part)
    direction = (", reversed" if view.sort == "worst" else f" {look.glyphs.up}") if view.reverse else ""
    orders = SORT_NAMES.get(view.sort) or (f"by {heading(view.sort)}",)
    return ["; ".join(each) for each in (*([*parts, order + direction] for order in orders), parts) if each]


class _Page:
    """What the rows in sight share, and the values that they show."""

    def __init__(
        self, snapshot: Snapshot, look: Look, width: int, rows: Ints, sort: str, chosen: tuple[int, ...] = ()
    ) -> None:
        assert snapshot.ranks is not None
        self.ranks: Ranks = snapshot.ranks
        self.look, self.chosen, self.is_past = look, chosen, is_past(snapshot)
        self.marked, self.alone = marked_ranks(snapshot.findings), restarted_alone(snapshot.findings)
        self.silent = silent_ranks(self.ranks)
        rhythm = any(now_and_then_words(finding, 0) for finding in firing(snapshot.findings))
        self.sheet: Sheet = sheet(width, self.ranks, _host_width(snapshot), sort, rhythm=rhythm)
        self.noise_ms = noise_ms(snapshot)
        self.place = {rank: place for place, rank in enumerate(rows.tolist())}
        self.values = {c.key: c.values(self.ranks, rows) for c in (*self.sheet.before, *self.sheet.after)}
        self.decimals = self._decimals(snapshot)
        self.states = _states(look)
        self.excesses: dict[str, Floats] = {}
        self.snapshot = snapshot
        self.rare = self._rare_excesses()
        self.scale = self._scale()
        self.phases = np.stack([getattr(self.ranks, f"{name}_ms")[rows] for name in PHASES], axis=1)

    def _decimals(self, snapshot: Snapshot) -> dict[str, int]:
        """Those of each column: the same for all ranks, so that they stand still while one scrolls."""
        columns, everybody = (*self.sheet.before, *self.sheet.after), np.arange(len(self.ranks))
        free = [column for column in columns if column.key not in DECIMALS]
        families = {
            family: decimals_for(np.concatenate([c.values(self.ranks, everybody) for c in free if c.family == family]))
            for family in {column.family for column in free}
        }
        families["late"] = lateness_decimals(as_shown(snapshot) or self.ranks)
        return {c.key: DECIMALS[c.key] if c.key in DECIMALS else families[c.family] for c in columns} | {"age": 1}

    def heads(self) -> list[tuple[str, str | None]]:
        """The headings from left to right with the column that each sorts by; the bar, between, sorts by work."""
        heads: list[tuple[str, str | None]] = [("    ", "worst")]
        for column in self.sheet.before:
            heads.append((column.heading.rjust(column.width), column.key))
            if column.key == "rank" and self.sheet.host:
                heads.append((f" {HOST_HEADING}".ljust(self.sheet.host + 1), "node"))
            heads.append((" ", None))
        heads += [(" ", None), (" " * self.sheet.bar, "work"), (" ", None)]
        for column in self.sheet.after:
            heads += [(" ", None), (column.heading.rjust(column.width), column.key)]
        return heads

    def headings(self, view: TableView, width: int) -> Line:
        line: Line = []
        bar_at = 2 + 2 * len(self.sheet.before) + bool(self.sheet.host)
        for place, (text, key) in enumerate(self.heads()):
            line += self._legend(figure(self.scale)) if place == bar_at else [self._heading(text, key, view)]
        return fit(line, width)

    def _legend(self, scale: str) -> Line:
        """What the shades of the bars mean, and the accent where a rank in sight has it."""
        excess = any(any(self._excess(rank, self.marked[rank])) for rank in self.place if rank in self.marked)
        return legend(self.look, self.sheet.bar, scale, excess=excess, rare=self.rhythm[1])

    @property
    def rhythm(self) -> tuple[str, str]:
        """Of the first rank in sight that is late now and then `one step of 5`, `1/5`; both empty for none."""
        measured = (now_and_then(self.marked[rank]) for rank in self.place if rank in self.rare)
        found = next((each for each in measured if each is not None and one_step_of(each[1])), None)
        return ("", "") if found is None else (one_step_of(found[1]), f"1/{found[1]:.0f}")

    def _heading(self, text: str, key: str | None, view: TableView) -> Segment:
        if key is None or text.isspace():
            return Segment(text, self.look.dim)
        sorted_by = key == view.sort or (key == "late" and view.sort == "worst")
        return Segment(text, self.look.dim + Style(underline=True) if sorted_by else self.look.dim)

    def row(self, rank: int, width: int, under_cursor: bool) -> Line:
        look, finding = self.look, self.marked.get(rank)
        normal = look.strong if finding and finding.severity != "info" else look.text
        line = [self._cursor(under_cursor), *self._marks(rank, finding)]
        for column in self.sheet.before:
            style = normal if column.key == "rank" else self._tone(column, rank)
            line.append(self._cell(column, rank, style))
            if column.key == "rank" and self.sheet.host:
                line.append(self._host(rank))
            line.append(Segment(" ", look.text))
        line += [Segment(" ", look.text), *self._bar(rank, finding), Segment(" ", look.text)]
        for column in self.sheet.after:
            line += [Segment(" ", look.text), self._cell(column, rank, self._tone(column, rank))]
        fitted = fit(line, width)
        return list(Segment.apply_style(fitted, look.selected)) if under_cursor else fitted

    def _cursor(self, here: bool) -> Segment:
        return Segment(self.look.glyphs.cursor if here else " ", self.look.strong)

    def _marks(self, rank: int, finding: Finding | None) -> Line:
        """The marker of a finding or of silence, and the state where it is not plain running."""
        look, state = self.look, self.ranks.state[rank]
        glyph, style = finding_style(finding, look) if finding else (" ", look.text)
        if self._is_silent(rank) and state not in self.states and (finding is None or finding.severity == "info"):
            glyph, style = look.glyphs.mark, look.accent
        if finding and finding.severity == "critical":
            style += Style(reverse=True)
        plain = (look.glyphs.restarted, look.accent) if rank in self.alone else (" ", look.text)
        sign, tone = self.states.get(state, plain)
        return [Segment(glyph, style), Segment(sign if sign != glyph else " ", tone), self._mark(rank)]

    def _mark(self, rank: int) -> Segment:
        """Whether the reader has marked it."""
        return Segment(MARKED if rank in self.chosen else " ", self.look.accent)

    def _cell(self, column: Column, rank: int, style: Style) -> Segment:
        value = float(self.values[column.key][self.place[rank]])
        value = 0.0 if column.is_difference and abs(value) < self.noise_ms else value
        form = difference if column.is_difference else cell
        text = form(value, self.decimals[column.key], column.width, self.look.unknown)
        if column.key == "loss":  # each has digits of its own: one that has diverged leaves those of the others
            text = loss_brief(value, self.look.unknown)
        if column.key == "late" and (words := now_and_then_words(self.marked.get(rank), column.width)):
            text = words.rjust(column.width)
        text = text if column.key != "rank" else f"{rank}"  # a name, not a number
        text = self.look.clean(text).rjust(column.width)  # `±0` is `0` in ASCII
        return Segment(text, style if known(value) else self.look.dim)

    def _tone(self, column: Column, rank: int) -> Style:
        """Figures of a rank that is gone are dim; while the run lasts, the age of an old word has the accent."""
        look, state = self.look, self.ranks.state[rank]
        if column.key == "age":
            old = not (self.is_past or self.ranks.age_s[rank] <= SILENT_S or state == "finished")
            return look.accent if old else look.dim
        return look.dim if state in GONE else look.text

    def _is_silent(self, rank: int) -> bool:
        """Whether it is not heard while others are, in a run that goes on."""
        return bool(self.silent[rank]) and not self.is_past

    def _host(self, rank: int) -> Segment:
        width = self.sheet.host
        name = self.look.clean(self.ranks.host[rank]) or self.look.unknown
        return Segment(" " + left(name, width, self.look.glyphs.more), self.look.dim)

    def _bar(self, rank: int, finding: Finding | None) -> Line:
        width, ranks = self.sheet.bar, self.ranks
        state = ranks.state[rank]
        work = float(ranks.work_ms[rank])
        if state in GONE or not known(work):
            return [self._instead(rank, state, width)]
        phases = self.phases[self.place[rank]].tolist()
        if not any(map(known, phases)):
            phases = [0.0, 0.0, 0.0, 0.0, work]
        excess, rare = self._excess(rank, finding), self.rare.get(rank, ())
        return bar(phases, float(ranks.wait_ms[rank]), self.scale, width, self.look, excess, rare)

    def _rare_excesses(self) -> dict[int, tuple[float, ...]]:
        """Rank -> what `_rare` says of those in sight and of the first that findings name: these may be thousands."""
        rhythmic = [each for each in firing(self.snapshot.findings) if now_and_then(each) is not None]
        asked = {*self.place, *(rank for each in rhythmic for rank in each.ranks[:RARE_MOST])} if rhythmic else set()
        named = ((rank, self.marked[rank]) for rank in sorted(asked) if rank in self.marked)
        return {rank: rare for rank, each in named if (rare := self._rare(rank, each))}

    def _rare(self, rank: int, finding: Finding) -> tuple[float, ...]:
        """What the late steps of a rank that is late now and then add to each phase on average, ms; empty for none."""
        added = rare_excess(finding, lambda phase: self._more(phase, rank)) if rank < len(self.ranks) else {}
        return tuple(added.get(phase, 0.0) for phase in PHASES) if sum(added.values()) > self.noise_ms else ()

    def _scale(self) -> float:
        """The ms of a full bar."""
        work = self.ranks.work_ms.copy()
        for rank, rare in self.rare.items():
            work[rank] += sum(rare)
        return common_scale(work, self.ranks.wait_ms)

    def _excess(self, rank: int, finding: Finding | None) -> tuple[float, ...]:
        """The lateness, as the column has it, shared out over the phases in which a finding says that it arises; ms.

        Of a rank that is late now and then what the medians of the bar show of it: what each of them takes it longer.
        """
        shares = shares_by_phase(finding, lambda phase: self._more(phase, rank)) if finding else {}
        late = float(self.ranks.lateness_ms[rank])
        if finding and now_and_then(finding) is not None:
            parts = {phase: self._more(phase, rank) for phase in shares}
        else:
            parts = {phase: share * late for phase, share in shares.items()}
        total = sum(ms for ms in parts.values() if known(ms))
        return tuple(parts.get(phase, 0.0) for phase in PHASES) if total > self.noise_ms else ()

    def _more(self, phase: str, rank: int) -> float:
        """By how much a phase of a rank exceeds the median of the others."""
        if phase not in self.excesses:
            self.excesses[phase] = excesses(self.snapshot, self.ranks, f"{phase}_ms")
        return float(self.excesses[phase][rank])

    def _instead(self, rank: int, state: str, width: int) -> Segment:
        """What stands where a bar cannot be drawn."""
        last = age(float(self.ranks.age_s[rank]), self.look.unknown)
        said = {"lost": f"lost, silent for {last}", "failed": f"failed in {self.look.clean(self.ranks.phase[rank])}"}
        style = self.look.broken if state in said else self.look.dim
        return Segment(left(said.get(state, self.look.unknown), width, self.look.glyphs.more), style)


def _states(look: Look) -> dict[str, tuple[str, Style]]:
    """The sign of each state that is not plain running."""
    return {
        "lost": (look.glyphs.lost, look.broken),
        "failed": (look.glyphs.failed, look.broken),
        "stalled": (look.glyphs.stalled, look.accent),
        "finished": (look.glyphs.finished, look.dim),
        "unknown": ("?", look.dim),
    }


def _host_width(snapshot: Snapshot) -> int:
    run, ranks = snapshot.run, snapshot.ranks
    names = run.nodes if run and run.nodes else tuple(set(ranks.host)) if ranks else ()
    return max(map(len, names), default=0)
