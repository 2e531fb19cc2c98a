"""A finding in short, as one row of a list, and in full, as named rows: all of it from what the alert measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from ddpmon.diagnose.kinds import KINDS, KindName
from ddpmon.format import age, count, known, pct, signed, time_of_day
from ddpmon.report.cost import hour_unit, hours_words, lost_a_day, lost_hours, lost_words
from ddpmon.report.evidence import UNSEEN, evidence_words, unseen
from ddpmon.report.host_gpus import rank_span
from ddpmon.report.peers import RHYTHM, now_and_then_words
from ddpmon.report.step_clock import seconds_since, wall_of
from ddpmon.report.verdicts import is_kill, is_past, stops_job
from ddpmon.report.wording import one_step_of, phase_words, run_share
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding, NodeView, Snapshot, is_over

NAMES: Mapping[KindName, str] = {
    "straggler": "late",
    "intermittent_straggler": "late in some steps",
    "slow_node": "slow host",
    "uneven_work": "uneven work",
    "job_slower": "slower than before",
    "slow_network": "slow network",
    "gc_pauses": "garbage collection",
    "pause": "pause",
    "hang": "stuck",
    "rank_failed": "failed",
    "rank_lost": "lost",
    "nonfinite_loss": "loss not finite",
    "loss_jump": "loss jumped",
    "uneven_inputs": "data ended early",
    "gpu_shared": "shared GPU",
    "gpu_doubled": "two ranks on one GPU",
    "gpu_leftover": "leftover on GPU",
    "gpu_throttled": "throttled GPU",
    "gpu_errors": "GPU errors",
    "pcie_degraded": "slow PCIe link",
    "gpu_memory_growth": "GPU memory grows",
    "gpu_memory_uneven": "uneven GPU memory",
    "cpu_contention": "CPU contention",
    "cpu_oversubscribed": "too many threads",
    "cpu_pinned": "ranks share CPUs",
    "cpu_throttled": "CPU quota",
    "numa_misaffinity": "wrong NUMA node",
    "memory_pressure": "memory pressure",
    "shm_low": "/dev/shm nearly full",
    "disk_low": "disk nearly full",
    "disk_slow": "slow disk",
    "nic_errors": "network errors",
    "port_clash": "port taken",
    "monitor_degraded": "incomplete picture",
    "advice": "advice",
}
KILLED = "killed or crashed"
_UPPER = re.compile(r"\b(gpu|cpu|numa|gc|nic)\b")
_BADGES = {"critical": "CRIT", "warning": "WARN", "info": "INFO"}
_DAY_S = 86_400.0
_SPAN = 17  # cells that ranks may take which are named, such as `ranks 8-15, 24-31`: a list in 80 columns has so many


def badge(finding: Finding) -> str:
    """CRIT, WARN or INFO; HANG where no step finishes."""
    return "HANG" if finding.kind == "hang" else _BADGES[finding.severity]


def kind_words(finding: Finding) -> str:
    """The kind in words: `intermittent straggler`, `GPU memory growth`."""
    if is_kill(finding):
        return KILLED
    kind = finding.kind
    named = {"slow_node": "slow host", "monitor_degraded": NAMES["monitor_degraded"], "shm_low": NAMES["shm_low"]}
    return named.get(kind) or _UPPER.sub(lambda found: found[0].upper(), kind.replace("_", " ")).replace("pcie", "PCIe")


def who(finding: Finding, node: NodeView | None = None) -> str:
    """`rank 42`, `ranks 8-31`, `node0002`, `9 ranks`, `2 hosts`, or `the run`; on a host its own ranks; not cleaned."""
    if KINDS[finding.kind].subject == "monitor" and not _fate(finding):
        return "the run"
    if node is not None:
        finding = replace(finding, ranks=own_ranks(finding, node), nodes=(node.host,))
    if finding.ranks and (KINDS[finding.kind].subject != "host" or not finding.nodes):
        span = rank_span(finding.ranks)
        return span if len(span) <= _SPAN else f"{len(finding.ranks):,} ranks"
    if finding.nodes:
        return ", ".join(finding.nodes) if len(finding.nodes) == 1 else f"{len(finding.nodes):,} hosts"
    return "the run"


def own_ranks(finding: Finding, node: NodeView) -> tuple[int, ...]:
    """The ranks of a host that a finding names."""
    here = set(node.ranks)
    return tuple(rank for rank in finding.ranks if rank in here)


def what(finding: Finding) -> str:
    """`late +159 ms, backward`, `stuck in input`, `restarted alone`, `shared GPU`: in a few words."""
    if finding.kind == "hang" and finding.ranks and finding.phase:
        return f"stuck {phase_words(finding.phase)}"
    if is_kill(finding):
        return KILLED
    if finding.kind == "advice":
        return re.split(r"[:,] ", advice_text(finding.advice))[0] or NAMES["advice"]
    return _fate(finding) or late_words(finding) or ", ".join(unseen({**finding.evidence})) or NAMES[finding.kind]


def _fate(finding: Finding) -> str:
    """`silent`, `never reported`: what became of all ranks that it names; empty where that differs."""
    counted = {fate: finding.evidence[name] for name, fate in UNSEEN.items() if finding.evidence.get(name)}
    return next(iter(counted)) if [*counted.values()] == [len(finding.ranks)] else ""


def what_within(finding: Finding, cells: int) -> str:
    """`what` in so many cells: a lateness says how often as `1/5`, and then loses its phase, before it is cut.

    What has no shorter form is returned whole.
    """
    said, often = what(finding), now_and_then_words(finding, RHYTHM)
    brief = late_words(replace(finding, phase=None))
    forms = [said]
    if brief and "/" in often:
        in_ms = f"late {often.replace(' ', ' ms ')}"
        forms += [f"{in_ms}{said.removeprefix(brief)}", in_ms, f"late {often}", often]
    elif brief:
        forms.append(brief)
    return next((words for words in forms if len(words) <= cells), forms[-1])


def late_words(finding: Finding, *, each: str = "", share: str = "") -> str:
    """By how much somebody is late, how often, and the phase of most of that.

    Args:
        finding: empty words of one that measured no lateness.
        each: stands behind the ms of what is late in every step.
        share: stands behind that.
    """
    excess = finding.evidence.get("excess_ms")
    if not KINDS[finding.kind].late or isinstance(excess, str) or not known(excess):
        return ""
    often = one_step_of(finding.evidence.get("one_step_in"))
    phase = f", {finding.phase}" if finding.phase not in (None, "work") else ""
    return f"late {signed(excess)} ms{f' in {often}' if often else each}{share}{phase}"


def costs_word(snapshot: Snapshot, finding: Finding | None = None) -> str:
    """`costs`, or `cost` where nothing that is shown is known to go on, or of a finding that is over."""
    is_over = finding is not None and finding.cleared_at_step is not None
    return "cost" if is_over or is_past(snapshot) else "costs"


def cost(finding: Finding) -> str:
    """`22 %` of the run's time; empty where nothing is known of it."""
    return f"{pct(finding.cost_pct or 0.0)} %" if known(finding.cost_pct) else ""


