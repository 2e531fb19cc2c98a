"""Sentences on ranks and hosts that are late, and on what explains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.cause import FigureMeasures
from ddpmon.diagnose.kinds import COMPUTES
from ddpmon.diagnose.measure import LateMeasures, agrees, is_collecting, phase_of, phases_tell
from ddpmon.format import ms, pct
from ddpmon.report.tense import during, in_tense, tense
from ddpmon.report.wording import (
    Evidence,
    Sentence,
    Words,
    clean,
    does,
    format_ranks,
    host_of,
    in_brackets,
    on_host,
    one_step_of,
    run_share,
    stack_command,
)
from ddpmon.schema import PHASES
from ddpmon.shell_command import Advice, ShellCommand

_ADVICE = {
    "input": "check the data loading of {this}: storage, shard size, DataLoader workers and their transforms",
    "forward": "check the {gpu} and the CPUs of {this}: clocks, other processes; compare sequence lengths",
    "backward": "check the {gpu} of {this}: clocks, other processes; compare sequence lengths",
    "optimizer": "check the optimizer of {this}: memory pressure, state on the wrong device",
    "other": "check what only {this} does between the phases: logging, checkpoints, host code",
    "work": "check clocks and other processes of {this}, whose whole step is slower; compare sequence lengths",
}
_LAUNCHES = (
    "check the CPUs of {this}, not the {gpu}: clocks, other processes on its cores, too many threads, garbage "
    "collection, Python code between the kernels"
)
_EITHER = (
    "check the CPUs of {this} and the {gpu}: clocks, other processes, too many threads, garbage collection; compare "
    "sequence lengths"
)
_ON_CPUS = "check the CPUs of {this}: clocks, other processes; compare sequence lengths"
_UNKNOWN_PHASE = "record the durations of all phases: those on record do not show which one is late"
_EQUAL_BATCHES = "give every rank the same batch size, or one in proportion to its speed"
# Percentage points between the least and the most cost from which both are said. A narrower range is said as its least.
# Chosen, not measured.
_WIDE_PCT = 2.0
_LISTED = 6  # other late ranks that are listed by number; of more only the count is said. Chosen, not measured.
_FIGURES = {  # the figure that explains a lateness: as a noun with its verb, what to do, and a command that shows more
    "throttled": (
        ("a CPU quota: the limit of its cgroup ", "throttles", " it"),
        "raise the CPU limit of the container or cgroup, or use fewer threads",
        "",
    ),
    "clock": (
        ("a throttled GPU: its SM clock ", "is", " lower than that of the others"),
        "see what lowers it",
        "nvidia-smi -q -d CLOCK,POWER,PERFORMANCE",
    ),
    "cpu_clock": (
        ("a lower CPU clock: its core ", "runs", " slower than those of the others"),
        "see what lowers it: the governor, a power limit, heat",
        "grep MHz /proc/cpuinfo",
    ),
    "queue": (
        ("CPU contention: it ", "waits", " for a CPU"),
        "see what else runs on its cores, also outside the container",
        "top",
    ),
}


def advice_on(phase: str, this: str = "this rank") -> str:
    """What to check on somebody who is late in this phase."""
    return _about(_ADVICE[phase], this)


def _about(advice: str, this: str) -> str:
    return advice.format(this=this, gpu="GPU" if this == "this rank" else "GPUs")


def _late(late: LateMeasures, alert: Alert) -> Words:
    evidence, more = _evidence(late), ""
    if alert.kind == "uneven_work":
        more = f"It {tense(alert, 'gets')} {late.samples_ratio:.2f} times the samples of the others."
    if not agrees(late):
        name, works, _, it = _subject(late, alert)
        said = (
            f"{name} {works} {ms(late.excess_ms)} longer {_rhythm(late)} ({during(alert)}), but the other ranks "
            f"{tense(alert, 'do')} not wait for {it}: the cost is unattributed"
        )
        return Words(said, more, advice=_EQUAL_BATCHES if more else "", evidence=evidence, tells_end=True)
    return Words(
        said=_said(late, alert),
        rest=f"{_costs(late, alert)}.{f' {more}' if more else _aside(late, alert)}",
        advice=_EQUAL_BATCHES if more else _advice(late, alert),
        evidence=evidence,
        cause=_collected(late, alert) if is_collecting(late) and not more else None,
        tells_end=True,
    )


def _subject(late: LateMeasures, alert: Alert) -> tuple[str, str, str, str]:
    """Who is late, and the words that agree with it: works, is late, it."""
    whom, are = late.whom, tense(alert, "are")
    if whom.of_host is not None:
        most = "all" if len(whom.ranks) == whom.of_host else "nearly all"
        those = "both" if whom.of_host == len(whom.ranks) == 2 else f"{most} {whom.of_host}"
        return f"{those} ranks of {clean(whom.host, 60)}", tense(alert, "work"), f"{are} late", "them"
    if len(whom.ranks) == 1:
        name, is_late = f"rank {whom.ranks[0]}{in_brackets(whom.host)}", f"{tense(alert, 'is')} late"
        return name, tense(alert, "works"), is_late, "it"
    return format_ranks(whom.ranks), f"together {tense(alert, 'work')}", f"{are} late together", "them"


def _rhythm(late: LateMeasures) -> str:
    if late.one_step_in is None:
        return "a step"
    often = one_step_of(late.one_step_in)
    return f"in {often}" if often else "in most steps"


def _said(late: LateMeasures, alert: Alert) -> str:
    name, _, is_late, _ = _subject(late, alert)
    is_hidden = tense(alert, "is")
    hidden = f", of which {ms(late.hidden_ms)} {is_hidden} hidden behind the transfer" if late.hidden_ms else ""
    collected = f"; {_collected(late, alert)}" if is_collecting(late) else ""
    by = f"{name} {is_late} by {ms(late.excess_ms)} {_rhythm(late)}, {_where(late)} ({during(alert)})"
    return f"{by}{hidden}{_launched_slowly(late, alert)}{collected}"


def _collected(late: LateMeasures, alert: Alert) -> str:
    return f"garbage collection {tense(alert, 'takes')} {ms(late.gc_ms)} of it"


def _where(late: LateMeasures) -> str:
    """Most of it in one phase, or that it is several, or that the phases on record do not show it."""
    phase = phase_of(late)
    if phase != "work":
        return f"mostly in {phase}"
    return "in several phases" if phases_tell(late) else "in an unknown phase"


def _launched_slowly(late: LateMeasures, alert: Alert) -> str:
    """Why it is late, where its device waits for its host."""
    is_over = alert.cleared_at_step is not None
    words = launch_words(late.launch_ms, late.launch_most_ms, several=len(late.whom.ranks) > 1, is_over=is_over)
    return f"; {words}" if words else ""


def launch_words(
    launch_ms: float | None, most_ms: float | None, *, several: bool = False, is_over: bool = False
) -> str:
    """Why a GPU is late whose CPU takes as long as itself; empty for another.

    Args:
        launch_ms: for how many ms a step its GPU surely waits for its CPU.
        most_ms: the same, at most, where that is not sure (`LateMeasures.launch_most_ms`).
        several: whether it is said of several ranks.
        is_over: whether it is told in the past.
    """
    its, gpu, cpu = ("their", "GPUs", "CPUs") if several else ("its", "GPU", "CPU")
    waits = in_tense("wait" if several else "waits", is_over=is_over)
    if launch_ms is not None:
        are = in_tense("are", is_over=is_over)
        return f"{its} kernels {are} launched slowly: {its} {gpu} {waits} {ms(launch_ms)} a step for {its} {cpu}"
    if most_ms is None:
        return ""
    may, queue = (
        "may have waited" if is_over else "may wait",
        "full launch queues" if several else "a full launch queue",
    )
    instead = f"or {'these' if several else 'the CPU'} {waits} for {queue}"
    return f"{its} {gpu} {may} up to {ms(most_ms)} a step for {its} {cpu}, {instead}"


def _costs(late: LateMeasures, alert: Alert) -> str:
    """What the lateness costs, as a range where only wide bounds are known."""
    least, most = late.cost_pct, late.cost_most_pct or 0.0
    is_wide = most >= least + _WIDE_PCT
    share = f"at least {pct(least)} %, at most {pct(most)} %" if is_wide else f"{pct(least)} %"
    return f"{tense(alert, 'Costs')} {run_share(share, is_over=alert.cleared_at_step is not None)}"


def _aside(late: LateMeasures, alert: Alert) -> str:
    """What else a reader must know of the figures: who of a host stands out, and who else is late."""
    is_latest = tense(alert, "is")
    said = f" Rank {late.latest[0]} {is_latest} the latest of them, by {ms(late.latest[1])}." if late.latest else ""
    if late.alone_pct is None or alert.cleared_at_step is not None:
        return said
    saves = f"{pct(late.alone_pct)} % of the run's time" if late.alone_pct > 0 else "nothing yet"
    others = does(late.beside, "are") if len(late.beside) <= _LISTED else f"{len(late.beside)} other ranks are"
    return f"{said} Fixing it alone saves {saves}, because {others} late too."


def _advice(late: LateMeasures, alert: Alert) -> Advice:
    """What to check, with a command to paste where the process is known: the first rank's GPU, or its stack."""
    this = "this host" if alert.kind == "slow_node" else "this rank" if len(late.whom.ranks) == 1 else "these ranks"
    on_cpu = late.process is not None and not late.process.on_gpu
    phase = alert.phase or "work"
    if not phases_tell(late):
        advice = _UNKNOWN_PHASE
    elif late.launch_ms is not None:
        advice = _about(_LAUNCHES, this)
    elif late.launch_most_ms is not None:
        advice = _about(_EITHER, this)
    elif on_cpu and phase in ("forward", "backward"):
        advice = _about(_ON_CPUS, this)
    else:
        advice = advice_on(phase, this)
    comes_and_goes = late.one_step_in is not None and len(late.whom.ranks) == 1
    return f"{advice}{'; its lateness comes and goes' if comes_and_goes else ''}", *_command(late, alert)


