"""One rank in full: who it is, what was found, where it is stuck, its phases and resources over the last steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.cells import cell_len
from rich.segment import Segment

from ddpmon.format import age, amount, count, figure, plural
from ddpmon.machine import GpuFigures, ProcessFigures
from ddpmon.parts import Failure, Stack, StackFrame, Stall
from ddpmon.report.trace import (
    collectives,
    device,
    failure_text,
    fewer,
    last_lines,
    main_stack,
    newest_own,
    shortened,
    shortened_place,
)
from ddpmon.report.verdicts import naming
from ddpmon.schema import PHASES
from ddpmon.snapshot import Finding, Floats, RankDetail, Ranks, Snapshot
from ddpmon.tui.draw.band import MARGIN, band_lines
from ddpmon.tui.draw.header import finding_style
from ddpmon.tui.draw.panel import title
from ddpmon.tui.draw.plot import GUTTER, Curve, body, scale_of
from ddpmon.tui.lines import Line, clip, fit, fit_all, joined, left, spread, width_of, wrap
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState

CPUS_MOST = 24  # cells of a list of CPUs
MESSAGE_ROWS = 3
FIRST_ROWS, ROWS = 5, 3  # of a sentence: the first one has its cause behind its phase and its onset
PLACE_SHARE = 0.55  # of the width at most: the rest is for the source
LEAST_OTHER = 3  # lines below which another thread's stack is not begun
RESOURCES = (
    ("cpu", "%", "cpu_pct", 1.0),
    ("queue", "%", "runqueue_pct", 1.0),
    ("rss", "GB", "rss_bytes", 1e-9),
    ("gpu", "%", "gpu_utilization_pct", 1.0),
    ("power", "W", "gpu_power_w", 1.0),
    ("clock", "MHz", "gpu_clock_mhz", 1.0),
)


BAND_LEAST, BAND_USUAL = 6, 10


def identity_lines(snapshot: Snapshot, ranks: Ranks, rank: int, width: int, look: Look) -> list[Line]:
    """The first lines of the detail screen."""
    run = snapshot.run
    facts = [
        look.clean(ranks.host[rank]) or look.unknown,
        f"pid {_plain(ranks.pid[rank], look)}",
        f"local rank {_plain(ranks.local_rank[rank], look)}",
        _gpu(ranks.gpu[rank], look),
    ]
    state = look.clean(ranks.state[rank])
    inside = f" in {look.clean(ranks.phase[rank])}" if ranks.phase[rank] and state in ("running", "stalled") else ""
    styles = {"lost": look.broken, "failed": look.broken, "stalled": look.accent}
    right = [
        Segment(f"{state}{inside}", styles.get(state, look.text)),
        Segment(f"   step {count(int(ranks.step[rank]), look.unknown)}", look.text),
        Segment(f"   heard {age(float(ranks.age_s[rank]), look.unknown)} ago ", look.dim),
    ]
    total = f" of {run.world_size:,}" if run else ""
    name: Line = [Segment(f" rank {rank}", look.strong), Segment(total, look.dim)]
    between = Segment(f" {look.glyphs.dot} " if not look.ascii_only else " | ", look.faint)
    who = joined([name, *([Segment(fact, look.text)] for fact in facts)], between)
    more = _process(ranks.process[rank], between, width, look)
    if width_of(who) + width_of(right) + 2 <= width:
        return [spread(who, right, width), *more]
    return [fit(who, width), fit([Segment(" ", look.text), *right], width), *more]


def _process(process: ProcessFigures | None, between: Segment, width: int, look: Look) -> list[Line]:
    """Where it may run, with how many threads and workers, and what limits it; nothing where nothing is known."""
    facts = process_facts(process) if process is not None else []
    if not facts:
        return []
    line = joined([[Segment(look.clean(fact), look.accent if loud else look.dim)] for fact, loud in facts], between)
    return [fit([Segment(" ", look.text), *line], width)]


def process_facts(process: ProcessFigures) -> list[tuple[str, bool]]:
    """`CPUs 0-11`, `12 compute threads`, `4 workers (180 % CPU)`, `quota 8 CPUs`; each with whether it stands out."""
    facts: list[tuple[str, bool]] = []
    if process.cpus is not None:
        facts.append((f"CPUs {clip(process.cpus, CPUS_MOST)}", False))
    if process.compute_threads is not None:
        facts.append((plural(process.compute_threads, "compute thread"), False))
    if process.workers is not None:
        busy = f" ({process.workers_cpu_pct:.0f} % CPU)" if process.workers and process.workers_cpu_pct else ""
        facts.append((plural(process.workers, "worker") + busy, False))
    if process.quota_cpus is not None:
        facts.append((f"quota {process.quota_cpus:.3g} CPUs", False))
    if process.throttled_pct:
        facts.append((f"throttled {figure(process.throttled_pct)} % of the time", process.throttled_pct >= 1))
    if process.oom_kills:
        facts.append((f"{process.oom_kills:,} killed for memory", True))
    return facts


def _plain(number: np.int64, look: Look) -> str:
    return str(int(number)) if number >= 0 else look.unknown


def _gpu(gpu: GpuFigures | None, look: Look) -> str:
    if gpu is None:
        return "no GPU"
    memory = f", {amount(gpu.memory_used, look.unknown)} used" if gpu.memory_used is not None else ""
    return f"GPU {gpu.index} {look.clean(gpu.name or '')}{memory}".rstrip()


def stall_lines(stall: Stall, width: int, room: int, look: Look) -> list[Line]:
    """The training thread's stack, most recent call last, and under it what the GPU and the flight recorder say."""
    stack, said = main_stack(stall), "; ".join(filter(None, (device(stall), collectives(stall))))
    if room < 2:
        return []
    flight = [_flight(said, width, look)] if said and room >= 3 else []
    when = f"no step for {age(stall.seconds, look.unknown)}"
    if stack is None:
        graph = stall.graph_replay_s is not None
        why = "not measured: a CUDA graph" if graph else "its stack could not be read"
        nothing: Line = [Segment(f"  {why}", look.dim)]
        return [title(when, "", width, look), nothing, *flight]
    name = f"{when}: {look.clean(stack.thread)}" if stack.thread else when
    return [*_stack(stack, name, width, room - len(flight), look), *flight]


