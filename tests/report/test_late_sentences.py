"""All sentences on ranks and hosts that are late, and on the figures that explain it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert, Cause
from ddpmon.diagnose.cause import Figure, FigureMeasures
from ddpmon.diagnose.kinds import KindName
from ddpmon.diagnose.measure import LateMeasures, RankProcess, Whom
from ddpmon.parts import NO_HOST
from ddpmon.report.sentences import tell
from ddpmon.shell_command import advice_text

NAN = float("nan")
ON_GPU, ON_CPU = RankProcess("node1", 412, True, 3), RankProcess("node1", 412, False, None)
RANK = Whom((2,), "node1")
HOST = Whom((4, 5, 6, 7), "node1", 4)


def late(phase: str = "input", **changes: Any) -> LateMeasures:
    """Rank 2 works 40 ms longer than the 100 ms of the others, all of it in one phase."""
    phases = tuple(40.0 if name == phase else 0.0 for name in ("input", "forward", "backward", "optimizer", "other"))
    values: dict[str, Any] = {
        "whom": RANK,
        "work_ms": 140.0,
        "others_work_ms": 100.0,
        "excess_ms": 40.0,
        "waits_less_ms": 40.0,
        "phases": phases,
        "phases_ms": sum(phases),
        "gc_ms": 0.0,
        "samples_ratio": NAN,
        "ratio": 1.4,
        "cost_pct": 28.2,
        "window_steps": 20,
    }
    return LateMeasures(**(values | changes))


def alert(measures: LateMeasures, kind: KindName = "straggler", phase: str | None = "input", **changes: Any) -> Alert:
    values: dict[str, Any] = {
        "severity": "critical",
        "ranks": measures.whom.ranks,
        "nodes": ("node1",),
        "phase": phase,
        "since_step": 1204,
        "cost_pct": measures.cost_pct,
    }
    return Alert(kind, measures=measures, **(values | changes))


SEVERAL = (10.0, 10.0, 20.0, 0.0, 0.0)
RARE: dict[str, Any] = {"one_step_in": 4.6, "hit_steps": 12, "ratio": None, "window_steps": None}
DATA = "check the data loading of this rank: storage, shard size, DataLoader workers and their transforms"
NO_PHASE = "record the durations of all phases: those on record do not show which one is late"
SAMPLES = "give every rank the same batch size, or one in proportion to its speed"

SENTENCES = {
    "a rank": (
        alert(late()),
        "rank 2 (node1) is late by 40 ms a step, mostly in input (since step 1,204). Costs 28 % of the run's time.",
        DATA,
    ),
    "since before the record, on an unknown host": (
        alert(late(whom=Whom((2,), NO_HOST)), since_is_bound=True),
        "rank 2 is late by 40 ms a step, mostly in input (since before step 1,204). Costs 28 % of the run's time.",
        DATA,
    ),
    "several phases, its process known": (
        alert(late(phases=SEVERAL, phases_ms=40.0, process=ON_CPU), phase="work"),
        "rank 2 (node1) is late by 40 ms a step, in several phases (since step 1,204). Costs 28 % of the run's time.",
        "check clocks and other processes of this rank, whose whole step is slower; compare sequence lengths. Run "
        "`ssh node1 py-spy dump --pid 412`",
    ),
    "a phase that is not on record": (
        alert(late(phases=(0.0,) * 5, phases_ms=0.0), phase="work"),
        "rank 2 (node1) is late by 40 ms a step, in an unknown phase (since step 1,204). Costs 28 % of the run's time.",
        NO_PHASE,
    ),
    "backward on a GPU": (
        alert(late("backward", process=ON_GPU), phase="backward"),
        "rank 2 (node1) is late by 40 ms a step, mostly in backward (since step 1,204). Costs 28 % of the run's time.",
        "check the GPU of this rank: clocks, other processes; compare sequence lengths. Run `ssh node1 nvidia-smi -i "
        "3`",
    ),
    "forward on CPUs": (
        alert(late("forward", process=ON_CPU), phase="forward"),
        "rank 2 (node1) is late by 40 ms a step, mostly in forward (since step 1,204). Costs 28 % of the run's time.",
        "check the CPUs of this rank: clocks, other processes; compare sequence lengths. Run `ssh node1 py-spy dump "
        "--pid 412`",
    ),
    "its CPU launches slowly": (
        alert(late("backward", process=ON_GPU, launch_ms=39.0, cost_most_pct=34.6), phase="backward"),
        "rank 2 (node1) is late by 40 ms a step, mostly in backward (since step 1,204); its kernels are launched "
        "slowly: its "
        "GPU waits 39 ms a step for its CPU. Costs at least 28 %, at most 35 % of the run's time.",
        "check the CPUs of this rank, not the GPU: clocks, other processes on its cores, too many threads, garbage "
        "collection, Python code between the kernels. Run `ssh node1 py-spy dump --pid 412`",
    ),
    "its CPU launches slowly, or waits for its GPU": (
        alert(late("backward", process=ON_GPU, launch_most_ms=39.0), phase="backward"),
        "rank 2 (node1) is late by 40 ms a step, mostly in backward (since step 1,204); its GPU may wait up to 39 ms "
        "a step for its CPU, or the CPU waits for a full launch queue. Costs 28 % of the run's time.",
        "check the CPUs of this rank and the GPU: clocks, other processes, too many threads, garbage collection; "
        "compare sequence lengths. Run `ssh node1 nvidia-smi -i 3`",
    ),
    "partly hidden, garbage collection, a narrow range": (
        alert(late("other", gc_ms=30.0, hidden_ms=12.0, cost_most_pct=29.0), phase="other"),
        "rank 2 (node1) is late by 40 ms a step, mostly in other (since step 1,204), of which 12 ms is hidden behind "
        "the "
        "transfer; garbage collection takes 30 ms of it. Costs 28 % of the run's time.",
        "check what only this rank does between the phases: logging, checkpoints, host code",
    ),
    "others are late too": (
        alert(late(alone_pct=3.4, beside=(1, 3))),
        "rank 2 (node1) is late by 40 ms a step, mostly in input (since step 1,204). Costs 28 % of the run's time. "
        "Fixing it "
        "alone saves 3.4 % of the run's time, because ranks 1, 3 are late too.",
        DATA,
    ),
    "many others are late too, and nothing is gained alone": (
        alert(late(alone_pct=0.0, beside=tuple(range(7)))),
        "rank 2 (node1) is late by 40 ms a step, mostly in input (since step 1,204). Costs 28 % of the run's time. "
        "Fixing it "
        "alone saves nothing yet, because 7 other ranks are late too.",
        DATA,
    ),
    "nobody waits for it": (
        alert(late(waits_less_ms=5.0), ranks=(), nodes=(), phase=None, cost_pct=None),
        "rank 2 (node1) works 40 ms longer a step (since step 1,204), but the other ranks do not wait for it: the "
        "cost is unattributed",
        "",
    ),
    "a host": (
        alert(late("backward", whom=HOST, process=ON_GPU, latest=(6, 75.0)), kind="slow_node", phase="backward"),
        "all 4 ranks of node1 are late by 40 ms a step, mostly in backward (since step 1,204). Costs 28 % of the "
        "run's time. "
        "Rank 6 is the latest of them, by 75 ms.",
        "check the GPUs of this host: clocks, other processes; compare sequence lengths. Run `ssh node1 nvidia-smi`",
    ),
    "a host whose CPUs launch slowly, or wait for their GPUs": (
        alert(late("backward", whom=HOST, process=ON_GPU, launch_most_ms=39.0), kind="slow_node", phase="backward"),
        "all 4 ranks of node1 are late by 40 ms a step, mostly in backward (since step 1,204); their GPUs may wait up "
        "to 39 ms a step for their CPUs, or these wait for full launch queues. Costs 28 % of the run's time.",
        "check the CPUs of this host and the GPUs: clocks, other processes, too many threads, garbage collection; "
        "compare sequence lengths. Run `ssh node1 nvidia-smi`",
    ),
    "a host whose CPUs launch slowly": (
        alert(late("backward", whom=HOST, process=ON_GPU, launch_ms=39.0), kind="slow_node", phase="backward"),
        "all 4 ranks of node1 are late by 40 ms a step, mostly in backward (since step 1,204); their kernels are "
        "launched "
        "slowly: their GPUs wait 39 ms a step for their CPUs. Costs 28 % of the run's time.",
        "check the CPUs of this host, not the GPUs: clocks, other processes on its cores, too many threads, garbage "
        "collection, Python code between the kernels. Run `ssh node1 top`",
    ),
    "now and then": (
        alert(late(**RARE), kind="intermittent_straggler"),
        "rank 2 (node1) is late by 40 ms in one step of 5, mostly in input (since step 1,204). Costs 28 % of the "
        "run's time.",
        f"{DATA}; its lateness comes and goes",
    ),
    "in most steps": (
        alert(late(**(RARE | {"one_step_in": 1.2})), kind="intermittent_straggler"),
        "rank 2 (node1) is late by 40 ms in most steps, mostly in input (since step 1,204). Costs 28 % of the run's "
        "time.",
        f"{DATA}; its lateness comes and goes",
    ),
    "ranks of several hosts, now and then": (
        alert(late(whom=Whom((2, 5), ""), **RARE), kind="intermittent_straggler"),
        "ranks 2, 5 are late together by 40 ms in one step of 5, mostly in input (since step 1,204). Costs 28 % of the "
        "run's time.",
        DATA.replace("this rank", "these ranks"),
    ),
    "ranks for which nobody waits": (
        alert(late(whom=Whom((2, 5), ""), waits_less_ms=5.0, **RARE), kind="intermittent_straggler", ranks=()),
        "ranks 2, 5 together work 40 ms longer in one step of 5 (since step 1,204), but the other ranks do not wait "
        "for them: the cost is unattributed",
        "",
    ),
    "nearly all of a host, now and then": (
        alert(late(whom=Whom((4, 5, 6, 7, 8, 9, 10), "node1", 8), **RARE), kind="slow_node"),
        "nearly all 8 ranks of node1 are late by 40 ms in one step of 5, mostly in input (since step 1,204). Costs "
        "28 % of "
        "the run's time.",
        DATA.replace("this rank", "this host"),
    ),
    "more samples": (
        alert(late(samples_ratio=1.4, process=ON_CPU), kind="uneven_work"),
        "rank 2 (node1) is late by 40 ms a step, mostly in input (since step 1,204). Costs 28 % of the run's time. "
        "It gets "
        "1.40 times the samples of the others.",
        SAMPLES,
    ),
    "more samples, and nobody waits for it": (
        alert(late(samples_ratio=1.4, waits_less_ms=5.0), kind="uneven_work", ranks=(), phase=None, cost_pct=None),
        "rank 2 (node1) works 40 ms longer a step (since step 1,204), but the other ranks do not wait for it: the "
        "cost is unattributed. It gets 1.40 times the samples of the others.",
        SAMPLES,
    ),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_it_says(name: str) -> None:
    said, summary, advice = SENTENCES[name]
    finding = tell(said)
    assert (finding.summary, advice_text(finding.advice)) == (summary, advice)


CAUSES: dict[Figure, tuple[str, str]] = {
    "throttled": (
        "a CPU quota: the limit of its cgroup throttles it",
        "raise the CPU limit of the container or cgroup, or use fewer threads",
    ),
    "clock": (
        "a throttled GPU: its SM clock is lower than that of the others",
        "see what lowers it: `ssh node1 nvidia-smi -q -d CLOCK,POWER,PERFORMANCE`",
    ),
    "cpu_clock": (
        "a lower CPU clock: its core runs slower than those of the others",
        "see what lowers it: the governor, a power limit, heat: `ssh node1 grep MHz /proc/cpuinfo`",
    ),
    "queue": (
        "CPU contention: it waits for a CPU",
        "see what else runs on its cores, also outside the container: `ssh node1 top`",
    ),
}


@pytest.mark.parametrize("figure", CAUSES)
@pytest.mark.parametrize("certain", [False, True])
def test_a_cause_stands_before_the_cost_and_brings_its_own_advice(figure: Figure, certain: bool) -> None:
    because, advice = CAUSES[figure]
    cause = Cause(FigureMeasures(figure, 32.0), (2,), "node1", certain=certain, share=0.8)
    finding = tell(replace(alert(late()), cause=cause))
    likely, strength = ("", "certain") if certain else ("likely ", "likely")
    assert finding.summary == (
        f"rank 2 (node1) is late by 40 ms a step, mostly in input (since step 1,204), {likely}because of {because} "
        "(32 ms a step). Costs 28 % of the run's time."
    )
    assert (advice_text(finding.advice), finding.cause) == (advice, f"{because} (32 ms a step) ({strength})")
    assert {name: finding.evidence[name] for name in ("cause_share", "cause_strength")} == {
        "cause_share": 0.8,
        "cause_strength": strength,
    }


@pytest.mark.parametrize(
    ("measures", "said"),
    [
        (
            late(gc_ms=30.0),
            "rank 2 (node1) was late by 40 ms a step, mostly in input (from step 1,204 to 1,300); garbage collection "
            "took 30 ms of it. Cost 28 % of the run's time while it lasted.",
        ),
        (
            late(launch_ms=39.0, hidden_ms=2.0),
            "rank 2 (node1) was late by 40 ms a step, mostly in input (from step 1,204 to 1,300), of which 2 ms was "
            "hidden behind the transfer; its kernels were launched slowly: its GPU waited 39 ms a step for its CPU. "
            "Cost 28 % of the run's time while it lasted.",
        ),
        (
            late(launch_most_ms=7.3),
            "rank 2 (node1) was late by 40 ms a step, mostly in input (from step 1,204 to 1,300); its GPU may have "
            "waited up to 7.3 ms a step for its CPU, or the CPU waited for a full launch queue. Cost 28 % of the run's "
            "time while it lasted.",
        ),
        (
            late(waits_less_ms=0.0),
            "rank 2 (node1) worked 40 ms longer a step (from step 1,204 to 1,300), but the other ranks did not wait "
            "for it: the cost is unattributed",
        ),
        (
            late(alone_pct=3.0, beside=(5,)),
            "rank 2 (node1) was late by 40 ms a step, mostly in input (from step 1,204 to 1,300). Cost 28 % of the "
            "run's time while it lasted.",
        ),
        (
            late(launch_ms=39.0, cost_most_pct=35.0),
            "rank 2 (node1) was late by 40 ms a step, mostly in input (from step 1,204 to 1,300); its kernels were "
            "launched slowly: its GPU waited 39 ms a step for its CPU. Cost at least 28 %, at most 35 % of the run's "
            "time while it lasted.",
        ),
    ],
    ids=["garbage collection", "slow launches", "perhaps slow launches", "nobody waits", "others late too", "bounds"],
)
def test_what_is_over_is_told_in_the_past(measures: LateMeasures, said: str) -> None:
    assert tell(alert(measures, cleared_at_step=1300)).summary == said


def test_what_is_over_asks_for_nothing() -> None:
    finding = tell(alert(late(gc_ms=30.0), severity="info", cleared_at_step=1300))
    assert (advice_text(finding.advice), finding.cause) == ("", "garbage collection took 30 ms of it")


def test_the_evidence_is_what_was_measured_and_nothing_else() -> None:
    measured = late(launch_ms=39.0, hidden_ms=2.0, cost_most_pct=30.0, **RARE)
    assert dict(tell(alert(measured)).evidence) == pytest.approx(
        {
            "work_ms": 140.0,
            "others_work_ms": 100.0,
            "excess_ms": 40.0,
            "waits_less_ms": 40.0,
            "excess_input_ms": 40.0,
            "excess_forward_ms": 0.0,
            "excess_backward_ms": 0.0,
            "excess_optimizer_ms": 0.0,
            "excess_other_ms": 0.0,
            "phases_ms": 40.0,
            "gc_ms": 0.0,
            "samples_ratio": NAN,
            "launch_ms": 39.0,
            "hidden_ms": 2.0,
            "cost_pct": 28.2,
            "cost_most_pct": 30.0,
            "hit_steps": 12,
            "one_step_in": 4.6,
        },
        nan_ok=True,
    )
    steady = dict(tell(alert(late())).evidence)
    assert steady["ratio"] == 1.4
    assert steady["window_steps"] == 20
    assert not {"launch_ms", "hidden_ms", "cost_most_pct", "hit_steps", "one_step_in"} & steady.keys()
