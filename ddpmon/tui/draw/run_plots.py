"""The plots of the overview: lateness of one rank, step time, loss and throughput of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from rich.segment import Segment

from ddpmon.format import figure, known, loss_words, time_of_day
from ddpmon.report.base_step import NOTABLE_SHARE, OF_BASE, share_words
from ddpmon.report.job_progress import part_of_ranks
from ddpmon.report.last_word import still_words
from ddpmon.report.peers import ShownLateness
from ddpmon.report.step_clock import wall_of
from ddpmon.report.verdicts import about_ranks, figures_now, late_ranks, onsets, until_words
from ddpmon.snapshot import Finding, Floats, Heat, Series, Snapshot
from ddpmon.tui.draw.courses import leak_curve
from ddpmon.tui.draw.decimation import first_single, forward_fill, one_step_in, rate_words
from ddpmon.tui.draw.panel import no_match, title
from ddpmon.tui.draw.plot import Curve, plot_lines, zoomed_curve
from ddpmon.tui.draw.zoom import Span, record_span, shared_axis, span_words
from ddpmon.tui.lines import Line, fit_all
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState, fills_room

TIMED_LEAST = 8  # steps from which on the axis has times of day
LEAST = 7  # lines of a plot beside others
HALF_LEAST = 50  # cells of a plot beside others
NO_COMMON_STEPS = "not known: of its steps none are on record that the others have too"
ONE_RANK = "not known: it is the only rank, so there is nobody to compare it with"
NO_STEPS = "not known: no step has been read yet"
PEERS = 64  # ranks that the band of the others is made of, spread over all


def plots_stacked(picture: ViewState, rank: int, width: int, height: int, *, lateness: bool) -> list[Line]:
    """As many plots below each other as have room, with a free column at the left; lateness first where asked for.

    Without it they stand beside `lateness_plot`, which shows one of them where the lateness of the rank is not known.
    A `rank` of -1 stands for none, because the filter fits none.
    """
    if lateness and rank < 0:
        said = [_indented(line, picture.look) for line in _no_rank(picture, width - 1)]
        rest = plots_stacked(picture, rank, width, height - len(said), lateness=False)
        return fit_all([*said, *rest], width, height)
    curves = _curves(picture, rank, lateness=lateness)
    if not lateness and rank >= 0 and _of_rank(picture, rank) is None:
        other = _in_its_place(picture)
        curves = [curve for curve in curves if other is None or curve.name != other.name]
    if not curves:
        return fit_all([title("loss", "", width, picture.look)], width, height)
    lines = _stacked(curves, width - 1, height, picture.look)
    return fit_all([_indented(line, picture.look) for line in lines], width, height)


def _stacked(curves: Sequence[Curve], width: int, height: int, look: Look) -> list[Line]:
    """As many plots below each other as have room."""
    shown = curves[: _many_below(curves, height)]
    lines: list[Line] = []
    for place, curve in enumerate(shown):
        lines += plot_lines(curve, width, (height - len(lines)) // (len(shown) - place), look)
    return lines


def plots_beside(picture: ViewState, rank: int, width: int, height: int) -> list[Line]:
    """The lateness of a rank left of the loss; of a run without lateness, loss left of throughput.

    A `rank` of -1 stands for none, because the filter fits none.
    """
    curves = _curves(picture, rank, lateness=True)
    if not curves:
        return fit_all([title("loss", "", width, picture.look)], width, height)
    chosen = [curves[0], next((curve for curve in curves[1:] if curve.name.startswith("loss")), curves[-1])]
    half = width // 2
    left = plot_lines(chosen[0], half, height, picture.look)
    left = fit_all(_no_rank(picture, half), half, height) if rank < 0 else left
    right = plot_lines(chosen[1], width - half - 1, height, picture.look)
    return [one + _indented(other, picture.look) for one, other in zip(left, right, strict=True)]


def calm_plots(picture: ViewState, width: int, height: int) -> list[Line]:
    """What the calm sentence rests on: the lateness of the latest rank, and the run's plots beside each other."""
    curves = [*_worst(picture), *_curves(picture, -1, lateness=False)]
    return _in_rows(curves, width, height, picture.look)


