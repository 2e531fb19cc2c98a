"""What a rank did over its last steps, as plots: its own line over the band of the other ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from rich.segment import Segment

from ddpmon.diagnose.kinds import KindName
from ddpmon.format import figure
from ddpmon.report.last_word import still_words
from ddpmon.report.leak import Leak, leak_of
from ddpmon.report.peers import RHYTHM, Comparison, Row, ShownLateness, compare, now_and_then_words
from ddpmon.report.verdicts import firing, is_restart, naming, until_words
from ddpmon.schema import PHASES
from ddpmon.snapshot import Course, Finding, Floats, Ints, RankDetail, Snapshot
from ddpmon.tui.draw.header import finding_style
from ddpmon.tui.draw.panel import StyledGlyph, title
from ddpmon.tui.draw.plot import Curve, plot_lines, zoomed_curve
from ddpmon.tui.draw.zoom import Span, record_span, shared_axis, steps_in
from ddpmon.tui.lines import Line, fit, fit_all, joined
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState

LEAST_ROWS, LEAST_WIDTH = 6, 36  # of a plot with its title and its axis


@dataclass(frozen=True, slots=True)
class Metric:
    """A quantity that can be plotted.

    Attributes:
        key: of `RankDetail.courses`. name, unit: as they are shown; factor: from what was measured to that unit.
        from_zero: whether the axis begins at 0.
        row: what the table of a rank beside the others calls it, if that is not its name.
    """

    key: str
    name: str
    unit: str
    factor: float = 1.0
    from_zero: bool = False
    row: str = ""


METRICS = (
    Metric("work", "work", "ms"),
    Metric("lateness", "lateness", "ms", from_zero=True),
    Metric("gpu_power_w", "GPU power", "W"),
    Metric("gpu_clock_mhz", "GPU clock", "MHz"),
    Metric("gpu_utilization_pct", "GPU", "%", from_zero=True),
    Metric("cpu_pct", "CPU", "%", from_zero=True),
    Metric("runqueue_pct", "run-queue wait", "%", from_zero=True),
    Metric("wait", "wait", "ms", from_zero=True),
    Metric("rss_bytes", "resident memory", "GiB", 1 / 2**30, row="resident"),
    Metric("gpu_allocated", "torch memory", "GiB", 1 / 2**30),
    Metric("loss", "loss", ""),
    *(Metric(phase, phase, "ms") for phase in PHASES),
)
OF_STEPS = {"work", "lateness", "wait", "loss", *PHASES}  # the keys of what is known of a step once it has finished
# What is plotted of a rank where the kind says more of it than the phase does.
ABOUT: Mapping[KindName, str] = {
    "gpu_shared": "gpu_utilization_pct",
    "gpu_doubled": "gpu_utilization_pct",
    "gpu_leftover": "gpu_allocated",
    "gpu_memory_growth": "gpu_allocated",
    "gpu_memory_uneven": "gpu_allocated",
    "gpu_throttled": "gpu_clock_mhz",
    "memory_pressure": "rss_bytes",
    "loss_jump": "loss",
}


def reading_line(picture: ViewState, rank: int) -> Line:
    """What stands in the place of a rank's plots while its steps are being read, or where none can be."""
    ranks, look = picture.snapshot.ranks, picture.look
    words = f"reading rank {rank} {look.glyphs.more}"
    if ranks is not None and rank < len(ranks) and ranks.state[rank] == "unknown":
        words = f"rank {rank} has not been heard yet: none of its steps is known"
    elif picture.stuck_s is not None:
        words = f"rank {rank} is read as soon as the store answers"
    return [Segment(f" {words}", look.dim)]


def offered(detail: RankDetail) -> list[Metric]:
    """The metrics of which anything is known."""
    return [metric for metric in METRICS if np.isfinite(detail.courses[metric.key].own).any()]


def plottable(detail: RankDetail, keys: Sequence[str]) -> list[Metric]:
    """Those of these metrics that have a course over the steps on record, in the order of `keys`."""
    found = {metric.key: metric for metric in offered(detail) if span_of(detail, detail.courses[metric.key])}
    return [found[key] for key in keys if key in found]


def span_of(detail: RankDetail, course: Course) -> Span | None:
    """The steps of the axis: those of the rank that are on record; None where this quantity is not known in them.

    All plots of a rank have one axis, also that of its machine, which is read only while somebody watches.
    """
    steps = detail.courses["work"].step
    known = course.step[np.isfinite(course.own)]
    if not len(known):
        return None
    axis = steps if len(steps) else known  # of a frozen moment, whose steps are no longer on record
    return (float(axis[0]), float(axis[-1])) if max(known[0], axis[0]) < axis[-1] else None


