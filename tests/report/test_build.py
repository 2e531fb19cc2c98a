"""From frames to a Snapshot: what ranks say of themselves arrives, and who is waited for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ddpmon.diagnose.kinds import KindName
from ddpmon.machine import GpuFigures, ProcessFigures
from ddpmon.parts import Failure, Stack, StackFrame, Stall
from ddpmon.report.build import build_job, build_ranks, build_run
from ddpmon.report.hosts import build_nodes
from ddpmon.report.rank_detail import build_detail
from ddpmon.run.model import Run
from ddpmon.snapshot import Finding
from tests.made_frames import MadeJob, healthy_phases, node_frame, rank_frame, run_info

STALL = Stall(12.5, [Stack("MainThread", [StackFrame("data.py", 7, "read")])])
FAILURE = Failure("ValueError", "no such shard", 39, ["ValueError: no such shard"])


def run_of(steps: int = 40) -> Run:
    """Three ranks, of which rank 1 is stuck and rank 2 has failed."""
    job, run = MadeJob(healthy_phases(3, steps)), Run(run_info(3))
    said = [{}, {"state": "stalled", "stall": STALL}, {"state": "failed", "failure": FAILURE}]
    for rank, changes in enumerate(said):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, steps), **changes), 0.0)
    return run


def waiting_for(*findings: Finding) -> tuple[int, ...]:
    run = run_of()
    ranks = build_ranks(run, run.ages(0.0), np.empty(0, np.int64))
    return build_job(run, ranks, np.ones(3, dtype=bool), findings).waiting_for


def test_stalls_and_failures_arrive_for_every_rank_and_in_detail() -> None:
    run = run_of()
    ranks = build_ranks(run, run.ages(0.0), np.empty(0, np.int64))
    assert ranks.stall == (None, STALL, None)
    assert ranks.failure == (None, None, FAILURE)
    details = [build_detail(run, rank) for rank in range(3)]
    assert [detail.stall for detail in details if detail] == [None, STALL, None]
    assert [detail.failure for detail in details if detail] == [None, None, FAILURE]


@pytest.mark.parametrize(("lost", "known"), [((), 4), ((2,), 3), ((0, 1, 2, 3), 4)])
def test_a_rank_that_is_lost_while_others_go_on_has_no_lateness(lost: tuple[int, ...], known: int) -> None:
    """It was ±0 as long as the last steps compared were steps of its own, too, and a dash later."""
    job, run = MadeJob(healthy_phases(4, 40)), Run(run_info(4))
    for rank in range(4):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 40)), 0.0)
    ranks = build_ranks(run, run.ages(14.0), np.array(lost, np.int64))
    assert np.isfinite(ranks.lateness_ms).sum() == known
    assert np.isfinite(ranks.work_ms).all(), "what it worked last is known"


@pytest.mark.parametrize(("now", "known"), [(3.9, [0, 1, 2, 3]), (4.5, [0, 1, 3]), (60.0, [0, 1, 3])])
def test_a_rank_that_is_silent_while_others_report_has_no_lateness(now: float, known: list[int]) -> None:
    """It was ±0 until it was lost. After the last word of all it is as it was then."""
    job, run = MadeJob(healthy_phases(4, 40)), Run(run_info(4))
    for rank in range(4):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 40)), 0.0 if rank == 2 else min(now, 4.4))
    ranks = build_ranks(run, run.ages(now), np.empty(0, np.int64))
    assert np.flatnonzero(np.isfinite(ranks.lateness_ms)).tolist() == known


@pytest.mark.parametrize(("heard", "middle"), [(0.0, 50.0), (4.4, 0.0)])
def test_the_machine_of_a_rank_is_not_compared_with_that_of_a_silent_one(heard: float, middle: float) -> None:
    job, run = MadeJob(healthy_phases(3, 40)), Run(run_info(3))
    for rank, cpu in enumerate((100.0, 100.0, 0.0)):
        at, used = (heard, ProcessFigures(cpu_pct=cpu)) if rank != 1 else (0.0, ProcessFigures(cpu_pct=100.0))
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 40), process=used), at)
    detail = build_detail(run, 0)
    assert detail is not None
    assert detail.courses["cpu_pct"].others[1].tolist() == [middle]


@pytest.mark.parametrize(("used", "middle"), [(60 << 30, 50.0), (1 << 30, 100.0)])
def test_the_machine_of_a_rank_is_not_compared_with_one_whose_process_has_left_its_gpu(
    used: int, middle: float
) -> None:
    job, run = MadeJob(healthy_phases(3, 40)), Run(run_info(3))
    memory = (60 << 30, 60 << 30, used)
    gpus = [GpuFigures(i, f"GPU-{i}", memory_used=memory[i]) for i in range(3)]
    run.add_node(node_frame(0, 1, gpus=gpus), 0.0)
    for rank, cpu in enumerate((100.0, 100.0, 0.0)):
        process = ProcessFigures(cpu_pct=cpu, gpu_memory=44 << 30)
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 40), process=process, gpu_uuid=f"GPU-{rank}"), 0.0)
    detail = build_detail(run, 0)
    assert detail is not None
    assert detail.courses["cpu_pct"].others[1].tolist() == [middle]


@pytest.mark.parametrize(("state", "left"), [("running", 14.0), ("stalled", None)])
def test_no_time_is_left_that_can_be_told_while_a_rank_stands_still(state: str, left: float | None) -> None:
    job, run = MadeJob(healthy_phases(2, 40)), Run(run_info(2))
    for rank in range(2):
        says: dict[str, Any] = {"state": state, "job_step": 40, "job_total": 50, "eta_s": 14.0}
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 40), **says), 0.0)
    ranks = build_ranks(run, run.ages(0.0), np.empty(0, np.int64))
    told = build_job(run, ranks, np.ones(2, dtype=bool), ())
    assert (told.job_step, told.eta_s) == (40, left)


def test_a_ranks_process_and_its_run_queue_arrive() -> None:
    run, job = Run(run_info(2)), MadeJob(healthy_phases(2, 40))
    waits = (12.5, None, 40.0)
    for seq, wait in enumerate(waits):
        held = (40 + seq) << 30
        process = ProcessFigures(cpu_pct=90.0, rss_bytes=7 << 30, runqueue_pct=wait, cpus="0-3", gpu_allocated=held)
        run.add_rank(rank_frame(1, seq, job.columns(1, 0, 10 * seq + 10), process=process), float(seq))
    detail, ranks = build_detail(run, 1), build_ranks(run, run.ages(0.0), np.empty(0, np.int64))
    assert detail is not None
    np.testing.assert_array_equal(detail.courses["runqueue_pct"].own, [12.5, np.nan, 40.0])
    np.testing.assert_array_equal(detail.courses["cpu_pct"].own, [90.0] * 3)
    np.testing.assert_array_equal(detail.courses["rss_bytes"].own, [7.0 * (1 << 30)] * 3)
    np.testing.assert_array_equal(detail.courses["gpu_allocated"].own, [40.0 * 2**30, 41.0 * 2**30, 42.0 * 2**30])
    assert detail.courses["cpu_pct"].step.tolist() == [9, 19, 29]
    assert ranks.process[0] is None
    assert ranks.process[1] is not None
    assert (ranks.process[1].runqueue_pct, ranks.process[1].cpus) == (40.0, "0-3")


def test_the_detail_begins_with_the_first_step_on_record_and_has_the_band_of_the_others() -> None:
    run, job = Run(run_info(5)), MadeJob(healthy_phases(5, 140))
    for rank in range(5):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 100, 140)), 0.0)
    detail = build_detail(run, 1)
    assert detail is not None
    course = detail.courses["work"]
    assert course.step.tolist() == [*range(100, 140)]
    work = run.rings.take("work", course.step)
    others = work[[0, 2, 3, 4]]
    np.testing.assert_allclose(course.others, np.quantile(others, [0.05, 0.5, 0.95], axis=0), rtol=1e-5)
    np.testing.assert_allclose(detail.courses["lateness"].own, work[1] - np.median(others, axis=0), atol=1e-3)


@pytest.mark.parametrize(("apart", "stands_still", "known"), [(1, False, 96), (9, False, 64), (1, True, 97)])
def test_of_a_step_that_some_ranks_have_not_told_of_no_lateness_is_known(
    apart: int, stands_still: bool, known: int
) -> None:
    """The others there may be just those that are late, as the rank is. A rank that stands still tells of no step."""
    run, phases = Run(run_info(6)), healthy_phases(6, 100)
    phases["input"][4:] += 90.0
    job = MadeJob(phases)
    for rank in range(6):
        still = stands_still and rank == 0
        told = 40 if still else 100 - apart * max(0, 4 - rank)
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, told), step_s=50.0 if still else 0.1), 0.0)
    detail = build_detail(run, 4)
    assert detail is not None
    own = detail.courses["lateness"].own
    assert np.isnan(own).tolist() == [*[False] * known, *[True] * (100 - known)]
    assert own[:known].min() > 50.0


def test_the_last_step_is_as_old_as_the_rank_says_that_knows_best() -> None:
    run, job, nobody = Run(run_info(3)), MadeJob(healthy_phases(3, 40)), np.empty(0, np.int64)
    assert build_run(run, run.ages(0.0), nobody, "", ended=None).step_age_s is None
    for rank, step_s in ((0, None), (1, 4.0), (2, 3.0)):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 40), step_s=step_s), float(rank))
    assert build_run(run, run.ages(7.0), nobody, "", ended=None).step_age_s == 8.0


def test_a_stall_is_gone_with_the_next_frame_that_has_none() -> None:
    run = run_of()
    run.add_rank(rank_frame(1, 2, MadeJob(healthy_phases(3, 41)).columns(1, 0, 41)), 1.0)
    detail = build_detail(run, 1)
    assert detail is not None
    assert detail.stall is None


def test_the_job_waits_for_stragglers_of_every_kind() -> None:
    kinds: tuple[KindName, ...] = ("slow_node", "intermittent_straggler", "straggler")
    findings = [Finding(kind, "warning", "", (rank, 0)) for rank, kind in enumerate(kinds, 1)]
    assert waiting_for(*findings) == (1, 0, 2, 3)


def test_a_job_that_stands_still_waits_for_the_hangs_culprits_alone() -> None:
    late = Finding("straggler", "critical", "", (3,))
    assert waiting_for(late, Finding("hang", "critical", "", (2,))) == (2,)
    assert waiting_for(late, Finding("hang", "critical", "")) == (3,), "a hang that names nobody"


def test_nobody_waits_for_what_is_over_or_wanted() -> None:
    over = Finding("straggler", "info", "", (1,), cleared_at_step=30)
    wanted = Finding("uneven_work", "info", "", (2,))
    assert waiting_for(over, wanted, Finding("rank_lost", "critical", "", (0,))) == ()


def test_two_nodes_of_one_name_keep_their_ranks_apart() -> None:
    run, job = Run(run_info(4, node_keys=[0, 1])), MadeJob(healthy_phases(4, 10))
    for rank in range(4):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 10), host="worker", node=rank // 2), 0.0)
    for node in range(2):
        run.add_node(node_frame(node, 1, host="worker"), 0.0)
    assert [(node.host, node.ranks) for node in build_nodes(run, 0.0)] == [("worker", (0, 1)), ("worker", (2, 3))]
    assert build_run(run, run.ages(0.0), np.empty(0, np.int64), "", ended=None).nodes == ("worker", "worker")


def test_ranks_that_know_no_node_are_found_by_their_hosts_name() -> None:
    run, job = Run(run_info(4, node_keys=[0, 1, 2, 3])), MadeJob(healthy_phases(4, 10))
    for rank in range(4):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 10), host=f"host{rank % 2}", node=-1), 0.0)
    for node in range(2):
        run.add_node(node_frame(node, 1, host=f"host{node}"), 0.0)
    assert [(node.host, node.ranks) for node in build_nodes(run, 0.0)] == [("host0", (0, 2)), ("host1", (1, 3))]
