"""What is drawn of a run in which some ranks have restarted on their own: the others go on, and nothing is mixed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ddpmon.machine import ProcessFigures
from ddpmon.report.build import build_heat, build_job, build_ranks, build_series
from ddpmon.report.build_timeline import build_timeline
from ddpmon.report.job_progress import throughput_unit
from ddpmon.report.peers import at_same_steps, possible_others
from ddpmon.report.rank_detail import build_detail
from ddpmon.run.model import Run
from ddpmon.run.resources import RESOURCES
from ddpmon.schema import BucketColumns, HistoryFrame, StepColumns
from tests.made_frames import RUN_ID, MadeJob, healthy_phases, rank_frame, run_info

NOBODY = np.empty(0, np.int64)
END_S = 11.0  # in which a rank that is not heard again is lost


def restarted(
    ranks: int, alone: Sequence[int], steps: int = 400, own: int = 40, *, others: bool = True, samples: float = 8.0
) -> Run:
    """A run of which some ranks restart on their own at step 200, one a second, and have made `own` steps since.

    Without `others` those that do not restart are never heard again. Each step of a rank has so many `samples`.
    """
    job, run = MadeJob(healthy_phases(ranks, steps)), Run(run_info(ranks))
    job.samples[:] = samples
    for rank in range(ranks):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 200)), 0.0)
    run.settle(0.0)
    for now, rank in enumerate(alone, 1):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 2), pid=900 + rank), float(now))
        run.settle(float(now))
    for rank in range(ranks):
        first, last, pid = (2, own, 900) if rank in alone else (200, steps, 100)
        if rank in alone or others:
            run.add_rank(rank_frame(rank, 9, job.columns(rank, first, last), pid=pid + rank, sent_at=9.0), END_S)
    run.settle(END_S)
    return run


def throughput(run: Run) -> float | None:
    ranks = build_ranks(run, run.ages(END_S), NOBODY)
    return build_job(run, ranks, run.taking_part(), ()).throughput


def test_ranks_that_restart_on_their_own_do_not_hold_the_series_up() -> None:
    assert restarted(4, (1,)).series.points[:, 0].tolist() == list(range(400))
    assert restarted(8, (1, 2, 5)).series.points[:, 0].tolist() == list(range(400))
    assert restarted(4, (1, 2)).series.points[:, 0].tolist() == list(range(400)), "as many go on"
    assert restarted(4, (1, 2, 3)).series.points[:, 0].tolist() == list(range(40)), "most have: it begins again"


@pytest.mark.parametrize(("others", "drawn"), [(True, [0, 1, 2, 3]), (False, [4, 5, 6, 7])])
def test_where_half_restart_alone_those_that_go_on_are_drawn(others: bool, drawn: list[int]) -> None:
    run = restarted(8, (4, 5, 6, 7), others=others)
    known = np.isfinite(build_ranks(run, run.ages(END_S), NOBODY).lateness_ms)
    heat, _ = build_heat(run, run.step_map.read("", run.out_of_step()))
    assert np.flatnonzero(known).tolist() == drawn
    assert np.flatnonzero(np.isfinite(heat.values).any(axis=1)).tolist() == drawn
    assert np.flatnonzero(run.taking_part()).tolist() == drawn
    assert run.series.points[:, 0].tolist() == list(range(400 if others else 40))


def test_the_throughput_and_its_course_are_of_the_same_ranks() -> None:
    run = restarted(8, (1, 2))
    course, now = run.series.points[-20:, 4], throughput(run)
    assert now is not None
    np.testing.assert_allclose(now, np.median(course), rtol=0.01)
    np.testing.assert_allclose(course, 6 * 8 / run.series.points[-20:, 5] * 1e3, rtol=0.01)
    half = restarted(4, (1, 2))
    np.testing.assert_allclose(half.series.points[-20:, 4], 2 * 8 / half.series.points[-20:, 5] * 1e3, rtol=0.01)


def history(rank: int, job: MadeJob, older: int, newest: int) -> HistoryFrame:
    """What a rank remembers: of the first `older` steps the mean of every two."""
    past = job.columns(rank, 0, older)
    step = np.frombuffer(past.step, "<i8")[::2].tobytes()
    tables = {name: np.frombuffer(column, "<f4").reshape(-1, 2) for name, column in past.values.items()}
    values = {name: table.mean(axis=1).astype("<f4").tobytes() for name, table in tables.items()}
    recent, means = job.columns(rank, older, newest), StepColumns(step, values, stride=2)
    return HistoryFrame(run_id=RUN_ID, rank=rank, recent=recent, older=means)


def test_the_samples_are_of_the_same_ranks_in_old_and_in_new_dashboards() -> None:
    """A new one counted those of all ranks in old steps and of fewer in new ones: a fall that had not happened."""
    was_there, job, new = restarted(8, (1, 2)), MadeJob(healthy_phases(8, 400)), Run(run_info(8))
    new.add_ranks(
        [rank_frame(rank, 9, job.columns(rank, *((20, 40) if rank in (1, 2) else (390, 400)))) for rank in range(8)],
        END_S, {},
    )  # fmt: skip
    new.add_history([history(rank, job, *((20, 40) if rank in (1, 2) else (200, 400))) for rank in range(8)])
    new.settle(END_S)
    for run, steps in ((was_there, 400), (new, 300)):
        series = build_series(run, 0.0)
        assert len(series.step) == steps
        np.testing.assert_allclose(series.throughput, 6 * 8 / series.step_ms * 1e3, rtol=0.01)


def test_steps_are_counted_once_however_many_ranks_make_them() -> None:
    run = restarted(8, (1, 2), samples=np.nan)
    series = build_series(run, 0.0)
    assert run.share_counted() < 1
    np.testing.assert_allclose(series.throughput, 1e3 / series.step_ms, rtol=1e-6)


@pytest.mark.parametrize(
    ("ranks", "alone", "said"),
    [
        (8, (1, 2), "samples/s of 6 ranks"),
        (4, (1, 2), "samples/s of 2 ranks"),
        (4, (1, 2, 3), "samples/s of 3 ranks"),
        (4, (), "samples/s"),
    ],
)
def test_of_how_many_ranks_the_throughput_is_is_said(ranks: int, alone: tuple[int, ...], said: str) -> None:
    run = restarted(ranks, alone)
    job = build_job(run, build_ranks(run, run.ages(END_S), NOBODY), run.taking_part(), ())
    assert throughput_unit(job) == said


def scattered(*steps: int) -> Run:
    """A run each of whose ranks has a step of its own, as for a watcher that comes after restarts."""
    job, run = MadeJob(healthy_phases(len(steps), max(steps))), Run(run_info(len(steps)))
    job.samples[:] = 8.0
    run.add_ranks(
        [rank_frame(rank, 9, job.columns(rank, max(0, step - 200), step)) for rank, step in enumerate(steps)], 5.0, {}
    )
    run.settle(5.5)
    return run


def test_where_most_ranks_are_at_steps_of_their_own_the_samples_are_those_of_the_ranks_left() -> None:
    """They were told as the samples of all ranks."""
    run = scattered(2000, 2000, 2000, 40, 400, 800, 1200, 1600)
    assert np.flatnonzero(run.out_of_step()).tolist() == [3, 4, 5, 6, 7]
    job = build_job(run, build_ranks(run, run.ages(5.5), NOBODY), run.taking_part(), ())
    assert throughput_unit(job) == "samples/s of 3 ranks"
    assert job.step_ms is not None
    assert job.throughput is not None
    np.testing.assert_allclose(job.throughput, 3 * 8 / job.step_ms * 1e3, rtol=0.01)
    np.testing.assert_allclose(build_series(run, 0.0).throughput[-20:], job.throughput, rtol=0.05)


def test_ranks_that_are_all_at_steps_of_their_own_are_not_compared() -> None:
    """Each was compared with all others, although they have no step in common."""
    ranks = build_ranks(scattered(2000, 40, 400, 800), np.zeros(4), NOBODY)
    assert np.isnan(ranks.lateness_ms).all()
    assert at_same_steps(ranks).tolist() == [True, False, False, False]
    assert np.flatnonzero(possible_others(ranks)).tolist() == [0]


def test_the_steps_of_a_rank_that_restarted_on_its_own_are_not_drawn_over_those_of_the_same_numbers() -> None:
    run = restarted(4, (1,))
    assert np.flatnonzero(run.out_of_step()).tolist() == [1]
    heat, waits = build_heat(run, run.step_map.read("wait", run.out_of_step()), "wait")
    assert waits is not None
    for table in (heat.values, waits.values):
        assert np.isfinite(table).any(axis=1).tolist() == [True, False, True, True]
    assert np.isnan(build_ranks(run, run.ages(END_S), NOBODY).lateness_ms).tolist() == [False, True, False, False]


def test_a_rank_that_restarted_on_its_own_has_no_others_and_is_none_of_theirs() -> None:
    run = restarted(4, (1,))
    own, other = build_detail(run, 1), build_detail(run, 0)
    assert own is not None
    assert other is not None
    assert own.courses["work"].others.size == 0
    work = run.rings.take("work", other.courses["work"].step)
    np.testing.assert_allclose(other.courses["work"].others[1], np.median(work[[2, 3]], axis=0), rtol=1e-5)


def test_buckets_are_those_of_the_ranks_that_reduce_together() -> None:
    run = restarted(4, alone=[0])
    for rank, ms in enumerate((1.0, 5.0, 4.0, 6.0)):
        first, sizes, pid = (20, [1000], 900) if rank == 0 else (380, [500, 500], 100 + rank)
        steps = MadeJob(healthy_phases(4, 400)).columns(rank, first, first + 20)
        took = np.full((20, len(sizes)), ms, "<f4").tobytes()
        detail = BucketColumns(step=steps.step, sizes=sizes, ms=took)
        run.add_rank(rank_frame(rank, 10, steps, pid=pid, buckets=detail), END_S)
    run.settle(END_S)
    newest, together = run.step_map.read(), run.keeping_up(run.taking_part())
    timeline = build_timeline(run, newest, build_heat(run, newest)[0], together)
    assert together.tolist() == [False, True, True, True]
    assert timeline.buckets is not None
    assert (timeline.buckets.sizes, timeline.buckets.ms.tolist()) == ((500, 500), [4.0, 4.0])
    assert (timeline.buckets.first_step, timeline.buckets.last_step) == (380, 399)
    assert timeline.busbw_gb_s[-1] == pytest.approx(1000 / 8e-3 * 2 * 3 / 4 / 1e9), "every rank of the job takes part"


def test_ranks_that_findings_name_are_none_of_the_others() -> None:
    job, run = MadeJob(healthy_phases(6, 40)), Run(run_info(6))
    for rank in range(6):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 40)), 0.0)
    detail = build_detail(run, 0, {4, 5})
    assert detail is not None
    work = run.rings.take("work", np.arange(40))
    np.testing.assert_allclose(detail.courses["work"].others[1], np.median(work[1:4], axis=0), rtol=1e-5)


def test_the_samples_of_a_silent_rank_that_takes_part_are_counted() -> None:
    job, run = MadeJob(healthy_phases(8, 80)), Run(run_info(8))
    for now, (first, last) in enumerate(((0, 40), (40, 80))):
        for rank in range(8):
            if rank != 1 or now == 0:
                frame = rank_frame(rank, now, job.columns(rank, first, last), sent_at=float(now))
                run.add_rank(frame, 5.0 * now)
        run.settle(5.0 * now)
    told = run.taking_part() & (run.rings.last >= 79)
    shown = build_job(run, build_ranks(run, run.ages(5.0), NOBODY), told, ()).throughput
    assert told.sum() == 7
    assert shown is not None
    course = run.series.points[-20:, 4]
    np.testing.assert_allclose(course, 8 * 8 / run.series.points[-20:, 5] * 1e3, rtol=0.01)
    np.testing.assert_allclose(shown, np.median(course), rtol=0.01)


def test_after_a_restart_of_all_no_step_has_the_time_of_the_life_before() -> None:
    job, run = MadeJob(healthy_phases(2, 100)), Run(run_info(2))
    for tick in range(16):
        again = tick >= 10
        first = 10 * (tick - 10) if again else 10 * tick
        for rank in range(2):
            part = job.columns(rank, first, first + 10)
            pid = 900 + rank if again else 100 + rank
            run.add_rank(rank_frame(rank, tick, part, pid=pid, step_s=0.0), 100.0 * tick)
        run.settle(100.0 * tick)
    steps, ended_at = run.step_times.known()
    assert steps.tolist() == [9, 19, 29, 39, 49, 59]
    assert ended_at.tolist() == [100.0 * tick for tick in range(10, 16)]


def attached_late(ranks: int, alone: Sequence[int], own: int = 40) -> Run:
    """The same run for a watcher that comes after the restarts, when the others are at step 400."""
    job, run = MadeJob(healthy_phases(ranks, 400)), Run(run_info(ranks))
    frames = [
        rank_frame(rank, 9, job.columns(rank, *((0, own) if rank in alone else (200, 400)))) for rank in range(ranks)
    ]
    run.add_ranks(frames, 5.0, {})
    run.settle(5.5)
    return run


def test_a_watcher_that_comes_after_the_restarts_compares_the_same_ranks() -> None:
    for ranks, alone, apart in ((8, (1, 2, 5), [1, 2, 5]), (8, (4, 5, 6, 7), [4, 5, 6, 7]), (4, (1, 2, 3), [0])):
        run, seen = attached_late(ranks, alone), restarted(ranks, alone)
        assert np.flatnonzero(run.out_of_step()).tolist() == np.flatnonzero(seen.out_of_step()).tolist() == apart
        assert run.taking_part().tolist() == seen.taking_part().tolist()
        assert run.series.newest == seen.series.newest
        heat, _ = build_heat(run, run.step_map.read("", run.out_of_step()))
        assert np.flatnonzero(~np.isfinite(heat.values).any(axis=1)).tolist() == apart


def test_a_rank_that_is_behind_since_nothing_was_heard_of_it_is_not_out_of_step() -> None:
    job, run = MadeJob(healthy_phases(4, 300)), Run(run_info(4))
    for tick in range(30):
        frames = [rank_frame(rank, tick, job.columns(rank, 0, 10 * tick + 10)) for rank in range(4 if tick < 5 else 3)]
        run.add_ranks(frames, 1.1 * tick, {})
        assert not run.out_of_step().any()


def test_ranks_that_send_at_other_moments_are_not_out_of_step_however_long_the_first_step_was() -> None:
    phases = healthy_phases(4, 1000)
    phases["forward"][:, 0] += 30_000.0
    job, run = MadeJob(phases), Run(run_info(4))
    for tick in range(1, 30):
        for rank in range(4):
            run.add_rank(rank_frame(rank, tick, job.columns(rank, 0, 30 * tick - 10 * rank), step_s=0.0), float(tick))
        run.settle(float(tick))
        assert not run.out_of_step().any()


def test_a_rank_that_stands_still_while_the_others_go_on_is_not_out_of_step() -> None:
    job, run = MadeJob(healthy_phases(4, 600)), Run(run_info(4))
    for tick in range(60):
        for rank in range(4):
            stood_s = max(0.0, tick - 20.0) if rank == 3 else 0.0
            last = 10 * (20 if stood_s else tick) + 10
            run.add_rank(rank_frame(rank, tick, job.columns(rank, last - 10, last), step_s=stood_s), float(tick))
        run.settle(float(tick))
        assert not run.out_of_step().any()


def test_readings_of_a_life_before_are_not_drawn_at_the_steps_of_a_later_one() -> None:
    job, run = MadeJob(healthy_phases(2, 100)), Run(run_info(2))
    for tick in range(20):
        again, first = tick >= 10, 10 * (tick % 10)
        process = ProcessFigures(cpu_pct=70.0 if again else 50.0)
        for rank in range(2):
            pid, part = (900 if again else 100) + rank, job.columns(rank, first, first + 10)
            run.add_rank(rank_frame(rank, tick, part, pid=pid, process=process), float(tick))
        run.settle(float(tick))
    cpu_pct: list[float] = run.resources.of(0)[:, RESOURCES.index("cpu_pct")].tolist()
    assert len(cpu_pct) > 5
    assert set(cpu_pct) == {70.0}
