"""What the watcher's model makes of good and of broken frames."""

from __future__ import annotations

import itertools
import math
import struct
import tracemalloc

import numpy as np
import pytest
from msgspec.structs import force_setattr

from ddpmon.report.build import build_heat, build_job, build_ranks
from ddpmon.report.build_timeline import build_timeline
from ddpmon.run.medians import others_medians, row_medians
from ddpmon.run.model import Run
from ddpmon.schema import BucketColumns, HistoryFrame
from tests.made_frames import RUN_ID, MadeJob, columns, healthy_phases, mark, rank_frame, run_info

NOBODY = np.empty(0, np.int64)


def one_rank_run(steps: range, duration: float = 100.0) -> Run:
    run = Run(run_info(2))
    for rank in range(2):
        run.add_rank(rank_frame(rank, 1, columns(steps, {"duration": [duration] * len(steps)})), 0.0)
    return run


def durations(run: Run, rank: int, steps: list[int]) -> list[float]:
    return [float(v) for v in run.rings.take("duration", np.array(steps))[rank]]


def test_others_median_leaves_the_rank_itself_out() -> None:
    random = np.random.default_rng(0)
    for n, alike in itertools.product((2, 3, 4, 7, 8), (False, True)):
        table = random.integers(0, 3, (n, 40)).astype(float) if alike else random.random((n, 5))
        expected = [np.median(np.delete(table, r, axis=0), axis=0) for r in range(n)]
        np.testing.assert_allclose(others_medians(table), expected)


def test_row_medians_leave_missing_values_out() -> None:
    table = np.array([[1.0, math.nan, 3.0], [math.nan] * 3, [5.0, 1.0, 3.0]])
    np.testing.assert_array_equal(row_medians(table), [2.0, math.nan, 3.0])
    np.testing.assert_array_equal(row_medians(np.empty((2, 0))), [math.nan, math.nan])


def test_steps_are_aligned_whatever_order_the_frames_come_in() -> None:
    run = Run(run_info(2))
    job = MadeJob(healthy_phases(2, 60))
    for seq, (first, last) in enumerate([(20, 40), (0, 30), (40, 60)]):
        for rank in (1, 0):
            run.add_rank(rank_frame(rank, seq, job.columns(rank, first, last)), 0.0)
    assert run.finished_steps(100).tolist() == list(range(60))
    np.testing.assert_allclose(run.rings.take("work", np.arange(60)), job.work, rtol=1e-5)


@pytest.mark.parametrize("before", [math.nan, 0.0, 8.0])
def test_a_value_that_all_steps_had_stays_theirs_after_another_came(before: float) -> None:
    run, spent = Run(run_info(2)), {"duration": [100.0] * 4, "exposed": [10.0] * 4}
    for rank in range(2):
        known = {} if math.isnan(before) else {"gc": [before] * 4, "samples": [before] * 4, "barrier": [before] * 4}
        run.add_rank(rank_frame(rank, 1, columns(range(4), spent | known)), 0.0)
    last = {"duration": [100.0], "exposed": [10.0], "gc": [3.0], "samples": [5.0], "barrier": [20.0]}
    run.add_rank(rank_frame(1, 2, columns([4], last)), 1.0)
    gc, samples, barrier, wait, work = run.rings.takes(("gc", "samples", "barrier", "wait", "work"), np.arange(6))
    for table, value in ((gc, 3.0), (samples, 5.0), (barrier, 20.0)):
        np.testing.assert_array_equal(table, [[before] * 4 + [math.nan] * 2, [before] * 4 + [value, math.nan]])
    waited = 10.0 + (0.0 if math.isnan(before) else before)
    np.testing.assert_array_equal(wait, [[waited] * 4 + [math.nan] * 2, [waited] * 4 + [30.0, math.nan]])
    np.testing.assert_array_equal(work, 100.0 - wait)


def test_an_overtaken_frame_changes_nothing() -> None:
    run = one_rank_run(range(10))
    run.add_rank(rank_frame(0, 1, columns([5], {"duration": [999.0]})), 1.0)
    assert durations(run, 0, [5]) == [100.0]


