"""Reading the findings: the worst one, those that name a rank, and the calm sentence when there is none."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.alert import SEVERITIES, Severity, at_or_above
from ddpmon.diagnose.kinds import KINDS
from ddpmon.diagnose.late_policy import CALM, SUSTAINED
from ddpmon.format import age, count, plural
from ddpmon.report.overdue import is_overdue, overdue_words
from ddpmon.report.silence import silent_ranks
from ddpmon.report.wording import does
from ddpmon.run.recent import RECENT
from ddpmon.snapshot import Finding, JobView, NodeView, Ranks, Snapshot, is_over

_HEALTHY = "healthy: "
ENOUGH_STEPS = SUSTAINED.warm_up_steps + SUSTAINED.verdict_steps


def firing(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that are not over, in their order (the worst first)."""
    return [finding for finding in findings if finding.cleared_at_step is None]


def identity(finding: Finding) -> tuple[object, ...]:
    """What tells a finding from others: the number of its life, or whom it names first where a rule keeps no lives.

    What stops the job is there once while it lasts, and who it was may be known only after some seconds. What is over
    is told also by when it ended: the same may have come several times.
    """
    if is_kill(finding):
        return ("killed",)
    over = finding.cleared_at_step
    if over is None and KINDS[finding.kind].stops_job is not None:
        return (finding.kind,)
    life = (finding.kind, finding.id) if finding.id else (finding.kind, finding.ranks[:1], finding.nodes[:1])
    return life if over is None else (*life, over)


def same_among(findings: Sequence[Finding], finding: Finding) -> Finding:
    """The one of `findings` that tells of the same trouble, first one of the same life; else `finding` itself."""
    alike = [each for each in findings if identity(each) == identity(finding)]
    return next((each for each in alike if each.id == finding.id), alike[0] if alike else finding)


def names_others(now: Sequence[int], before: Sequence[int]) -> bool:
    """Whether a finding names only other ranks than `before`: then what was told of it was wrong."""
    return bool(now) and set(now).isdisjoint(before)


def headline(findings: Sequence[Finding]) -> Finding | None:
    """The finding that the first line speaks of: the run's kill, else what stops the job, else the worst that lasts.

    It is never a mere note.
    """
    worthy = [finding for finding in firing(findings) if not _is_note(finding)]
    return max(worthy, key=lambda f: (is_kill(f), stops_job(f), SEVERITIES.index(f.severity)), default=None)


def _is_note(finding: Finding) -> bool:
    """Whether it is information that accuses no rank and no host."""
    return finding.severity == "info" and KINDS[finding.kind].is_note


def is_kill(finding: Finding) -> bool:
    """Whether it says that the run was killed or crashed; any other finding on a lost rank is of a run that goes on."""
    return finding.kind == "rank_lost" and finding.tells_moment


def stops_job(finding: Finding) -> bool:
    """Whether it says that the job makes no progress; a run that was killed stands still no more."""
    floor = KINDS[finding.kind].stops_job
    return floor is not None and at_or_above(finding.severity, floor) and not is_kill(finding)


def lateness_of(finding: Finding) -> float | None:
    """By how many ms one rank is late in every step, as the finding measured it; None of any other finding."""
    excess, rhythm = finding.evidence.get("excess_ms"), finding.evidence.get("one_step_in")
    one_rank = KINDS[finding.kind].late and len(finding.ranks) == 1
    return float(excess) if one_rank and rhythm is None and isinstance(excess, float | int) else None


def is_standing_still(snapshot: Snapshot) -> bool:
    """Whether a lasting finding says that no step finishes."""
    over = snapshot.run is not None and snapshot.run.state == "finished"
    return not over and any(stops_job(finding) for finding in firing(snapshot.findings))


def until_words(snapshot: Snapshot, step: int) -> str:
    """`up to step 59` of what ends with that step while no further one finishes; else empty."""
    return f"up to step {count(step)}" if is_standing_still(snapshot) else ""


def is_past(snapshot: Snapshot) -> bool:
    """Whether nothing that is shown is known to go on: the run has ended, or its store is gone."""
    return snapshot.run is not None and (is_over(snapshot.run.state) or snapshot.link.state == "gone")


