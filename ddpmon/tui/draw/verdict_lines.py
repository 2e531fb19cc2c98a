"""The verdict: a badge with who, what, since when and at what cost, and below it the likely cause and what to do."""

from __future__ import annotations

import re

from rich.segment import Segment
from rich.style import Style

from ddpmon.format import known, plural
from ddpmon.report.cost import hour_unit, hours_a_day, hours_words
from ddpmon.report.finding_rows import badge
from ddpmon.report.headline import brief_cause, brief_sentence, cause_words, command, facts, sentence
from ddpmon.report.see_also import see_also_words
from ddpmon.report.verdicts import calm_sentence, firing, headline, is_broken, is_even, is_past
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding, Snapshot, is_over
from ddpmon.tui.draw.header import calm_style
from ddpmon.tui.lines import Line, cells_of, clip, clip_clauses, clip_words, fit, spread, statements, width_of, wrap
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState

INDENT = "         "  # as wide as the badge
WIDE = 110  # from here on there is room for words that a narrow screen leaves out
CAUSE_LEAST = 24  # cells of a cause beside a command
ADVICE_LEAST = 20  # cells of a clause that says something
COMMAND = re.compile(r"((?:\. Run |: |, )?`[^`]*`)(.*)")  # with what leads to it, and what stands behind it


def verdict_lines(picture: ViewState, width: int) -> list[Line]:
    """The worst finding in two lines or three, or the calm sentence in one."""
    look, snapshot = picture.look, picture.snapshot
    worst = headline(picture.below_notice)
    more = _more(len(firing(picture.below_notice)) - (worst is not None), worst is None, look)
    if worst is None:
        return [_calm(snapshot, more, width, look)]
    room = width - len(INDENT) - 1
    below = width < WIDE and bool(worst.cause or worst.advice)  # where the count of the others stands
    rows = _said(worst, snapshot, room if below else room - width_of(more), look)
    at = len(rows) if below else 0
    rows += _what_to_do(worst, snapshot, room - width_of(more) if below else room, look)
    leads = [_lead(worst, look), *[[Segment(INDENT, look.text)]] * (len(rows) - 1)]
    return [
        spread([*lead, *row], more if place == at else [], width)
        for place, (lead, row) in enumerate(zip(leads, rows, strict=True))
    ]


def headline_line(picture: ViewState, worst: Finding, width: int) -> Line:
    """The first line of the verdict, for the views that do not tell the finding `worst` themselves."""
    row = _said(worst, picture.snapshot, width - len(INDENT) - 1, picture.look, most=1)[0]
    return fit([*_lead(worst, picture.look), *row], width)


def _lead(finding: Finding, look: Look) -> Line:
    """The badge, as wide as `INDENT`."""
    sign = Segment(f" {badge(finding)} ", badge_style(finding, look))
    return [Segment(" ", look.text), sign, Segment("  ", look.text)]


def badge_style(finding: Finding, look: Look) -> Style:
    """Inverse where it is critical, in the accent for a warning, plain for information."""
    if finding.severity == "info":
        return look.text
    style = look.broken if is_broken(finding) else look.accent
    return style + Style(bold=True, reverse=finding.severity == "critical")


def _said(finding: Finding, snapshot: Snapshot, room: int, look: Look, most: int = 2) -> list[Line]:
    """The facts in as many words as fit; else the finding's sentence in `most` lines, one or two.

    Where it has no room, whole statements at its end are left out, if what is left says enough.
    """
    said = [[look.clean(part) for part in parts] for parts in facts(finding, snapshot, look.glyphs.dot)]
    for parts in said:
        for gap in (4, 3, 2):
            if sum(map(cells_of, parts)) + gap * (len(parts) - 1) <= room:
                return [_facts(parts, gap, look)]
    if said:
        return [fit(_facts(said[-1], 2, look), room)]
    ways = (wrap(look.clean(said(finding, snapshot)), room) for said in (sentence, brief_sentence))
    rows = next((rows for rows in ways if len(rows) <= most), [])
    if not rows:
        text = look.clean(brief_sentence(finding, snapshot))
        brief = wrap(text, room)
        cut = [*brief[: most - 1], clip_words(" ".join(brief[most - 1 :]), room, look.glyphs.more)]
        rows = statements(text, room, most) or cut
    style = look.broken if is_broken(finding) else look.text
    return [[Segment(row, style)] for row in rows]


