"""The base step: what a step takes if no rank is late. What a rank takes of a step in percent is a share of it.

The step as it was is no base: it grows with the lateness, so a rank that is late by a whole step would be late by 50 %.
What is lost to waiting is another share, that of the run's time.
"""

from __future__ import annotations

import math
from typing import Any, overload

from numpy.typing import NDArray

from ddpmon.format import UNKNOWN
from ddpmon.run.recent import RECENT
from ddpmon.snapshot import Snapshot

# Of the base step, a tenth of the heat-map's first stop. If the steps of ranks that do the same work vary by 2 %
# (normal, 256 ranks), their medians over 20 steps lie 0.44 % from the middle on average. Not measured on a GPU.
NOISE_SHARE = 0.005
# Of the base step, the heat-map's first stop: what a rank takes longer by less does not matter, and is not marked.
NOTABLE_SHARE = 0.05
OF_BASE = ("of base step", "of base")  # what a percentage of it stands before: costs are shares of the run's time


@overload
def of_base(ms: float, base_ms: float) -> float: ...
@overload
def of_base(ms: NDArray[Any], base_ms: float | NDArray[Any]) -> NDArray[Any]: ...
def of_base(ms: Any, base_ms: Any) -> Any:
    """Percent of the base step: of one step, or of each of [..., W] steps."""
    return ms / base_ms * 100


def base_step_ms(snapshot: Snapshot) -> float | None:
    """The median of the newest base steps; None where none is known."""
    base = snapshot.heat.base_ms[-RECENT:].tolist() if snapshot.heat is not None else []
    known = sorted(ms for ms in base if ms > 0)
    return float(known[len(known) // 2]) if known else None


def base_share(snapshot: Snapshot, ms: float) -> float | None:
    """A time in percent of the newest base step; None where that is not known."""
    base_ms = base_step_ms(snapshot)
    return None if base_ms is None else of_base(ms, base_ms)


def noise_ms(snapshot: Snapshot) -> float:
    """The lateness below which a rank is as early as the others; 0 where the base step is not known."""
    return NOISE_SHARE * (base_step_ms(snapshot) or 0.0)


def notable_ms(snapshot: Snapshot) -> float:
    """The difference of times from which on it matters; 0 where the base step is not known."""
    return NOTABLE_SHARE * (base_step_ms(snapshot) or 0.0)


def share_words(percent: float, unknown: str = UNKNOWN) -> str:
    """A lateness in percent of the base step, with one decimal: 20.9, 0.6, and ±0 for noise."""
    if not math.isfinite(percent):
        return unknown
    return f"{percent:,.1f}" if abs(percent) >= NOISE_SHARE * 100 else "±0"