def figures_now(snapshot: Snapshot) -> JobView:
    """The job's figures; while no step finishes those of a step are unknown, and the last ones no longer hold.

    Once a step is overdue, what the run does in a second and how long it takes still are unknown.
    """
    if not is_standing_still(snapshot):
        is_old = is_overdue(snapshot)
        return replace(snapshot.job, throughput=None, tokens_per_s=None, eta_s=None) if is_old else snapshot.job
    return replace(
        snapshot.job,
        step_ms=None,
        throughput=None,
        tokens_per_s=None,
        sync_efficiency=None,
        lost_to_waiting_pct=None,
        waiting_for=(),
        allreduce_ms=None,
        exposed_ms=None,
        busbw_gb_s=None,
        eta_s=None,
    )


def _marks(finding: Finding) -> bool:
    """Whether it says anything of the ranks and hosts that it names: of their health, or that they restarted alone."""
    return finding.severity != "info" or KINDS[finding.kind].marks or is_restart(finding)


def naming(findings: Sequence[Finding], rank: int, host: str | None = None) -> list[Finding]:
    """The lasting findings that name this rank, or its whole host when they name no rank."""
    return [f for f in firing(findings) if rank in f.ranks or (not f.ranks and host in f.nodes)]


def about_host(findings: Sequence[Finding], node: NodeView) -> list[Finding]:
    """The lasting findings that name this host or a rank on it, and are more than a note on the whole job."""
    worthy = [finding for finding in firing(findings) if _marks(finding)]
    here = set(node.ranks)
    return [f for f in worthy if (not here.isdisjoint(f.ranks) if f.ranks else node.host in f.nodes)]


def about_machine(findings: Sequence[Finding]) -> list[Finding]:
    """The lasting findings that tell of what stands out on a host, on a GPU or of a process.

    Not those that only say how its ranks are, nor those of something broken, which has a sign of its own.
    """
    kinds = {kind.name for kind in KINDS.values() if kind.subject == "host" and not kind.late and not kind.broken}
    return [finding for finding in firing(findings) if finding.kind in kinds or named_processes([finding])]


def named_processes(findings: Sequence[Finding]) -> dict[int, Finding]:
    """The processes that a lasting finding names, as its doing or as its cause, each with its worst finding."""
    named: dict[int, Finding] = {}
    for finding in firing(findings):
        evidence = finding.evidence
        pids = [str(evidence[key]) for key in ("pid", "pids", "cause_pid", "cause_pids") if key in evidence]
        for pid in ", ".join(pids).split(", "):
            if pid.isdigit():
                named.setdefault(int(pid), finding)
    return named


def marked_hosts(findings: Sequence[Finding], nodes: Sequence[NodeView]) -> dict[int, Finding]:
    """Node number -> its worst finding, in the findings' order."""
    marking = [finding for finding in firing(findings) if _marks(finding)]
    ranks, hosts = {rank for each in marking for rank in each.ranks}, {host for each in marking for host in each.nodes}
    by_host = {node.host: node.node for node in nodes if node.host in hosts}
    by_rank = {rank: node.node for node in nodes for rank in ranks.intersection(node.ranks)}
    marked: dict[int, Finding] = {}
    for finding in marking:
        named = [by_rank.get(rank) for rank in finding.ranks] or [by_host.get(host) for host in finding.nodes]
        for number in named:
            if number is not None:
                marked.setdefault(number, finding)
    return marked


def marked_ranks(findings: Sequence[Finding], floor: Severity = "info") -> dict[int, Finding]:
    """The ranks that a lasting finding names, each with its worst finding."""
    marked: dict[int, Finding] = {}
    for finding in firing(findings):
        if at_or_above(finding.severity, floor) and _marks(finding):
            for rank in finding.ranks:
                marked.setdefault(rank, finding)
    return marked


def restarted_alone(findings: Sequence[Finding]) -> set[int]:
    """The ranks that have restarted while others went on, so that they are at other steps."""
    return {rank for each in firing(findings) if is_restart(each) for rank in each.ranks}


def is_restart(finding: Finding) -> bool:
    """Whether it names ranks that have restarted while others went on."""
    return "restarted_alone" in finding.evidence


def late_ranks(findings: Sequence[Finding]) -> list[int]:
    """The ranks that lasting findings call late. No rank is compared with them if any others are left."""
    late = (each for each in firing(findings) if KINDS[each.kind].late)
    return sorted({rank for finding in late for rank in finding.ranks})


def is_broken(finding: Finding) -> bool:
    """Whether it says, as critical, that something is broken rather than slow: not of what the run goes on without."""
    return KINDS[finding.kind].broken > 0 and finding.severity == "critical"


def compared_ranks(ranks: Ranks) -> NDArray[np.bool_]:
    """[world] whether a rank's last steps are among those that are compared: not of one that restarted alone."""
    return np.isfinite(ranks.work_ms) & np.isfinite(ranks.lateness_ms)


