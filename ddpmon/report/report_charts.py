"""The pictures of a report as inline SVG: curves over all steps, and a bar a rank. All colours are the page's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape

import numpy as np

from ddpmon.diagnose.kinds import KINDS
from ddpmon.format import count, figure
from ddpmon.report.report_markdown import worst_ranks
from ddpmon.report.run_report import Event, RunReport
from ddpmon.schema import PHASES
from ddpmon.snapshot import Floats, Ranks

WIDTH, HEIGHT = 720, 170  # of a curve, in the units of its drawing; the page scales it
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 12, 24
_POINTS = 720  # of a curve: one a unit
_ROW, _LABEL, _FIGURE = 20, 96, 104  # of a bar; its texts are larger on a phone


def curve(
    step: Floats, values: Floats, label: str, events: Sequence[Event] = (), words: Callable[[float], str] = figure
) -> str:
    """A quantity over steps, with bands where troubles lasted; empty where nothing is known.

    `words` writes the labels of its axis.
    """
    known = np.isfinite(values) & np.isfinite(step)
    if known.sum() < 2:
        return ""
    step, values = _thinned(step[known], values[known])
    first, last = float(step[0]), float(step[-1])
    low, high = _range(values)
    x = _LEFT + (step - first) / max(last - first, 1) * (WIDTH - _LEFT - _RIGHT)
    y = _TOP + (1 - (np.clip(values, low, high) - low) / (high - low)) * (HEIGHT - _TOP - _BOTTOM)
    path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
    bands = "".join(_bands(events, first, last))
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"{bands}{_frame(low, high, first, last, words)}"
        f'<path class="line" d="{path}"/></svg>'
    )


def _thinned(step: Floats, values: Floats) -> tuple[Floats, Floats]:
    """At most 720 points: of a stretch its largest value, so that a long step stays in sight."""
    parts = max(1, -(-len(step) // _POINTS))
    starts = np.arange(0, len(step), parts)
    return step[starts], np.maximum.reduceat(values, starts)


def _range(values: Floats) -> tuple[float, float]:
    """What the picture shows: from 0 where that is near, and without the rarest peaks."""
    low, high = float(values.min()), float(np.quantile(values, 0.995)) * 1.05
    low = 0.0 if 0 <= low < 0.5 * high else low - 0.05 * abs(low)
    return low, high if high > low else low + 1.0


def _frame(low: float, high: float, first: float, last: float, words: Callable[[float], str]) -> str:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    marks = "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.0f}" y2="{y:.0f}"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{escape(words(value))}</text>'
        for value, y in ((high, _TOP), ((low + high) / 2, (_TOP + bottom) / 2), (low, bottom))
    )
    ends = ((first, _LEFT, "start"), ((first + last) / 2, (_LEFT + right) / 2, "middle"), (last, right, "end"))
    steps = "".join(
        f'<text x="{x:.0f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{"step " if anchor == "start" else ""}'
        f"{count(int(value))}</text>"
        for value, x, anchor in ends
    )
    return marks + steps


def _bands(events: Sequence[Event], first: float, last: float) -> Iterator[str]:
    """Where at least one warning lasted, and where something critical did."""
    scale = (WIDTH - _LEFT - _RIGHT) / max(last - first, 1)
    for severity in ("warning", "critical"):
        spans = sorted(_span(event, first, last) for event in events if event.severity == severity)
        for start, end in _united(spans):
            x, width = _LEFT + (start - first) * scale, max((end - start) * scale, 2.0)
            height = HEIGHT - _TOP - _BOTTOM
            yield f'<rect class="band {severity}" x="{x:.1f}" y="{_TOP}" width="{width:.1f}" height="{height}"/>'


def _span(event: Event, first: float, last: float) -> tuple[float, float]:
    """The steps of the run from a trouble's onset to its end; a rank that has restarted counts its own from 0."""
    since = event.since_step if event.first_step is None or _is_of_steps(event) else event.first_step
    until = last if event.lasts or event.last_step is None else event.last_step
    return min(max(since or 0, first), last), min(max(until, first), last)


def _is_of_steps(event: Event) -> bool:
    """Whether its first step is counted by the run, as that of a late rank is."""
    return any(kind.late for name, kind in KINDS.items() if name == event.kind)


def _united(spans: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Spans that touch as one; they come in order."""
    open_span: tuple[float, float] | None = None
    for start, end in spans:
        if open_span is not None and start <= open_span[1]:
            open_span = open_span[0], max(open_span[1], end)
            continue
        if open_span is not None:
            yield open_span
        open_span = start, end
    if open_span is not None:
        yield open_span


def rank_bars(report: RunReport) -> str:
    """One bar a rank: its work by phase from the left, then how long it waits; at most 32 ranks."""
    ranks, chosen = report.snapshot.ranks, worst_ranks(report)
    if ranks is None or not chosen:
        return ""
    named = {rank for event in report.troubles if event.lasts for rank in event.ranks}
    chosen = sorted(chosen)
    longest = max(_total(ranks, rank) for rank in chosen) or 1.0
    height = _ROW * len(chosen) + 4
    rows = "".join(_bar(ranks, rank, place, longest, rank in named) for place, rank in enumerate(chosen))
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="work and wait of each rank">{rows}</svg>'


def _total(ranks: Ranks, rank: int) -> float:
    total = float(ranks.work_ms[rank]) + np.nan_to_num(float(ranks.wait_ms[rank]))
    return float(total) if math.isfinite(total) else 0.0


def _bar(ranks: Ranks, rank: int, place: int, longest: float, named: bool) -> str:
    y, x = place * _ROW + 3, float(_LABEL)
    scale = (WIDTH - _LABEL - _FIGURE) / longest
    parts = [(name, float(ranks.column(f"{name}_ms")[rank])) for name in PHASES]
    parts = [(name, value) for name, value in (*parts, ("wait", float(ranks.wait_ms[rank]))) if value > 0]
    cells = ""
    for name, value in parts:
        cells += (
            f'<rect class="{name}" x="{x:.1f}" y="{y}" width="{value * scale:.1f}" height="{_ROW - 5}">'
            f"<title>rank {rank}: {name} {figure(value)} ms</title></rect>"
        )
        x += value * scale
    label = (
        f'<text class="{"named" if named else ""}" x="{_LABEL - 8}" y="{y + 12}" text-anchor="end">rank {rank}</text>'
    )
    return f'{label}{cells}<text x="{x + 6:.0f}" y="{y + 12}">{figure(float(ranks.work_ms[rank]))} ms</text>'
