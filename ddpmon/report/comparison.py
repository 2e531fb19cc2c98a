"""Ranks against the others: what each phase takes on the other ranks, and what of it is more on one of them."""

from __future__ import annotations

import math

import numpy as np

from ddpmon.diagnose.kinds import KINDS
from ddpmon.report.peers import GONE
from ddpmon.report.verdicts import late_ranks
from ddpmon.run.medians import lateness_beside
from ddpmon.schema import PHASES
from ddpmon.snapshot import Finding, Floats, Ranks, Snapshot


def excesses(snapshot: Snapshot, ranks: Ranks, column: str) -> Floats:
    """[world] by how much a column of each rank exceeds the median of the others; NaN where none of them is known.

    Ranks that are gone have none, and are none of the others.
    """
    late = np.isin(np.arange(len(ranks)), late_ranks(snapshot.findings))
    values = ranks.column(column)
    if not {*GONE}.isdisjoint(ranks.state):
        values = np.where(np.isin(np.array(ranks.state), GONE), np.nan, values)
    found: Floats = lateness_beside(values[:, None], late).late[:, 0]
    return found


def blamed_phase(snapshot: Snapshot, ranks: Ranks, rank: int, finding: Finding) -> str | None:
    """The phase in which a finding says that a rank is late; of several phases the one with the largest excess."""
    if not KINDS[finding.kind].late:  # where a rank is stuck is no lateness
        return None
    if finding.phase in PHASES or finding.phase != "work":
        return finding.phase if finding.phase in PHASES else None
    excess = {phase: float(excesses(snapshot, ranks, f"{phase}_ms")[rank]) for phase in PHASES}
    known = {phase: more for phase, more in excess.items() if math.isfinite(more)}
    return max(known, key=lambda phase: known[phase]) if known else None
