"""One rank in full: who it is, what was found, where it is stuck, its phases and resources over the last steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from rich.cells import cell_len
from rich.segment import Segment

from ddpmon.diagnose.kinds import KINDS
from ddpmon.format import age, count, figure, plural, size
from ddpmon.machine import ProcessFigures
from ddpmon.parts import Failure, Stack, StackFrame, Stall
from ddpmon.report.last_word import last_heard_s
from ddpmon.report.peers import compare
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
from ddpmon.report.verdicts import is_past, naming
from ddpmon.report.wording import state_words
from ddpmon.schema import PHASES
from ddpmon.snapshot import Finding, RankDetail, Ranks, Snapshot
from ddpmon.tui.draw.courses import ABOUT, METRICS, offered, rank_plots, reading_line, stack_room
from ddpmon.tui.draw.header import finding_style, no_findings_for, said_below
from ddpmon.tui.draw.panel import sentence_rows, title
from ddpmon.tui.draw.panel_sizes import WIDE
from ddpmon.tui.draw.peer_table import peer_lines
from ddpmon.tui.lines import Line, cells_of, clip, fit, fit_all, joined, left, spread, width_of, wrap
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState

Panel: TypeAlias = Literal["figures", "plot"]
CPUS_MOST = 24  # cells of a list of CPUs
MESSAGE_ROWS = 3
# Of a sentence; the first one has its cause behind its phase and its onset.
LEAST_ROWS, BRIEF_ROWS, FIRST_ROWS, ROWS = 2, 3, 5, 3
PLACE_SHARE = 0.55  # of the width at most: the rest is for the source
LEAST_OTHER = 3  # lines below which another thread's stack is not begun
PLOT_LEAST, PICTURE_USUAL = 7, 20  # lines of a plot, and of the table and the plots together
PLOT_ALONE_LEAST = 3  # lines of a plot that the reader has asked for
LOW = 16  # lines below which the phases come before all that can be left out
TALL = 30  # lines from which on a rank's findings are shown in full
TABLE_WIDTH = 54


def identity_lines(
    snapshot: Snapshot, ranks: Ranks, rank: int, width: int, look: Look, *, brief: bool = False
) -> list[Line]:
    """The first lines of the detail screen; `brief` leaves out what is known of its process."""
    run = snapshot.run
    place = [
        look.clean(ranks.host[rank]) or look.unknown,
        f"pid {_plain(ranks.pid[rank], look)}",
        f"local rank {_plain(ranks.local_rank[rank], look)}",
    ]
    state = ranks.state[rank]
    styles = {"lost": look.broken, "failed": look.broken, "stalled": look.accent}
    where = look.clean(state_words(state, ranks.phase[rank], past=is_past(snapshot)))
    right = [
        Segment(where, styles.get(state, look.text)),
        Segment(f"   step {count(int(ranks.step[rank]), look.unknown)}", look.text),
        Segment(f"   heard {age(last_heard_s(snapshot, float(ranks.age_s[rank])), look.unknown)} ago ", look.dim),
    ]
    total = f" of {run.world_size:,}" if run else ""
    name: Line = [Segment(f" rank {rank}", look.strong), Segment(total, look.dim)]
    between = Segment(f" {look.glyphs.dot} ", look.faint)
    gpus = _gpu(ranks, rank, look)
    known = [*([*place, gpu] for gpu in gpus), [*place[:2], gpus[-1]], [place[0], gpus[-1]], [place[0]]]
    lines = [joined([name, *([Segment(fact, look.text)] for fact in facts)], between) for facts in known]
    who = next((line for line in lines if width_of(line) <= width), lines[-1])
    more = [] if brief else _process(ranks.process[rank], between, width, look)
    if width_of(who) + width_of(right) + 2 <= width:
        return [spread(who, right, width), *more]
    kept = next((right[:end] for end in (3, 2) if width_of(right[:end]) + 1 <= width), right[:1])
    return [fit(who, width), fit([Segment(" ", look.text), *kept], width), *more]


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


def _gpu(ranks: Ranks, rank: int, look: Look) -> list[str]:
    """Which GPU, in fewer and fewer words; `GPU …` while it is not read, such as just after a restart."""
    gpu = ranks.gpu[rank]
    if gpu is None:
        return [f"GPU {look.glyphs.more}" if any(ranks.gpu) else "no GPU"]
    named = f"GPU {gpu.index} {look.clean(gpu.name or '')}".rstrip()
    memory = [f"{named}, {size(gpu.memory_used)} used"] if gpu.memory_used is not None else []
    return [*memory, named, f"GPU {gpu.index}"]


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
    """Under the frames and without a sign: signs mark the user's own calls."""
    return fit([Segment(f"   {clip(look.clean(said), width - 4, look.glyphs.more)}", look.text)], width)


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
        sign = look.glyphs.cursor if frame is own else look.glyphs.dot if frame.own else " "
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