def _facts(parts: list[str], gap: int, look: Look) -> Line:
    """Who and what in the accent, the rest in plain text."""
    line: Line = [Segment(parts[0], look.strong), Segment(" " * gap, look.text), Segment(parts[1], look.accent)]
    for part in parts[2:]:
        line += [Segment(" " * gap, look.text), Segment(part, look.text)]
    return line


def _what_to_do(finding: Finding, snapshot: Snapshot, room: int, look: Look) -> list[Line]:
    """The cause, then what to do; where one line is too short, the command alone, and on a wide screen two lines.

    Once the run is over, no command stands alone: it does not say that it is for the next run.
    """
    arrow = "->" if look.ascii_only else "→"
    related = see_also_words(finding, snapshot)
    cause = look.clean(cause_words(finding) or (f"see also: {related}" if related else ""))
    texts = advice_text(finding.advice, snapshot.own_host), "" if is_past(snapshot) else command(finding, snapshot)
    advice, run = (f"{arrow} {look.clean(text)}" if text else "" for text in texts)
    between = "   " if cause else ""
    if not (cause or advice):
        return []
    if cells_of(cause) + len(between) + cells_of(advice) <= room:
        return [_cause_and_advice(cause + between if advice else cause, advice, look)]
    if room >= WIDE:
        rows = [cause] if cause else []
        said = [[Segment(clip(row, room, look.glyphs.more), look.text)] for row in rows]
        return [*said, _advice(advice, room, look)]
    left = room - cells_of(run) - len(between)
    cause = cause if cells_of(cause) <= max(left, 0) else look.clean(brief_cause(finding))
    if run and (not cause or left >= CAUSE_LEAST):
        return [_cause_and_advice(clip(cause, left, look.glyphs.more) + between if cause else "", run, look)]
    return [[Segment(clip(cause, room, look.glyphs.more), look.text)] if cause else _advice(advice, room, look)]


def _cause_and_advice(cause: str, advice: str, look: Look) -> Line:
    return [Segment(cause, look.text), Segment(advice, look.strong)]


def _advice(advice: str, room: int, look: Look) -> Line:
    """As much of it as fits: the command whole, and of the words before it whole clauses, or none of a list.

    Where a clause has no room beside the command, it stands without the command.
    """
    at = COMMAND.search(advice)
    words, tries = (advice[: at.start()], (at[0], at[1])) if at else (advice, ())
    run = next((each for each in tries if cells_of(each) + ADVICE_LEAST <= room), "")
    clauses = [words[: found.start()] for found in re.finditer(r"[:;] ", words)][::-1]
    said = [each for each in (words, *clauses) if cells_of(each) >= ADVICE_LEAST]
    fitting = (f"{each}{end}" for end in (run, "") for each in said if cells_of(each) + cells_of(end) <= room)
    whole = advice if cells_of(advice) <= room else next(fitting, clip_words(advice, room, look.glyphs.more))
    return [Segment(whole, look.strong)]


def _calm(snapshot: Snapshot, more: Line, width: int, look: Look) -> Line:
    """One sentence, and what waiting costs although nobody is late."""
    is_good = is_even(snapshot)
    glyph, style = calm_style(snapshot, look)
    said = look.clean(calm_sentence(snapshot))
    waiting, run = snapshot.job.lost_to_waiting_pct, snapshot.run
    if is_good and run is not None and known(waiting):
        hours = hours_words(hours_a_day(waiting or 0.0, run.world_size))
        told = "" if is_over(run.state) else f" {look.glyphs.dot} waiting costs {hours} {hour_unit(snapshot)} a day"
        said += told if cells_of(said) + cells_of(told) + width_of(more) + 5 <= width else ""
    if cells_of(said) > width - 4 - width_of(more):
        said = said.replace(" of their median work", "")
    said = clip_clauses(said, width - 4 - width_of(more), look.glyphs.more)
    line = [Segment(f" {glyph} ", style), Segment(said, style)]
    return spread(line, more, width)


def _more(number: int, calm: bool, look: Look) -> Line:
    if number <= 0:
        return []
    words = plural(number, "note") if calm else f"{number:,} more"
    return [Segment(f"   {words} ", look.text), Segment("[5] ", look.dim)]