def are_compared(snapshot: Snapshot, chosen: Sequence[int]) -> bool:
    """Whether the last steps of all these ranks are compared with those of others."""
    return snapshot.ranks is not None and not _not_compared(snapshot.ranks, chosen)


def _not_compared(ranks: Ranks, chosen: Sequence[int]) -> list[int]:
    """Those of the chosen ranks whose last steps cannot be compared."""
    compared = compared_ranks(ranks)
    return [rank for rank in chosen if rank < len(compared) and not compared[rank]]


def not_compared_words(snapshot: Snapshot, chosen: Sequence[int], whose: str) -> str:
    """What to say of a rank or a host, `whose`, of whose ranks some cannot be compared with the others that can.

    Empty where they can be, and where no rank of the run can be, such as while no step finishes.
    """
    ranks = snapshot.ranks
    without = [] if ranks is None else _not_compared(ranks, chosen)
    if ranks is None or not without or not compared_ranks(ranks).any():
        return ""
    if len(without) < len(chosen):
        return f"no findings for this {whose}; {len(without):,} of its {len(chosen):,} ranks cannot be compared"
    if silent_ranks(ranks)[without].all():
        who = "it" if whose == "rank" else f"its {plural(len(chosen), 'rank')}"
        is_one = whose == "rank" or len(chosen) == 1
        if is_past(snapshot):
            return f"not compared: {who} fell silent before the others"
        return f"not compared: {who} {'has' if is_one else 'have'} been silent for {age(ranks.age_s[without].max())}"
    if np.isfinite(ranks.work_ms[without]).any():
        it = "it is" if whose == "rank" else "its rank is" if len(chosen) == 1 else "its ranks are"
        return f"not compared yet: {it} in other steps than the rest"
    of_it = "it" if whose == "rank" else f"its {plural(len(chosen), 'rank')}"
    return f"not compared yet: no step of {of_it} has been read"


def spread_pct(ranks: Ranks) -> float | None:
    """How far the work of the compared ranks lies from its median, in percent; None below two of them."""
    work = ranks.work_ms[compared_ranks(ranks)]
    if len(work) < 2:
        return None
    middle = float(np.median(work))
    return float(np.max(np.abs(work / middle - 1))) * 100 if middle > 0 else None


def calm_sentence(snapshot: Snapshot) -> str:
    """What to say when nothing was found, or what is missing to find anything."""
    ranks, run = snapshot.ranks, snapshot.run
    if run is None:
        return f"waiting: {snapshot.link.message or 'no run has been read yet'}"
    if ranks is None or not {*ranks.state} - {"unknown"}:
        if snapshot.link.state == "gone":
            return f"nothing is known about the ranks: {snapshot.link.message}"
        expected = f"{plural(run.world_size, 'rank')} expected"
        return f"waiting: no rank has reported yet (run found at {run.source}, {expected})"
    if any(pending.kind == "rank_failed" for pending in snapshot.pending):
        which = "is known within some seconds" if snapshot.link.state == "live" else "could not be read"
        return f"ranks have failed because another one had ended; which one {which}"
    if overdue := overdue_words(snapshot):
        return overdue
    if run.world_size == 1:
        return "there is only one rank, so there is nothing to compare it with"
    if unread := _unread(snapshot):
        return f"no verdict yet: the past of {unread:,} of {run.world_size:,} ranks is still being read"
    if not is_judged(snapshot):
        return (
            f"not enough evidence yet: the run is at step {count(run.step)}, and a verdict needs {ENOUGH_STEPS} steps"
        )
    return f"{_restart_words(snapshot)}{_spread_sentence(snapshot, ranks, run.world_size)}"


def _spread_sentence(snapshot: Snapshot, ranks: Ranks, world_size: int) -> str:
    """How far the work of the ranks differs where nobody is named, and who is missing in that."""
    spread, silent, counted = spread_pct(ranks), _silent(snapshot), compared_ranks(ranks)
    if silent:  # each rank is counted once
        counted[_longest_unheard(ranks, silent)] = False
    known = int(counted.sum())
    others, who = world_size - known, f"{known:,} of {world_size:,} ranks"
    if spread is None or not known:
        return f"not enough evidence yet: {who} can be compared"
    who = who if others else f"{known:,} ranks"
    late = _late_soon(snapshot) if spread > CALM.uneven_pct else ()
    if late:
        return f"not confirmed yet: {does(late, 'seem')} to be late; the work of {who} differs by up to {spread:.0f} %"
    if spread > CALM.uneven_pct:
        return f"no single rank is late so far; the work of {who} differs by up to {spread:.0f} %"
    even = f"{who} within {max(math.ceil(spread), 1)} % of their median work"
    out_of_step = max(others - silent - len(restarted_alone(snapshot.findings)), 0)
    missing = [f"{silent:,} {'is' if silent == 1 else 'are'} silent"] if silent else []
    missing += [f"{out_of_step:,} cannot be compared"] if out_of_step else []
    if not others:
        return f"{_HEALTHY}{even}"
    return f"{even}; {', '.join(missing)}" if missing else even


