"""The finding on somebody who is late: who, by how much, in which phase, since when, at what cost, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from ddpmon.diagnose.cases import Case
from ddpmon.diagnose.finding import Finding
from ddpmon.diagnose.measure import Numbers, agrees, cause_of, phase_of, phases_tell
from ddpmon.diagnose.wording import ms, pct

ADVICE = {
    "input": "look at this rank's data: storage, shard size, DataLoader workers and what they compute",
    "forward": "look at this rank's device and CPU: clocks, other processes, longer sequences",
    "backward": "look at this rank's device: clocks, other processes, longer sequences",
    "optimizer": "look at this rank's optimizer: memory pressure, state on the wrong device",
    "other": "look at what this rank alone does between the phases: logging, checkpoints, host code",
    "work": "the whole step is slower on this rank: clocks, other processes, longer sequences",
}
LAUNCHES = (
    "look at this rank's CPU, not at its GPU: clock, other processes on its cores, too many threads, garbage "
    "collection, Python code between the kernels"
)
_WIDE_PCT = 2.0
UNKNOWN_PHASE = "the figures of its phases do not tell which one: those of all phases would"


@dataclass(frozen=True, slots=True)
class Named:
    """A verdict's kind, and its subject with the words that agree with it: works, is, it; or work, are, them."""

    kind: str
    name: str
    works: str
    is_: str
    it: str


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
        rhythm: in which steps, such as "a step".
        numbers: the evidence, as `Others.compare` has it, with `cost_pct`.
    """
    when = f"before step {since[0]:,}" if since[1] else f"step {since[0]:,}"
    by = ms(numbers["excess_ms"])
    if not agrees(numbers):
        summary = (
            f"{named.name} {named.works} {by} longer {rhythm} since {when}, but the others do not wait for {named.it}: "
            f"unattributed"
        )
        return Finding(named.kind, "info", summary, since_step=since[0], since_is_bound=since[1], evidence=numbers)
    phase, cause, cost = phase_of(numbers), cause_of(numbers), numbers["cost_pct"]
    hidden = numbers.get("hidden_ms", 0.0)
    because = _launched_slowly(named, phase, numbers)
    because += f", of which {ms(hidden)} are hidden behind the transfer" if hidden > 0 else ""
    because += f", {cause}" if cause else ""
    return Finding(
        kind=named.kind,
        severity=case.severity(cost),
        summary=f"{named.name} {named.is_} late by {by} {rhythm} since {when}: {phase}{because}. {costs(numbers)}",
        ranks=who[0],
        nodes=(who[1],),
        phase=phase,
        cause=cause,
        since_step=since[0],
        since_is_bound=since[1],
        cost_pct=cost,
        evidence=numbers,
        advice=_advice(phase, numbers),
    )


def costs(numbers: Numbers) -> str:
    """What the lateness costs, as a range where it is known within wide bounds."""
    least, most = numbers["cost_pct"], numbers.get("cost_most_pct", 0.0)
    if most < least + _WIDE_PCT:
        return f"Costs {pct(least)} % of the job."
    return f"Costs at least {pct(least)} %, at most {pct(most)} % of the job."


def _launched_slowly(named: Named, phase: str, numbers: Numbers) -> str:
    """Why the phase takes longer where the rank's host sets the pace."""
    if "launch_ms" not in numbers:
        return ""
    their = "its" if named.it == "it" else "their"
    gpu, waits = (f"{their} GPU", "waits") if named.it == "it" else (f"{their} GPUs", "wait")
    said = f": {their} kernels are" if phase == "work" else " is"
    return f"{said} launched slowly: {gpu} {waits} {ms(numbers['launch_ms'])} a step for {their} CPU"


def _advice(phase: str, numbers: Numbers) -> str:
    if not phases_tell(numbers):
        return UNKNOWN_PHASE
    return LAUNCHES if "launch_ms" in numbers else ADVICE[phase]