def _command(late: LateMeasures, alert: Alert) -> tuple[str | ShellCommand, ...]:
    at = late.process
    if at is None:
        return ()
    gpu = at.gpu_index if alert.phase in COMPUTES and late.launch_ms is None else None
    if alert.kind == "slow_node":
        return ". Run ", on_host(at.host, "nvidia-smi" if gpu is not None else "top")
    return ". Run ", on_host(at.host, f"nvidia-smi -i {gpu}") if gpu is not None else stack_command(at.host, at.pid)


def _evidence(late: LateMeasures) -> Evidence:
    numbers: dict[str, Any] = {
        "work_ms": late.work_ms,
        "others_work_ms": late.others_work_ms,
        "excess_ms": late.excess_ms,
        "waits_less_ms": late.waits_less_ms,
        **{f"excess_{phase}_ms": late.excess_of(phase) for phase in PHASES},
        "phases_ms": late.phases_ms,
        "gc_ms": late.gc_ms,
        "samples_ratio": late.samples_ratio,
        "launch_ms": late.launch_ms,
        "launch_most_ms": late.launch_most_ms,
        "ratio": late.ratio,
        "hidden_ms": late.hidden_ms,
        "cost_pct": late.cost_pct,
        "cost_most_pct": late.cost_most_pct,
        "hit_steps": late.hit_steps,
        "one_step_in": late.one_step_in,
        "window_steps": late.window_steps,
    }
    return {name: number for name, number in numbers.items() if number is not None}


def _figure(measures: FigureMeasures, alert: Alert) -> Words:
    """A figure of the ranks' own as a cause."""
    (lead, verb, rest), advice, command = _FIGURES[measures.figure]
    because = f"{lead}{tense(alert, verb)}{rest}"
    todo = (f"{advice}: ", on_host(host_of(alert), command)) if command else advice
    return Words(because, advice=todo, because=f"{because} ({ms(measures.carried_ms)} a step)")


SENTENCES: Mapping[type[Measures], Sentence] = {LateMeasures: _late, FigureMeasures: _figure}
