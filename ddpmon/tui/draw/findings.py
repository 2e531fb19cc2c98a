"""The findings: one line each beside the picture, or in full with evidence and advice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from ddpmon.format import count, known
from ddpmon.report.evidence import evidence_blocks, evidence_words
from ddpmon.report.finding_rows import cost_share, costs_word, kind_words, late_words, what, what_within, who
from ddpmon.report.past import over_words
from ddpmon.report.see_also import see_also_words
from ddpmon.report.trace import shortened_place
from ddpmon.report.verdicts import firing, headline, is_restart, nothing_found
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding
from ddpmon.tui.draw.header import calm_style, finding_style
from ddpmon.tui.draw.panel import narrowed, no_match, title
from ddpmon.tui.lines import Line, clip, clip_words, fit, fit_all, spread, wrap
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState

INDENT = "     "
BLOCK_ROWS = 16
SINCE, STEP = "since step", "step"  # a column of findings in one line; where some are over or began before that step
DETAILS = 2  # figures behind what a finding is
TITLE_ENDS = 6  # cells of a title besides its name and its remark
LEAST_ROWS = 3  # of a finding in full: its sentence, its facts, an empty line


Owned = tuple[Line, Finding | None]  # a line, and the finding that it is about


def finding_lines(picture: ViewState, width: int, height: int) -> list[Line]:
    """All findings in full where there is room for that, else those besides the headline, one line each."""
    return fit_all([line for line, _ in _panel(picture, width, height)], width, height)


def finding_at(picture: ViewState, width: int, height: int, y: int) -> Finding | None:
    """The finding that `finding_lines` draws in line `y`; None for a title and an empty line."""
    rows = _panel(picture, width, height)[:height]
    return rows[y][1] if 0 <= y < len(rows) else None


def _panel(picture: ViewState, width: int, height: int) -> list[Owned]:
    look, findings, filtered = picture.look, picture.below_notice, picture.filtered
    full = _in_turn(picture, width)[1:] if LEAST_ROWS * len(filtered) < height else []
    if full and (len(full) < height or not filtered):
        remark = ", ".join(filter(None, [_narrowed(picture, filtered, findings), *_counts(filtered, filtered)]))
        return [(title("findings", remark, width, look), None), *full]
    first = headline(findings)
    if first is not None and len(findings) == 1:
        advice = _paragraph(_advice(first, picture), width, look.text)
        return [(title("what to do", "", width, look), None), *((line, first) for line in advice)]
    others, rest = ([each for each in some if each is not first] for some in (findings, filtered))
    shown = rest[: max(height - 1, 0)]
    columns = Columns.of(shown, look, costs_word(picture.snapshot))
    name = _also_found(_narrowed(picture, rest, others), _counts(rest, shown), width - len(columns.heading))
    rows: list[Owned] = [(title(name, columns.heading, width, look), None)]
    rows += [(one_line(each, width, look, columns), each) for each in shown]
    return rows if rest else [*rows, *((line, None) for line in no_match("other finding", width, look))]


def also_found_height(picture: ViewState) -> int:
    """The lines that the list besides the headline needs below its title: one where the filter fits none of it."""
    first = headline(picture.below_notice)
    needed = sum(each is not first for each in picture.filtered)
    return needed or int(len(picture.below_notice) > (first is not None))


def _also_found(filtered: str, counts: Sequence[str], room: int) -> str:
    """`also found, filter late>10: 2 of 7, 1 over`; a filter without room there is only counted."""
    brief = re.sub(r"^filter .*:", "filter:", filtered)
    names = [", ".join(filter(None, ["also found", said, *counts])) for said in (filtered, brief)]
    return names[cell_len(names[0]) > room - TITLE_ENDS]


def _narrowed(picture: ViewState, filtered: Sequence[Finding], found: Sequence[Finding]) -> str:
    return narrowed(picture.wanted, len(filtered), len(found), picture.look)


def _counts(filtered: Sequence[Finding], shown: Sequence[Finding]) -> list[str]:
    """`5 of 6 shown`, `2 over, not shown`, and the key to all of them where some have no room.

    The first line of the overview counts those that last as well, so those that are over are counted apart.
    """
    lasting, here = len(firing(filtered)), len(firing(shown))
    over, past = len(filtered) - lasting, len(shown) - here
    counts = [f"{f'{here:,}' if here else 'none'} of {lasting:,} shown"] if here < lasting else []
    said = f", {past:,} shown" if past else ", not shown"
    counts += [over_words(over) + (said if here == lasting and past < over else "")] if over else []
    return counts if len(shown) == len(filtered) else [*counts[:-1], f"{counts[-1]} [5]"]


class Columns(NamedTuple):
    """What stands at the right of one-line findings: the cells of the onset and of the cost, 0 where none has one.

    Where some are over or have a bound for an onset, the heading of the onset, `head`, is `step`, and each cell says
    whether it is `since 60`, `before 60` or `until 145`. `costs` is the heading of the cost.
    """

    since: int
    cost: int
    costs: str
    head: str = SINCE

    @classmethod
    def of(cls, findings: Sequence[Finding], look: Look, costs: str) -> Columns:
        """Columns in which all of these have room."""
        are_mixed = any(each.cleared_at_step is not None or each.since_is_bound for each in findings)
        head = STEP if are_mixed else SINCE
        since = max((len(_onset(finding, head)) for finding in findings), default=0)
        cost = max((len(_cost(finding, look)) for finding in findings), default=0)
        return cls(max(since, len(head)) if since else 0, max(cost, len(costs)) if cost else 0, costs, head)

    @property
    def heading(self) -> str:
        """The names over the columns, for the title above them."""
        parts = ((self.head, self.since), (self.costs, self.cost))
        return "  ".join(name.rjust(cells) for name, cells in parts if cells)

    def facts(self, finding: Finding, look: Look) -> str:
        """Onset and cost of one finding; the columns end where the heading does."""
        parts = [f"{_onset(finding, self.head):>{self.since}}"] if self.since else []
        return "  ".join([*parts, *([f"{_cost(finding, look):>{self.cost}}"] if self.cost else [])])


def one_line(finding: Finding, width: int, look: Look, columns: Columns | None = None, costs: str = "costs") -> Line:
    """Sign, who, what, onset and cost of one finding: the cause or what was measured only where all of it has room.

    Where who and what have no room beside it, the onset is left out. Without columns, and so without a heading, the
    onset and the cost say what they are, which `costs` so much.
    """
    glyph, style = _style(finding, look)
    if columns is None:
        facts = [_in_words(finding, look, costs), _in_words(finding, look, costs, "")]
    else:
        facts = [each.facts(finding, look) for each in (columns, columns._replace(since=0))]
    rooms = [width - len(INDENT) - cell_len(each) - 5 for each in facts]
    chosen = int(cell_len(_said(finding, rooms[0], look)) > rooms[0])
    said = clip_words(_said(finding, rooms[chosen], look), rooms[chosen], look.glyphs.more)
    line = [Segment(f" {glyph} ".ljust(len(INDENT)), style), Segment(said, style)]
    return spread(line, [Segment(f"  {facts[chosen]}  ", look.dim)], width)


def _in_words(finding: Finding, look: Look, costs: str, since: str | None = None) -> str:
    """`since step 60  costs 14 %`."""
    cost = _cost(finding, look)
    return "  ".join(filter(None, [_since(finding) if since is None else since, f"{costs} {cost}" if cost else ""]))


def _said(finding: Finding, cells: int, look: Look) -> str:
    """`rank 21: late +137 ms, backward, a shared GPU`: who, what, and a detail, as far as there is room.

    What the detail says again is said once: `rank 1: GPU memory grows by 600 MiB in 5 min`.
    """
    whom = f"{who(finding)}: "
    short = look.clean(f"{whom}{what_within(finding, cells - len(whom))}")
    detail = _detail(finding)
    full = look.clean(f"{whom}{what(finding)}, {detail}".replace("grows, grows ", "grows ")) if detail else short
    return full if cell_len(full) <= cells else short


def _detail(finding: Finding) -> str:
    """The cause; where that is not known, of what is no lateness the two figures that were measured first.

    Of ranks that restarted alone only their number was, which the line has anyway.
    """
    if finding.cause or late_words(finding) or is_restart(finding) or finding.cleared_at_step is not None:
        return finding.cause or ""
    measured = evidence_words(finding.evidence).split("; ")
    said = what(finding)
    return ", ".join(each for each in measured[:DETAILS] if each not in said and said not in each)


def _style(finding: Finding, look: Look) -> tuple[str, Style]:
    if finding.cleared_at_step is not None:
        return look.glyphs.finished, look.dim
    return finding_style(finding, look)


def _since(finding: Finding) -> str:
    if finding.cleared_at_step is not None:
        return f"over at step {count(finding.cleared_at_step)}"
    if finding.since_step is None:
        return ""
    return f"{'before' if finding.since_is_bound else 'since'} step {count(finding.since_step)}"


def _onset(finding: Finding, head: str) -> str:
    """`60` below `since step`, else `since 60`; `before 60`, or `until 145` of what is over: a step."""
    if finding.cleared_at_step is not None:
        return f"until {count(finding.cleared_at_step)}"
    if finding.since_step is None:
        return ""
    since = "before " if finding.since_is_bound else "since " if head == STEP else ""
    return f"{since}{count(finding.since_step)}"


def _cost(finding: Finding, look: Look) -> str:
    if finding.cost_pct is None:
        return ""
    return f"{finding.cost_pct:.{0 if finding.cost_pct >= 9.95 else 1}f} %" if known(finding.cost_pct) else look.unknown


def all_findings(picture: ViewState, width: int) -> list[Line]:
    """Every finding in full; what is over comes last, dim. As many lines as it takes."""
    return [line for line, _ in _in_turn(picture, width)]


def _in_turn(picture: ViewState, width: int) -> list[Owned]:
    look, snapshot = picture.look, picture.snapshot
    rows: list[Owned] = [([Segment("")], None)]
    if picture.below_notice and not picture.filtered:
        rows += [(line, None) for line in no_match("finding", width, look)]
    elif not firing(picture.below_notice):
        glyph, style = calm_style(snapshot, look)
        calm = _paragraph(look.clean(nothing_found(snapshot)), width, style, f" {glyph} ")
        rows += [(line, None) for line in (*calm, [])]
    for finding in sorted(picture.filtered, key=lambda finding: finding.cleared_at_step is not None):
        rows += [*((line, finding) for line in _in_full(finding, picture, width)), ([], None)]
    for text in snapshot.notices:
        rows += [(line, None) for line in _paragraph(look.clean(text), width, look.dim, f" {look.glyphs.note} ")]
    return [(fit(line, width), finding) for line, finding in rows]


def _in_full(finding: Finding, picture: ViewState, width: int) -> list[Line]:
    look = picture.look
    glyph, style = _style(finding, look)
    over = finding.cleared_at_step is not None
    text = look.dim if over else look.text
    lines = _paragraph(look.clean(finding.summary), width, style if over else style + Style(bold=True), f" {glyph} ")
    lines += _paragraph(look.clean(facts_of(finding, costs_word(picture.snapshot, finding))), width, look.dim)
    words = look.clean(evidence_words(finding.evidence, is_over=over))
    lines += _paragraph(f"evidence: {words}", width, look.dim) if words else []
    for name, rows in evidence_blocks(finding.evidence):
        lines += block_lines(look.clean(name), rows, width, look)
    related = look.clean(see_also_words(finding, picture.snapshot))
    lines += _paragraph(f"see also: {related}", width, text) if related else []
    if finding.advice:
        lines += _paragraph(_advice(finding, picture), width, text)
    return lines


def _advice(finding: Finding, picture: ViewState) -> str:
    return picture.look.clean(advice_text(finding.advice, picture.snapshot.own_host))


def facts_of(finding: Finding, costs: str) -> str:
    """`critical straggler; since step 812; costs 19 % of the run's time; ranks 5; node1; input`."""
    ranks = ", ".join(str(rank) for rank in finding.ranks[:16]) + (" ..." if len(finding.ranks) > 16 else "")
    facts = [
        f"{finding.severity} {kind_words(finding)}",
        _since(finding),
        f"{costs} {words}" if (words := cost_share(finding)) else "",
        f"rank {ranks}" if len(finding.ranks) == 1 else f"ranks {ranks}" if finding.ranks else "",
        ", ".join(finding.nodes[:8]),
        f"phase {finding.phase}" if finding.phase else "",
        f"cause: {finding.cause}" if finding.cause else "",
    ]
    return "; ".join(fact for fact in facts if fact)


def block_lines(name: str, rows: list[str], width: int, look: Look) -> list[Line]:
    """A long text as it is, further in; of a very long one, its end."""
    lines: list[Line] = [[Segment(f"{INDENT}{name}:", look.dim)]]
    for row in rows[-BLOCK_ROWS:]:
        room = width - len(INDENT) - 4
        shown = shortened_place(look.clean(row.expandtabs(2)), room, look.cut)
        shown = clip(shown, room, look.glyphs.more)
        lines.append([Segment(f"{INDENT}{look.glyphs.bar} ", look.faint), Segment(shown, look.text)])
    return lines


def _paragraph(text: str, width: int, style: Style, lead: str = INDENT) -> list[Line]:
    rows = wrap(text, width - len(INDENT) - 1)
    leads = [lead.ljust(len(INDENT))[: len(INDENT)], *[INDENT] * (len(rows) - 1)]
    return [[Segment(start, style), Segment(row, style)] for start, row in zip(leads, rows, strict=True)]
