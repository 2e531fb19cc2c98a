"""Findings of a run that is over or out of sight: when they held, and for when their advice is."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ddpmon.diagnose.kinds import KINDS
from ddpmon.diagnose.late_policy import ALERTS
from ddpmon.report.verdicts import is_past
from ddpmon.shell_command import Advice, names_rank
from ddpmon.snapshot import Finding, Snapshot, is_over

When = Literal["now", "at this moment", "at the end", "when last seen"]
NEXT_RUN, GOES_ON = "before the next run, ", "if the run goes on, "


def when_words(snapshot: Snapshot) -> When:
    """What a picture is of: now, a moment of the past, the end of a run that is over, or when a run was seen last.

    A run was seen last if nobody knows how it ended.
    """
    if not is_past(snapshot):
        return "now" if snapshot.replay is None else "at this moment"
    return "at the end" if snapshot.run is not None and is_over(snapshot.run.state) else "when last seen"


def with_when(snapshot: Snapshot) -> Snapshot:
    """The picture with findings that say when they held, unless that is now."""
    when = when_words(snapshot)
    if not is_past(snapshot):
        return snapshot
    return replace(snapshot, findings=tuple(in_past(each, when) for each in snapshot.findings))


def asks(kind: str, *, is_over: bool) -> bool:
    """Whether a finding asks for anything: of what is over only one that tells what has happened.

    A trouble that has passed, such as a foreign process that has left, needs nothing more. One that lasted until its
    run ended is not over: `in_past` says that its advice is for the next run.
    """
    return not is_over or any(each.happens for each in KINDS.values() if each.name == kind)


def may_be_more(over: int) -> bool:
    """Whether more findings than these may be over: each rule forgets all but its ten newest."""
    return over >= ALERTS.kept_resolved


def over_words(over: int) -> str:
    """`3 over`, `10 or more over`: how many findings are over."""
    return f"{over:,}{' or more' if may_be_more(over) else ''} over"


def how_ended(snapshot: Snapshot) -> str:
    """Who ended a run that did not finish, and how; empty where that is not known, and of any other run."""
    run = snapshot.run
    if run is None or snapshot.link.state != "gone" or run.state not in ("failed", "killed", "cancelled"):
        return ""
    return snapshot.link.message.partition(";")[0]


def with_kill(snapshot: Snapshot) -> Snapshot:
    """The picture with the kill of its run as the first finding, once, where it was killed or crashed."""
    kill = kill_of(snapshot)
    if kill is None or kill in snapshot.findings:
        return snapshot
    return replace(snapshot, findings=(kill, *snapshot.findings))


def kill_of(snapshot: Snapshot) -> Finding | None:
    """How a run was killed or crashed, as a finding on rank 0; None of any other run."""
    run = snapshot.run
    if run is None or run.state != "killed":
        return None
    where, ranks = run.info.host if run.info is not None else "", snapshot.ranks
    seen = -1 if ranks is None else int(ranks.step[0])
    log = f"the kernel's log (dmesg) of {where}" if where else "the kernel's log (dmesg)"
    return Finding(
        "rank_lost",
        "critical",
        snapshot.link.message or "the run was killed or crashed",
        ranks=(0,),
        nodes=(where,) if where else (),
        since_step=seen if seen >= 0 else run.step,
        advice=f"read the launcher's output, and {log}: if memory ran out, it names what was killed",
        tells_moment=True,
    )


def in_past(finding: Finding, when: When) -> Finding:
    """The finding as it was then, with its advice for later.

    The sentence of one that lasted until then stays in the present tense, behind a word on when that was; a sentence
    that tells its own moment needs none.
    """
    advice = _with_lead(_lead(finding, when), finding.advice)
    if finding.tells_moment or finding.cleared_at_step is not None:
        return replace(finding, advice=advice)
    summary, brief = (f"{when}: {said}" if said else "" for said in (finding.summary, finding.brief))
    return replace(finding, summary=summary, brief=brief, advice=advice)


def _lead(finding: Finding, when: When) -> str:
    """For when the advice is; empty where it is for now, or speaks for itself.

    What has broken or happened is to be looked into now. What slows a run, or will hurt it, is to be mended before the
    next one; while the run may go on, whatever names a live process is about this one.
    """
    kind = KINDS[finding.kind]
    if when == "when last seen" and names_rank(finding.advice):
        return GOES_ON
    if kind.broken or kind.subject == "monitor" or finding.kind == "advice" or finding.tells_moment:
        return ""
    return NEXT_RUN if when == "at the end" else GOES_ON


def _with_lead(lead: str, advice: Advice) -> Advice:
    if not (lead and advice):
        return advice
    return f"{lead}{advice}" if isinstance(advice, str) else (lead, *advice)
