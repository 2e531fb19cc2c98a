"""Findings of a run that is over: when they held, and for whom their advice is."""

from __future__ import annotations

from dataclasses import replace

from ddpmon.shell_command import Advice
from ddpmon.snapshot import Finding

AT_THE_END, LAST_SEEN = "at the end", "when last seen"
NEXT_RUN, GOES_ON = "before the next run, ", "if the run goes on, "
_OF_THE_PAST = ("rank_failed",)  # kinds whose sentences are of the past by themselves


def in_past(finding: Finding, *, may_go_on: bool) -> Finding:
    """The finding as it was at the end of its run; its advice is for the next run.

    Its sentence stays in the present tense, behind a word on when that was.

    Args:
        finding: as it was told while the run went on.
        may_go_on: whether the run is only out of sight, so that the advice may still be of use to it.
    """
    advice = finding.advice
    if advice and finding.kind != "advice":
        advice = _with_lead(GOES_ON if may_go_on else NEXT_RUN, advice)
    if finding.kind in _OF_THE_PAST or finding.cleared_at_step is not None:
        return replace(finding, advice=advice)
    when = LAST_SEEN if may_go_on else AT_THE_END
    summary, brief = (f"{when}: {said}" if said else "" for said in (finding.summary, finding.brief))
    return replace(finding, summary=summary, brief=brief, advice=advice)


def _with_lead(lead: str, advice: Advice) -> Advice:
    return f"{lead}{advice}" if isinstance(advice, str) else (lead, *advice)
