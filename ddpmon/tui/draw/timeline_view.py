"""The view of time: rows over the same steps, with a cursor at the moment that is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich.segment import Segment
from rich.style import Style

from ddpmon.format import age, count, figure, loss_words, plural, time_of_day
from ddpmon.report.base_step import NOTABLE_SHARE, OF_BASE, share_words
from ddpmon.report.last_word import last_step_s, still_words
from ddpmon.report.run_about import is_simulated
from ddpmon.report.step_clock import seconds_since, wall_of
from ddpmon.report.verdicts import is_past, is_standing_still, late_ranks, onsets
from ddpmon.run.model import LOST_S
from ddpmon.run.recent import RECENT
from ddpmon.schema import RunInfo
from ddpmon.snapshot import BucketView, Finding, Floats, Snapshot, Timeline, is_over
from ddpmon.tui.draw.decimation import forward_fill, one_step_in, rate_words
from ddpmon.tui.draw.panel import at_standstill, axis, beginning, title, title_line
from ddpmon.tui.draw.panel_sizes import TABLE_HEAD
from ddpmon.tui.draw.plot import GUTTER, Curve, body, said_beyond, scale_of
from ddpmon.tui.draw.timeline_events import Marks, event_rows
from ddpmon.tui.draw.zoom import Span, column_of, span_words, steps_in, timeline_span, with_span
from ddpmon.tui.lines import Line, fit, fit_all, left, width_of
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState

NAME = 15  # cells of a row's name and value
FRAME, TRACK_MOST = 4, 14  # lines of title, events and axis; the most lines of a row
EVENT_ROWS, EVENT_SHARE = 2, 6  # of findings and of the phases that the user named: so many, or a sixth of the lines
LOW = 18  # lines from which on a row has two at least
HIDDEN, EXPOSED = "█", "▒"
BUCKET_HEAD = 2  # lines above the buckets: title and headings
LEAST_MS = 0.001  # of a bucket: three decimals say no less
# In percent of the base step: from here on the latest rank of a step is named although no finding names it. In the
# simulated healthy run some rank is the latest by chance: by 1.9 % of 8 ranks, 3.4 % of 64 and 4.7 % of 1,024 in the
# median of 200 steps, and by 4.9, 6.0 and 6.3 % at most.
NAMED_PCT = 10.0


@dataclass(frozen=True, slots=True)
class Track:
    """A row: its name, its values over the steps, the unit, a word on the value, and whether it is a lateness.

    Of a series that is measured in few steps `rate` says in how many.
    """

    name: str
    values: Floats
    unit: str
    remark: str = ""
    is_lateness: bool = False
    rate: str = ""


def timeline_height(room: int, below: int, *, first: bool = False) -> int:
    """Lines of all rows with the title, the events and the axis.

    What stands below needs `below` lines besides two titles, and keeps half of the room at most; where it comes
    `first`, all but a line for each row.
    """
    table = below + TABLE_HEAD if first else min(below + TABLE_HEAD, room // 2)
    track = max(2 if room >= LOW and not first else 1, min(TRACK_MOST, (room - table - FRAME) // 4))
    return min(4 * track + FRAME, room - TABLE_HEAD - 1)


def timeline_lines(picture: ViewState, width: int, height: int) -> list[Line]:
    """Title, four rows, the events, and the axis of the steps that the reader has zoomed in on."""
    look = picture.look
    shown, whole = picture.snapshot, picture.over
    timeline, moment = whole.timeline, None if shown.run is None else shown.run.step
    if timeline is None or len(timeline.step) < 2 or moment is None:
        return fit_all(
            [title("timeline", "", width, look), [Segment("  no step on record yet", look.dim)]], width, height
        )
    columns = width - NAME - GUTTER - 1
    span = timeline_span(picture, timeline)
    at = int(np.clip(np.searchsorted(timeline.step, moment), 0, len(timeline.step) - 1))
    told = _newest_told(timeline, at)
    cursor = column_of(timeline.step[at], span, columns) if shown.replay is not None else None
    most = max(EVENT_ROWS, height // EVENT_SHARE)
    room = max(height - 2 - 4 * max((height - 2 - most) // 4, 1), 1)
    events = event_rows(whole, timeline, span, columns, room, look)
    rows = max((height - 2 - len(events)) // 4, 1)
    words = span_words(span, (float(timeline.step[0]), float(timeline.step[-1])))
    when = look.clean(_moment(picture, int(timeline.step[told])))
    lines = [title(with_span("timeline", words, when, width), when, width, look)]
    still = still_words(whole) if span[1] == timeline.step[-1] else ""
    for track in _tracks(timeline, told, shown.findings):
        lines += _row(track, timeline, told, span, columns, rows, cursor, still, look)
    left_side = [Segment(" " * (NAME + GUTTER))]
    lines += [[*left_side, *axis(marks, columns, look)] for marks in events]
    lines.append([*left_side, *_axis(whole, span, columns, look)])
    return fit_all(lines, width, height)


def step_at(picture: ViewState, width: int, x: int) -> int | None:
    """The step that `timeline_lines` of this width draws in column `x`; None beside the plots, and without steps."""
    timeline, columns, column = picture.over.timeline, width - NAME - GUTTER - 1, x - NAME - GUTTER
    if timeline is None or len(timeline.step) < 2 or not 0 <= column < columns or columns < 2:
        return None
    first, last = timeline_span(picture, timeline)
    return round(first + column / (columns - 1) * (last - first))


def _moment(picture: ViewState, step: int) -> str:
    """`14:00:52, step 702`, and whether that is now or the run's last one; how long ago, while no step is heard of.

    It is the step whose figures stand there; of a run that is over or whose store is gone it is said of how many, where
    not all ranks have told of the last one.
    """
    snapshot = picture.snapshot
    run, is_now = snapshot.run, snapshot.replay is None
    newest = run.step if run is not None and is_now and is_past(snapshot) else None
    whole = "" if newest is None or newest <= step else f" of {count(newest)}"
    clock = time_of_day(wall_of(snapshot, step))
    left_over = 0.0 if snapshot.replay is None else snapshot.replay.length - snapshot.replay.t
    goes_on = snapshot.replay is not None and snapshot.replay.is_live and not _has_ended(picture.whole)
    behind = f", {age(left_over)} {'ago' if goes_on else 'before the end'}" if left_over >= 1 else ""
    live = _now(picture, step, is_last=not whole) if is_now else ""
    return f"{f'{clock}, ' if clock else ''}step {count(step)}{whole}{behind}{f', {live}' if live else ''}"


def _now(picture: ViewState, step: int, *, is_last: bool) -> str:
    """`live`, `the last one`, or how long ago the step ended; empty where that is not known.

    While the display is frozen the time that has passed since is not known.
    """
    snapshot = picture.snapshot
    is_newest = snapshot.run is not None and snapshot.run.step == step
    ago = last_step_s(snapshot) if is_newest and is_standing_still(snapshot) else seconds_since(snapshot, step)
    if ago is None or (_has_ended(snapshot) and not is_last):
        return ""
    if _has_ended(snapshot):
        return "the last one"
    if picture.paused_s is not None:
        return ""
    is_heard = snapshot.link.state == "live" and picture.stuck_s is None and not is_standing_still(snapshot)
    return "live" if is_heard and _is_of_now(snapshot, step) else f"{age(ago)} ago"


def _has_ended(snapshot: Snapshot | None) -> bool:
    return snapshot is not None and snapshot.run is not None and is_over(snapshot.run.state)


def _is_of_now(snapshot: Snapshot, step: int) -> bool:
    """Whether a step that all ranks have told of is one of the last that the run has finished.

    Where some ranks have restarted alone, what all of them have told of stays behind.
    """
    ago, newest = seconds_since(snapshot, step), None if snapshot.run is None else snapshot.run.step
    return ago is None or ago <= LOST_S or (newest is not None and newest - step <= RECENT)


def _newest_told(timeline: Timeline, at: int) -> int:
    """The place of the newest step up to `at` that all ranks have told of which are compared, so that it is known."""
    for known in (timeline.late_rank >= 0, np.isfinite(timeline.step_ms)):
        if (found := np.flatnonzero(known[: at + 1])).size:
            return int(found[-1])
    return at


def _tracks(timeline: Timeline, at: int, findings: Sequence[Finding]) -> list[Track]:
    late, rank = float(timeline.late_pct[at]), int(timeline.late_rank[at])
    least = NOTABLE_SHARE * 100 if rank in late_ranks(findings) else NAMED_PCT
    is_late = rank >= 0 and late >= least
    bandwidth = timeline.busbw_gb_s[: at + 1][np.isfinite(timeline.busbw_gb_s[: at + 1])]  # none of the future
    rate = f"{figure(float(bandwidth[-1]))} GB/s" if bandwidth.size else ""
    bus = f"bus {rate}" if rate and len(rate) < NAME - len("bus  ") else rate  # a blank before the ticks of the axis
    return [
        Track("most late", timeline.late_pct, "%", f"rank {rank}" if is_late else "", is_lateness=True),
        Track("step", timeline.step_ms, "ms"),
        Track("all-reduce", timeline.allreduce_ms, "ms", bus, rate=rate_words(one_step_in(timeline.allreduce_ms))),
        Track("loss", timeline.loss, ""),
    ]


def _row(
    track: Track,
    timeline: Timeline,
    at: int,
    span: Span,
    columns: int,
    rows: int,
    cursor: int | None,
    still: str,
    look: Look,
) -> list[Line]:
    """A name with the value at the moment, and the line."""
    value = _near(track.values, at)
    form = share_words if track.is_lateness else figure if track.unit else loss_words
    number = look.clean(form(value, look.unknown))
    floor = 0.0 if track.is_lateness else None  # of what is 0 as a rule; a longer step is seen where it begins higher
    here = steps_in(span, timeline.step)
    step, is_sampled = timeline.step[here].astype(np.float64), bool(track.rate)
    values, samples = (forward_fill(track.values), track.values[here]) if is_sampled else (track.values, None)
    curve = Curve(track.name, "", step, values[here], span=span, floor=floor, is_filled=True, samples=samples)
    curve = replace(curve, is_cut=track.unit == "ms", still=still)
    scale = scale_of(curve, rows)
    beyond = "" if scale is None else said_beyond(curve, scale)[1]
    words = _row_words(track, number, f"{look.glyphs.up} {beyond}" if beyond else "", rows, look)
    plot: list[Line] = [fit([Segment(f"{'':{GUTTER}}not known", look.dim)], GUTTER + columns)]
    plot += [[Segment(" " * (GUTTER + columns))]] * (rows - 1)
    if scale is not None and columns >= 2:
        plot = at_standstill(body(curve, columns, rows, scale, span, look), still, look)
    if cursor is not None:
        plot = [_with_cursor(line, GUTTER + cursor, look) for line in plot]
    lines = []
    for place in range(rows):
        text, style = words[place] if place < len(words) else ("", look.dim)
        lines.append([Segment(f" {left(text, NAME - 1, look.glyphs.more)}", style), *plot[place]])
    return lines


def _row_words(track: Track, number: str, beyond: str, rows: int, look: Look) -> list[tuple[str, Style]]:
    """The name, the value, and below them what lies beyond the axis, in how many steps it is measured, and the remark.

    In few lines `rank 417 late` takes the place of `most late`. Beside the name stands in one line the value, if it has
    room, and in two lines, or where the value has none, what lies beyond.
    """
    name = f"{track.remark} late" if rows < 3 and track.is_lateness and track.remark else track.name
    value = f"{number} {track.unit}".rstrip()
    based = f"{value} {OF_BASE[-1]}"
    value = based if track.is_lateness and len(based) < NAME else value
    beside = (value, beyond) if rows == 1 else (beyond,) if rows == 2 else ()
    whole = [f"{name} {words}" for words in beside if words]
    first = next((each for each in whole if len(each) < NAME), name)
    if rows == 1:
        return [(first, look.dim)]
    remarks = [each for each in (beyond, track.rate, track.remark) if each]
    return [(first, look.dim), (value, look.strong), *((remark, look.dim) for remark in remarks)]


def _near(values: Floats, at: int) -> float:
    """The newest known value up to a place."""
    known = np.flatnonzero(np.isfinite(values[: at + 1]))
    return float(values[known[-1]]) if known.size else float("nan")


def _with_cursor(line: Line, column: int, look: Look) -> Line:
    """A line with the cursor's bar at a column."""
    before, _, after = Segment.divide(line, [column, column + 1, sum(part.cell_length for part in line)])
    return [*before, Segment(look.glyphs.bar, look.accent), *after]