def test_a_step_counts_once_every_rank_has_it() -> None:
    run = one_rank_run(range(10))
    run.add_rank(rank_frame(0, 2, columns(range(10, 14), {"duration": [100.0] * 4})), 1.0)
    assert run.finished_steps(100).tolist() == list(range(10))
    missing = Run(run_info(2))
    for rank, steps in ((0, [0, 1, 2, 3]), (1, [0, 1, 3])):
        missing.add_rank(rank_frame(rank, 1, columns(steps, {"duration": [1.0] * len(steps)})), 0.0)
    assert missing.finished_steps(100).tolist() == [0, 1, 3]


@pytest.mark.parametrize("bad", [-5.0, math.inf, -math.inf, math.nan])
def test_an_impossible_duration_is_set_aside_and_counted(bad: float) -> None:
    run = Run(run_info(1))
    run.add_rank(rank_frame(0, 1, columns([0, 1, 2], {"duration": [10.0, bad, 30.0]})), 0.0)
    assert run.finished_steps(10).tolist() == [0, 2]
    assert run.rings.set_aside == 1


def test_a_negative_step_number_is_set_aside() -> None:
    run = Run(run_info(1))
    run.add_rank(rank_frame(0, 1, columns([-3, 4], {"duration": [1.0, 1.0]})), 0.0)
    assert run.finished_steps(10).tolist() == [4]


def test_a_rank_that_starts_anew_forgets_its_past() -> None:
    run = one_rank_run(range(500))
    run.add_rank(rank_frame(0, 1, columns([0], {"duration": [7.0]}), pid=999), 1.0)
    assert durations(run, 0, [0]) == [7.0]
    assert math.isnan(durations(run, 0, [400])[0])
    assert run.finished_steps(1000, np.array([True, False])).tolist() == [0]


def test_a_run_whose_ranks_all_start_anew_is_drawn_and_told_of_from_its_new_beginning() -> None:
    run = Run(run_info(2, bucket_detail=True))
    job = MadeJob(healthy_phases(2, 1000))

    def detail(steps: range, ms: float) -> BucketColumns:
        blob = np.full(len(steps), ms, "<f4").tobytes()
        return BucketColumns(step=np.array(steps, "<i8").tobytes(), sizes=[1000], ms=blob)

    for life, first in ((0, 900), (1, 0)):
        for rank in range(2):
            steps = range(first, first + 100)
            marks = [mark(first + 50, "checkpoint", 5_000.0)] if rank == 0 else []
            frame = rank_frame(
                rank, 1, job.columns(rank, first, first + 100), pid=100 * life + rank + 1, marks=marks,
                buckets=detail(steps, 1.0 + life),
            )  # fmt: skip
            run.add_rank(frame, float(life))
        run.settle(float(life))
    assert run.series.points[:, 0].tolist() == list(range(100))
    assert list(run.marks.pauses["checkpoint"]) == [50]
    assert run.marks.pauses["checkpoint"][50].ranks == 1
    assert np.median(run.buckets.transfers(np.ones(2, np.bool_)).ms) == 2.0


def test_frames_of_another_run_or_rank_are_refused_and_counted() -> None:
    run = Run(run_info(2))
    run.add_rank(rank_frame(0, 1, columns([0], {"duration": [1.0]}), run_id="other"), 0.0)
    run.add_rank(rank_frame(5, 1, columns([0], {"duration": [1.0]})), 0.0)
    assert run.ranks == [None, None]
    assert sum(run.rejected.values()) == 2


def test_missing_columns_are_unknown_not_zero() -> None:
    run = one_rank_run(range(30))
    ranks = build_ranks(run, run.ages(0.0), NOBODY)
    assert np.isnan(ranks.loss).all()
    assert np.isnan(ranks.forward_ms).all()
    assert np.isnan(ranks.work_ms).all(), "without `exposed` work is not known"
    assert ranks.step_ms.tolist() == [100.0, 100.0]
    job = build_job(run, ranks, np.array([True, True]), ())
    assert (job.loss, job.sync_efficiency) == (None, None)
    assert job.throughput == pytest.approx(10.0)
    assert job.throughput_unit == "steps/s"


def test_the_all_reduce_time_is_the_median_of_the_last_steps_that_have_one_else_the_newest_known() -> None:
    run, seen = Run(run_info(1)), [9.0, *[math.nan] * 9, *[20.0] * 15, *[80.0] * 5]
    run.add_rank(rank_frame(0, 1, columns(range(30), {"duration": [100.0] * 30, "allreduce": seen})), 0.0)
    assert run.recent.figures()["allreduce"].tolist() == [20.0]
    none = {"duration": [100.0] * 25, "allreduce": [math.nan] * 25}
    run.add_rank(rank_frame(0, 2, columns(range(30, 55), none)), 0.0)
    assert run.recent.figures()["allreduce"].tolist() == [80.0]


