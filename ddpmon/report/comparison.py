"""Ranks against the others: what each phase takes on the other ranks, and what of it is more on one of them."""

from __future__ import annotations

import math

from ddpmon.diagnose.kinds import KINDS
from ddpmon.run.medians import peers
from ddpmon.schema import PHASES
from ddpmon.snapshot import Finding, Floats, Ranks


def others_ms(ranks: Ranks, column: str) -> Floats:
    """[world] for each rank the median of a column over the other ranks; NaN where none of them is known."""
    values = ranks.column(column)[:, None]
    found: Floats = peers(values).medians(values)[:, 0]
    return found


def excess_ms(ranks: Ranks, rank: int, phase: str) -> float:
    """By how much a phase takes this rank longer than the median of the others; NaN if that is unknown."""
    return float(ranks.column(f"{phase}_ms")[rank] - others_ms(ranks, f"{phase}_ms")[rank])


def blamed_phase(ranks: Ranks, rank: int, finding: Finding) -> str | None:
    """The phase in which a finding says that a rank is late; of several phases the one with the largest excess."""
    if not KINDS[finding.kind].late:  # where a rank is stuck is no lateness
        return None
    if finding.phase in PHASES or finding.phase != "work":
        return finding.phase if finding.phase in PHASES else None
    excess = {phase: excess_ms(ranks, rank, phase) for phase in PHASES}
    known = {phase: more for phase, more in excess.items() if math.isfinite(more)}
    return max(known, key=lambda phase: known[phase]) if known else None