def cost_share(finding: Finding) -> str:
    """`22 % of the run's time`, of what is over `... while it lasted`; empty where nothing is known of it."""
    return run_share(cost(finding), is_over=finding.cleared_at_step is not None) if known(finding.cost_pct) else ""


def since(finding: Finding, snapshot: Snapshot, *, ago: str = "", at_clock: bool = False) -> str:
    """How long it has lasted, such as `2 min`; of what is over, when that was, such as `14:01-14:02` or `14:01`.

    It is `>2 min` of what began before this watcher could see it; `ago` stands behind the time, and with `at_clock` the
    time of day before it, where that is known and was within a day: `14:02, 2 min`. Steps stand in for what no clock
    tells. Empty where neither is known.
    """
    began, over = finding.since_step, finding.cleared_at_step
    if over is not None:
        times = dict.fromkeys(_clock(snapshot, step)[:5] for step in (began, over))
        steps = "" if began is None else f"{began:,}-"
        return "-".join(filter(None, times)) or f"{steps}{over:,}"
    known_s, is_bound = _ago(finding, snapshot), finding.since_is_bound
    lasted = lasting(known_s, is_bound=is_bound)
    if not lasted or known_s is None:
        return "" if began is None else f"{'before' if is_bound else 'step'} {began:,}"
    has_clock = at_clock and not is_bound and known_s < _DAY_S
    clock = time_of_day(snapshot.taken_at - known_s)[:5] if has_clock else ""
    return f"{f'{clock}, ' if clock else ''}{lasted}{ago}"


def _clock(snapshot: Snapshot, step: int | None) -> str:
    """The time of day of a step; empty where that is not known."""
    return "" if step is None else time_of_day(wall_of(snapshot, step))


def _when(snapshot: Snapshot, step: int | None, ago: float | None, *, is_bound: bool = False) -> str:
    """`step 764, 14:02:31, 2 min ago`, as far as it is known."""
    clock = "" if ago is None else time_of_day(snapshot.taken_at - ago)
    at_step = "" if step is None else f"{'before ' if is_bound else ''}step {count(step)}"
    words = [at_step, clock, ago_words(ago, snapshot, is_bound=is_bound)]
    return ", ".join(filter(None, words))


