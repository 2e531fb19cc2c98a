"""The view of findings: a list of them, what is over below, and the one under the cursor with its evidence."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style

from ddpmon.format import plural
from ddpmon.report.evidence import evidence_blocks
from ddpmon.report.finding_rows import (
    ago_word,
    badge,
    cost,
    costs_word,
    kind_words,
    rows,
    since,
    what,
    what_within,
    who,
)
from ddpmon.report.past import may_be_more, when_words
from ddpmon.report.see_also import see_also_words
from ddpmon.report.verdicts import firing, is_broken, nothing_found
from ddpmon.snapshot import Finding, RankDetail, Snapshot
from ddpmon.tui.draw.courses import ABOUT, METRICS, Metric, offered, plottable, rank_plots, reading_line
from ddpmon.tui.draw.findings import block_lines
from ddpmon.tui.draw.header import calm_style, finding_style
from ddpmon.tui.draw.heat import heat_lines, ranks_lines
from ddpmon.tui.draw.panel import narrowed, no_match, paragraph, title, title_line
from ddpmon.tui.draw.run_plots import LEAST, calm_plots, latest_plot, plots_below
from ddpmon.tui.draw.table import TableView
from ddpmon.tui.lines import Line, cells_of, clip_words, fit, fit_all, left, wrap
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState, fills_room

BADGE = 6
WHO_LEAST, WHO_MOST, WHAT_LEAST = 8, 20, 14
CALM_LEAVES = 4  # lines of a list besides the calm sentence: two titles and two findings
NAME = 10  # of a row of evidence
PLOT_LEAST, PLOT_MOST, PLOT_HIGHEST = 6, 18, 30  # lines of the plot below the evidence, with further ones and alone
BESIDE_LEAST = 10  # lines of the map of all ranks and of a plot below it
FURTHER = ("lateness", "wait", "gpu_power_w", "cpu_pct", "gpu_clock_mhz", "runqueue_pct")


def _badge(finding: Finding, look: Look) -> Segment:
    """` CRIT `: severity as a word; what is critical stands out by an inverse badge, too."""
    if finding.cleared_at_step is not None:
        return Segment(f" {look.glyphs.finished}    ", look.dim)
    _, style = finding_style(finding, look)
    style = look.dim if finding.severity == "info" else style
    style = style + Style(reverse=True, bold=True) if finding.severity == "critical" else style
    return Segment(f" {badge(finding)} ", style)


def list_lines(picture: ViewState, findings: Sequence[Finding], view: TableView, width: int, height: int) -> list[Line]:
    """Titles and as many findings as fit; `findings` are in row order, those that last first.

    Below few findings stands the course of the run, with where they began.
    """
    shown = findings
    lasting = sum(finding.cleared_at_step is None for finding in shown)
    room = list_room(picture, findings, width, height)
    known, is_counted = len(picture.snapshot.findings), bool(lasting) and room >= len(shown)
    remark = narrowed(picture.wanted, len(shown), known, picture.look, "finding")
    remark = remark or (plural(lasting, "finding") if is_counted else "")
    part = f"{view.top + 1:,}-{min(view.top + room, len(shown)):,} of {len(shown):,}" if room < len(shown) else ""
    here = shown[view.top : view.top + room]
    now = [finding for finding in here if finding.cleared_at_step is None]
    past = here[len(now) :]
    names = max((len(who(finding)) for finding in here), default=0)
    under = view.cursor - view.top if view.focused else -1
    said = ", ".join(filter(None, [part, remark]))
    lines = _section((when_words(picture.snapshot), said, "began"), now, names, picture, width, under)
    if not lasting:
        lines += _calm(picture, width)[: calm_rows(picture, width, height)]
    if past:
        over = len(shown) - lasting
        heads = "over", f"{over:,} or more findings" if may_be_more(over) else plural(over, "finding"), "when"
        lines += _section(heads, past, names, picture, width, under - len(now))
    spare = height - len(lines) - 1
    if shown and spare >= LEAST and fills_room(picture):
        lines += [[], *plots_below(picture, width, spare)]
    return fit_all(lines, width, height)


def list_room(picture: ViewState, findings: Sequence[Finding], width: int, height: int) -> int:
    """The findings that fit besides the titles and the calm sentence."""
    lasting = any(finding.cleared_at_step is None for finding in findings)
    over = any(finding.cleared_at_step is not None for finding in findings)
    return max(height - 1 - over - (0 if lasting else calm_rows(picture, width, height)), 1)


def calm_rows(picture: ViewState, width: int, height: int) -> int:
    """The lines that the calm sentence takes where no finding lasts: it leaves room for a finding that is over."""
    return min(len(_calm(picture, width)), max(height - CALM_LEAVES, 1))


def _calm(picture: ViewState, width: int) -> list[Line]:
    look, snapshot = picture.look, picture.snapshot
    if firing(snapshot.findings):
        return no_match("finding that lasts" if picture.found else "finding", width, look)
    glyph, style = calm_style(snapshot, look)
    return paragraph(nothing_found(snapshot), glyph, style, width, look)


def _section(
    titles: tuple[str, str, str], findings: Sequence[Finding], names: int, picture: ViewState, width: int, under: int
) -> list[Line]:
    """A title that names the columns, and a row a finding.

    Args:
        titles: the title, its remark, and the name of the column of times.
        findings: those in sight.
        names: the cells of the longest name in sight.
        picture: what is shown.
        width: cells of the list.
        under: the place of the one under the cursor; none of them where that is out of range.
    """
    name, remark, when = titles
    heads = costs_word(picture.snapshot), when
    (costs, times), cells = _facts(findings, names, picture, width, heads)
    columns = "  ".join(f"{head:>{size}}" for head, size in zip(heads, cells, strict=True) if size)
    lines = [title(name, "   ".join(filter(None, [remark, columns])), width, picture.look)]
    for place, (finding, *facts) in enumerate(zip(findings, costs, times, strict=True)):
        columns = "  ".join(f"{fact:>{size}}" for fact, size in zip(facts, cells, strict=True) if size)
        lines.append(_row(finding, columns, names, width, picture.look, under_cursor=place == under))
    return lines


def _facts(
    findings: Sequence[Finding], names: int, picture: ViewState, width: int, heads: tuple[str, str]
) -> tuple[tuple[list[str], list[str]], list[int]]:
    """Costs and times of a list, and the cells of each column, 0 of an empty one.

    A time is `14:02, 48 s ago` where all findings say beside it in full what they are, else `48 s ago` or `48 s`; `ago`
    is `earlier` in the past.
    """
    costs, ago_words = [cost(finding) for finding in findings], f" {ago_word(picture.snapshot)}"
    for at_clock, ago in ((True, ago_words), (False, ago_words), (False, "")):
        columns = costs, [since(finding, picture.snapshot, ago=ago, at_clock=at_clock) for finding in findings]
        cells = [
            max(len(head), *map(len, column)) if any(column) else 0 for head, column in zip(heads, columns, strict=True)
        ]
        _, room = _shares(width, sum(cells) + 2 * all(cells), names)
        if all(cells_of(picture.look.clean(what(finding))) <= room for finding in findings):
            break
    return columns, cells


def _shares(width: int, facts: int, names: int) -> tuple[int, int]:
    """The cells of the name and of what it is in a row with facts of so many cells."""
    room = width - 1 - BADGE - 2 - facts - 3
    name = min(max(room // 3, WHO_LEAST), WHO_MOST, max(names + 1, WHO_LEAST))
    return name, max(room - name - 1, 0)


def _row(finding: Finding, facts: str, names: int, width: int, look: Look, *, under_cursor: bool) -> Line:
    """Severity, who, what, and the facts at the right; `names` are the cells of the longest name in sight."""
    over = finding.cleared_at_step is not None
    name, cells = _shares(width, len(facts), names)
    whom = left(look.clean(who(finding)), name, look.glyphs.more)
    words = left(clip_words(look.clean(what_within(finding, cells)), cells, look.glyphs.more), cells)
    strong = not over and finding.severity != "info"
    line = [
        Segment(look.glyphs.cursor if under_cursor else " ", look.strong),
        _badge(finding, look),
        Segment("  ", look.text),
        Segment(f"{whom} ", look.strong if strong else look.dim if over else look.text),
        Segment(words, look.dim if over else look.broken if is_broken(finding) else look.text),
        Segment(f" {facts}  ", look.dim),
    ]
    fitted = fit(line, width)
    return list(Segment.apply_style(fitted, look.selected)) if under_cursor else fitted


def evidence_lines(picture: ViewState, finding: Finding | None, width: int, height: int) -> list[Line]:
    """One finding in full: its sentence, then what was measured, since when, at what cost, why, and what to do.

    As many lines as it takes; a plot and notices only where `height` lines have room for them.
    """
    look, snapshot = picture.look, picture.snapshot
    if finding is None:
        notices = _notices(snapshot, width, look)
        return [*notices, *(calm_plots(picture, width, height - len(notices)) if fills_room(picture) else [])]
    glyph, style = finding_style(finding, look)
    style = look.dim if finding.cleared_at_step is not None else style
    name, kind = look.clean(f"{who(finding)}: {what(finding)}"), kind_words(finding)
    remark = [] if kind in name else [Segment(kind, look.dim)]  # left out as a whole where it has no room
    lines = [title_line(name, remark, width, look)]
    lines += [*paragraph(finding.summary, glyph, style + Style(bold=True), width, look), []]
    related = see_also_words(finding, snapshot)
    for name, words in [*rows(finding, snapshot), *([("See also", related)] if related else [])]:
        lines += _named(name, look.clean(words), width, look, look.strong if name == "Do" else look.text)
    for name, texts in evidence_blocks(finding.evidence):
        lines += [[], *block_lines(look.clean(name), texts, width, look)]
    notices = _notices(snapshot, width, look)
    lines += _plots(picture, finding, width, height - len(lines) - 1 - len(notices))
    if notices and len(lines) + len(notices) + 1 <= height:
        lines += [*([[]] * (height - len(lines) - len(notices))), *notices]
    return lines


def _plots(picture: ViewState, finding: Finding, width: int, room: int) -> list[Line]:
    """The rank that the finding names first: what the finding blames, and further plots where there is room.

    A finding that names no rank stands beside all of them.
    """
    detail = picture.snapshot.detail
    if room < (PLOT_LEAST if finding.ranks else BESIDE_LEAST):
        return []
    if not finding.ranks:
        return _beside_all(picture, width, room)
    if detail is None or detail.rank != finding.ranks[0]:
        return [[], reading_line(picture, finding.ranks[0])]
    metric = _plotted(detail, finding)
    rest = [each for each in plottable(detail, FURTHER) if each is not metric]
    more = room >= PLOT_MOST + LEAST and rest and fills_room(picture)
    high = PLOT_MOST if more else min(room, PLOT_HIGHEST)
    drawn = rank_plots(picture, detail, [finding])
    lines = [[], *drawn.plot(metric, width, high, f"rank {detail.rank}: ")]
    return [*lines, *(drawn.grid(rest, width, room - high) if more else [])]


def _beside_all(picture: ViewState, width: int, room: int) -> list[Line]:
    """The map of all ranks, and the lateness of the latest one below it."""
    ranks = picture.snapshot.ranks
    if ranks is None or not fills_room(picture):
        return []
    shown = ranks_lines(picture, range(len(ranks)), width, room // 2) or heat_lines(picture, width, room // 2)
    lines = [[], *shown]
    return [*lines, *latest_plot(picture, width, room - len(lines))]


def _plotted(detail: RankDetail, finding: Finding) -> Metric:
    """What the finding is about, or the phase that it blames, if that is plotted, else work."""
    wanted = ABOUT.get(finding.kind, finding.phase)
    return next((metric for metric in offered(detail) if metric.key == wanted), METRICS[0])


def _notices(snapshot: Snapshot, width: int, look: Look) -> list[Line]:
    """What was set aside and why."""
    if not snapshot.notices:
        return []
    said = [line for text in snapshot.notices for line in paragraph(text, look.glyphs.note, look.dim, width, look)]
    return [title("notices", "", width, look), *said]


def _named(name: str, words: str, width: int, look: Look, style: Style) -> list[Line]:
    """A row of evidence: its name at the left, its words beside it."""
    parts = wrap(words, max(width - NAME - 2, 8))
    names = [name, *[""] * (len(parts) - 1)]
    return [
        [Segment(f" {label:<{NAME}}", look.dim), Segment(part, style)] for label, part in zip(names, parts, strict=True)
    ]
