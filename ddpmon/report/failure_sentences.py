"""Sentences on ranks that failed or are lost, and on what the monitor does not see."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.coverage import CoverageMeasures, DuplicateRanksMeasures, Losses, RestartedAloneMeasures
from ddpmon.diagnose.failures import (
    BrokenConnectionMeasures,
    DisappearedMeasures,
    FirstFailureMeasures,
    InterruptedMeasures,
    LeftMeasures,
    RankEnd,
    RankError,
)
from ddpmon.diagnose.lost import LostMeasures
from ddpmon.format import age
from ddpmon.report.tense import during, tense
from ddpmon.report.wording import Evidence, Sentence, Words, clean, does, format_ranks, on_host, phase_words
from ddpmon.shell_command import Advice, ShellCommand

_LINE = re.compile(r'File "([^"]*)", line (\d+), in (.+)')
_FOREIGN = re.compile(r"site-packages|dist-packages|/lib/python\d|<frozen|<string>")
_ERROR = 160  # characters of a message
_STACK_LINES, _STACK_WIDTH = 24, 200
_READ_OTHERS = (
    "read what the launcher printed: torchrun names the rank that ended first as Root Cause, with its signal; SIGKILL "
    "often means that memory ran out: check dmesg on its host"
)


def _first_failure(m: FirstFailureMeasures, alert: Alert) -> Words:
    """Who failed first, where, with what, and who follows."""
    where, error = _place(m.first.traceback), _error(m.first.error)
    said = [f"rank {alert.ranks[0]} failed {_after(m.first.step)}{f' at {where}' if where else ''}: {error}"]
    if others := alert.ranks[1:]:
        alike = all(_error(other) == error for other in m.other_errors)
        said.append(f"{format_ranks(others)} {'in the same way' if alike else 'with other errors'}")
    if m.followers:
        said.append(f"{does(m.followers, 'follow')} from it")
    return Words(
        "; ".join(said),
        evidence=_evidence(m.first, _error(m.first.error, 400)) | ({"where": where} if where else {}),
        advice="read its log: it did not report which exception ended it"
        if m.first.error is None
        else "read its traceback; the errors of the other ranks follow from it",
        tells_moment=True,
    )


def _interrupted(m: InterruptedMeasures, _alert: Alert) -> Words:
    """How the run was interrupted, and on which ranks."""
    on = "all ranks" if m.are_all else format_ranks(m.ranks)
    return Words(
        f"the run was interrupted after step {max(m.step, 0):,} ({_error(m.error, 60)} on {on})",
        evidence={"failed": m.failed, "exception": _error(m.error)},
        tells_moment=True,
    )


def _disappeared(m: DisappearedMeasures, alert: Alert) -> Words:
    """Who fell silent, and how the others failed because of it."""
    error = _error(m.error)
    rest = " (one of them ended first, and the launcher then ended the others)" if len(alert.ranks) > 1 else ""
    return Words(
        f"{format_ranks(alert.ranks)} disappeared without a message{rest}; {format_ranks(m.followers)} then failed "
        f"with {error}",
        evidence=_evidence(m.first, error),
        advice=_READ_OTHERS,
        tells_moment=True,
    )


def _left(m: LeftMeasures, alert: Alert) -> Words:
    """Who ended without an exception, and how the others failed because of it."""
    their, them = ("its", "it") if len(alert.ranks) == 1 else ("their", "them")
    ended, error = f"{format_ranks(alert.ranks)} ended {_after(m.first.step)}", _error(m.error)
    return Words(
        f"{ended} ({their} program exited, or {their} data ended), and {format_ranks(m.followers)} failed waiting for "
        f"{them}: {error}",
        evidence=_evidence(m.first, error),
        advice="make all ranks run the same number of steps: look for an exit, return or continue that only some of "
        "them reach",
        tells_moment=True,
    )


def _broken_connection(m: BrokenConnectionMeasures, _alert: Alert) -> Words:
    """Who failed with an error that another rank's end causes, while no rank reported one."""
    error = _error(m.first.error)
    how = f"{_after(m.first.step)} with {error}"
    return Words(
        f"{format_ranks(m.ranks)} failed {how}: no rank reported why the connection broke",
        evidence=_evidence(m.first, error),
        advice=_READ_OTHERS,
        tells_moment=True,
    )


def _after(step: int) -> str:
    return "before its first step" if step < 0 else f"after step {step:,}"


def _error(error: RankError | None, limit: int = _ERROR) -> str:
    """An exception and its message, at most `limit` characters of it."""
    if error is None:
        return "an error that it did not report"
    kind, message = clean(error.kind, 60), clean(error.message, limit)
    return f"{kind}: {message}" if message else kind