def plots_below(picture: ViewState, width: int, height: int) -> list[Line]:
    """As many of the run's plots below each other as have room; empty without any."""
    curves = _curves(picture, -1, lateness=False)
    return fit_all(_stacked(curves, width, height, picture.look), width, height) if curves and height >= LEAST else []


def count_below(picture: ViewState, height: int) -> int:
    """How many of the run's plots `plots_below` shows."""
    return _many_below(_curves(picture, -1, lateness=False), height) if height >= LEAST else 0


def _many_below(curves: Sequence[Curve], height: int) -> int:
    return max(1, min(len(curves), height // LEAST))


def latest_plot(picture: ViewState, width: int, height: int) -> list[Line]:
    """The lateness of the latest rank alone, or what takes its place; empty without room."""
    curve = next(_worst(picture), None) or _in_its_place(picture)
    return [] if curve is None or height < LEAST else plot_lines(curve, width, height, picture.look)


def marked_plots(picture: ViewState, ranks: Sequence[int], width: int, height: int) -> list[Line]:
    """The lateness of some ranks on one scale beside each other, or above each other; empty without room."""
    curves = [curve for curve in (_lateness(picture, rank) for rank in ranks) if curve is not None]
    if not curves or height < LEAST:
        return []
    edges = [edge for curve in curves for edge in (curve.value, curve.low, curve.high) if edge is not None]
    low, high = (float(some(np.concatenate(edges))) for some in (np.nanmin, np.nanmax))
    curves = [replace(curve, floor=min(low, 0.0), ceiling=max(high, curve.ceiling or 0.0)) for curve in curves]
    return _in_rows(curves, width, height, picture.look)


def run_plots(picture: ViewState, width: int, height: int, shown: int = 0) -> list[Line]:
    """The run's plots beside each other, as many as are wide enough; empty without room.

    The first `shown` of them stand elsewhere on the screen.
    """
    if height < LEAST or not fills_room(picture):
        return []
    curves = _curves(picture, -1, lateness=False)[shown:][: max(width // HALF_LEAST, 1)]
    return _beside(curves, width, height, picture.look) if curves else []


def _in_rows(curves: Sequence[Curve], width: int, height: int, look: Look) -> list[Line]:
    """Two plots a row where they are wide enough, or all of three, as many rows as there is room for.

    All are of one width; a single one takes all of it.
    """
    fitting = (many for many in (3, 2) if width >= many * HALF_LEAST and many in (2, len(curves)))
    across = next(fitting, 1) if len(curves) > 1 else 1
    down = min(-(-len(curves) // across), height // LEAST)
    lines: list[Line] = []
    for row in range(down):
        part = curves[row * across : (row + 1) * across]
        lines += _beside(part, width, (height - len(lines)) // (down - row), look, across)
    return lines


def _beside(curves: Sequence[Curve], width: int, height: int, look: Look, across: int = 0) -> list[Line]:
    """Plots of one height, each as wide as `across` of them can be; without it they share the width."""
    many = across or len(curves)
    cell = (width - many + 1) // many
    blocks = [plot_lines(curve, cell, height, look) for curve in curves]
    return [[part for block in blocks for part in (*block[line], Segment(" "))] for line in range(height)]


def _worst(picture: ViewState) -> Iterator[Curve]:
    """The lateness of the latest rank of each step, in percent of the base step."""
    timeline = picture.snapshot.timeline
    if timeline is None or not np.isfinite(timeline.late_pct).any():
        return
    newest = timeline.late_pct[np.isfinite(timeline.late_pct)][-1]
    step = timeline.step.astype(np.float64)
    name, now = f"most late rank of each step, % {OF_BASE[-1]}", picture.look.clean(share_words(float(newest)))
    curve = Curve(name, now, step, timeline.late_pct, floor=0.0, ceiling=NOTABLE_SHARE * 100)
    yield from _completed(picture, curve, findings=picture.snapshot.findings)


def lateness_plot(picture: ViewState, rank: int, width: int, height: int) -> list[Line]:
    """The lateness of one rank, or its memory that grows; a `rank` of -1 stands for none, as the filter fits none."""
    if rank < 0:
        return fit_all(_no_rank(picture, width), width, height)
    curve = _of_rank(picture, rank)
    if curve is not None:
        return fit_all(plot_lines(curve, width, height, picture.look), width, height)
    look, name, why = picture.look, f"lateness of rank {rank}", _why_unknown(picture.snapshot)
    fits = len(name) + len(why) + 8 <= width
    lines = [title(name, why if fits else "", width, look), *([] if fits else [[Segment(f"  {why}", look.dim)]])]
    other = _in_its_place(picture)
    lines += plot_lines(other, width, height - len(lines), look) if other and height > len(lines) else []
    return fit_all(lines, width, height)


def _no_rank(picture: ViewState, width: int) -> list[Line]:
    return [title("lateness", "", width, picture.look), *no_match("rank", width, picture.look)]


def _in_its_place(picture: ViewState) -> Curve | None:
    """What takes the room of a lateness that is not known: the all-reduce time, else one of the run's curves."""
    timeline = picture.snapshot.timeline
    if timeline is None or not np.isfinite(timeline.allreduce_ms).any():
        curves = _curves(picture, -1, lateness=False)
        return curves[-1] if len(curves) > 1 else None
    now = figure(figures_now(picture.snapshot).allreduce_ms, "")
    step = timeline.step.astype(np.float64)
    rate = rate_words(one_step_in(timeline.allreduce_ms))
    curve = Curve(f"all-reduce, ms{rate and f', {rate}'}", now, step, timeline.allreduce_ms, is_cut=True)
    curve = replace(curve, value=forward_fill(curve.value), samples=curve.value) if rate else curve
    return _completed(picture, curve, findings=picture.snapshot.findings)[0]


def _why_unknown(snapshot: Snapshot) -> str:
    if snapshot.heat is None or not snapshot.heat.values.size:
        return NO_STEPS
    return ONE_RANK if len(snapshot.heat.values) == 1 else NO_COMMON_STEPS


def _curves(picture: ViewState, rank: int, *, lateness: bool) -> list[Curve]:
    """The curves in order of worth."""
    series = picture.snapshot.series
    late = _of_rank(picture, rank) if lateness else None
    rest = [] if series is None or not len(series.step) else _of_run(series, picture)
    rest = [curve for curve in rest if np.isfinite(curve.value).any()] or rest
    return [*([late] if late is not None else []), *rest]


def _of_run(series: Series, picture: ViewState) -> Sequence[Curve]:
    job, run = figures_now(picture.snapshot), picture.snapshot.run
    source = "" if run is None else picture.look.clean(run.loss_from)
    speed = f"{figure(job.throughput)} {part_of_ranks(job)}".rstrip() if known(job.throughput) else ""
    step_ms = figure(job.step_ms) if known(job.step_ms) else ""
    single = first_single(series.step)
    curves = [
        Curve("step time, ms", step_ms, series.step, series.step_ms, is_cut=True),
        Curve(
            "loss", loss_words(job.loss, ""), series.step, series.loss, series.loss_low, series.loss_high, source=source
        ),
        Curve(picture.look.clean(job.throughput_unit), speed, series.step, series.throughput),
    ]
    curves = [replace(curve, single_from=single) for curve in curves]
    return _completed(picture, *curves, findings=picture.snapshot.findings)


def _completed(picture: ViewState, *curves: Curve, findings: Sequence[Finding]) -> list[Curve]:
    """The steps of curves that the reader has zoomed in on, with the onsets and times of day of their axis, hatched.

    The onsets are those of the `findings`. The titles say which part of the run the curves show. All are over the same
    steps.
    """
    snapshot = picture.snapshot
    record, began = record_span(snapshot), tuple(onsets(findings))
    shown = [zoomed_curve(_on_shared_axis(curve, record), picture.zoom) for curve in curves]
    times = _times(snapshot, shown[0].step)
    still = still_words(snapshot)
    return [replace(curve, onsets=began, times=times, is_filled=True, still=still) for curve in shown]


def _on_shared_axis(curve: Curve, record: Span | None) -> Curve:
    """The curve over the axis that the plots of the run share, with a word on the part of it where it is one."""
    if record is None or not len(curve.step):
        return curve
    span = shared_axis((float(curve.step[0]), float(curve.step[-1])), record)
    return replace(curve, span=span, span_words=span_words(span, record) if span[0] > record[0] else "")


def _times(snapshot: Snapshot, steps: Floats) -> tuple[tuple[int, str], ...]:
    """The times of day of three steps between the ends; of a step whose time is not known nothing."""
    chosen = [int(steps[len(steps) * quarter // 4]) for quarter in (2, 1, 3)] if len(steps) >= TIMED_LEAST else []
    told = [(step, time_of_day(wall_of(snapshot, step))) for step in chosen]
    return tuple((step, text) for step, text in told if text)


def _of_rank(picture: ViewState, rank: int) -> Curve | None:
    """What is plotted of one rank: its memory where that is found to grow, else its lateness; None without either."""
    return leak_curve(picture, rank) or _lateness(picture, rank)


def _lateness(picture: ViewState, rank: int) -> Curve | None:
    """Lateness of a rank over the steps of the heat-map, over the band of the others; None where it is not known."""
    heat, look = picture.snapshot.heat, picture.look
    if heat is None or not 0 <= rank < len(heat.values) or np.isnan(heat.values[rank]).all():
        return None
    low, high = _band(heat, rank, late_ranks(picture.snapshot.findings))
    late = ShownLateness(picture.snapshot).words([rank], look.unknown) if picture.snapshot.ranks is not None else ""
    name = f"lateness of rank {rank}, ms"
    step, values = heat.step.astype(np.float64), heat.values[rank].astype(np.float64)
    least = NOTABLE_SHARE * float(np.nan_to_num(np.nanmedian(heat.base_ms)))
    curve = Curve(name, look.clean(late), step, values, low, high, floor=0.0, ceiling=least)
    curve = _completed(picture, curve, findings=about_ranks(picture.snapshot, [rank]))[0]
    return replace(curve, span_words=curve.span_words or until_words(picture.snapshot, int(heat.step[-1])))


def _band(heat: Heat, rank: int, late: Sequence[int]) -> tuple[Floats | None, Floats | None]:
    """Between which values nine in ten of the others lie; None with fewer than two others.

    Ranks that findings call late are no others where there are any besides. A rank whose steps are of other times has
    none.
    """
    others = np.delete(np.arange(len(heat.values)), rank)
    calm = others[~np.isin(others, late)]
    others = calm if len(calm) else others
    if len(others) < 2:
        return None, None
    asked = np.sort(heat.values[others[:: -(-len(others) // PEERS)]], axis=0)  # NaN sorts last
    known_ranks = (~np.isnan(asked)).sum(axis=0)
    if known_ranks.max(initial=0) < 2:
        return None, None
    known_ranks = np.maximum(known_ranks, 1)
    cut = (known_ranks // 20).astype(np.int64)
    columns = np.arange(asked.shape[1])
    return asked[cut, columns].astype(np.float64), asked[known_ranks - 1 - cut, columns].astype(np.float64)


def _indented(line: Line, look: Look) -> Line:
    return [Segment(" ", look.text), *line]
