"""The plots of the overview: lateness of one rank, step time, loss and throughput of the run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.segment import Segment

from ddpmon.format import figure, known, signed
from ddpmon.report.base_step import noise_ms
from ddpmon.report.verdicts import figures_now, onsets
from ddpmon.snapshot import Floats, Heat, Series
from ddpmon.tui.draw.panel import title
from ddpmon.tui.draw.plot import Curve, plot_lines
from ddpmon.tui.lines import Line, fit_all
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState

LEAST = 7  # lines of a plot beside others
NOTABLE = 0.2  # of the base step: the lateness that the axis reaches at least, so that noise looks like noise
PEERS = 64  # ranks that the band of the others is made of, spread over all


def plots_stacked(picture: ViewState, rank: int, width: int, height: int, *, lateness: bool) -> list[Line]:
    """As many plots below each other as have room, with a free column at the left; lateness first where asked for."""
    curves = _curves(picture, rank, lateness=lateness)
    if not curves:
        return fit_all([title("loss", "", width, picture.look)], width, height)
    shown = curves[: max(1, min(len(curves), height // LEAST))]
    lines: list[Line] = []
    for place, curve in enumerate(shown):
        lines += plot_lines(curve, width - 1, (height - len(lines)) // (len(shown) - place), picture.look)
    return fit_all([_indented(line, picture.look) for line in lines], width, height)


def plots_beside(picture: ViewState, rank: int, width: int, height: int) -> list[Line]:
    """The lateness of a rank left of the loss; of a run without lateness, loss left of throughput."""
    curves = _curves(picture, rank, lateness=True)
    if not curves:
        return fit_all([title("loss", "", width, picture.look)], width, height)
    chosen = [curves[0], next((curve for curve in curves[1:] if curve.name.startswith("loss")), curves[-1])]
    half = width // 2
    left = plot_lines(chosen[0], half, height, picture.look)
    right = plot_lines(chosen[1], width - half - 1, height, picture.look)
    return [one + _indented(other, picture.look) for one, other in zip(left, right, strict=True)]


def lateness_plot(picture: ViewState, rank: int, width: int, height: int) -> list[Line]:
    """The lateness of one rank alone."""
    curve = _lateness(picture, rank)
    name = "lateness" if curve is None else curve.name
    lines = [title(name, "", width, picture.look)] if curve is None else plot_lines(curve, width, height, picture.look)
    return fit_all(lines, width, height)


def _curves(picture: ViewState, rank: int, *, lateness: bool) -> list[Curve]:
    """The curves in order of worth."""
    series = picture.snapshot.series
    late = _lateness(picture, rank) if lateness else None
    rest = [] if series is None or not len(series.step) else _of_run(series, picture)
    return [*([late] if late is not None else []), *rest]


def _of_run(series: Series, picture: ViewState) -> Sequence[Curve]:
    job, marks = figures_now(picture.snapshot), tuple(onsets(picture.snapshot.findings))
    run = picture.snapshot.run
    now = [f"{value:.4g}" if known(value) else "" for value in (job.loss,)]
    source = f": {picture.look.clean(run.loss_from)}" if run is not None and run.loss_from else ""
    speed = figure(job.throughput) if known(job.throughput) else ""
    step_ms = figure(job.step_ms) if known(job.step_ms) else ""
    unit = picture.look.clean(job.throughput_unit)
    return [
        Curve("step time, ms", step_ms, series.step, series.step_ms, onsets=marks),
        Curve(f"loss{source}", now[0], series.step, series.loss, series.loss_low, series.loss_high, onsets=marks),
        Curve(unit, speed, series.step, series.throughput, onsets=marks),
    ]


def _lateness(picture: ViewState, rank: int) -> Curve | None:
    """Lateness of a rank over the steps of the heat-map, over the band of the others; None where it is not known."""
    heat, look = picture.snapshot.heat, picture.look
    if heat is None or not 0 <= rank < len(heat.values) or np.isnan(heat.values[rank]).all():
        return None
    low, high = _band(heat, rank)
    ranks = picture.snapshot.ranks
    late = signed(float(ranks.lateness_ms[rank]), noise=noise_ms(picture.snapshot)) if ranks is not None else ""
    name = f"lateness of rank {rank}, ms"
    marks = tuple(onsets(picture.snapshot.findings))
    step, values = heat.step.astype(np.float64), heat.values[rank].astype(np.float64)
    least = NOTABLE * float(np.nan_to_num(np.nanmedian(heat.base_ms)))
    return Curve(name, look.clean(late), step, values, low, high, floor=0.0, ceiling=least, onsets=marks)


def _band(heat: Heat, rank: int) -> tuple[Floats | None, Floats | None]:
    """Between which values the others lie, but for one in ten; None with fewer than two."""
    others = np.delete(np.arange(len(heat.values)), rank)
    if len(others) < 2:
        return None, None
    asked = np.sort(heat.values[others[:: -(-len(others) // PEERS)]], axis=0)  # NaN sorts last
    known_ranks = np.maximum((~np.isnan(asked)).sum(axis=0), 1)
    cut = (known_ranks // 20).astype(np.int64)
    columns = np.arange(asked.shape[1])
    return asked[cut, columns].astype(np.float64), asked[known_ranks - 1 - cut, columns].astype(np.float64)


def _indented(line: Line, look: Look) -> Line:
    return [Segment(" ", look.text), *line]
