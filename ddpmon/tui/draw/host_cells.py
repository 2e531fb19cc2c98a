"""One chosen metric of each GPU, or of each rank, as a small cell of a host's row: a number, and heat behind it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.segment import Segment
from rich.style import Style

from ddpmon.machine import GpuFigures
from ddpmon.report.peers import ShownLateness
from ddpmon.snapshot import Floats, NodeView, Ranks, Snapshot
from ddpmon.tui.theme import LEVELS, Look, ink

# A value is quiet as long as it differs from the median by less than the first of these shares, and brighter from each
# on. They are the stops of the heat-map, without the last ones.
STOPS = (0.05, 0.1, 0.2, 0.5)
SAMPLED = 256  # ranks, evenly spaced, whose GPUs stand for those of all


@dataclass(frozen=True, slots=True)
class CellMetric:
    """What the cells show.

    Attributes:
        key: its name for keys and tests. name: what stands in the title.
        width: cells of the number.
        of_gpu: the figure of a GPU, None where the cells are those of ranks.
        of_rank: the same of ranks.
    """

    key: str
    name: str
    width: int
    of_gpu: Callable[[GpuFigures], float | None] | None = None
    of_rank: Callable[[Ranks, Sequence[int]], Sequence[float]] | None = None


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else 100 * part / whole


METRICS = (
    CellMetric("util", "GPU utilisation, %", 3, lambda gpu: gpu.utilization_pct),
    CellMetric("power", "GPU power, % of its limit", 3, lambda gpu: _share(gpu.power_w, gpu.power_limit_w)),
    CellMetric("memory", "GPU memory, % used", 3, lambda gpu: _share(gpu.memory_used, gpu.memory_total)),
    CellMetric("temp", "GPU temperature, °C", 3, lambda gpu: gpu.temperature_c),
    CellMetric("clock", "SM clock, MHz", 5, lambda gpu: gpu.sm_clock_mhz),
    CellMetric(
        "late", "lateness of the ranks, ms", 5, of_rank=lambda ranks, who: ranks.lateness_ms[list(who)].tolist()
    ),
)
BY_KEY = {metric.key: metric for metric in METRICS}


def offered(snapshot: Snapshot) -> list[CellMetric]:
    """The metrics that this run can have: without GPUs only those of ranks."""
    with_gpus = any(node.gpus for node in snapshot.nodes)
    return [metric for metric in METRICS if with_gpus or metric.of_rank is not None]


def metric_of(snapshot: Snapshot, key: str) -> CellMetric:
    """The metric of that name if the run can have it, else the first one that it can have."""
    known = offered(snapshot)
    return next((metric for metric in known if metric.key == key), known[0])


def values_of(metric: CellMetric, node: NodeView, ranks: Ranks | None) -> list[float]:
    """One value for each GPU or rank of a host, NaN where unknown."""
    if metric.of_gpu is not None:
        found = [metric.of_gpu(gpu) for gpu in node.gpus]
        return [math.nan if value is None else float(value) for value in found]
    if metric.of_rank is None or ranks is None:
        return []
    return [float(value) for value in metric.of_rank(ranks, [rank for rank in node.ranks if rank < len(ranks)])]


def middle_of(metric: CellMetric, snapshot: Snapshot) -> float:
    """The median over the GPUs of up to `SAMPLED` ranks, evenly spaced; NaN where nothing is known."""
    ranks = snapshot.ranks
    if ranks is None or metric.of_gpu is None:
        return math.nan
    some = np.unique(np.arange(min(SAMPLED, len(ranks))) * len(ranks) // max(min(SAMPLED, len(ranks)), 1)).tolist()
    found = [metric.of_gpu(gpu) for rank in some if (gpu := ranks.gpu[rank]) is not None]
    known = [value for value in found if value is not None]
    return float(np.median(known)) if known else math.nan


def odd_one(metric: CellMetric, values: Sequence[float], middle: float) -> float:
    """The value that is farthest from the median `middle`, of lateness the largest; NaN where unknown."""
    known = [value for value in values if math.isfinite(value)]
    return max(known, key=lambda value: _oddness(metric, value, middle), default=math.nan)


def oddness(metric: CellMetric, snapshot: Snapshot, ranks: Ranks | None) -> Floats:
    """[hosts] how far the odd one of each host's values is from the median, of lateness how late; NaN where unknown."""
    values = [values_of(metric, node, ranks) for node in snapshot.nodes]
    host = np.repeat(np.arange(len(values)), [len(each) for each in values])
    found = np.full(len(values), np.nan)
    every = np.array([value for each in values for value in each], np.float64)
    np.fmax.at(found, host, _oddness(metric, every, middle_of(metric, snapshot)))
    return found


def _oddness(metric: CellMetric, value: Any, middle: float) -> Any:
    return abs(value - middle) if metric.of_gpu is not None else value


def level_of(metric: CellMetric, value: float, middle: float, base_ms: float | None) -> int:
    """0 for what is quiet, up to `len(STOPS)`: by the lateness as a share of the base step, else of the median."""
    whole = abs(middle) if metric.of_gpu is not None else base_ms or math.nan
    more = _oddness(metric, value, middle)
    if not (math.isfinite(more) and math.isfinite(whole) and whole > 0):
        return 0
    return bisect_right([stop * whole for stop in STOPS], more)


def cell(text: str, width: int, level: int, glyph: tuple[str, Style], look: Look) -> list[Segment]:
    """A sign directly before the number on its heat, in `width` cells and one, and a gap; without a `text` the dash."""
    sign, style = glyph
    shown, tone = (text, _heat(level, look)) if text else (look.unknown, look.dim)
    before = 0 if sign == " " else width - len(shown)  # the heat of a number without a sign is as wide as the cell
    return [
        Segment(" " * before + sign, style),
        Segment(f"{shown:>{width - before}}", tone),
        Segment(" ", look.text),
    ]


def cell_words(metric: CellMetric, value: float, lateness: ShownLateness, look: Look) -> str:
    """A value as its cell shows it, a lateness as all views show it; empty where it is not known."""
    if not math.isfinite(value):
        return ""
    text = look.clean(lateness.one(value)) if metric.of_rank is not None else f"{value:,.0f}"
    return text if len(text) <= metric.width else f"{value / 1e3:.0f}k"


def has_shades(look: Look) -> bool:
    """Whether the numbers have the shades of their levels; else those of all levels are bold."""
    return look.colour and not look.ascii_only


def _heat(level: int, look: Look) -> Style:
    """Quiet text, or text on the colour of its level; without colours what stands out is bold."""
    if level == 0:
        return look.text
    colour = look.ramp[min(level * (LEVELS - 1) // len(STOPS), LEVELS - 1)] if has_shades(look) else None
    if colour is None:
        return look.strong
    light = sum(int(colour[at : at + 2], 16) * weight for at, weight in ((1, 0.3), (3, 0.59), (5, 0.11))) > 128
    return ink("#000000" if light else "#ffffff", colour)