def _restart_words(snapshot: Snapshot) -> str:
    """Which ranks have restarted alone, and what to do about it, before what is said of the others; empty for none."""
    again = sorted(restarted_alone(snapshot.findings))
    to_do = "" if is_past(snapshot) else ": restart the whole run"
    return f"{does(again, 'have')} restarted alone{to_do}; " if again else ""


def nothing_found(snapshot: Snapshot) -> str:
    """The calm sentence where the findings would stand: without a word on health, and over how many steps it holds."""
    said = calm_sentence(snapshot)
    even = said.removeprefix(_HEALTHY)
    return said if even == said else f"no findings: {even} over {RECENT} steps"


def _silent(snapshot: Snapshot) -> int:
    """How many ranks of a run that goes on have not been heard for some seconds."""
    coverage, run = snapshot.coverage, snapshot.run
    if coverage is None or run is None or snapshot.link.state != "live" or run.state != "running":
        return 0
    return max(0, coverage.expected - coverage.reporting)


def _longest_unheard(ranks: Ranks, many: int) -> NDArray[np.int64]:
    """The ranks that have not been heard for the longest time, so many of them."""
    return np.argsort(-np.nan_to_num(ranks.age_s, nan=np.inf), kind="stable")[:many]


def _late_soon(snapshot: Snapshot) -> Sequence[int]:
    """The ranks that a verdict on lateness would name once it is confirmed."""
    return next((pending.ranks for pending in snapshot.pending if KINDS[pending.kind].late and pending.ranks), ())


def is_judged(snapshot: Snapshot) -> bool:
    """Whether there have been enough steps for a verdict, and all that the ranks remember of them has been read."""
    run = snapshot.run
    return run is not None and run.step is not None and run.step >= ENOUGH_STEPS and not _unread(snapshot)


def _unread(snapshot: Snapshot) -> int:
    """The ranks whose past is still to be read."""
    return 0 if snapshot.coverage is None else snapshot.coverage.unread_histories


def is_reading(snapshot: Snapshot) -> bool:
    """Whether the past of some ranks is being read: the next look should come at once."""
    return snapshot.link.state == "live" and _unread(snapshot) > 0


def is_even(snapshot: Snapshot) -> bool:
    """Whether the calm sentence is good news: enough steps, none overdue, and all ranks of a sound run work alike."""
    ranks, run = snapshot.ranks, snapshot.run
    if ranks is None or run is None or not is_judged(snapshot) or is_overdue(snapshot):
        return False
    spread, whole = spread_pct(ranks), bool(compared_ranks(ranks).all()) and not _silent(snapshot)
    return run.state in ("running", "finished") and whole and spread is not None and spread <= CALM.uneven_pct


def about_ranks(snapshot: Snapshot, ranks: Sequence[int]) -> list[Finding]:
    """The findings about one of these ranks or their hosts, and those about the whole job."""
    chosen, known = {*ranks}, () if snapshot.ranks is None else snapshot.ranks.host
    hosts = {known[rank] for rank in ranks if rank < len(known)}
    return [f for f in snapshot.findings if (chosen & {*f.ranks} if f.ranks else not f.nodes or hosts & {*f.nodes})]


def onsets(findings: Sequence[Finding]) -> list[int]:
    """The steps at which lasting warnings began, the headline's first, at most three.

    Without those that are bounds, and those that a lost or failed rank counts by itself: after a restart from 0.
    """
    first = headline(findings)
    loud = [finding for finding in firing(findings) if at_or_above(finding.severity, "warning")]
    of_run = [f for f in sorted(loud, key=lambda each: each != first) if f.kind not in ("rank_lost", "rank_failed")]
    known = [f for f in of_run if not f.since_is_bound]
    return list(dict.fromkeys(f.since_step for f in known if f.since_step is not None))[:3]


def median_of(values: np.ndarray) -> float:
    """The median of what is known, NaN when nothing is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(np.nanmedian(values)) if values.size else float("nan")
