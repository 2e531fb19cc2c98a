"""What a rank did over its last steps, as plots: its own line over the band of the other ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.segment import Segment

from ddpmon.format import figure, signed
from ddpmon.report.base_step import NOISE_SHARE
from ddpmon.report.peers import RHYTHM, now_and_then_words
from ddpmon.report.verdicts import firing
from ddpmon.run.medians import median
from ddpmon.run.recent import RECENT
from ddpmon.schema import PHASES
from ddpmon.snapshot import Course, Finding, Floats, RankDetail
from ddpmon.tui.draw.panel import axis, beginning, title
from ddpmon.tui.draw.plot import GUTTER, Curve, body, scale_of
from ddpmon.tui.lines import Line, fit, fit_all
from ddpmon.tui.theme import Look

LEAST_ROWS, LEAST_WIDTH = 6, 36  # of a plot with its title and its axis


@dataclass(frozen=True, slots=True)
class Metric:
    """A quantity that can be plotted.

    Attributes:
        key: of `RankDetail.courses`. name, unit: as they are shown; factor: from what was measured to that unit.
        from_zero: whether the axis begins at 0.
    """

    key: str
    name: str
    unit: str
    factor: float = 1.0
    from_zero: bool = False


METRICS = (
    Metric("work", "work", "ms"),
    Metric("lateness", "lateness", "ms", from_zero=True),
    Metric("gpu_power_w", "GPU power", "W"),
    Metric("gpu_clock_mhz", "GPU clock", "MHz"),
    Metric("gpu_utilization_pct", "GPU", "%", from_zero=True),
    Metric("cpu_pct", "CPU", "%", from_zero=True),
    Metric("runqueue_pct", "run-queue wait", "%", from_zero=True),
    Metric("wait", "wait", "ms", from_zero=True),
    Metric("rss_bytes", "resident memory", "GiB", 1 / 2**30),
    Metric("gpu_allocated", "torch memory", "GiB", 1 / 2**30),
    Metric("loss", "loss", ""),
    *(Metric(phase, phase, "ms") for phase in PHASES),
)


def reading_line(rank: int, look: Look) -> Line:
    """What stands in the place of a rank's plots while its steps are being read."""
    return [Segment(f" reading rank {rank} {look.glyphs.more}", look.dim)]


def offered(detail: RankDetail) -> list[Metric]:
    """The metrics of which anything is known."""
    return [metric for metric in METRICS if np.isfinite(detail.courses[metric.key].own).any()]


def plottable(detail: RankDetail, keys: Sequence[str]) -> list[Metric]:
    """Those of these metrics that have a course over the steps on record, in the order of `keys`."""
    found = {metric.key: metric for metric in offered(detail) if span_of(detail, detail.courses[metric.key])}
    return [found[key] for key in keys if key in found]


def span_of(detail: RankDetail, course: Course) -> tuple[float, float] | None:
    """The steps of the axis: to the rank's last step, from the first one on record at which this quantity is known.

    Its machine is read only while somebody watches, which may have begun later than the steps on record.
    """
    steps = detail.courses["work"].step
    known = course.step[np.isfinite(course.own)]
    if not len(known):
        return None
    first = max(known[0], steps[0]) if len(steps) else known[0]
    last = steps[-1] if len(steps) else known[-1]  # of a frozen moment, whose steps are no longer on record
    return (float(first), float(last)) if first < last else None


def course_plot(
    detail: RankDetail,
    metric: Metric,
    width: int,
    height: int,
    look: Look,
    found: Sequence[Finding] = (),
    whose: str = "",
) -> list[Line]:
    """Title with the value of now, the line over the band of the others, and the axis of steps with the onset.

    `found` are the findings on the rank, and `whose` is what the title begins with.
    """
    course = detail.courses[metric.key]
    span = span_of(detail, course)
    name, remark = whose + _named(metric), look.clean(_remark(detail, metric, found, look))
    shorter = (remark, remark.partition(", others")[0])
    remark = next((words for words in shorter if len(name) + len(words) + 6 <= width), "")
    lines = [title(name, remark, width, look)]
    rows, columns = height - 1 - (height >= LEAST_ROWS), width - GUTTER - 1
    curve = _curve(course, metric, span)
    scale = scale_of(curve, rows)
    if rows < 1 or columns < 2 or span is None or scale is None:
        return fit_all([*lines, [Segment("  nothing of this on record", look.dim)]], width, height)
    lines += body(curve, columns, rows, scale, span, look)
    if height >= LEAST_ROWS:
        lines.append([Segment(" " * GUTTER), *axis(_marks(span, columns, _onset(found), look), columns, look)])
    return fit_all(lines, width, height)


