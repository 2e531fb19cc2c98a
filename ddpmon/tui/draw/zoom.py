"""Which steps the plots show: all on record, or as many of them as the reader has zoomed in on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ddpmon.format import count
from ddpmon.snapshot import Floats, Ints, Snapshot, Timeline
from ddpmon.tui.lines import cells_of
from ddpmon.tui.view_state import ViewState

LEAST = 10  # steps: fewer show no course
ALL = 0.9  # Share of the steps on record: more are shown as all, since a run adds steps between two presses. Chosen.
NEAR, NEAR_LEAST = 0.05, 3.0  # of a plot's steps, and steps, by which its ends may differ from those that all share
Span = tuple[float, float]  # the first and the last step


def steps_on_record(picture: ViewState) -> list[int]:
    """How many steps each kind of plot can show at most: the run's, the timeline, the heat-map and a rank's.

    The most come first. Kinds of which no step has been read are left out.
    """
    snapshot = picture.snapshot
    records = [snapshot.series, picture.over.timeline, snapshot.heat]
    steps = [record.step for record in records if record is not None]
    steps += [] if snapshot.detail is None else [snapshot.detail.courses["work"].step]
    return sorted({int(each[-1] - each[0]) + 1 for each in steps if len(each)}, reverse=True)


def record_span(snapshot: Snapshot) -> Span | None:
    """The first and the last step of the run's series and of the heat-map; None before one was read.

    The timeline goes on to steps that few ranks have told of.
    """
    steps = [record.step for record in (snapshot.series, snapshot.heat) if record is not None and len(record.step)]
    return (float(min(each[0] for each in steps)), float(max(each[-1] for each in steps))) if steps else None


def shared_axis(span: Span, record: Span | None) -> Span:
    """The axis of a plot over the steps `span` as the plots of a screen share it: each end is that of the `record`.

    A plot that ends there also begins there if it then fills half of the axis, such as that of a rank that attached
    late. An end that lies far away stays, as of the newest steps of a long run or of a rank that restarted alone.
    """
    if record is None:
        return span
    length = span[1] - span[0]
    near = max(NEAR * length, NEAR_LEAST)
    end = record[1] if abs(span[1] - record[1]) <= near else span[1]
    most_before = max(length, near) if end == record[1] else near
    return (record[0] if -near <= span[0] - record[0] <= most_before else span[0]), end


def zoomed(steps: int, on_record: int, by: int) -> int:
    """The steps to show next: half of those in sight, or twice as many; 0 for nearly all of those on record.

    Args:
        steps: those asked for now, 0 for all.
        on_record: how many there are.
        by: above 0 for fewer, below 0 for more.
    """
    shown = min(steps or on_record, on_record)
    if by > 0:
        return max(shown // 2, LEAST) if shown > LEAST else steps
    return 2 * shown if 2 * shown < ALL * on_record else 0


def in_sight(span: Span, steps: int, at: float | None = None) -> Span:
    """The part of a span that is shown: so many steps around the step `at`, the last ones for None; 0 for all."""
    first, last = span
    if not steps or steps > last - first:
        return span
    begin = last if at is None else at - steps // 2
    begin = min(max(begin, first), last - steps + 1)
    return begin, begin + steps - 1


def steps_in(span: Span, step: Floats | Ints) -> slice:
    """Where the steps of the span lie among these ascending ones."""
    return slice(int(np.searchsorted(step, span[0])), int(np.searchsorted(step, span[1], side="right")))


def column_of(step: float, span: Span, columns: int) -> int:
    """The column of a step on an axis over the span; one that lies beyond an end stands at that end."""
    return max(0, min(round((step - span[0]) / max(span[1] - span[0], 1.0) * (columns - 1)), columns - 1))


def span_words(span: Span, whole: Span) -> str:
    """`steps 1,200-1,400 of 1,460` where the span is a part of the whole; else empty."""
    if span == whole:
        return ""
    return f"steps {count(round(span[0]))}-{count(round(span[1]))} of {count(round(whole[1]))}"


def with_span(name: str, words: str, remark: str, width: int) -> str:
    """The name of a panel, and what `span_words` says of its steps, as far as the remark leaves room for that."""
    names = (f"{name}, {words}", f"{name}, {words.partition(' of ')[0]}") if words else ()
    return next((each for each in names if cells_of(each) + cells_of(remark) + 6 <= width), name)


def timeline_span(picture: ViewState, timeline: Timeline) -> Span:
    """The steps of the timeline that are shown: around the moment that is shown, at the live end the newest ones."""
    run = picture.snapshot.run
    whole = float(timeline.step[0]), float(timeline.step[-1])
    return in_sight(whole, picture.zoom, None if run is None or run.step is None else float(run.step))


def shown_timeline(picture: ViewState) -> Timeline | None:
    """The timeline with the steps that are shown and no others."""
    timeline = picture.over.timeline
    if timeline is None or not len(timeline.step):
        return timeline
    here = steps_in(timeline_span(picture, timeline), timeline.step)
    names = ("step", "late_pct", "late_rank", "step_ms", "allreduce_ms", "busbw_gb_s", "loss")
    return replace(timeline, **{name: getattr(timeline, name)[here] for name in names})
