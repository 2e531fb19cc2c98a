"""Ranks against the others: what each phase takes on the other ranks, and what of it is more on one of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ddpmon.diagnose.kinds import KINDS
from ddpmon.report.peers import now_and_then, possible_others
from ddpmon.report.verdicts import late_ranks
from ddpmon.run.medians import lateness_beside
from ddpmon.schema import PHASES
from ddpmon.snapshot import Finding, Floats, Ranks, Snapshot


def excesses(snapshot: Snapshot, ranks: Ranks, column: str) -> Floats:
    """[world] by how much a column of each rank exceeds the median of the others; NaN where none of them is known.

    Ranks that others cannot be compared with have none, and are none of the others.
    """
    late = np.isin(np.arange(len(ranks)), late_ranks(snapshot.findings))
    values = np.where(possible_others(ranks), ranks.column(column), np.nan)
    found: Floats = lateness_beside(values[:, None], late).late[:, 0]
    return found


def shares_by_phase(finding: Finding, excess: Callable[[str], float]) -> dict[str, float]:
    """The phases in which a finding says that a rank is late, and the share of its lateness that arises in each.

    Args:
        finding: the shares of one that is not about lateness are empty.
        excess: by how many ms a phase of the rank exceeds the median of the others; asked for several phases only.
    """
    if not KINDS[finding.kind].late:  # where a rank is stuck is no lateness
        return {}
    if finding.phase != "work":
        return {finding.phase: 1.0} if finding.phase in PHASES else {}
    found = {phase: excess(phase) for phase in PHASES}
    more = {phase: ms for phase, ms in found.items() if math.isfinite(ms) and ms > 0}
    return {phase: ms / sum(more.values()) for phase, ms in more.items()}


def rare_excess(finding: Finding, excess: Callable[[str], float]) -> dict[str, float]:
    """What the late steps of a rank that is late now and then add to its mean step, by phase, in ms above its medians.

    Args:
        finding: one that measured no rhythm adds nothing.
        excess: by how many ms the median of a phase of the rank exceeds that of the others.
    """
    measured = now_and_then(finding)
    if measured is None:
        return {}
    shares = shares_by_phase(finding, excess) or {PHASES[-1]: 1.0}  # behind all of the work where no phase holds it
    mean_ms = measured[0] / measured[1]
    added = {phase: share * mean_ms - max(excess(phase), 0.0) for phase, share in shares.items()}
    return {phase: ms for phase, ms in added.items() if ms > 0}