def other_threads(stall: Stall, width: int, room: int, look: Look) -> list[Line]:
    """The stacks of the process's other threads, as far as there is room for them."""
    lines: list[Line] = []
    for stack in stall.stacks[1:]:
        if room - len(lines) < LEAST_OTHER:
            break
        lines += _stack(stack, f"thread {look.clean(stack.thread)}", width, room - len(lines), look)
    return lines


def failure_lines(failure: Failure, width: int, room: int, look: Look) -> list[Line]:
    """Exception type, message, and the end of the traceback."""
    if room < 2:
        return []
    at = f"failed at step {count(failure.step)}" if failure.step >= 0 else "failed before its first step"
    lines = [title(at, "most recent call last", width, look)]
    said = look.clean(failure_text(failure))
    message = [[Segment(f"  {row}", look.broken)] for row in wrap(said, width - 4)[: min(MESSAGE_ROWS, room - 1)]]
    trace = [look.clean(line.expandtabs(2)) for line in last_lines(failure, room - 1 - len(message))]
    trace = [shortened_place(line, width - 3, look.cut) for line in trace]
    traceback = [[Segment(clip(f"  {line}", width - 1, look.glyphs.more), look.text)] for line in trace]
    return [fit(line, width) for line in (*lines, *message, *traceback)]


def _flight(said: str, width: int, look: Look) -> Line:
    said = clip(look.clean(said), width - 4, look.glyphs.more)
    return fit([Segment(f" {look.glyphs.note} ", look.dim), Segment(said, look.text)], width)


def _stack(stack: Stack, name: str, width: int, room: int, look: Look) -> list[Line]:
    """A title and the frames, the user's own bright and marked, the newest of them with the accent."""
    frames = fewer(stack.frames, room - 1)
    left_out = len(stack.frames) - len(frames)
    remark = f"{len(frames)} of {len(stack.frames)} calls" if left_out else "most recent call last"
    places = _places(frames, int(width * PLACE_SHARE) - 4, look)
    wide = max((cell_len(place) for place in places), default=0)
    own = newest_own(frames)
    lines = [title(name, remark, width, look)]
    for frame, place in zip(frames, places, strict=True):
        sign = look.glyphs.mark if frame is own else look.glyphs.note if frame.own else " "
        mark = Segment(f" {sign} ", look.accent if frame is own else look.dim)
        source = clip(look.clean(frame.source.strip()), max(width - wide - 6, 0), look.glyphs.more)
        tone = look.strong if frame is own else look.text if frame.own else look.dim
        where = Segment(left(place, wide, look.glyphs.more) + "  ", look.text if frame.own else look.dim)
        lines.append(fit([mark, where, Segment(source, tone)], width))
    return lines


def _places(frames: Sequence[StackFrame], width: int, look: Look) -> list[str]:
    """`file:line in function`, the file cut from the left where that is too long."""
    places = []
    for frame in frames:
        behind = f":{frame.line} in {look.clean(frame.function)}"
        room = max(width - cell_len(behind), 8)
        places.append(clip(shortened(look.clean(frame.file), room, look.cut) + behind, width, look.glyphs.more))
    return places


@dataclass(frozen=True, slots=True)
class Share:
    """Heights of the parts of the detail screen."""

    band: int
    resource: int  # height of each resource's plot; 0 for none


def detail_lines(picture: ViewState, rank: int, width: int, height: int) -> list[Line]:
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
        rows = FIRST_ROWS if finding is found[0] else ROWS
        for place, row in enumerate(wrap(look.clean(finding.summary), width - 4)[:rows]):
            lines.append([Segment(f" {glyph} " if place == 0 else "   ", style), Segment(row, style)])
    return lines


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