def detail_lines(
    picture: ViewState, rank: int, width: int, height: int, metric: str = "", alone: Panel | None = None
) -> list[Line]:
    """The whole screen below the header.

    Args:
        picture: what is drawn.
        rank: of whom.
        width: cells.
        height: lines.
        metric: the key of what is plotted large, "" for what its worst finding is about, else its work.
        alone: the panel that stands there without the others: the figures also without the stack.
    """
    snapshot, look = picture.snapshot, picture.look
    ranks, detail = snapshot.ranks, snapshot.detail
    if ranks is None or not 0 <= rank < len(ranks):
        return fit_all([[Segment(f" rank {rank} is not part of this run", look.dim)]], width, height)
    found = naming(snapshot.findings, rank, ranks.host[rank])
    well = ranks.state[rank] in ("running", "finished")
    said = _found(picture, rank, found, width, height, well=well)
    lines = [*identity_lines(snapshot, ranks, rank, width, look, brief=height < LOW), *said]
    if detail is None or detail.rank != rank:
        return fit_all([*lines, *_meanwhile(picture, ranks, rank, width, height - len(lines))], width, height)
    notes = [[Segment(f" {look.glyphs.note} {look.clean(note)}", look.dim)] for note in detail.notes]
    room = height - len(lines) - len(notes)
    trouble = [] if alone == "figures" else _trouble(detail, width, room, look)
    room -= len(trouble)
    lines += [
        *trouble,
        *_figures(picture, rank, detail, found, width, room, metric, alone),
        *notes,
    ]
    return fit_all(lines, width, height)


def _meanwhile(picture: ViewState, ranks: Ranks, rank: int, width: int, room: int) -> list[Line]:
    """What is known of a rank while its steps are being read: why it goes no further, and its medians."""
    look = picture.look
    known = RankDetail(rank, {}, stall=ranks.stall[rank], failure=ranks.failure[rank])
    lines = [reading_line(picture, rank), *_trouble(known, width, room - 1, look)]
    table = min(TABLE_WIDTH, width // 2) if width >= WIDE else width
    return [*lines, *peer_lines(picture.snapshot, rank, table, max(room - len(lines), 0), look)]


def _figures(
    picture: ViewState,
    rank: int,
    detail: RankDetail,
    found: list[Finding],
    width: int,
    room: int,
    metric: str,
    alone: Panel | None,
) -> list[Line]:
    """The table of this and the others beside the plots; above one plot in narrow terminals."""
    look, compared = picture.look, compare(picture.snapshot, [rank])
    known, drawn = offered(detail), rank_plots(picture, detail, found, compared)
    wanted = metric or next((ABOUT.get(finding.kind) for finding in found), "")
    first = next((each for each in known if each.key == wanted), known[0] if known else METRICS[0])
    if alone == "plot":
        return drawn.plot(first, width, room) if room >= PLOT_ALONE_LEAST else []
    if alone == "figures":
        return peer_lines(picture.snapshot, rank, width, room, look, found, compared)

    def table_of(width: int, room: int) -> list[Line]:
        return peer_lines(picture.snapshot, rank, width, room, look, found, compared, "f")

    if room < PLOT_LEAST:
        return table_of(width, room)
    if width < WIDE:
        table = table_of(width, max(room - PLOT_LEAST, 0))
        return [*table, *drawn.plot(first, width, room - len(table))]
    left_side = min(TABLE_WIDTH, width // 2)
    late = [finding.phase for finding in found if KINDS[finding.kind].late]  # where a rank is stuck is no lateness
    blamed = next((phase for phase in late if phase in PHASES), None)
    table = table_of(left_side, room)
    below = room - len(table) - 1
    right_side, rest = drawn.beside(first, width - left_side - 1, room, blamed, stack_room(below))
    table += drawn.stacked(rest, left_side, below)
    table = fit_all(table, left_side, room)
    return [[*one, Segment(" "), *other] for one, other in zip(table, right_side, strict=True)]


def _trouble(detail: RankDetail, width: int, room: int, look: Look) -> list[Line]:
    """Why it goes no further: what ended it, else where it is stuck; the picture below gives way to that."""
    most = room - PLOT_LEAST if room >= 2 * PLOT_LEAST else room
    if detail.failure is not None:
        return failure_lines(detail.failure, width, most, look)
    if detail.stall is None:
        return []
    lines = stall_lines(detail.stall, width, most, look)
    spare = room - len(lines) - PICTURE_USUAL
    return [*lines, *other_threads(detail.stall, width, spare, look)]


def _found(picture: ViewState, rank: int, found: list[Finding], width: int, height: int, *, well: bool) -> list[Line]:
    """The sentences about this rank; in low terminals the beginning of the first one."""
    brief, least, look = height < TALL, height < LOW, picture.look
    if not found:
        glyph, words = no_findings_for(picture.snapshot, [rank], look, "rank", well=well)
        return [[Segment(f" {glyph} {words}", look.dim)]]
    lines: list[Line] = []
    for finding in found[: 1 if brief else 3]:
        glyph, style = finding_style(finding, look)
        rows = sentence_rows(look.clean(said_below(picture, finding)), width - 4)
        most = LEAST_ROWS if least else BRIEF_ROWS if brief else FIRST_ROWS if finding is found[0] else ROWS
        rows = [*rows[: most - 1], _begun(" ".join(rows[most - 1 :]), width - 4, look)][: len(rows)]
        for place, row in enumerate(rows):
            lines.append([Segment(f" {glyph} " if place == 0 else "   ", style), Segment(row, style)])
    return lines


def _begun(text: str, width: int, look: Look) -> str:
    """The whole sentences of a text that fit, or the beginning of the first one: half a number would be another one."""
    end = text.rfind(". ", 0, width)
    return text if cells_of(text) <= width else text[: end + 1] if end > 0 else clip(text, width, look.glyphs.more)
