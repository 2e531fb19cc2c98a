"""The run over all its steps: loss with its band over ranks, and throughput."""

from __future__ import annotations

from ddpmon.format import figure, known
from ddpmon.snapshot import Series
from ddpmon.tui.draw.panel import title
from ddpmon.tui.draw.plot import Curve, plot_lines
from ddpmon.tui.lines import Line, fit_all
from ddpmon.tui.look import Look
from ddpmon.tui.picture import Picture


def plots_stacked(picture: Picture, width: int, height: int) -> list[Line]:
    """Loss above throughput, with a free column at the left."""
    look, series = picture.look, picture.snapshot.series
    if series is None or len(series.step) == 0:
        return fit_all([title("loss", "", width, look)], width, height)
    upper = height // 2
    lines = plot_lines(_loss(series, picture), width - 1, upper, look)
    lines += plot_lines(_throughput(series, picture), width - 1, height - upper, look)
    return fit_all([_indented(line, look) for line in lines], width, height)


def plots_beside(picture: Picture, width: int, height: int) -> list[Line]:
    """Loss left of throughput."""
    look, series = picture.look, picture.snapshot.series
    if series is None or len(series.step) == 0:
        return fit_all([title("loss", "", width, look)], width, height)
    half = width // 2
    left = plot_lines(_loss(series, picture), half, height, look)
    right = plot_lines(_throughput(series, picture), width - half - 1, height, look)
    return [one + _indented(other, look) for one, other in zip(left, right, strict=True)]


def _indented(line: Line, look: Look) -> Line:
    from rich.segment import Segment

    return [Segment(" ", look.text), *line]


def _loss(series: Series, picture: Picture) -> Curve:
    loss = picture.snapshot.job.loss
    now = f"{loss:.4g}" if known(loss) else ""
    return Curve("loss", now, series.step, series.loss, series.loss_low, series.loss_high)


def _throughput(series: Series, picture: Picture) -> Curve:
    job = picture.snapshot.job
    now = figure(job.throughput) if known(job.throughput) else ""
    return Curve(picture.look.clean(job.throughput_unit), now, series.step, series.throughput)
