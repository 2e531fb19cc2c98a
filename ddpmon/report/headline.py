"""The headline's facts: who is late, by how much, since when, at what cost; and its cause with what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpmon.diagnose.kinds import KINDS
from ddpmon.diagnose.late_policy import LATENESS
from ddpmon.format import count, pct, plural, time_of_day
from ddpmon.report.base_step import OF_BASE, base_share
from ddpmon.report.cost import hour_unit, hours_words, lost_a_day, lost_hours, lost_words
from ddpmon.report.finding_rows import ago_word, ago_words, costs_word, lasting, late_words
from ddpmon.report.late_sentences import launch_words
from ddpmon.report.step_clock import seconds_since, wall_of
from ddpmon.report.verdicts import is_past, stops_job
from ddpmon.report.wording import format_ranks
from ddpmon.shell_command import first_command
from ddpmon.snapshot import Finding, Snapshot

# Who runs a foreign process, and its command, which is dropped: it may have brackets of its own.
_COMMAND = re.compile(r"(pid \d+ \([^,()]+), (?:[^()]|\([^()]*\))*\)")


def facts(finding: Finding, snapshot: Snapshot, dot: str) -> Iterator[list[str]]:
    """The facts of the first line in fewer and fewer words: who, what, since when, what it costs.

    Nothing where the sentence of the finding says more than its numbers, such as for a hang, a failed rank, or a rank
    that the others do not wait for.
    """
    excess, waits_less = finding.evidence.get("excess_ms"), finding.evidence.get("waits_less_ms")
    if not KINDS[finding.kind].late or not isinstance(excess, float | int):
        return
    if isinstance(waits_less, float | int) and waits_less < LATENESS.waits_share * excess:
        return
    share = base_share(snapshot, float(excess))
    shares = () if share is None else (f" (+{share:.0f} % {OF_BASE[-1]})", f" (+{share:.0f} %)")
    said = [late_words(finding, each="/step", share=words) for words in (*shares, "")]
    yield from _long(finding, snapshot, said[0], dot)
    whole, cost = _who(finding, snapshot, f" {dot} "), _cost(finding, snapshot)
    since, _, ago = _since(finding, snapshot)
    when = f" {dot} ".join(filter(None, [since, ago]))
    yield from (_given(whole, what, when, cost) for what in said[1:-1])
    yield from (_given(whole.split(f" {dot} GPU ")[0], what, when, cost) for what in said)
    yield from _short(finding, snapshot, late_words(finding))


def _long(finding: Finding, snapshot: Snapshot, what: str, dot: str) -> Iterator[list[str]]:
    """With the host and the GPU, the time of day, and the hours that it costs, as far as they are known."""
    who, since, cost = _who(finding, snapshot, f" {dot} "), _since(finding, snapshot), _cost(finding, snapshot)
    hours, a_day = _hours(finding, snapshot)
    full, usual = (f" {dot} ".join(filter(None, each)) for each in (since, (since[0], since[2])))
    if hours and cost and not a_day:
        yield _given(who, what, full, f"{cost} of the run's time", hours)
        yield _given(who, what, full, cost, hours)
    elif hours and cost:
        yield _given(who, what, full, f"{cost} of the run's time", f"{hours} so far, {a_day}")
        yield _given(who, what, full, cost, f"{hours}, {a_day}")
    if hours and cost and a_day:
        ways = _given(who, what, usual, cost, f"{hours}, {a_day}"), _given(who, what, full, cost, hours)
        yield from sorted(ways, key=lambda way: -sum(map(len, way)))
    if hours and cost:
        yield _given(who, what, usual, cost, hours)
    yield _given(who, what, usual, cost)


def _short(finding: Finding, snapshot: Snapshot, what: str) -> Iterator[list[str]]:
    """For 80 columns without `ago`, the GPU and the host; for the narrowest without the onset and the phase."""
    cost, whole = _cost(finding, snapshot), _who(finding, snapshot, " ")
    lasted = lasting(_going_on_s(finding, snapshot), is_bound=finding.since_is_bound)
    step = _since(finding, snapshot)[0].removeprefix("since ")
    alone = step.replace("step ", "since " if step.startswith("step ") else "")
    when, ago = (f"{step} ({lasted}{word})" if lasted else alone for word in ("", f" {ago_word(snapshot)}"))
    who = format_ranks(finding.ranks) if finding.ranks else whole
    less = what.removeprefix("late ")
    places = dict.fromkeys([whole, whole.split(" GPU ")[0]])
    yield from (_given(place, what, cost, words) for place in places for words in dict.fromkeys([ago, when]))
    yield _given([*places][-1], what, cost, alone)
    yield from (_given(who, what, cost, when),) if who not in places else ()
    yield from (_given(who, less, cost, when), _given(who, less, cost), _given(who, less.split(" ms")[0] + " ms", cost))


def _given(*parts: str) -> list[str]:
    """The parts that say something."""
    return [part for part in parts if part]


def _who(finding: Finding, snapshot: Snapshot, between: str) -> str:
    """`rank 5 · node1 · GPU 1`; of a whole host its name and how many ranks."""
    host = finding.nodes[0] if finding.nodes else ""
    if finding.kind == "slow_node" and host:
        return f"{host}{between}{plural(len(finding.ranks), 'rank')}"
    parts = [format_ranks(finding.ranks), host]
    if len(finding.ranks) == 1 and snapshot.ranks is not None and finding.ranks[0] < len(snapshot.ranks):
        gpu = snapshot.ranks.gpu[finding.ranks[0]]
        parts.append(f"GPU {gpu.index}" if gpu is not None else "")
    return between.join(part for part in parts if part)


def _since(finding: Finding, snapshot: Snapshot) -> tuple[str, str, str]:
    """`since step 764`, `14:02:31`, `2 min ago`; empty what is not known."""
    step = finding.since_step
    if step is None:
        return "", "", ""
    ago = ago_words(_going_on_s(finding, snapshot), snapshot, is_bound=finding.since_is_bound)
    since = f"since {'before ' if finding.since_is_bound else ''}step {count(step)}"
    return since, time_of_day(wall_of(snapshot, step)), ago


def _going_on_s(finding: Finding, snapshot: Snapshot) -> float | None:
    """For how many seconds it has been going on; None where that is not known, and in a run that is over."""
    step = finding.since_step
    return None if step is None or is_past(snapshot) else seconds_since(snapshot, step)


def _cost(finding: Finding, snapshot: Snapshot) -> str:
    """`costs 22 %`, `cost 22 %` once the run is over; a range where only wide bounds are known."""
    if finding.cost_pct is None:
        return ""
    most = finding.evidence.get("cost_most_pct")
    wide = isinstance(most, float | int) and pct(most) != pct(finding.cost_pct)
    return f"{costs_word(snapshot)} {pct(finding.cost_pct)}{f' to {pct(float(most or 0))}' if wide else ''} %"


def _hours(finding: Finding, snapshot: Snapshot) -> tuple[str, str]:
    """`about 4.6 GPU-h lost`, `78 a day`; empty where that is not known, and the second one of a run that has ended."""
    hours, run = lost_hours(finding, snapshot), snapshot.run
    if hours is None or run is None or finding.cost_pct is None:
        return "", ""
    a_day = hours_words(lost_a_day(finding, run.world_size))
    lost = lost_words(hours, hour_unit(snapshot), is_bound=finding.since_is_bound)
    return f"{lost} lost", "" if is_past(snapshot) else f"{a_day} a day"


def sentence(finding: Finding, snapshot: Snapshot) -> str:
    """The sentence of a finding without facts of its own, with what a standstill has cost."""
    return _with_cost(finding.summary, finding, snapshot)


def brief_sentence(finding: Finding, snapshot: Snapshot) -> str:
    """The same with `at train.py:88` instead of `at train.py:88 in read: x = f(y)`, and without a foreign command."""
    return _with_cost(_COMMAND.sub(r"\1)", finding.brief or finding.summary), finding, snapshot)


def _with_cost(said: str, finding: Finding, snapshot: Snapshot) -> str:
    hours = lost_hours(finding, snapshot) if stops_job(finding) else None
    when = "" if is_past(snapshot) else " so far"
    lost = f" {hours_words(hours)} {hour_unit(snapshot)} lost{when}." if hours is not None and hours >= 0.005 else ""
    return f"{said.rstrip('.')}.{lost}" if lost else said


def cause_words(finding: Finding) -> str:
    """`likely cause: a shared GPU; pid 4242 (bob, python x.py) uses 38 % of it`; empty where no cause is known."""
    if not finding.cause:
        surely, at_most = (_number(finding, name) for name in ("launch_ms", "launch_most_ms"))
        return launch_words(surely, at_most, several=len(finding.ranks) > 1)
    lead, trouble, details = _cause_parts(finding)
    return f"{lead}{'; '.join(filter(None, [trouble, details]))}" if trouble else ""


def _number(finding: Finding, name: str) -> float | None:
    found = finding.evidence.get(name)
    return float(found) if isinstance(found, float | int) else None


def _cause_parts(finding: Finding) -> tuple[str, str, str]:
    """`likely cause: `, the name of the trouble, and what is known of it."""
    cause = finding.cause or ""
    lead = "likely cause: " if cause.endswith(" (likely)") else "cause: "
    trouble, _, details = cause.removesuffix(" (likely)").removesuffix(" (certain)").partition(": ")
    return lead, trouble, details


def brief_cause(finding: Finding) -> str:
    """`likely cause: pid 4242 (bob) uses 38 % of its GPU`: without the name of the trouble and the foreign command."""
    lead, _, details = _cause_parts(finding)
    return lead + _COMMAND.sub(r"\1)", details) if details else cause_words(finding)


def command(finding: Finding, snapshot: Snapshot) -> str:
    """The command to paste of a finding's advice; empty without one."""
    return first_command(finding.advice, snapshot.own_host)
