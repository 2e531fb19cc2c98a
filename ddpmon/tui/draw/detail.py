"""One rank in full: who it is, what was found, where it is stuck, its phases and resources over the last steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rich.segment import Segment

from ddpmon.diagnose.finding import Finding
from ddpmon.format import figure
from ddpmon.report.verdicts import naming
from ddpmon.schema import PHASES
from ddpmon.snapshot import Floats, RankDetail, Ranks
from ddpmon.tui.draw.band import MARGIN, band_lines
from ddpmon.tui.draw.header import finding_style
from ddpmon.tui.draw.identity import identity_lines
from ddpmon.tui.draw.panel import title
from ddpmon.tui.draw.plot import GUTTER, Curve, body, scale_of
from ddpmon.tui.draw.stack import failure_lines, other_threads, stall_lines
from ddpmon.tui.lines import Line, clip, fit, fit_all, width_of, wrap
from ddpmon.tui.look import Look
from ddpmon.tui.picture import Picture

RESOURCES = (
    ("cpu", "%", "cpu_pct", 1.0),
    ("queue", "%", "runqueue_pct", 1.0),
    ("rss", "GB", "rss_bytes", 1e-9),
    ("gpu", "%", "gpu_utilization_pct", 1.0),
    ("power", "W", "gpu_power_w", 1.0),
    ("clock", "MHz", "gpu_clock_mhz", 1.0),
)


BAND_LEAST, BAND_USUAL = 6, 10


@dataclass(frozen=True, slots=True)
class Share:
    """Heights of the parts of the detail screen."""

    band: int
    resource: int  # height of each resource's plot; 0 for none


def detail_lines(picture: Picture, rank: int, width: int, height: int) -> list[Line]:
    """The whole screen below the header."""
    snapshot, look = picture.snapshot, picture.look
    ranks, detail = snapshot.ranks, snapshot.detail
    if ranks is None or not 0 <= rank < len(ranks):
        return fit_all([[Segment(f" rank {rank} is not part of this run", look.dim)]], width, height)
    found = naming(snapshot.findings, rank, ranks.host[rank])
    well = ranks.state[rank] in ("running", "finished")
    lines = [*identity_lines(snapshot, ranks, rank, width, look), *_found(found, width, look, well=well)]
    lines += _now(ranks, rank, width, look)
    if detail is None or detail.rank != rank:
        lines.append([Segment(f" reading rank {rank} {look.glyphs.more}", look.dim)])
        return fit_all(lines, width, height)
    since = next((finding.since_step for finding in found if finding.since_step is not None), None)
    hot = next((PHASES.index(finding.phase) for finding in found if finding.phase in PHASES), None)
    room = height - len(lines) - len(detail.notes)
    trouble = _trouble(detail, width, room, look)
    lines += trouble
    share = _shares(room - len(trouble), pressed=bool(trouble))
    lines += band_lines(detail, width, share.band, look, since, hot) if share.band else []
    lines += _resources(detail, width, share.resource, look) if share.resource else []
    lines += [[Segment(f" {look.glyphs.note} {look.clean(note)}", look.dim)] for note in detail.notes]
    return fit_all(lines, width, height)


def _trouble(detail: RankDetail, width: int, room: int, look: Look) -> list[Line]:
    """Why it goes no further: what ended it, else where it is stuck; the picture below gives way to that."""
    most = room - BAND_LEAST if room >= 2 * BAND_LEAST else room
    if detail.failure is not None:
        return failure_lines(detail.failure, width, most, look)
    if detail.stall is None:
        return []
    lines = stall_lines(detail.stall, width, most, look)
    spare = room - len(lines) - BAND_USUAL - 1 - len(RESOURCES)
    return [*lines, *other_threads(detail.stall, width, spare, look)]


def _shares(room: int, *, pressed: bool) -> Share:
    """The band takes what the resources, one to three lines each, leave; under a stack, both may have to go."""
    if pressed and room < BAND_LEAST + 1 + len(RESOURCES):
        return Share(room if room >= BAND_LEAST else 0, 0)
    for each in (3, 2, 1):
        if room - 1 - each * len(RESOURCES) >= BAND_USUAL:
            return Share(room - 1 - each * len(RESOURCES), each)
    return Share(max(room - 1 - len(RESOURCES), 5), 1)


def _found(found: list[Finding], width: int, look: Look, *, well: bool) -> list[Line]:
    """The sentences about this rank, each in full."""
    if not found:
        glyph = look.glyphs.finished if well else look.glyphs.note
        return [[Segment(f" {glyph} nothing was found about this rank", look.dim)]]
    lines: list[Line] = []
    for finding in found[:3]:
        glyph, style = finding_style(finding, look)
        for place, row in enumerate(wrap(look.clean(finding.summary), width - 4)[:3]):
            lines.append([Segment(f" {glyph} " if place == 0 else "   ", style), Segment(row, style)])
        lines += _cause(finding, width, look)
    return lines


def _cause(finding: Finding, width: int, look: Look) -> list[Line]:
    """What on its machine explains it, where the sentence does not say so already."""
    cause = look.clean(finding.cause or "")
    if not cause or cause in look.clean(finding.summary):
        return []
    said = clip(cause, max(width - 10, 1), look.glyphs.more)
    return [[Segment("   cause: ", look.dim), Segment(said, look.strong)]]


def _now(ranks: Ranks, rank: int, width: int, look: Look) -> list[Line]:
    """The figures of the last 20 steps, as many as fit."""
    pairs = [("work", ranks.work_ms), ("wait", ranks.wait_ms), ("late", ranks.lateness_ms), ("step", ranks.step_ms)]
    pairs += [("barrier", ranks.barrier_ms), ("all-reduce", ranks.allreduce_ms)]
    line: Line = [Segment(" ", look.text)]
    for name, values in pairs:
        text = figure(float(values[rank]), look.unknown)
        more = [Segment(f"{name} ", look.dim), Segment(f"{text:>5}", look.text), Segment(" ms   ", look.dim)]
        line += more if width_of(line) + width_of(more) <= width else []
    return [fit(line, width)]


def _resources(detail: RankDetail, width: int, each: int, look: Look) -> list[Line]:
    """Each resource as a strip under the band, on the band's axis of steps."""
    lines = [title("its machine over the same steps", "now", width, look)]
    for name, unit, field, factor in RESOURCES:
        lines += _strip(detail, (name, unit), getattr(detail, field) * factor, width, each, look)
    return lines


def _strip(detail: RankDetail, label: tuple[str, str], values: Floats, width: int, each: int, look: Look) -> list[Line]:
    """Name, line from zero up, and the latest value at the right; a dash where nothing is known."""
    columns = width - GUTTER - MARGIN
    seen = values[np.isfinite(values)]
    latest = f"{figure(float(seen[-1]))} {label[1]}" if len(seen) else look.unknown
    rows: list[Line] = [[Segment(""), Segment(" " * columns)] for _ in range(each)]
    if len(seen) and len(detail.step) and columns >= 2:
        span = float(detail.step[0]), float(detail.step[-1])
        steps = detail.resource_step.astype(np.float64)
        curve = Curve(label[0], "", steps, values, values * 0, values, span=span)
        scale = scale_of(curve, each)
        rows = [line[1:] for line in body(curve, columns, each, scale, span, look)] if scale else rows
    middle = (each - 1) // 2
    for place, row in enumerate(rows):
        name, value = (label[0], latest) if place == middle else ("", "")
        tail = [Segment(f"{value:>{MARGIN - 1}}", look.text if len(seen) else look.dim)]
        rows[place] = fit([Segment(f" {name:<{GUTTER - 1}}", look.dim), *row[1:], *tail], width)
    return rows
