"""Ranks as which two processes write: two jobs under one run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.finding import Finding
from ddpmon.diagnose.wording import clean, who
from ddpmon.run.model import Run

_LATELY_S = 60.0


def find_doubled(run: Run, ages: NDArray[np.float64]) -> list[Finding]:
    """One finding for all ranks of which this was seen within the last minute."""
    if not run.doubles.seen:
        return []
    now = float(np.nanmax(run.standing.heard_at + ages))
    ranks = sorted(rank for rank, double in run.doubles.seen.items() if now - double.at <= _LATELY_S)
    if not ranks:
        return []
    double = run.doubles.seen[ranks[0]]
    pair = " and ".join(f"pid {pid} on {clean(host, 60)}" for pid, host in (double.kept, double.other))
    first = "" if len(ranks) == 1 else f"rank {ranks[0]}: "
    return [
        Finding(
            kind="monitor_degraded",
            severity="warning",
            summary=(
                f"two processes publish as {who(ranks)} ({first}{pair}): two trainings share one run, and the figures "
                f"describe neither"
            ),
            ranks=tuple(ranks),
            evidence={"ranks_written_twice": len(ranks)},
            advice="give each training its own store or rendezvous, or stop the one that should not run",
        )
    ]