def _evidence(first: RankEnd, exception: str) -> dict[str, float | int | str]:
    evidence: dict[str, float | int | str] = {"step": first.step, "exception": exception}
    if first.traceback:
        lines = (line[:_STACK_WIDTH] for line in _lines(first.traceback)[-_STACK_LINES:])
        evidence["stack"] = "\n".join("".join(char if char.isprintable() else " " for char in line) for line in lines)
    return evidence


def _place(traceback: Sequence[str]) -> str:
    """The innermost line that is the user's own code, else the innermost; "" if there is none."""
    lines = _lines(traceback)
    found = [(match, lines[at + 1 : at + 2]) for at, line in enumerate(lines) if (match := _LINE.search(line))]
    if not found:
        return ""
    own = [entry for entry in found if not _FOREIGN.search(entry[0][1])]
    match, following = (own or found)[-1]
    source = clean(following[0], 80) if following and not _LINE.search(following[0]) else ""
    name = match[1].replace("\\", "/").rsplit("/", 1)[-1]
    return f"{clean(name, 60)}:{match[2]} in {clean(match[3], 60)}{f': {source}' if source else ''}"


def _lines(traceback: Sequence[str]) -> list[str]:
    """The lines of a traceback, whose entries may hold several."""
    return "\n".join(traceback).split("\n")


def _coverage(m: CoverageMeasures, alert: Alert) -> Words:
    """Who is not seen, and what was lost on the way."""
    evidence = {
        "not_reporting": len(m.silent),
        "never_heard_of": len(m.unheard),
        "dropped_steps": m.losses.steps,
        "dropped_frames": m.losses.frames,
        "rejected_frames": m.losses.rejected,
        "refused_frames": m.losses.refused,
        "set_aside": m.losses.set_aside,
        "thinned_ranks": m.thinned,
    }
    if len(m.silent) == m.world_size:
        return _nobody_reports(m, evidence, alert)
    said = [*_unseen(m, alert), *_lost_on_the_way(m.losses, m.window_s)]
    heard = m.world_size - len(alert.ranks)
    if alert.ranks and 2 * heard <= m.world_size:
        others = f"the others {tense(alert, 'cannot')} be judged"
        said.append(f"only {heard:,} of {m.world_size:,} ranks {tense(alert, 'report now')}: {others}")
    summary = f"the monitor {tense(alert, 'does')} not see the whole run: {'; '.join(said)}"
    return Words(summary, evidence=evidence, advice=_coverage_advice(m, alert.ranks))


def _nobody_reports(m: CoverageMeasures, evidence: Evidence, alert: Alert) -> Words:
    """The store answers and every rank is silent: what that may mean, before anybody knows."""
    fate = f"{tense(alert, 'have')} ended, {tense(alert, 'are')} stopped, or {tense(alert, 'cannot')} reach the store"
    return Words(
        f"every rank {tense(alert, 'has been')} silent for {age(m.silent_s)}, though the store "
        f"{tense(alert, 'answers')}: they {fate}",
        evidence=evidence,
        advice="wait: ddpmon says what has become of them as soon as it knows",
    )


def _unseen(m: CoverageMeasures, alert: Alert) -> list[str]:
    said = []
    if m.silent:
        said.append(f"{does(m.silent, 'have been', alert)} silent for {age(m.silent_s)}")
    if m.unheard:
        never = f"{does(m.unheard, 'have never', alert)} reported"
        said.append(f"{never}, so a slowdown of the whole run or its network {tense(alert, 'cannot')} be detected")
    return said


def _lost_on_the_way(lost: Losses, window_s: float | None) -> list[str]:
    when = "so far" if window_s is None else "within the last minute"
    counts = [(lost.steps, "step", "dropped"), (lost.frames, "frame", "dropped"), (lost.rejected, "frame", "rejected")]
    counts += [(lost.refused, "frame", "refused"), (lost.set_aside, "step record", "set aside")]
    return [f"{n:,} {what}{'s' * (n != 1)} {fate} {when}" for n, what, fate in counts if n]


def _coverage_advice(m: CoverageMeasures, absent: Sequence[int]) -> Advice:
    if m.rank is not None and m.process is not None:
        still = _still_runs(m.rank, m.process.host, m.process.pid, alone=len(absent) == 1)
        never = f"; check that {does(m.unheard, 'attach')} the monitor" if m.unheard else ""
        return still, f"check whether that host reaches the store{never}"
    if absent:
        hosts = "its host reaches" if len(absent) == 1 else "their hosts reach"
        return f"check that {does(absent, 'attach')} the monitor, and that {hosts} the store"
    if m.losses.steps or m.losses.frames:
        return "the store or a rank's host is too busy to take in frames; the training is not affected"
    if m.losses.refused:
        return "set the same DDPMON_TOKEN for every rank and every dashboard; the notices say what was wrong"
    if m.losses.rejected:
        return "use the same ddpmon release in the training and here; the notices name the keys"
    return "check the clocks of the hosts: these steps have impossible durations"