@dataclass(frozen=True, slots=True)
class RankPlots:
    """What all plots of a rank share.

    Attributes:
        detail: the rank's courses.
        look: how they are drawn.
        figures: quantity -> for the titles the figure of now, of this rank and of the others, in fewer and fewer words.
        since: the onset that is marked; None without one. sign: of it, with its style; None for that of a warning.
        is_bound: what is marked began at that step or before.
        zoom: how many steps are shown, 0 for all on record.
        record: the steps that the plots of the run are over.
        until: `up to step 59` while no further step finishes, for the plots of what is known of finished steps only.
        still: `no step for 29 s` meanwhile, for all plots: their axis of steps ends there.
        leak: the memory that a finding says to grow.
    """

    detail: RankDetail
    look: Look
    figures: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    since: int | None = None
    sign: StyledGlyph | None = None
    is_bound: bool = False
    zoom: int = 0
    record: Span | None = None
    until: str = ""
    still: str = ""
    leak: Leak | None = None

    def plot(self, metric: Metric, width: int, height: int, whose: str = "") -> list[Line]:
        """Title with the value of now, the line over the band of the others, and the axis of steps with the onset."""
        name, ways = whose + _named(metric), map(self.look.clean, self.figures.get(metric.key, ()))
        now = next((words for words in ways if len(name) + len(words) + 6 <= width), "")
        curve = self._curve_of(metric)
        if curve is None:
            nothing: Line = [Segment("  nothing of this on record", self.look.dim)]
            return fit_all([title(name, now, width, self.look), nothing], width, height)
        return plot_lines(replace(curve, name=name, remark=now), width, height, self.look)

    def leak_curve(self) -> Curve | None:
        """The memory that grows, named with its rank for a panel of a run; None without any on record."""
        metric = next((each for each in METRICS if self.leak is not None and each.key == self.leak.key), None)
        curve = None if metric is None else self._curve_of(metric)
        if metric is None or curve is None:
            return None
        now = self.look.clean((self.figures.get(metric.key) or ("",))[-1])
        return replace(curve, name=f"rank {self.detail.rank}: {_named(metric)}", remark=now)

    def _curve_of(self, metric: Metric) -> Curve | None:
        """The course without a title over the steps that the reader has zoomed in on; None if there is none."""
        course = self.detail.courses[metric.key]
        span = span_of(self.detail, course)
        if span is None:
            return None
        onsets = () if self.since is None else (self.since,)
        until = self.until if metric.key in OF_STEPS else ""
        curve = replace(_curve(course, metric, shared_axis(span, self.record)), span_words=until, still=self.still)
        curve = replace(curve, onsets=onsets, sign=self.sign, is_bound=self.is_bound)
        if self.leak is not None and metric.key == self.leak.key:
            full = self.leak.full_bytes
            curve = replace(curve, limit=None if full is None else full * metric.factor, span_words=self.leak.words)
        return zoomed_curve(curve, self.zoom)

    def beside(
        self, first: Metric, width: int, height: int, blamed: str | None, stacked: int
    ) -> tuple[list[Line], list[Metric]]:
        """The chosen metric large, below it as many others as there is room for; and the metrics that are left over.

        What a finding blames comes first among the others. Below the table there is room for so many as
        `stacked` says: those are left over.
        """
        keys = sorted((each.key for each in METRICS), key=lambda key: key != blamed)
        others = [metric for metric in plottable(self.detail, keys) if metric != first]
        across = max(min(width // LEAST_WIDTH, 3, len(others)), 1)
        high = LEAST_ROWS + 2 if height >= 30 else LEAST_ROWS
        down = min(max((height - 2 * LEAST_ROWS) // high, 0), -(-max(len(others) - stacked, 0) // across))
        lines = self.plot(first, width, height - down * high)
        for row in range(down):
            lines += self._row(others[row * across : (row + 1) * across], across, width, high)
        return lines, others[down * across :]

    def grid(self, metrics: list[Metric], width: int, height: int) -> list[Line]:
        """As many of these metrics as there is room for, in cells of one height that fill it."""
        across = max(min(width // LEAST_WIDTH, 3, len(metrics)), 1)
        down = min(height // LEAST_ROWS, -(-len(metrics) // across))
        lines: list[Line] = []
        for row in range(down):
            shown = metrics[row * across : (row + 1) * across]
            lines += self._row(shown, len(shown), width, (height - len(lines)) // (down - row))
        return lines

    def _row(self, metrics: list[Metric], across: int, width: int, high: int) -> list[Line]:
        """Plots beside each other, each as wide as `across` of them can be."""
        cell = (width - across + 1) // across
        blocks = [self.plot(metric, cell, high) for metric in metrics]
        return [fit(joined([block[line] for block in blocks], Segment(" ")), width) for line in range(high)]

    def stacked(self, metrics: list[Metric], width: int, room: int) -> list[Line]:
        """As many of these metrics as fit, one below the other."""
        many = min(stack_room(room), len(metrics))
        lines: list[Line] = []
        for place, metric in enumerate(metrics[:many]):
            lines += self.plot(metric, width, (room - len(lines)) // (many - place))
        return lines


def stack_room(room: int) -> int:
    """How many plots have room one below the other."""
    return max(room, 0) // (LEAST_ROWS + 2)


def rank_plots(
    picture: ViewState, detail: RankDetail, found: Sequence[Finding] = (), compared: Comparison | None = None
) -> RankPlots:
    """The plots of a rank with these findings, with the figures in their titles that the tables have.

    `compared` is the rank beside the others, where that is known already.
    """
    rows = (compared or compare(picture.snapshot, [detail.rank])).rows
    own = (finding for finding in found if not is_restart(finding))  # after a restart a rank counts its own steps
    first, look = next((finding for finding in own if finding.since_step is not None), None), picture.look
    since, sign = (None, None) if first is None else (first.since_step, finding_style(first, look))
    is_bound = first is not None and first.since_is_bound
    figures = _figures(picture.snapshot, detail.rank, rows, found, look)
    steps = detail.courses["work"].step
    until = until_words(picture.snapshot, int(steps[-1])) if len(steps) else ""
    record, still, leak = record_span(picture.snapshot), still_words(picture.snapshot), leak_of(found, detail.rank)
    if leak is not None and leak.full_bytes is not None:
        factor = next(each.factor for each in METRICS if each.key == leak.key)
        figures = {**figures, leak.key: _with_limit(figures.get(leak.key, ()), figure(leak.full_bytes * factor))}
    return RankPlots(detail, look, figures, since, sign, is_bound, picture.zoom, record, until, still, leak)


def leak_curve(picture: ViewState, rank: int) -> Curve | None:
    """The memory of a rank that its worst finding says to grow; None where that is another, or nothing is read yet."""
    ranks, detail = picture.snapshot.ranks, picture.snapshot.detail
    if ranks is None or detail is None or detail.rank != rank or not 0 <= rank < len(ranks):
        return None
    return rank_plots(picture, detail, naming(picture.snapshot.findings, rank, ranks.host[rank])).leak_curve()


def _with_limit(ways: Sequence[str], limit: str) -> tuple[str, ...]:
    """`45.9 of 80.0, others 44.0` of `45.9, others 44.0`."""
    return tuple(f"{own} of {limit}{comma}{rest}" for own, comma, rest in (way.partition(", ") for way in ways))


def _figures(
    snapshot: Snapshot, rank: int, compared: Sequence[Row], findings: Sequence[Finding], look: Look
) -> dict[str, tuple[str, ...]]:
    """`589, others 453` of each quantity, as the table of the rank beside the others has them; the lateness of now.

    Of what one of the findings calls late now and then also `+361 1/5`, and the same in fewer and fewer words.
    """
    rows = {row.quantity.name: row for row in compared}
    found = {metric.key: rows[metric.row or metric.name] for metric in METRICS if (metric.row or metric.name) in rows}
    said = {key: row.words(row.own[0]) for key, row in found.items() if math.isfinite(row.own[0])}
    others = {key: f", others {row.words(row.others)}" for key, row in found.items() if math.isfinite(row.others)}
    rare = {key: f", {words}" for key in said if (words := _now_and_then(key, rank, findings))}
    ways = {
        key: tuple(f"{own}{more}" for more in (others.get(key, "") + rare.get(key, ""), rare.get(key, ""), ""))
        for key, own in said.items()
    }
    return {**ways, "lateness": (ShownLateness(snapshot).words([rank], look.unknown),)}


def _now_and_then(key: str, rank: int, findings: Sequence[Finding]) -> str:
    """`+361 1/5` of work and of the phase that a finding blames which calls this rank late now and then."""
    blaming = (each for each in firing(findings) if rank in each.ranks and key in ("work", each.phase))
    return next(filter(None, (now_and_then_words(each, RHYTHM) for each in blaming)), "")


def _curve(course: Course, metric: Metric, span: Span) -> Curve:
    """The part of the course on the axis, in the metric's unit."""
    step = _within_steps(course.step)
    seen = steps_in(span, step)
    others = course.others[:, seen] * metric.factor
    low, high = (others[0], others[2]) if len(others) else (None, None)
    floor, own = 0.0 if metric.from_zero else None, course.own[seen] * metric.factor
    return Curve("", "", step[seen], own, low, high, span, floor=floor, is_filled=True)


def _within_steps(step: Ints) -> Floats:
    """[N] these ascending steps; readings of one step lie evenly between the one before and it, the last one on it.

    A machine is read once a second. Of long steps, such as those of 5 s, each has several readings, which made a column
    of dots over each step and nothing between them.
    """
    steps, first, count = np.unique(step, return_index=True, return_counts=True)
    if len(steps) == len(step):
        return step.astype(np.float64)
    return step - 1 + (np.arange(1, len(step) + 1) - np.repeat(first, count)) / np.repeat(count, count)


def _named(metric: Metric) -> str:
    return f"{metric.name}, {metric.unit}" if metric.unit else metric.name
