"""What a terminal without room for any panel shows: the state of the run, the verdict, and how to quit."""

from __future__ import annotations

from collections.abc import Iterator

from rich.segment import Segment
from rich.style import Style

from ddpmon.report.finding_rows import badge, what, who
from ddpmon.report.headline import sentence
from ddpmon.report.verdicts import calm_sentence, headline
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding, Snapshot
from ddpmon.tui.draw.header import TITLES, calm_style, finding_style, state_line
from ddpmon.tui.draw.panel_sizes import LEAST
from ddpmon.tui.draw.verdict_lines import badge_style
from ddpmon.tui.lines import Line, clip, clip_words, fit_all, wrap
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState

BADGE_LEAST = 16  # cells from which on the badge leaves room for a rank's name beside it; the sign takes one


def too_small_lines(picture: ViewState, width: int, height: int) -> list[Line]:
    """The facts first; the verdict in as many words as fit; `q quit` where a row is left. One row has the verdict."""
    state = [] if picture.snapshot.run is None or height < 2 else [state_line(picture, width)]
    lines = [*state, *_verdict(picture, width, height - len(state))]
    if len(lines) < height:
        lines.append(_quit(width, picture.look))
    return fit_all(lines, width, height)


def _verdict(picture: ViewState, width: int, height: int) -> list[Line]:
    """The longest form that leaves a row; where none does, the shortest one, cut."""
    lead, style, look = *_lead(picture, width), picture.look
    forms = [wrap(f"{lead} {look.clean(said)}", width) for said in _forms(picture.snapshot)]
    rows = next((form for form in forms if len(form) < height), forms[-1])
    if len(rows) > height:
        shortened = clip_words if width >= BADGE_LEAST else clip
        rows = [*rows[: height - 1], shortened(" ".join(rows[height - 1 :]), width, look.glyphs.more)]
    mark = len(lead) if rows[0].startswith(lead) else 0
    first = [Segment(rows[0][:mark], style), Segment(rows[0][mark:], look.text)]
    return [first, *[[Segment(row, look.text)] for row in rows[1:]]]


def _lead(picture: ViewState, width: int) -> tuple[str, Style]:
    """The severity of the worst finding: its badge where there is room, else its sign."""
    worst, look = headline(picture.snapshot.findings), picture.look
    if picture.snapshot.run is None:
        return look.glyphs.note, look.text
    if worst is None:
        return calm_style(picture.snapshot, look)
    return (badge(worst), badge_style(worst, look)) if width >= BADGE_LEAST else finding_style(worst, look)


def _forms(snapshot: Snapshot) -> Iterator[str]:
    """The verdict in fewer and fewer words: with what to do, its sentence, and who and what; not cleaned."""
    worst = headline(snapshot.findings)
    if snapshot.run is None:
        yield f"{TITLES[snapshot.link.state]}. {snapshot.link.message}"
        yield TITLES[snapshot.link.state]
    elif worst is None:
        yield calm_sentence(snapshot)
    else:
        yield from _of_finding(worst, snapshot)


def _of_finding(finding: Finding, snapshot: Snapshot) -> Iterator[str]:
    said, advice = sentence(finding, snapshot), advice_text(finding.advice, snapshot.own_host)
    if advice:
        yield f"{said.rstrip('.')}. To do: {advice}"
    yield said
    yield f"{who(finding)}: {what(finding)}"


def _quit(width: int, look: Look) -> Line:
    """How to leave, and where there is room how large a terminal has to be for all else."""
    line = [Segment("q", look.strong), Segment(" quit", look.dim)]
    needs = f" {look.glyphs.dot} needs {LEAST[0]}x{LEAST[1]}"
    return [*line, Segment(needs, look.dim)] if len("q quit") + len(needs) <= width else line
