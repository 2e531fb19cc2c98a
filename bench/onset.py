"""How often the onset of a late rank is right, by how much one step may count: made-up series of work over the others'.

    python bench/onset.py [--series 400] [--limits 1.5,2,3,4,8]

A limit is `SUSTAINED.onset_clip_excess`. In a series of 84 to 120 steps a rank is late from step 60 on. The noise is
normal, the same for all steps. `by chance` are steps of the whole series that are longer by an exponential time whose
mean is the step's own. For each limit: onsets that are right to two steps, and of these too early and too late, in %.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import NDArray

from ddpmon.diagnose.late_policy import SUSTAINED
from ddpmon.diagnose.sustained import onset

ONSET, NEAR = 60, 2
Excess = Callable[[np.random.Generator, int], NDArray[np.float64]]


class Kind(NamedTuple):
    """How a rank is late: its excess over the others in so many late steps, the noise, and the steps long by chance."""

    name: str
    excess: Excess
    noise: float = 0.02
    by_chance: float = 0.0


def steady(excess: float) -> Excess:
    """The same excess in each step."""
    return lambda _random, steps: np.full(steps, excess)


def in_some(share: float, mean: float) -> Excess:
    """In a share of the steps an excess that is exponential."""
    return lambda random, steps: np.where(random.random(steps) < share, random.exponential(mean, steps), 0.0)


def of_three(random: np.random.Generator, steps: int) -> NDArray[np.float64]:
    """None in 40 % of the steps, 12 % in 30 %, and 100 % in the others."""
    return random.choice([0.0, 0.12, 1.0], steps, p=[0.4, 0.3, 0.3])


KINDS = (
    Kind("+12 %", steady(0.12)),
    Kind("+12 %, 5 % of steps long by chance", steady(0.12), by_chance=0.05),
    Kind("+20 %, 15 % of steps long by chance", steady(0.2), by_chance=0.15),
    Kind("+50 %, 5 % of steps long by chance", steady(0.5), 0.06, by_chance=0.05),
    Kind("+12 %, noise 6 %", steady(0.12), 0.06),
    Kind("+20 %, noise 15 %", steady(0.2), 0.15),
    Kind("exponential, mean 30 %", in_some(1.0, 0.3), 0.03),
    Kind("65 % of steps, exponential, mean 50 %", in_some(0.65, 0.5), 0.03),
    Kind("40 % none, 30 % +12 %, 30 % +100 %", of_three, 0.03),
)


def errors(kind: Kind, limit: float, series: int) -> NDArray[np.int64]:
    """[series] steps from the true onset to the one that is found."""
    force_setattr(SUSTAINED, "onset_clip_excess", limit)
    random = np.random.default_rng(0)
    found = []
    for _ in range(series):
        steps = ONSET + int(random.integers(24, 60))
        ratios = np.exp(random.normal(0.0, kind.noise, steps))
        ratios[ONSET:] += kind.excess(random, steps - ONSET)
        ratios *= 1.0 + np.where(random.random(steps) < kind.by_chance, random.exponential(1.0, steps), 0.0)
        found.append(onset(np.arange(steps), ratios.astype(np.float32))[0] - ONSET)
    return np.array(found)


def main() -> None:
    """Print a line a kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=400)
    parser.add_argument("--limits", default="1.5,2,3,4,8")
    options = parser.parse_args()
    limits = [float(limit) for limit in options.limits.split(",")]
    print(f"{'right, early, late in % with a limit of':40}" + "".join(f"{limit:>14g}" for limit in limits))
    for kind in KINDS:
        shares = []
        for limit in limits:
            off = errors(kind, limit, options.series)
            parts = (np.abs(off) <= NEAR, off < -NEAR, off > NEAR)
            shares.append(" ".join(f"{100 * part.mean():3.0f}" for part in parts))
        print(f"{kind.name:40}" + "".join(f"{share:>14}" for share in shares))


if __name__ == "__main__":
    main()
