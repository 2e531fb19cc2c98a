"""The finding on somebody who is late: who, by how much, in which phase, since when, at what cost, and what to do."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ddpmon.diagnose.cases import Case
from ddpmon.diagnose.finding import Finding
from ddpmon.diagnose.kinds import COMPUTES, KindName
from ddpmon.diagnose.measure import Numbers, agrees, cause_of, phase_of, phases_tell
from ddpmon.diagnose.wording import on_host, stack_command
from ddpmon.format import ms, pct
from ddpmon.run.model import Run

_ADVICE = {
    "input": "check the data loading of {this}: storage, shard size, DataLoader workers and their transforms",
    "forward": "check the GPU and the CPUs of {this}: clocks, other processes, sequence lengths",
    "backward": "check the GPU of {this}: clocks, other processes, sequence lengths",
    "optimizer": "check the optimizer of {this}: memory pressure, state on the wrong device",
    "other": "check what only {this} does between the phases: logging, checkpoints, host code",
    "work": "the whole step is slower on {this}: check clocks, other processes, sequence lengths",
}
_LAUNCHES = (
    "check the CPUs of {this}, not the GPU: clocks, other processes on its cores, too many threads, garbage "
    "collection, Python code between the kernels"
)
_ON_CPUS = "check the CPUs of {this}: clocks, other processes, sequence lengths"
UNKNOWN_PHASE = "the recorded phases do not show which one is late: record the durations of all phases"
_WIDE_PCT = 2.0  # points between the least and the most: a narrower range is shown as one number


@dataclass(frozen=True, slots=True)
class Named:
    """A verdict's kind, and its subject with the words that agree with it: works, is late, it.

    Attributes:
        this: how the advice calls the subject: "this rank", "this host", "these ranks".
    """

    kind: KindName
    name: str
    works: str
    is_late: str
    it: str
    this: str = "this rank"


def blame(
    named: Named,
    case: Case,
    who: tuple[tuple[int, ...], str],
    since: tuple[int, bool],
    rhythm: str,
    numbers: Numbers,
) -> Finding:
    """Write the finding; unattributed, and information, where the others do not wait for it.

    Args:
        named: what it is called.
        case: the suspicion, whose severity is sticky.
        who: the ranks and their host.
        since: the first step, and whether that is only a bound.
        rhythm: in which steps: "a step", or such as "in one step in 5,".
        numbers: the evidence, as `Others.compare` has it, with `cost_pct`.
    """
    when = f"(since before step {since[0]:,})" if since[1] else f"(since step {since[0]:,})"
    by = ms(numbers["excess_ms"])
    if not agrees(numbers):
        summary = (
            f"{named.name} {named.works} {by} longer {rhythm} {when}, but the other ranks do not wait for "
            f"{named.it}: the cost is unattributed"
        )
        return Finding(named.kind, "info", summary, since_step=since[0], since_is_bound=since[1], evidence=numbers)
    phase, cause, cost = phase_of(numbers), cause_of(numbers), numbers["cost_pct"]
    hidden = numbers.get("hidden_ms", 0.0)
    because = f", of which {ms(hidden)} is hidden behind the transfer" if hidden > 0 else ""
    because += _launched_slowly(named, numbers)
    because += f"; {cause}" if cause else ""
    return Finding(
        kind=named.kind,
        severity=case.severity(cost),
        summary=f"{named.name} {named.is_late} by {by} {rhythm} in {_where(numbers)} {when}{because}. "
        f"{_costs(numbers)} of the run's time.",
        ranks=who[0],
        nodes=(who[1],),
        phase=phase,
        cause=cause,
        since_step=since[0],
        since_is_bound=since[1],
        cost_pct=cost,
        evidence=numbers,
        advice=_advice(named, phase, numbers),
    )


def advice_on(phase: str, this: str = "this rank") -> str:
    """What to check on somebody who is late in this phase."""
    return _ADVICE[phase].format(this=this)


def _advice(named: Named, phase: str, numbers: Numbers) -> str:
    if not phases_tell(numbers):
        return UNKNOWN_PHASE
    return _LAUNCHES.format(this=named.this) if "launch_ms" in numbers else advice_on(phase, named.this)


def _costs(numbers: Numbers) -> str:
    """What the lateness costs, as a range where only wide bounds are known."""
    least, most = numbers["cost_pct"], numbers.get("cost_most_pct", 0.0)
    if most < least + _WIDE_PCT:
        return f"Costs {pct(least)} %"
    return f"Costs at least {pct(least)} %, at most {pct(most)} %"


def _launched_slowly(named: Named, numbers: Numbers) -> str:
    """Why it is late, where its device waits for its host."""
    if "launch_ms" not in numbers:
        return ""
    wait = ms(numbers["launch_ms"])
    if named.it == "it":
        return f"; its kernels are launched slowly: its GPU waits {wait} a step for its CPU"
    return f"; their kernels are launched slowly: their GPUs wait {wait} a step for their CPUs"


def _where(numbers: Numbers) -> str:
    """The phase, or that it is several, or that the phases on record do not show it."""
    phase = phase_of(numbers)
    if phase != "work":
        return phase
    return "several phases" if phases_tell(numbers) else "an unknown phase"


def with_command(found: Finding, run: Run) -> Finding:
    """The finding with a command to paste behind its advice: the first rank's GPU, or its process.

    Without one where neither is known, as for a table.
    """
    state = run.ranks[found.ranks[0]] if found.ranks and found.advice else None
    if state is None or state.frame.pid <= 0 or found.kind == "uneven_work":
        return found
    computes = found.phase in COMPUTES and "launch_ms" not in found.evidence
    gpu = run.gpu_of(found.ranks[0]) if computes else None
    host, pid = state.frame.host, state.frame.pid
    if found.kind == "slow_node":
        command = on_host(host, "nvidia-smi" if gpu is not None else "top")
    else:
        command = on_host(host, f"nvidia-smi -i {gpu.index}") if gpu is not None else stack_command(host, pid)
    advice = found.advice
    if state.frame.gpu_uuid is None and found.phase in ("forward", "backward"):
        advice = _ON_CPUS.format(this="this host" if found.kind == "slow_node" else "this rank")
    return replace(found, advice=f"{advice}. Run {command}")
