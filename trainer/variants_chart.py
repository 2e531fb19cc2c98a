"""What `python -m trainer compare` measured, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import median, quantiles
from typing import Protocol

_HEAD = (
    "variant",
    "ranks",
    "step, ms (quartiles)",
    "samples/s",
    "speedup",
    "efficiency",
    "all-reduce, ms",
    "barrier, ms",
)
_LABELS, _BARS, _ROW, _TOP, _RIGHT = 230, 400, 24, 46, 150  # pixels


class Taken(Protocol):
    """What one variant took: milliseconds of each step, reduction and barrier, and the samples of a step."""

    name: str
    ranks: int
    samples: int
    step_ms: list[float]
    reduce_ms: list[float]
    barrier_ms: list[float]


def table(found: Sequence[Taken]) -> str:
    """A Markdown table; speedups and efficiencies are against the first one, which is one process."""
    alone = median(found[0].step_ms)
    rows = [_HEAD, tuple("---" for _ in _HEAD), *(_cells(each, alone) for each in found)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cells(each: Taken, alone: float) -> tuple[str, ...]:
    step = median(each.step_ms)
    low, high = _quartiles(each.step_ms)
    speedup = alone / step
    return (
        each.name,
        str(each.ranks),
        f"{step:.1f} ({low:.1f} to {high:.1f})",
        f"{each.samples / step * 1e3:.0f}",
        f"{speedup:.2f}",
        f"{100 * speedup / each.ranks:.0f} %",
        f"{median(each.reduce_ms):.2f}" if each.reduce_ms else "-",
        f"{median(each.barrier_ms):.2f}" if each.barrier_ms else "-",
    )


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


def svg(found: Sequence[Taken]) -> str:
    """Bars of the throughputs, with the quartiles, and the speedups beside them."""
    alone, most = median(found[0].step_ms), max(_throughputs(each)[2] for each in found)
    width, height = _LABELS + _BARS + _RIGHT, _TOP + _ROW * len(found) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="12" role="img" aria-label="Samples a second of each variant">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        '<text x="10" y="20" font-size="14" fill="#111">Samples a second, median and quartiles; speedup over one '
        "process</text>",
    ]
    for place, each in enumerate(found):
        lines += _bar(each, _TOP + _ROW * place, _BARS / most, alone)
    return "\n".join([*lines, "</svg>", ""])


def _bar(each: Taken, top: float, scale: float, alone: float) -> list[str]:
    low, middle, high = _throughputs(each)
    fill, center = "#3b6fb6" if each.ranks > 1 else "#8a8a8a", top + 9
    return [
        f'<text x="{_LABELS - 8}" y="{top + 13}" text-anchor="end" fill="#111">{escape(each.name)}</text>',
        f'<rect x="{_LABELS}" y="{top}" width="{middle * scale:.1f}" height="18" fill="{fill}"/>',
        f'<path d="M{_LABELS + low * scale:.1f} {center}H{_LABELS + high * scale:.1f}" stroke="#111"/>',
        f'<text x="{_LABELS + high * scale + 8:.1f}" y="{top + 13}" fill="#111">{middle:.0f}/s, '
        f"x {alone / median(each.step_ms):.2f}</text>",
    ]


def _throughputs(each: Taken) -> tuple[float, float, float]:
    """Samples a second: lower quartile, median, upper quartile."""
    low, high = _quartiles(each.step_ms)
    return tuple(each.samples / ms * 1e3 for ms in (high, median(each.step_ms), low))  # type: ignore[return-value]
