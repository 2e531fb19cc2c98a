"""The cause of a lateness: named where the machine's figures carry it, with its strength, and never invented."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from ddpmon.machine import GpuFigures, GpuProcess, HostFigures, HostProcess, Pressure, Process, ProcessFigures
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding
from tests.made_frames import MadeJob, healthy_phases, open_findings, play_hosts

ONSET, EXTRA = 100, 40.0  # of steps of 100 ms
FULL = 100 * EXTRA / 142  # percent of the time that carries all of it
HOG = HostProcess(Process(8123, [7000, 1], "bob", "python x.py"), 190.0, "2")
Process_ = Callable[[int, int], ProcessFigures]


def figures(*processes: HostProcess, **changes: Any) -> HostFigures:
    return HostFigures(**{"cpu_count": 8, "processes": list(processes), **changes})


def waits(share: float, name: str = "runqueue_pct", **changes: Any) -> Process_:
    """Rank 2 waits for so much of the time from the onset on, each rank on a core of its own."""

    def process(tick: int, rank: int) -> ProcessFigures:
        hit = rank == 2 and tick >= ONSET // 10
        return ProcessFigures(**{"runqueue_pct": 1.0, "cpus": str(rank), **changes, **({name: share} if hit else {})})

    return process


def late(
    phase: str = "forward",
    host: Callable[[int, int], HostFigures] | None = None,
    process: Process_ | None = None,
    job: MadeJob | None = None,
    steps: int = 200,
    **more: Any,
) -> list[tuple[Finding, ...]]:
    """Four ranks, of which 2 is late by 40 ms in one phase from step 100 on."""
    phases = healthy_phases(4, steps)
    phases[phase][2, ONSET:] += EXTRA
    return play_hosts(
        job or MadeJob(phases), host or (lambda _tick, _node: figures()), process=process or waits(1.0), **more
    )


def straggler(said: Sequence[tuple[Finding, ...]]) -> Finding:
    (found,) = (each for each in open_findings(said[-1]) if each.kind == "straggler")
    return found


def hogged(_tick: int, _node: int) -> HostFigures:
    return figures(HOG)


def test_a_hog_that_carries_the_excess_is_the_certain_cause() -> None:
    found = straggler(late(host=hogged, process=waits(FULL)))
    assert found.cause == "CPU contention: pid 8123 (bob, python x.py) takes 190 % of a core (certain)"
    assert " in forward (since step 100), because of CPU contention: pid 8123" in found.summary
    assert found.summary.endswith("% of the run's time.")
    assert found.evidence["cause_pid"] == 8123
    assert found.evidence["cause_share"] == pytest.approx(1.0, abs=0.1)
    assert "8123" in advice_text(found.advice)


def test_half_of_the_excess_makes_it_likely() -> None:
    found = straggler(late(host=hogged, process=waits(0.5 * FULL)))
    assert (found.cause or "").endswith("(likely)")
    assert "likely because of CPU contention" in found.summary


def test_less_than_a_third_of_it_is_no_cause() -> None:
    found = straggler(late(host=hogged, process=waits(0.2 * FULL)))
    assert found.cause is None
    assert "because" not in found.summary


def test_a_rank_slowed_by_its_own_input_has_no_cause_whatever_else_there_is() -> None:
    gpu = GpuFigures(0, "GPU-2", processes=[GpuProcess(Process(102)), GpuProcess(Process(9), 9 << 30, 60.0)])
    said = late(
        "input",
        hogged,
        gpus=lambda _tick, _node: [gpu],
        frame=lambda _tick, rank: {"gpu_uuid": "GPU-2" if rank == 2 else None},
    )
    assert straggler(said).cause is None
    assert {each.severity for each in open_findings(said[-1]) if each.kind == "gpu_shared"} == {"info"}


def test_a_wait_that_the_others_share_is_no_cause() -> None:
    def process(_tick: int, rank: int) -> ProcessFigures:
        return ProcessFigures(runqueue_pct=FULL, cpus=str(rank))

    assert straggler(late(host=hogged, process=process)).cause is None


def test_a_wait_without_a_culprit_names_none() -> None:
    found = straggler(late(process=waits(FULL)))
    assert (found.cause or "").startswith("CPU contention: it waits for a CPU (")
    assert "cause_pid" not in found.evidence


def test_a_quota_that_throttles() -> None:
    found = straggler(late(process=waits(FULL, "throttled_pct", quota_cpus=0.5)))
    assert (found.cause or "").startswith("a CPU quota: a limit of 0.5 CPUs throttles it")
    assert (found.cause or "").endswith("(certain)")


def test_a_quota_comes_before_the_wait_that_it_makes() -> None:
    def process(tick: int, rank: int) -> ProcessFigures:
        share = FULL if rank == 2 and tick >= 10 else 0.0
        return ProcessFigures(runqueue_pct=share, throttled_pct=share, cpus=str(rank))

    assert (straggler(late(host=hogged, process=process)).cause or "").startswith("a CPU quota: ")


def test_a_quota_is_believed_though_it_tells_less_of_the_wait_than_there_is() -> None:
    def process(tick: int, rank: int) -> ProcessFigures:
        hit = rank == 2 and tick >= 10
        return ProcessFigures(
            runqueue_pct=FULL if hit else 0.0,
            throttled_pct=0.3 * FULL if hit else None,
            quota_cpus=0.3 if hit else None,
            cpus="0-3",
        )

    said = late(host=hogged, process=process)
    assert (straggler(said).cause or "").startswith("a CPU quota: a limit of 0.3 CPUs")
    worst = {each.severity for each in open_findings(said[-1]) if each.kind == "cpu_contention"}
    assert worst <= {"info"}


def test_ranks_pinned_to_one_core() -> None:
    def process(tick: int, rank: int) -> ProcessFigures:
        shared = rank >= 2 and tick >= 10
        return ProcessFigures(runqueue_pct=FULL if shared else 0.0, cpus="2" if shared else str(rank))

    phases = healthy_phases(4, 200)
    phases["forward"][2:, ONSET:] += EXTRA
    causes = {
        each.ranks: each.cause or ""
        for each in open_findings(late(process=process, job=MadeJob(phases))[-1])
        if each.kind == "straggler"
    }
    assert causes.keys() == {(2,), (3,)}
    assert all(cause.startswith("shared CPU cores: ranks 2, 3 share CPU 2") for cause in causes.values())


def board(rank: int, clock: float, utilization: float = 99.0) -> GpuFigures:
    reasons = ["idle"] if utilization < 50 else ["hardware thermal"] if clock < 1500 else []
    values = {"utilization_pct": utilization, "sm_clock_mhz": clock, "clock_reasons": reasons}
    return GpuFigures(rank, f"GPU-{rank}", "H100", processes=[GpuProcess(Process(100 + rank))], **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("phase", "clock", "utilization", "strength"),
    [
        ("backward", 1250.0, 99.0, "(certain)"),  # 1700 / 1250 = 1.36, and the work is 1.4 times the others'
        ("backward", 1450.0, 99.0, "(likely)"),
        ("backward", 1650.0, 99.0, None),
        ("input", 1250.0, 99.0, None),
        ("backward", 1250.0, 5.0, None),
    ],
)
def test_a_lower_clock_as_far_as_it_carries_the_work(
    phase: str, clock: float, utilization: float, strength: str | None
) -> None:
    def gpus(tick: int, _node: int) -> list[GpuFigures]:
        hot = board(2, clock, utilization) if tick >= 10 else board(2, 1700.0)
        return [hot if rank == 2 else board(rank, 1700.0) for rank in range(4)]

    found = straggler(late(phase, gpus=gpus, frame=lambda _tick, rank: {"gpu_uuid": f"GPU-{rank}"}))
    assert (found.cause or "").startswith("a throttled GPU: " if strength else "")
    assert (found.cause is None) if strength is None else (found.cause or "").endswith(strength)


@pytest.mark.parametrize(
    ("reason", "from_tick", "is_cause"),
    [
        ("hardware thermal", ONSET // 10, True),
        ("hardware thermal", ONSET // 10 + 7, False),
        ("software power cap", ONSET // 10 + 1, False),  # it computes while its peers wait
        ("software power cap", ONSET // 10 - 3, True),
    ],
)
def test_what_holds_a_clock_down_must_have_begun_before_the_rank_was_late(
    reason: str, from_tick: int, *, is_cause: bool
) -> None:
    def gpus(tick: int, _node: int) -> list[GpuFigures]:
        held = msgspec.structs.replace(board(2, 1250.0), clock_reasons=[reason])
        return [held if rank == 2 and tick >= from_tick else board(rank, 1700.0) for rank in range(4)]

    said = late("backward", gpus=gpus, frame=lambda _tick, rank: {"gpu_uuid": f"GPU-{rank}"}, steps=300)
    assert (straggler(said).cause is not None) == is_cause


def shared(sm_pct: float | None, since: int = 0) -> Callable[[int, int], list[GpuFigures]]:
    def gpus(tick: int, _node: int) -> list[GpuFigures]:
        stranger = [GpuProcess(Process(9, [7], "bob", "x"), 9 << 30, sm_pct)] if tick >= since else []
        return [GpuFigures(0, "GPU-2", processes=[GpuProcess(Process(102)), *stranger])]

    return gpus


@pytest.mark.parametrize(
    ("gpus", "cause"),
    [
        (shared(FULL), "a shared GPU: pid 9 (bob, x) uses 28 % of its GPU (likely)"),
        (shared(5.0), None),  # too little
        (shared(None, since=10), "a shared GPU: pid 9 (bob, x) holds 9.0 GiB on its GPU (likely)"),
        (shared(None), None),  # long before the onset
        (shared(None, since=12), "a shared GPU: pid 9 (bob, x) holds 9.0 GiB on its GPU (likely)"),
        (shared(None, since=16), None),  # seven seconds after it: no reason comes so late
    ],
)
def test_a_stranger_on_the_gpu_by_its_share_or_else_by_when_it_came(
    gpus: Callable[[int, int], list[GpuFigures]], cause: str | None
) -> None:
    frame: Callable[[int, int], dict[str, Any]] = lambda _tick, rank: {"gpu_uuid": "GPU-2" if rank == 2 else None}  # noqa: E731
    assert straggler(late(gpus=gpus, frame=frame, steps=300)).cause == cause


def test_what_is_there_on_other_ranks_too_is_no_cause_by_its_time_alone() -> None:
    def short(tick: int, node: int) -> HostFigures:
        return figures(pressure=Pressure(memory=30.0 if tick >= 10 and node == 1 else 0.0))

    assert straggler(late(host=short)).cause is None
    alone = straggler(late(host=short, nodes=[0, 0, 1, 0]))
    assert alone.cause == "memory pressure: tasks wait for memory 30 % of the time (likely)"
    beside = straggler(late(host=short, nodes=[0, 0, 1, 1]))
    assert beside.cause is None


def test_a_whole_host() -> None:
    phases = healthy_phases(4, 200)
    phases["forward"][2:, ONSET:] += EXTRA
    hog = HostProcess(Process(8123, [7000], "bob", "x"), 190.0, "0-3")

    def process(tick: int, rank: int) -> ProcessFigures:
        return ProcessFigures(runqueue_pct=FULL if rank >= 2 and tick >= 10 else 0.0, cpus="0-3")

    said = late(host=lambda _t, node: figures(*[hog] * node), process=process, job=MadeJob(phases), nodes=[0, 0, 1, 1])
    (found,) = (each for each in open_findings(said[-1]) if each.kind == "slow_node")
    assert found.cause == "CPU contention: pid 8123 (bob, x) takes 1.9 of 4 cores (certain)"


@pytest.mark.parametrize(("wait", "strength"), [(28.0, "certain"), (14.0, "likely"), (3.0, None)])
def test_the_whole_job_against_its_own_past(wait: float, strength: str | None) -> None:
    phases = healthy_phases(4, 280)
    for table in phases.values():
        table[:, 150:] *= 1.4
    hog = HostProcess(Process(8123, [7000], "bob", "x"), 190.0, "0-3")

    def process(tick: int, _rank: int) -> ProcessFigures:
        return ProcessFigures(runqueue_pct=wait + 8 if tick >= 15 else 8.0, cpus="0-3")

    said = late(
        host=lambda tick, _node: figures(*[hog] * (tick >= 15), cpu_count=4), process=process, job=MadeJob(phases)
    )
    (found,) = (each for each in open_findings(said[-1]) if each.kind == "job_slower")
    assert (found.cause or "").endswith(f"takes 1.9 of 4 cores ({strength})" if strength else "")
    assert (found.cause is None) == (strength is None)


@pytest.mark.parametrize(
    ("first", "pause", "other"),
    [(18, 6, 9999), (18, 20, 9999), (60, 8, 8123), (60, 8, 9999)],  # ticks of ten steps; 9999 is another process
)
def test_each_slowdown_has_its_own_cause(first: int, pause: int, other: int) -> None:
    begin, last = 15, 15 + first + pause
    phases = healthy_phases(4, 10 * (last + 40))

    def hit(tick: int) -> bool:
        return begin <= tick < begin + first or last <= tick < last + 25

    for table in phases.values():
        table[:, np.repeat([hit(tick) for tick in range(last + 40)], 10)] *= 1.4

    def process(tick: int, _rank: int) -> ProcessFigures:
        return ProcessFigures(runqueue_pct=36.0 if hit(tick) else 8.0, cpus="0-3")

    def host(tick: int, _node: int) -> HostFigures:
        hog = HostProcess(Process(8123 if tick < last else other, [7000], "bob", "x"), 190.0, "0-3")
        return figures(*[hog] * hit(tick), cpu_count=4)

    said = play_hosts(MadeJob(phases), host, process=process, timed=True)
    (live,) = (each for each in open_findings(said[last + 20]) if each.kind == "job_slower")
    assert (live.severity, live.evidence["cause_pid"]) == ("critical", other)
    (contention,) = (each for each in open_findings(said[last + 20]) if each.kind == "cpu_contention")
    assert (contention.severity, contention.evidence["pid"]) == ("critical", other)
    for tick in (last + 20, -1):
        over = [each for each in said[tick] if each.kind == "job_slower" and each.cleared_at_step is not None]
        assert [each.evidence["cause_pid"] for each in over] == [other, 8123][-len(over) :]
        assert abs((over[-1].cleared_at_step or 0) - 10 * (begin + first)) <= 1
    if other != 8123:
        contentions = [each for each in said[-1] if each.kind == "cpu_contention"]
        assert [(each.evidence["pid"], each.cleared_at_step) for each in contentions if each.since_step == 159] == [
            (8123, 10 * (begin + first) + 9)
        ]


def test_an_end_and_the_next_onset_in_one_tick_keep_their_causes_apart() -> None:
    phases = healthy_phases(4, 350)
    phases["forward"][2, 100:175] += EXTRA
    phases["forward"][2, 200:275] += EXTRA

    def hit(tick: int) -> bool:
        return tick in (4, 5, 6, 8, 9, 10)  # of 25 steps each

    def host(tick: int, _node: int) -> HostFigures:
        return figures(*[HostProcess(Process(8123 if tick < 8 else 9999), 190.0, "2")] * hit(tick))

    def process(tick: int, rank: int) -> ProcessFigures:
        return ProcessFigures(runqueue_pct=FULL if hit(tick) and rank == 2 else 1.0, cpus=str(rank))

    said = play_hosts(MadeJob(phases), host, process=process, steps_per_tick=25)
    assert not any(each.kind == "straggler" and each.cleared_at_step is not None for each in said[7])
    causes = [(each.since_step, each.evidence["cause_pid"]) for each in said[8] if each.kind == "straggler"]
    assert causes == [(200, 9999), (100, 8123)]


def collected(gc_ms: float) -> MadeJob:
    phases = healthy_phases(4, 200)
    phases["forward"][2, ONSET:] += EXTRA
    job = MadeJob(phases)
    job.gc = np.zeros((4, 200))
    job.gc[2, ONSET:] = gc_ms
    return job


def test_garbage_collection_comes_first_where_it_explains_more() -> None:
    ours = straggler(late(host=hogged, process=waits(0.5 * FULL), job=collected(35.0)))
    assert (ours.cause or "").startswith("garbage collection takes 35")
    theirs = straggler(late(host=hogged, process=waits(FULL), job=collected(22.0)))
    assert (theirs.cause or "").startswith("CPU contention: ")


@pytest.mark.parametrize("steps_per_tick", [10, 2])
def test_a_cause_stays_with_a_lateness_that_fades_and_is_over(steps_per_tick: int) -> None:
    phases = healthy_phases(4, 240)
    phases["forward"][2, ONSET:160] += EXTRA

    def process(tick: int, rank: int) -> ProcessFigures:
        hit = rank == 2 and ONSET <= tick * steps_per_tick < 160
        return ProcessFigures(runqueue_pct=FULL if hit else 1.0, cpus=str(rank))

    said = late(host=hogged, process=process, job=MadeJob(phases), steps_per_tick=steps_per_tick)
    told = [each for tick in said for each in tick if each.kind == "straggler"]
    assert told[-1].cleared_at_step is not None
    assert advice_text(told[-1].advice) == ""
    assert all((each.cause or "").startswith("CPU contention: ") for each in told)
    assert "pid 8123" in (told[-1].cause or "")


def test_a_cause_that_has_gone_while_the_lateness_lasts_is_dropped() -> None:
    def process(tick: int, rank: int) -> ProcessFigures:
        return ProcessFigures(runqueue_pct=FULL if rank == 2 and 10 <= tick < 18 else 1.0, cpus=str(rank))

    said = late(host=hogged, process=process, steps=450)
    assert any(each.cause for each in said[17])
    assert straggler(said).cause is None
