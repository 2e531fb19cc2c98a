"""Ranks that have gone silent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.finding import Finding
from ddpmon.diagnose.wording import on_host
from ddpmon.run.model import LOST_S, Run


def lost_ranks(run: Run, ages: NDArray[np.float64]) -> NDArray[np.int64]:
    """Ranks that were heard of once and have been silent too long without having said that they end."""
    with np.errstate(invalid="ignore"):
        return np.flatnonzero((ages > LOST_S) & ~run.standing.ended)


def find_lost(run: Run, ages: NDArray[np.float64]) -> list[Finding]:
    """One finding for all lost ranks, if there are any."""
    lost = lost_ranks(run, ages)
    if not lost.size:
        return []
    first = int(lost[np.argmax(ages[lost])])
    state = run.ranks[first]
    assert state is not None  # a rank with an age has a frame
    frame = state.frame
    one, many = f"rank {first} ({frame.host}) has", f"{lost.size} ranks (first rank {first}, {frame.host}) have"
    whose = one if lost.size == 1 else many
    summary = (
        f"{whose} been silent for {ages[first]:.0f} s, last seen at step {max(frame.step, 0):,} in {frame.phase}: "
        f"killed, stopped or disconnected"
    )
    hosts = sorted({state.frame.host for rank in lost.tolist() if (state := run.ranks[rank]) is not None})
    return [
        Finding(
            kind="rank_lost",
            severity="critical",
            summary=summary,
            ranks=tuple(lost.tolist()),
            nodes=tuple(hosts),
            since_step=frame.step if frame.step >= 0 else None,
            evidence={"silent_s": float(ages[first])},
            advice=f"see whether it still runs: {on_host(frame.host, f'ps -p {frame.pid}')}; then check its log, "
            "the kernel's log (dmesg) and the network",
        )
    ]
