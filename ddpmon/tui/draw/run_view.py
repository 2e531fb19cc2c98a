"""The view of the run: how it was set up, and what it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.segment import Segment

from ddpmon.report.run_about import Section, about, lost_by_cause
from ddpmon.snapshot import Snapshot
from ddpmon.tui.draw.panel import narrowed, no_match, paragraph, title
from ddpmon.tui.draw.panel_sizes import WIDE
from ddpmon.tui.lines import Line, fit, wrap
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState

NAME_MOST = 26  # cells of a name
RIGHT = ("versions", "model", "DDP")
HOURS = "used and lost"  # what the name of the section of hours ends in
SHARES = (0.5, 0.625)  # of the width for the left column: that which takes fewer lines, so that plots have room
WATCHING = "store and watching"  # stands in the column that is shorter without it


def run_lines(picture: ViewState, width: int, own_cost: str = "") -> list[Line]:
    """All sections, as many lines as it takes, in wide terminals in two columns; `own_cost` is the dashboard's.

    With a filter the lines above them say what of them follows it.
    """
    look = picture.look
    sections = [_with_own_cost(section, own_cost) for section in about(_as_heard(picture), picture.found)]
    if not sections:
        waiting = picture.snapshot.link.message or "no run has been read yet"
        return [fit([Segment(f" {look.clean(waiting)}", look.dim)], width)]
    above = [fit(line, width) for line in _filtered(picture, width)]
    if width < WIDE:
        sections.sort(key=lambda section: (section.name != "run", not section.name.endswith(HOURS)))  # hours second
        return above + [fit(line, width) for section in sections for line in _section(section, width, look)]
    return above + min((_in_two(sections, round(share * width), width, look) for share in SHARES), key=len)


def _filtered(picture: ViewState, width: int) -> list[Line]:
    """How many causes of lost hours the filter fits, and that all else is of the whole run; empty without a filter."""
    look, found = picture.look, picture.found
    if not picture.wanted:
        return []
    causes = [finding for finding, _ in lost_by_cause(picture.snapshot)]
    shown = sum(finding in found for finding in causes)
    name, remark = "lost hours by cause", narrowed(picture.wanted, shown, len(causes), look)
    lines = [title(name, remark, width, look), *([] if shown else no_match("cause", width, look))]
    return [*lines, *paragraph("All else in this view is of the whole run.", " ", look.dim, width, look), []]


def _in_two(sections: Sequence[Section], half: int, width: int, look: Look) -> list[Line]:
    """Two columns, of which the left one has `half` of the cells; what the run costs may need more than how it runs."""
    left = [line for each in sections if each.name not in (*RIGHT, WATCHING) for line in _section(each, half, look)]
    right = [line for each in sections if each.name in RIGHT for line in _section(each, width - half - 1, look)]
    shorter, cells = (left, half) if len(left) <= len(right) else (right, width - half - 1)
    shorter += [line for each in sections if each.name == WATCHING for line in _section(each, cells, look)]
    missing = len(left) - len(right)
    left, right = left + [[]] * max(-missing, 0), right + [[]] * max(missing, 0)
    return [
        [*fit(one, half), Segment(" "), *fit(other, width - half - 1)] for one, other in zip(left, right, strict=True)
    ]


def _as_heard(picture: ViewState) -> Snapshot:
    """What is shown, with a link that is silent once the store has not answered for long: the header says so, too."""
    snapshot = picture.snapshot
    is_silent = picture.stuck_s is not None and snapshot.link.state == "live"
    return replace(snapshot, link=replace(snapshot.link, state="silent")) if is_silent else snapshot


def _with_own_cost(section: Section, own_cost: str) -> Section:
    """The section on watching with what the dashboard itself takes."""
    is_due = own_cost and section.name == WATCHING
    return replace(section, pairs=[*section.pairs, ("dashboard", own_cost)]) if is_due else section


def _section(section: Section, width: int, look: Look) -> list[Line]:
    """A title and a row a pair."""
    name = min(max((len(label) for label, _ in section.pairs), default=0) + 2, NAME_MOST)
    lines = [title(section.name, "", width, look)]
    for label, value in section.pairs:
        rows = wrap(look.clean(value), max(width - name - 3, 8))
        for place, row in enumerate(rows):
            head = look.clean(label)[: name - 1] if place == 0 else ""
            lines.append([Segment(f"  {head:<{name}}", look.dim), Segment(row, look.text)])
    return [*lines, []]
