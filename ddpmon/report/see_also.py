"""Findings that belong together: the whole run became slower when contention began on a host, and neither names it."""

from __future__ import annotations

from ddpmon.diagnose.kinds import KINDS
from ddpmon.diagnose.late_policy import CAUSE
from ddpmon.format import count
from ddpmon.report.finding_rows import what, who
from ddpmon.snapshot import Finding, Snapshot


def see_also(finding: Finding, snapshot: Snapshot) -> list[Finding]:
    """The contention that began with a slowdown of the run without a known cause, and the other way round.

    None is said to be the reason: its figures do not tell that, or it acts on too few ranks.
    """
    kind = KINDS[finding.kind]
    if kind.slower and not finding.cause:
        return [other for other in snapshot.findings if _began_together(finding, other, snapshot)]
    if not kind.acts_on:
        return []
    slower = [other for other in snapshot.findings if KINDS[other.kind].slower and not other.cause]
    return [other for other in slower if _began_together(other, finding, snapshot)]


def see_also_words(finding: Finding, snapshot: Snapshot) -> str:
    """`CPU contention on node0003 since step 410`; empty for none."""
    return "; ".join(_words(other) for other in see_also(finding, snapshot))


def _words(finding: Finding) -> str:
    whom = who(finding)
    said = f"{what(finding)} on {whom}" if KINDS[finding.kind].acts_on else f"{whom}: {what(finding)}"
    return said if finding.since_step is None else f"{said} since step {count(finding.since_step)}"


def _began_together(slower: Finding, other: Finding, snapshot: Snapshot) -> bool:
    """Whether the other one is contention on hosts of the slower run that began when that did, as causes must."""
    since, began = slower.since_step, other.since_step
    if not KINDS[other.kind].acts_on or since is None or began is None or other.since_is_bound:
        return False
    if slower.nodes and set(slower.nodes).isdisjoint(other.nodes):
        return False
    if (slower.cleared_at_step is None) != (other.cleared_at_step is None):
        return False
    step_ms = snapshot.job.step_ms or 0.0
    return -CAUSE.near(step_ms) <= began - since <= CAUSE.after(step_ms)