def test_job_figures_follow_their_formulas() -> None:
    work = np.tile(np.array([[100.0], [80.0], [60.0], [40.0]]), (1, 40))
    run = Run(run_info(4))
    job = MadeJob({"forward": work}, transfer_ms=10.0)
    for rank in range(4):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 40)), 0.0)
    ranks = build_ranks(run, run.ages(0.0), NOBODY)
    view = build_job(run, ranks, np.ones(4, bool), ())
    assert view.step_ms == pytest.approx(110.0)
    assert view.busbw_gb_s is None, "it takes the buckets"
    assert view.sync_efficiency == pytest.approx(70 / 110)
    assert view.lost_to_waiting_pct == pytest.approx(100 * 30 / 110)
    assert view.throughput == pytest.approx(4 * 8 / 0.110)
    assert ranks.lateness_ms.tolist() == pytest.approx([40.0, 20.0, -20.0, -40.0])


def test_what_is_lost_to_waiting_is_unknown_where_one_rank_of_several_is_compared() -> None:
    run = Run(run_info(4))
    for rank in range(4):
        steps = range(200) if rank < 3 else range(20)
        part = columns(steps, {"duration": [100.0] * len(steps), "exposed": [10.0] * len(steps)})
        run.add_rank(rank_frame(rank, 1, part), 0.0)
    shares = []
    for alive in ([True] * 3 + [False], [True] + [False] * 3):
        figures = build_ranks(run, run.ages(0.0), np.empty(0, np.int64))
        shares.append(build_job(run, figures, np.array(alive), ()).lost_to_waiting_pct)
    assert shares == [0.0, None]


@pytest.mark.parametrize("is_pause", [False, True])
def test_what_one_step_in_five_costs_is_waited_for_unless_it_is_a_pause(is_pause: bool) -> None:
    other = np.zeros((4, 40))
    other[2, ::5] += 400.0
    phases = {"forward": np.full((4, 40), 90.0), "other": other}
    job, run = MadeJob(phases, transfer_ms=10.0, marked=other if is_pause else None), Run(run_info(4))
    for rank in range(4):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 40)), 0.0)
    ranks = build_ranks(run, run.ages(0.0), NOBODY)
    view = build_job(run, ranks, np.ones(4, bool), ())
    mean_ms = 100.0 if is_pause else 100.0 + 400.0 / 5
    assert view.step_ms == pytest.approx(100.0), "the median"
    assert view.lost_to_waiting_pct == pytest.approx(0.0 if is_pause else 100 * 0.75 * 80.0 / mean_ms)
    assert view.sync_efficiency == pytest.approx(90.0 / mean_ms)
    assert view.throughput == pytest.approx(4 * 8 / mean_ms * 1e3)


@pytest.mark.parametrize(
    ("of_ranks", "bandwidth"),
    [
        (([4.0, 9.0], [8.0, 2.0]), 4000 / 6e-3 * 2 * 1 / 2 / 1e9),
        pytest.param(([4.0, 9.0],), None, id="one rank sends nothing"),
    ],
)
def test_true_transfer_and_bus_bandwidth_come_from_the_buckets(
    of_ranks: tuple[list[float], ...], bandwidth: float | None
) -> None:
    run = Run(run_info(len(of_ranks), bucket_detail=True))
    for rank, ms in enumerate(of_ranks):
        detail = BucketColumns(
            step=columns(range(30), {}).step,
            sizes=[1000, 3000],
            ms=np.tile(np.array(ms, "<f4"), 30).tobytes(),
        )
        steps = columns(range(30), {"duration": [50.0] * 30, "exposed": [12.0] * 30})
        run.add_rank(rank_frame(rank, 1, steps, buckets=detail), 0.0)
    ranks = np.ones(len(of_ranks), bool)
    assert build_job(run, build_ranks(run, run.ages(0.0), NOBODY), ranks, ()).busbw_gb_s == pytest.approx(bandwidth)
    newest = run.step_map.read()
    timeline = build_timeline(run, newest, build_heat(run, newest)[0], ranks)
    assert timeline.busbw_gb_s[-1] == pytest.approx(math.nan if bandwidth is None else bandwidth, nan_ok=True)