def _axis(whole: Snapshot, span: Span, columns: int, look: Look) -> Line:
    """The last step, the first one, where lasting troubles began, and between them times of day over their steps."""
    first, last = round(span[0]), round(span[1])
    began = [step for step in onsets(whole.findings) if step <= last]
    told = [(column_of(step, span, columns) if step >= first else -1, f"{step:,}") for step in began]
    marks: Marks = [(columns, f"{last:,}", None), *beginning((f"step {first:,}", f"{first:,}"), told, columns, look)]
    times = dict[str, int]()  # one that several steps share is that of the first
    for share in (0.5, 0.25, 0.75):
        step = round(first + share * (last - first))
        times.setdefault(time_of_day(wall_of(whole, step)), column_of(step, span, columns))
    return axis(marks, columns, look, [(column - len(clock) // 2, clock) for clock, column in times.items()])


def bucket_lines(buckets: BucketView, width: int, height: int, look: Look, key: str = "v") -> list[Line]:
    """A row a bucket: its size, what it takes, and a bar whose exposed part is hatched.

    Without room for all of them the exposed ones come first, and `key` is named, which shows more. The title says
    of when they are and what the shades mean, the headings of whom: the least of any rank, for the one that comes last
    waits for nobody.
    """
    signs = ("=", "#") if look.ascii_only else (HIDDEN, EXPOSED)
    shown = len(buckets.ms) if len(buckets.ms) + BUCKET_HEAD <= height else max(height - BUCKET_HEAD - 1, 0)
    bare_ms = np.nan_to_num(buckets.exposed_ms)
    numbers = sorted(np.argsort(bare_ms <= 0, kind="stable")[:shown].tolist())
    lines = [title_line("buckets", _buckets_remark(buckets, signs, width, look), width, look)]
    lines.append([Segment(f"{'':>5} {'size':>7}     ms of the fastest rank", look.dim)])
    lines += [_bucket_row(buckets, number, float(bare_ms[number]), signs, width, look) for number in numbers]
    if shown < len(buckets.ms):
        lines.append([Segment(f"      {plural(len(buckets.ms) - shown, 'more bucket')}: {key}", look.dim)])
    return [fit(line, width) for line in fit_all(lines, width, height)]


def no_buckets(info: RunInfo | None) -> str:
    """Why no bucket is known."""
    if info is not None and info.bucket_detail:
        return "no bucket is known: the ranks have not told of the same steps yet"
    if info is not None and is_simulated(info):
        return "this simulated run has no bucket detail"
    return "bucket detail is off: attach(buckets=True) or DDPMON_BUCKETS=1 turns it on"


def _buckets_remark(buckets: BucketView, signs: tuple[str, str], width: int, look: Look) -> Line:
    """What the title says of the bars: what the shades mean, and of when they are where there is room."""
    steps = f"steps {buckets.first_step:,}-{buckets.last_step:,}, ms, "
    shades = [(signs[0], look.line), (" hidden, ", look.dim), (signs[1], look.text), (" exposed", look.dim)]
    remark = [Segment(text, style) for text, style in shades]
    has_room = len(steps) + width_of(remark) + len("buckets") + 6 <= width
    return [Segment(steps if has_room else "ms, ", look.dim), *remark]


def _bucket_row(
    buckets: BucketView, number: int, exposed_ms: float, signs: tuple[str, str], width: int, look: Look
) -> Line:
    """A bucket's number, its size, its bar, whose exposed part is hatched (`▒–` if unknown), and what it takes."""
    ms, most = float(buckets.ms[number]), max(float(np.nan_to_num(buckets.ms).max()), 1e-9)
    room = max(width - 26, 4)
    whole, part = round(float(np.nan_to_num(ms)) / most * room), round(exposed_ms / most * room)
    unknown = "" if np.isfinite(buckets.exposed_ms[number]) else f" {signs[1]}{look.unknown}"
    return [
        Segment(f" {number:>4} {_mebibytes(buckets.sizes[number]):>7} MiB ", look.dim),
        Segment(signs[0] * max(whole - part, 0), look.line),
        Segment(signs[1] * part, look.text),
        Segment(f" {f'<{LEAST_MS:g}' if ms < LEAST_MS else figure(ms, look.unknown)}", look.text),
        Segment(unknown, look.dim),
    ]


def _mebibytes(size: int) -> str:
    """`25.0`; of a size above 0 that rounds to nothing `<0.1`."""
    return "<0.1" if 0 < size < 0.05 * 2**20 else f"{size / 2**20:.1f}"