def _curve(course: Course, metric: Metric, span: tuple[float, float] | None) -> Curve:
    """The part of the course that the axis shows, in the metric's unit."""
    seen = slice(0 if span is None else int(np.searchsorted(course.step, span[0])), None)
    others = course.others[:, seen] * metric.factor
    low, high = (others[0], others[2]) if len(others) else (None, None)
    step, floor = course.step[seen].astype(np.float64), 0.0 if metric.from_zero else None
    return Curve(metric.name, "", step, course.own[seen] * metric.factor, low, high, span, floor, is_filled=True)


def _named(metric: Metric) -> str:
    return f"{metric.name}, {metric.unit}" if metric.unit else metric.name


def _onset(found: Sequence[Finding]) -> int | None:
    """The first step of which one of these findings tells."""
    return next((finding.since_step for finding in found if finding.since_step is not None), None)


def _remark(detail: RankDetail, metric: Metric, found: Sequence[Finding], look: Look) -> str:
    """`615, others 454`: the rank's value and the median of the others'; of times the medians of the last 20 steps."""
    course = detail.courses[metric.key]
    steps = RECENT if metric.unit == "ms" else 1
    own = _newest(course.own, steps) * metric.factor
    if metric.key == "lateness":
        noise = NOISE_SHARE * abs(_newest(detail.courses["work"].own, steps) - own)
        often = next(filter(None, (now_and_then_words(finding, RHYTHM) for finding in firing(found))), "")
        return look.unknown if detail.stall is not None else often or signed(own, noise=noise)
    others = _newest(course.others[1], steps) * metric.factor if len(course.others) else math.nan
    return figure(own, "") + (f", others {figure(others)}" if math.isfinite(own) and math.isfinite(others) else "")


def _newest(values: Floats, steps: int) -> float:
    """The median of the newest known values; NaN without any."""
    return median(values[np.isfinite(values)][-steps:])


def _marks(span: tuple[float, float], columns: int, since: int | None, look: Look) -> list[tuple[int, str, bool]]:
    """The onset where it is in sight, the last step, the first one."""
    first, last = round(span[0]), round(span[1])
    place = -1 if since is None or since < first else round((since - first) / max(last - first, 1) * (columns - 1))
    began = [] if since is None or since > last else [(place, f"{since:,}")]
    return [*beginning(f"step {first:,}", began, columns, look), (columns - len(f"{last:,}"), f"{last:,}", False)]


def plots(
    detail: RankDetail,
    first: Metric,
    width: int,
    height: int,
    look: Look,
    found: Sequence[Finding] = (),
    blamed: str | None = None,
    beside: int = 0,
) -> tuple[list[Line], list[Metric]]:
    """The chosen metric large, below it as many others as there is room for; and the metrics that are left over.

    What a finding blames comes first among the others. So many of them as `beside` says have room elsewhere.
    """
    keys = [each.key for each in METRICS]
    others = [metric for metric in plottable(detail, sorted(keys, key=lambda key: key != blamed)) if metric != first]
    across = max(min(width // LEAST_WIDTH, 3, len(others)), 1)
    high = LEAST_ROWS + 2 if height >= 30 else LEAST_ROWS
    down = min(max((height - 2 * LEAST_ROWS) // high, 0), -(-max(len(others) - beside, 0) // across))
    lines = course_plot(detail, first, width, height - down * high, look, found)
    for row in range(down):
        lines += _row(detail, others[row * across : (row + 1) * across], across, width, high, look, found)
    return lines, others[down * across :]


def grid(
    detail: RankDetail, metrics: list[Metric], width: int, height: int, look: Look, found: Sequence[Finding] = ()
) -> list[Line]:
    """As many of these metrics as there is room for, in cells of one height that fill it."""
    across = max(min(width // LEAST_WIDTH, 3, len(metrics)), 1)
    down = min(height // LEAST_ROWS, -(-len(metrics) // across))
    lines: list[Line] = []
    for row in range(down):
        part = metrics[row * across : (row + 1) * across]
        lines += _row(detail, part, len(part), width, (height - len(lines)) // (down - row), look, found)
    return lines


def _row(
    detail: RankDetail, metrics: list[Metric], across: int, width: int, high: int, look: Look, found: Sequence[Finding]
) -> list[Line]:
    """Plots beside each other, each as wide as `across` of them can be."""
    cell = (width - across + 1) // across
    blocks = [course_plot(detail, metric, cell, high, look, found) for metric in metrics]
    return [fit([part for block in blocks for part in (*block[line], Segment(" "))], width) for line in range(high)]


def stack_room(room: int) -> int:
    """How many plots have room one below the other."""
    return max(room, 0) // (LEAST_ROWS + 2)


def stacked(
    detail: RankDetail, metrics: list[Metric], width: int, room: int, look: Look, found: Sequence[Finding] = ()
) -> list[Line]:
    """As many of these metrics as fit, one below the other."""
    many = min(stack_room(room), len(metrics))
    lines: list[Line] = []
    for place, metric in enumerate(metrics[:many]):
        high = (room - len(lines)) // (many - place)
        lines += course_plot(detail, metric, width, high, look, found)
    return lines
