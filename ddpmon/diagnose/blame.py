"""The alert on somebody who is late: who, by how much, in which phase, since when, at what cost."""

from __future__ import annotations

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.alert_book import Life
from ddpmon.diagnose.kinds import KindName
from ddpmon.diagnose.measure import LateMeasures, agrees, phase_of


def blame(kind: KindName, life: Life, nodes: tuple[str, ...], since: tuple[int, bool], late: LateMeasures) -> Alert:
    """The alert; it names nobody, and is information, where the others do not wait for those who are late.

    Args:
        kind: of which kind.
        life: the suspicion, whose severity is sticky.
        nodes: the hosts of those who are late.
        since: the first step, and whether that is only a bound.
        late: by how much, and at what cost.
    """
    if not agrees(late):
        return Alert(kind, "info", measures=late, since_step=since[0], since_is_bound=since[1])
    return Alert(
        kind=kind,
        severity=life.severity(late.cost_pct),
        measures=late,
        ranks=late.whom.ranks,
        nodes=nodes,
        phase=phase_of(late),
        since_step=since[0],
        since_is_bound=since[1],
        cost_pct=late.cost_pct,
    )