def _restarted_alone(_m: RestartedAloneMeasures, alert: Alert) -> Words:
    """Who has restarted while the others went on: their steps have the numbers of others' steps of other times."""
    own = "its own" if len(alert.ranks) == 1 else "their own"
    return Words(
        f"{does(alert.ranks, 'have restarted', alert)} on {own} and {tense(alert, 'cannot')} be compared with the "
        f"others, which {tense(alert, 'are')} at other steps",
        evidence={"restarted_alone": len(alert.ranks)},
        advice="restart the whole run, so that all ranks continue from the same step",
    )


def _duplicate_ranks(m: DuplicateRanksMeasures, alert: Alert) -> Words:
    """As which ranks two processes publish, and which processes these are."""
    pair = " and ".join(f"pid {process.pid} on {clean(process.host, 60)}" for process in m.publishers)
    first = "" if len(alert.ranks) == 1 else f"rank {alert.ranks[0]}: "
    return Words(
        f"two processes {tense(alert, 'publish')} as {format_ranks(alert.ranks)} ({first}{pair}): two trainings "
        f"{tense(alert, 'share')} one run, and the figures {tense(alert, 'describe')} neither",
        evidence={"ranks_written_twice": len(alert.ranks)},
        advice="give each training its own store or rendezvous, or stop the one that should not run",
    )


def _lost(m: LostMeasures, alert: Alert) -> Words:
    """Who is silent, since when, and where it was."""
    host, alone = clean(m.host, 60), len(alert.ranks) == 1
    when = "" if alert.cleared_at_step is None else f" ({during(alert)})"
    silent = f"{tense(alert, 'has been' if alone else 'have been')} silent for {age(m.silent_s)}{when}"
    on_one = len(alert.nodes) < 2
    where, its = (f" ({host})", "") if on_one else (f" on {len(alert.nodes):,} hosts", f" ({host})")
    whose = f"rank {m.rank} ({host})" if alone else f"{format_ranks(alert.ranks)}{where}"
    if m.others_go_on:
        return _unreported(f"{whose} {silent}", m, alert)
    counted = ", counted from its restart" if m.has_restarted else ""
    seen = f"last seen {phase_words(clean(m.phase, 40))} at step {max(m.step, 0):,}{counted}"
    was = f", {seen}" if alone else f"; rank {m.rank}{its} was {seen}"
    return Words(
        f"{whose} {silent}{was}: killed, stopped or disconnected",
        evidence={"silent_s": m.silent_s},
        tells_end=True,
        advice=(
            _still_runs(m.rank, m.host, m.pid, alone=alone),
            f"check {'its log' if alone else 'the logs'}, the kernel's log (dmesg) and the network",
        ),
    )


def _still_runs(rank: int, host: str, pid: int, *, alone: bool) -> ShellCommand:
    """How to see whether the process of a silent rank is still there; `alone`: no other rank is silent.

    Once the run is over nobody needs to see that.
    """
    lead = f"see whether {'it' if alone else f'rank {rank}'} still runs: "
    return on_host(host, f"ps -p {pid}", "rank", lead=lead, tail="; then ")


def _unreported(who: str, m: LostMeasures, alert: Alert) -> Words:
    """Who is silent, and was not needed for the others' steps or took part in them."""
    alone = len(alert.ranks) == 1
    takes = f"it {tense(alert, 'takes')}" if alone else f"they {tense(alert, 'take')}"
    goes_on = f"{tense(alert, 'goes')} on without {'it' if alone else 'them'}"
    return Words(
        f"{who}, and the other ranks {tense(alert, 'have finished steps since')}; either {takes} part and only the "
        f"reports {tense(alert, 'are')} missing, or the run {goes_on}",
        evidence={"silent_s": m.silent_s},
        tells_end=True,
        advice=(
            _still_runs(m.rank, m.host, m.pid, alone=alone),
            "check whether that host reaches the store, and what ddpmon has printed into the log",
        ),
    )


SENTENCES: Mapping[type[Measures], Sentence] = {
    FirstFailureMeasures: _first_failure,
    InterruptedMeasures: _interrupted,
    DisappearedMeasures: _disappeared,
    LeftMeasures: _left,
    BrokenConnectionMeasures: _broken_connection,
    CoverageMeasures: _coverage,
    RestartedAloneMeasures: _restarted_alone,
    DuplicateRanksMeasures: _duplicate_ranks,
    LostMeasures: _lost,
}
