"""How contention comes and goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ddpmon.diagnose.judge import Judge
from ddpmon.machine import (
    Disk,
    GpuFigures,
    HostFigures,
    HostProcess,
    Process,
    ProcessFigures,
)
from ddpmon.run.model import Run
from ddpmon.snapshot import Finding
from tests.made_frames import MadeJob, healthy_phases, node_frame, open_findings, play_hosts, rank_frame, run_info

LOW = Disk("/work", ["checkpoints"], 1000 << 30, 5 << 30)
FINE = Disk("/work", ["checkpoints"], 1000 << 30, 500 << 30)


def job(steps: int = 300) -> MadeJob:
    return MadeJob(healthy_phases(4, steps))


def low(first: int, last: int) -> list[tuple[Finding, ...]]:
    """A disk that is low from one tick to another."""

    def figures(tick: int, _node: int) -> HostFigures:
        return HostFigures(disks=[LOW if first <= tick < last else FINE])

    return play_hosts(job(), figures)


def test_three_frames_make_a_clash_and_two_do_not() -> None:
    said = low(10, 13)
    assert [bool(open_findings(tick)) for tick in said[10:13]] == [False, False, True]
    assert not any(low(10, 12))


def test_it_began_where_it_was_first_seen() -> None:
    (found,) = open_findings(low(10, 30)[-1])
    assert (found.since_step, found.since_is_bound) == (109, False)


def test_a_flicker_before_it_is_not_its_beginning() -> None:
    def figures(tick: int, _node: int) -> HostFigures:
        return HostFigures(disks=[LOW if tick == 5 or tick >= 10 else FINE])

    (found,) = open_findings(play_hosts(job(), figures)[-1])
    assert found.since_step == 109


def test_what_the_first_look_shows_began_before() -> None:
    (found,) = open_findings(low(0, 30)[-1])
    assert (found.since_step, found.since_is_bound) == (9, True)


def test_before_the_first_step_there_is_no_step() -> None:
    run, judge = Run(run_info(4)), Judge()
    for tick in range(4):
        for rank in range(4):
            run.add_rank(rank_frame(rank, tick, job().columns(rank, 0, 0)), float(tick))
        run.add_node(node_frame(0, tick, figures=HostFigures(disks=[LOW])), float(tick))
        said = judge(run, run.ages(float(tick)))
    assert [(found.kind, found.since_step, found.since_is_bound) for found in said] == [("disk_low", None, False)]


def test_it_is_over_after_ten_frames_without_it_and_kept_as_such() -> None:
    said = low(5, 10)
    assert open_findings(said[18])
    (over,) = said[19]
    assert (over.kind, over.severity, over.cleared_at_step) == ("disk_low", "warning", 109), "the first look without it"
    assert said[-1] == (over,)


def test_the_same_frame_read_twice_counts_once() -> None:
    run, judge = Run(run_info(4)), Judge()
    for tick in range(12):
        for rank in range(4):
            run.add_rank(rank_frame(rank, tick, job().columns(rank, 0, 10)), tick / 4)
        run.add_node(node_frame(0, tick // 6, figures=HostFigures(disks=[LOW])), tick / 4)
        assert judge(run, run.ages(tick / 4)) == ()


def test_a_host_that_nobody_tells_of_any_more_is_neither_hurt_nor_healed() -> None:
    run, judge = Run(run_info(4)), Judge()
    said = []
    for tick in range(30):
        for rank in range(4):
            part = job().columns(rank, 10 * tick, 10 * tick + 10)
            run.add_rank(rank_frame(rank, tick, part), float(tick))
        if tick < 8:
            run.add_node(node_frame(0, tick, figures=HostFigures(disks=[LOW])), float(tick))
        said.append(judge(run, run.ages(float(tick))))
    assert open_findings(said[16])
    assert said[-1] == ()


@pytest.mark.parametrize("restarted", [{3}, {0, 1, 2, 3}])
def test_it_stands_while_ranks_restart(restarted: set[int]) -> None:
    def frame(tick: int, rank: int) -> dict[str, Any]:
        return {"pid": 100 + rank + 1000 * (tick >= 15 and rank in restarted)}

    def figures(tick: int, _node: int) -> HostFigures:
        return HostFigures(disks=[LOW if tick >= 10 else FINE])

    said = play_hosts(job(), figures, frame=frame)
    found = {(each.id, each.since_step, each.since_is_bound) for tick in said[12:] for each in open_findings(tick)}
    assert found == {(1, 109, False)}
    assert all(len(tick) == 1 for tick in said[12:])


def test_on_a_host_whose_ranks_restarted_alone_it_began_at_a_step_of_the_run() -> None:
    run, judge = Run(run_info(4, node_keys=[0, 1])), Judge()
    for tick in range(20):
        for rank in range(4):
            alone = rank > 1 and tick >= 10
            part = job().columns(rank, *((10 * tick - 100, 10 * tick - 90) if alone else (10 * tick, 10 * tick + 10)))
            pid, node = 900 + rank if alone else 100 + rank, rank // 2
            run.add_rank(rank_frame(rank, tick, part, pid=pid, node=node, host=f"node{node}"), float(tick))
        disk = LOW if tick >= 15 else FINE
        run.add_node(node_frame(1, tick, host="node1", figures=HostFigures(disks=[disk])), float(tick))
        run.settle(float(tick))
        said = judge(run, run.ages(float(tick)))
    assert [found.since_step for found in said if found.kind == "disk_low"] == [159]


def test_where_all_steps_begin_again_it_began_before_them() -> None:
    run, judge = Run(run_info(4)), Judge()
    for tick in range(30):
        first = 10 * tick if tick < 20 else 10 * (tick - 20)
        for rank in range(4):
            pid = 100 + rank + 1000 * (tick >= 20)
            run.add_rank(rank_frame(rank, tick, job().columns(rank, first, first + 10), pid=pid), float(tick))
        run.add_node(node_frame(0, tick, figures=HostFigures(disks=[LOW if tick >= 10 else FINE])), float(tick))
        run.settle(float(tick))
        said = judge(run, run.ages(float(tick)))
    assert [(found.kind, found.since_step, found.since_is_bound) for found in said] == [("disk_low", 9, True)]


@pytest.mark.parametrize(
    ("fine_from", "steps"),
    [(5, None), (18, (9, 9)), (27, (9, 79))],
    ids=["over before", "it ends while the steps begin again", "over after"],
)
def test_what_is_over_has_no_step_of_before_the_steps_began_again(
    fine_from: int, steps: tuple[int, int] | None
) -> None:
    run, judge = Run(run_info(4)), Judge()
    for tick in range(40):
        first = 10 * tick if tick < 20 else 10 * (tick - 20)
        for rank in range(4):
            pid = 100 + rank + 1000 * (tick >= 20)
            run.add_rank(rank_frame(rank, tick, job(400).columns(rank, first, first + 10), pid=pid), float(tick))
        is_low = tick < fine_from
        run.add_node(node_frame(0, tick, figures=HostFigures(disks=[LOW if is_low else FINE])), float(tick))
        run.settle(float(tick))
        said = judge(run, run.ages(float(tick)))
        assert tick != 19 or [found.kind for found in said] == ["disk_low"]
    found = [(each.since_step, each.cleared_at_step) for each in said]
    assert found == ([] if steps is None else [steps])


def test_each_host_has_its_own() -> None:
    def figures(_tick: int, node: int) -> HostFigures:
        return HostFigures(disks=[LOW if node != 1 else FINE])

    said = play_hosts(job(100), figures, nodes=[0, 1, 1, 2])
    assert sorted((found.ranks, found.nodes) for found in open_findings(said[-1])) == [
        ((0,), ("node0",)),
        ((3,), ("node2",)),
    ]


def test_of_very_many_hosts_each_has_its_turn() -> None:
    hosts = 260
    run, judge, part = Run(run_info(hosts)), Judge(), job().columns(0, 0, 10)
    for tick in range(7):
        for rank in range(hosts):
            run.add_rank(rank_frame(rank, tick, part, node=rank, host=f"node{rank}"), float(tick))
            disks = [LOW if rank in (0, 1, 259) else FINE]
            run.add_node(node_frame(rank, tick, figures=HostFigures(disks=disks)), float(tick))
        said = judge(run, run.ages(float(tick)))
    assert sorted(found.ranks for found in open_findings(said)) == [(0,), (1,), (259,)]


def test_ranks_that_know_no_node_are_found_by_their_host() -> None:
    def frame(_tick: int, _rank: int) -> dict[str, Any]:
        return {"node": -1}

    said = play_hosts(job(100), lambda _tick, _node: HostFigures(disks=[LOW]), frame=frame)
    assert open_findings(said[-1])[0].ranks == (0, 1, 2, 3)


def test_another_rank_that_takes_over_its_host_goes_on_with_it() -> None:
    run, judge = Run(run_info(4, node_keys=[0, 1, 2, 3])), Judge()
    for tick in range(30):
        for rank in range(4):
            part = job().columns(rank, 10 * tick, 10 * tick + 10)
            run.add_rank(rank_frame(rank, tick, part, node=-1), float(tick))
        teller = 0 if tick < 8 else 2
        run.add_node(node_frame(teller, tick, host="node0", figures=HostFigures(disks=[LOW])), float(tick))
        said = judge(run, run.ages(float(tick)))
    assert [(found.kind, found.ranks) for found in open_findings(said)] == [("disk_low", (0, 1, 2, 3))]


def test_ranks_that_have_ended_are_not_hurt() -> None:
    said = play_hosts(
        job(200),
        lambda _tick, _node: HostFigures(disks=[LOW]),
        frame=lambda tick, _rank: {"state": "finished"} if tick > 4 else {},
    )
    assert open_findings(said[-1]) == []


def held_up(tick: int, rank: int) -> ProcessFigures:
    return ProcessFigures(runqueue_pct=30.0 * (rank == 2 and tick > 4), cpus=str(rank))


@pytest.mark.parametrize(("every", "told"), [(1, True), (4, True), (20, False)])
def test_a_reading_that_is_only_told_again_is_no_new_evidence(every: int, told: bool) -> None:
    hog = HostProcess(Process(8123, [7000, 1], "bob", "python x.py"), 95.0, "2")

    def figures(tick: int, _node: int) -> HostFigures:
        return HostFigures(cpu_count=8, processes=[hog], readings={"processes": tick // every})

    said = play_hosts(job(200), figures, process=held_up)
    assert [found.kind for found in open_findings(said[-1])] == ["cpu_contention"] * told


@pytest.mark.parametrize(("ticks", "told"), [(20, False), (40, True)])
def test_a_link_is_narrow_once_three_readings_say_so(ticks: int, told: bool) -> None:
    def gpus(tick: int, _node: int) -> list[GpuFigures]:
        link = {"pcie_width": 4, "pcie_width_max": 16, "utilization_pct": 99.0}
        return [GpuFigures(0, "GPU-0", **link, reads=tick, slow_reads=tick // 10)]  # type: ignore[arg-type]

    said = play_hosts(job(10 * ticks), gpus=gpus, frame=lambda _tick, rank: {"gpu_uuid": None if rank else "GPU-0"})
    assert [found.kind for found in open_findings(said[-1])] == ["pcie_degraded"] * told


@pytest.mark.parametrize(
    "loaded", [lambda tick: tick % 10, lambda tick: tick < 40 or tick >= 50], ids=["at times", "no evaluation"]
)
def test_a_moment_without_load_says_nothing_of_a_link(loaded: Callable[[int], bool]) -> None:
    def gpus(tick: int, _node: int) -> list[GpuFigures]:
        busy = 99.0 if loaded(tick) else 0.0
        link: dict[str, Any] = {"pcie_width": 4, "pcie_width_max": 16, "reads": tick, "slow_reads": tick // 10}
        return [GpuFigures(0, "GPU-0", utilization_pct=busy, **link)]

    said = play_hosts(job(700), gpus=gpus, frame=lambda _tick, rank: {"gpu_uuid": None if rank else "GPU-0"})
    assert [[found.kind for found in open_findings(tick)] for tick in said[30:]] == [["pcie_degraded"]] * 40


@pytest.mark.parametrize(("readings", "lasts"), [(1, True), (2, True), (5, False)])
def test_a_clash_is_over_after_three_readings_without_it(readings: int, lasts: bool) -> None:
    hog = HostProcess(Process(8123, [7000, 1], "bob", "python x.py"), 95.0, "2")

    def figures(tick: int, _node: int) -> HostFigures:
        now = tick // 12
        return HostFigures(
            cpu_count=8, processes=[] if now in range(5, 5 + readings) else [hog], readings={"processes": now}
        )

    said = play_hosts(job(1200), figures, process=held_up)
    assert open_findings(said[59])
    assert all(open_findings(tick) for tick in said[59:]) == lasts


@pytest.mark.parametrize("low", [True, False])
def test_a_disk_that_is_read_every_other_second_needs_three_readings(low: bool) -> None:
    def figures(tick: int, _node: int) -> HostFigures:
        bad = 10 <= tick < 14 if not low else 10 <= tick < 16
        return HostFigures(disks=[msgspec.structs.replace(LOW if bad else FINE, reads=tick // 2)])

    assert any(open_findings(tick) for tick in play_hosts(job(), figures)) == low