def _ago(finding: Finding, snapshot: Snapshot) -> float | None:
    """How many seconds ago it began; of a standstill as long as it has lasted, since its step has not ended.

    A lost rank whose steps are none of the run's has been away since it was last heard.
    """
    lasted, ranks = finding.evidence.get("seconds"), snapshot.ranks
    if stops_job(finding) and isinstance(lasted, float | int):
        return float(lasted)
    if finding.since_step is not None:
        return seconds_since(snapshot, finding.since_step)
    if finding.kind != "rank_lost" or not finding.ranks or ranks is None:
        return None
    age_s = float(ranks.age_s[[*finding.ranks]].max())
    return age_s if known(age_s) else None


def ago_word(snapshot: Snapshot) -> str:
    """`ago`; `earlier` where a moment of the past is shown, from which the time is counted back."""
    return "ago" if snapshot.replay is None else "earlier"


def ago_words(seconds: float | None, snapshot: Snapshot, *, is_bound: bool) -> str:
    """`2 min ago`, of a bound `more than 2 min ago`; in the past `2 min earlier`; empty where it is not known."""
    return "" if seconds is None else f"{'more than ' if is_bound else ''}{age(seconds)} {ago_word(snapshot)}"


def lasting(seconds: float | None, *, is_bound: bool) -> str:
    """`2 min`, of a bound `>2 min`; empty where it is not known."""
    return "" if seconds is None else f"{'>' if is_bound else ''}{age(seconds)}"


def rows(finding: Finding, snapshot: Snapshot) -> list[tuple[str, str]]:
    """(name, words) of all that is known of a finding, besides its sentence; not cleaned."""
    measured = {key: value for key, value in finding.evidence.items() if not _of_cause(key)}
    found = [
        ("Measured", evidence_words(measured, is_over=finding.cleared_at_step is not None)),
        ("Since", _since_words(finding, snapshot)),
        ("Over", _over_words(finding, snapshot)),
        (costs_word(snapshot, finding).capitalize(), _cost_words(finding, snapshot)),
        ("Cause", _cause_words(finding)),
        ("Rank" if len(finding.ranks) == 1 else "Ranks", _listed(finding)),
        (
            "Host" if len(finding.nodes) == 1 else "Hosts",
            ", ".join(finding.nodes[:16]) + (" ..." if len(finding.nodes) > 16 else ""),
        ),
        ("Do", advice_text(finding.advice, snapshot.own_host)),
    ]
    return [(name, words) for name, words in found if words]


def _of_cause(key: str) -> bool:
    return key.startswith("cause_")


def _cause_words(finding: Finding) -> str:
    """The cause, and its figures that the sentence on it does not have."""
    said = ("cause_pid", "cause_user", "cause_command", "cause_strength", "cause_sm_pct")
    more = {key: value for key, value in finding.evidence.items() if _of_cause(key) and key not in said}
    words = evidence_words(more, is_over=finding.cleared_at_step is not None)
    return "; ".join(filter(None, [finding.cause or "", words]))


def _since_words(finding: Finding, snapshot: Snapshot) -> str:
    return _when(snapshot, finding.since_step, _ago(finding, snapshot), is_bound=finding.since_is_bound)


def _over_words(finding: Finding, snapshot: Snapshot) -> str:
    over = finding.cleared_at_step
    return "" if over is None else _when(snapshot, over, seconds_since(snapshot, over))


def _listed(finding: Finding) -> str:
    span = rank_span(finding.ranks[:64]).removeprefix("ranks ").removeprefix("rank ")
    return span + (f" and {len(finding.ranks) - 64:,} more" if len(finding.ranks) > 64 else "")


def _cost_words(finding: Finding, snapshot: Snapshot) -> str:
    """`22 % of the run's time, about 12.4 GPU-h lost so far, 78 GPU-h a day`."""
    if not known(finding.cost_pct):
        return ""
    words, run = cost_share(finding), snapshot.run
    if stops_job(finding):
        over = finding.cleared_at_step is not None or (run is not None and is_over(run.state))
        words = f"all of the run's time while it {'stood' if over else 'stands'} still"
    if finding.cleared_at_step is not None or run is None:
        return words
    hours, unit, is_exact = lost_hours(finding, snapshot), hour_unit(snapshot), stops_job(finding)
    lost = "" if hours is None else lost_words(hours, unit, is_bound=finding.since_is_bound, is_exact=is_exact)
    lost = f", {lost} lost" if lost else ""
    if is_past(snapshot):
        return f"{words}{lost}"
    return f"{words}{f'{lost} so far' if lost else ''}, {hours_words(lost_a_day(finding, run.world_size))} {unit} a day"