def test_bucket_detail_keeps_no_frame_in_memory() -> None:
    run, ms = Run(run_info(2, bucket_detail=True)), bytes(4 * 1000 * 200)  # 800 kB
    one_rank = columns([0], {"duration": [50.0]})
    run.add_rank(rank_frame(0, 0, one_rank), 0.0)
    tracemalloc.start()
    try:
        for seq in range(1, 101):
            detail = BucketColumns(step=struct.pack("<q", seq) * 200, sizes=[1] * 1000, ms=bytes(bytearray(ms)))
            frame = rank_frame(0, seq, one_rank, buckets=detail)
            run.add_rank(frame, float(seq))
            force_setattr(frame, "buckets", None)  # as who reads them does
        del detail, frame
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 128 << 10, "8 steps of 1,000 buckets take 32 kB, 64 steps 256 kB, a frame 800 kB"


def history(rank: int, older_steps: range, stride: int, recent: range) -> HistoryFrame:
    def logged(steps: range) -> dict[str, list[float]]:
        return {
            "duration": [100.0] * len(steps),
            "loss": [5.0 - 0.001 * step for step in steps],
            "samples": [8.0] * len(steps),
        }

    return HistoryFrame(
        run_id=RUN_ID,
        rank=rank,
        recent=columns(recent, logged(recent)),
        older=columns(older_steps, logged(older_steps), stride),
    )


def test_a_late_watcher_sees_the_whole_run() -> None:
    run = Run(run_info(2))
    run.add_history([history(rank, range(0, 9744, 64), 64, range(9744, 10000)) for rank in range(2)])
    run.settle(0.0)
    steps, loss = run.series.points[:, 0], run.series.points[:, 1]
    assert (steps[0], steps[-1]) == (0, 9999)
    assert (np.diff(steps) > 0).all()
    np.testing.assert_allclose(loss, 5.0 - 0.001 * steps, atol=1e-3)
    np.testing.assert_allclose(run.series.points[:, 4], 160.0)


def test_a_silent_rank_of_many_does_not_lower_the_throughput() -> None:
    run, told = Run(run_info(10)), {"duration": [100.0] * 20, "samples": [8.0] * 20}
    for rank in range(10):
        run.add_rank(rank_frame(rank, 1, columns(range(20), told)), 0.0)
    run.settle(0.0)
    for rank in range(9):
        run.add_rank(rank_frame(rank, 2, columns(range(20, 40), told)), 30.0)
    run.settle(30.0)
    assert run.series.points[:, 0].tolist() == list(range(40))
    np.testing.assert_allclose(run.series.points[:, 4], 800.0)


def test_ranks_that_decimated_differently_are_joined_at_the_coarser_stride() -> None:
    run = Run(run_info(2))
    run.add_history(
        [history(0, range(0, 512, 4), 4, range(512, 520)), history(1, range(0, 512, 8), 8, range(512, 520))]
    )
    run.settle(0.0)
    assert run.series.points[:64, 0].tolist() == list(range(0, 512, 8))


def test_memory_stays_bounded_over_a_long_run() -> None:
    run = Run(run_info(2))
    for seq, first in enumerate(range(0, 60_000, 200)):
        for rank in range(2):
            part = columns(range(first, first + 200), {"duration": [1.0] * 200, "loss": [1.0] * 200})
            run.add_rank(rank_frame(rank, seq, part), float(seq))
        run.settle(float(seq))
    assert len(run.series.points) <= 2048
    assert run.series.points[0, 0] < 100
    assert run.series.points[-1, 0] == 59_999
    assert all(0 < len(run.resources.of(rank)) <= 600 for rank in range(2))


def test_steps_beyond_what_32_bits_hold_stand_beside_those_before() -> None:
    run, first = Run(run_info(1)), (1 << 31) - 4
    for seq, start in enumerate((first, first + 4)):
        part = columns(range(start, start + 4), {"duration": [1.0 + seq] * 4})
        run.add_rank(rank_frame(0, seq, part), float(seq))
    steps = np.arange(first, first + 8)
    assert run.rings.present(steps).all()
    assert run.rings.take("duration", steps).tolist() == [[1.0] * 4 + [2.0] * 4]
