"""Lateness is one number: in the column, in the sentence, in the heat-map and in the headline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpmon.diagnose.judge import Judge
from ddpmon.machine import ProcessFigures
from ddpmon.report.build import build_heat, build_ranks, column_of, lateness_as_found
from ddpmon.report.build_timeline import build_timeline
from ddpmon.report.comparison import shares_by_phase
from ddpmon.report.peers import compare
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from ddpmon.run.resources import RESOURCES
from ddpmon.snapshot import Finding, Heat, Link, Metric, Timeline
from ddpmon.tui.draw.run_plots import lateness_plot
from ddpmon.tui.theme import make_look
from ddpmon.tui.view_state import ViewState
from ddpmon.watcher.picture import Moment, take_picture
from tests.made_frames import MadeJob, columns, healthy_phases, noisy, rank_frame, run_info
from tests.tui.made_runs import HANG, Made, snapshot
from tests.tui.test_drawing import text_of

NOBODY = np.empty(0, np.int64)


def heat_of(run: Run, metric: Metric = "lateness") -> tuple[Heat, Heat | None]:
    return build_heat(run, run.step_map.read(column_of(metric)), metric)


def timeline_of(run: Run) -> Timeline:
    newest = run.step_map.read()
    return build_timeline(run, newest, build_heat(run, newest)[0], run.taking_part())


def run_with(
    excess_ms: float, ranks: int = 4, steps: int = 120, since: int = 60, **others_ms: float
) -> tuple[Run, tuple[Finding, ...]]:
    """Rank 1 is late in backward, so are others such as `rank_2`, and what is said of them."""
    phases = healthy_phases(ranks, steps)
    for rank, more_ms in ((1, excess_ms), *((int(name.removeprefix("rank_")), ms) for name, ms in others_ms.items())):
        phases["backward"][rank, since:] += more_ms
    job, run, judge = MadeJob(phases, transfer_ms=5.0), Run(run_info(ranks)), Judge()
    found: tuple[Finding, ...] = ()
    for end in range(10, steps + 1, 10):
        for rank in range(ranks):
            run.add_rank(rank_frame(rank, end, job.columns(rank, end - 10, end)), float(end))
        run.settle(float(end))
        found = in_words(judge(run, run.ages(float(end))))
    return run, found


def test_ranks_that_are_at_other_steps_have_no_lateness_of_another_time() -> None:
    """Ranks 2 and 3 have restarted; at the steps that they are at now, the others were 30 ms slower a while ago."""
    phases = healthy_phases(4, 200)
    phases["forward"][:2, :60] += 30.0
    job, run = MadeJob(phases, transfer_ms=5.0), Run(run_info(4))
    for tick in range(20):
        for rank in range(4):
            again = rank > 1 and tick >= 15
            first = 10 * (tick - 15) if again else 10 * tick
            part = job.columns(rank, first, first + 10)
            run.add_rank(rank_frame(rank, tick, part, pid=900 + rank if again else 100 + rank), float(tick))
        run.settle(float(tick))
    late = build_ranks(run, run.ages(19.0), NOBODY).lateness_ms
    assert run.out_of_step().sum() == 2
    assert np.isnan(late[run.out_of_step()]).all()
    assert np.abs(late[~run.out_of_step()]).max() < 15.0


@pytest.mark.parametrize("ranks", [2, 3, 4, 9])
def test_column_sentence_and_heat_map_agree_and_the_healthy_have_0(ranks: int) -> None:
    run, found = run_with(40.0, ranks)
    (straggler,) = (finding for finding in found if finding.kind == "straggler")
    told = straggler.evidence["excess_ms"]
    late = build_ranks(run, run.ages(120.0), NOBODY).lateness_ms
    heat, _ = heat_of(run)
    assert isinstance(told, float)
    assert late[1] == pytest.approx(told, rel=0.05)
    shown = lateness_as_found(late, found, "running")
    assert shown[1] == told, "column and sentence have one number"
    np.testing.assert_array_equal(np.delete(shown, 1), [-told] if ranks == 2 else np.delete(late, 1))
    if ranks == 2:
        assert lateness_as_found(1.1 * late, found, "running").tolist() == [-told, told], "each is as late as the other"
    work = build_ranks(run, run.ages(120.0), NOBODY).work_ms
    assert heat.base_ms[-1] == pytest.approx(float(np.delete(work, 1).mean()) + 5.0, rel=0.1), "what no late rank takes"
    again = (straggler, replace(straggler, kind="slow_node", evidence={**straggler.evidence, "excess_ms": 1.0}))
    assert lateness_as_found(late, again, "running")[1] == told, "of two findings on a rank the first"
    assert heat.values[1, -20:].mean() == pytest.approx(told, rel=0.05)
    if ranks > 2:  # of two ranks each is what the other is compared with
        assert np.abs(np.delete(late, 1)).max() < 2.0
    assert f"is late by {told:.1f} ms" in straggler.summary


@pytest.mark.parametrize("ranks", [3, 4, 9])
def test_where_two_ranks_are_late_the_others_are_those_whom_the_verdict_compares_with(ranks: int) -> None:
    """Of four ranks the two healthy ones were early by 70 ms, and the band of the others lay at -70 ms."""
    run, found = run_with(70.0, ranks, rank_2=90.0)
    assert {rank for finding in found if finding.kind == "straggler" for rank in finding.ranks} == {1, 2}
    shown = take_picture(run, Moment(120.0, 120.0, 120.0, Link("live"), None, ""), found, (), 1)
    assert shown.ranks is not None
    assert shown.heat is not None
    assert shown.detail is not None
    expected = [0.0, 70.0, 90.0] + [0.0] * (ranks - 3)
    if ranks == 3:
        expected[0] = -70.0  # the one healthy rank has no others than the late ones
    in_table, in_map = shown.ranks.lateness_ms, shown.heat.values[:, -40:].mean(axis=1)
    assert in_table == pytest.approx(expected, abs=5.0)
    assert in_map == pytest.approx(expected, abs=5.0)
    course = shown.detail.courses["lateness"]
    assert course.own[-20:].mean() == pytest.approx(70.0, abs=5.0)
    assert np.abs(course.others[:, -40:]).max() < 15.0
    rows = {row.quantity.name: row for row in compare(shown, [1]).rows}
    assert rows["backward"].difference() == pytest.approx(70.0, abs=5.0)
    lines = text_of(lateness_plot(ViewState(shown, make_look()), 1, 90, 14))
    assert min(float(line[:5]) for line in lines[1:-1] if line[:5].strip()) >= 0.0


def test_nobody_is_late_while_no_step_finishes() -> None:
    """The hosts' view showed the lateness from before a hang as if it were that of now."""
    late = np.array([0.0, 40.0])
    assert np.isnan(lateness_as_found(late, (HANG,), "stalled")).all()
    assert lateness_as_found(late, (HANG,), "finished").tolist() == late.tolist()
    assert lateness_as_found(late, (replace(HANG, cleared_at_step=7),), "running").tolist() == late.tolist()


def test_a_healthy_run_is_not_late_at_any_size() -> None:
    """Against the longest wait every healthy rank was late, by more the more ranks there were (B5)."""
    for ranks in (4, 64, 256):
        run = Run(run_info(ranks))
        job = MadeJob(healthy_phases(ranks, 40))
        for rank in range(ranks):
            run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 40)), 0.0)
        late = build_ranks(run, run.ages(0.0), NOBODY).lateness_ms
        assert abs(float(np.median(late))) < 0.1
        assert float(np.abs(late).max()) < 0.02 * float(job.work.mean())


def test_the_healthy_beside_a_late_rank_are_not_early_where_steps_vary() -> None:
    """Of each step the slower one of two healthy ranks was the others' median, so a healthy rank was early by 5 ms."""
    phases = {"forward": noisy(4, 60, 100.0, 0.06, 1)}
    phases["forward"][2] += 60.0
    job, run = MadeJob(phases), Run(run_info(4))
    for rank in range(4):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 60)), 0.0)
    late = build_ranks(run, run.ages(0.0), NOBODY).lateness_ms
    assert abs(float(np.delete(late, 2).mean())) < 1.5
    assert late[2] == pytest.approx(60.0, abs=5.0)


def test_a_rank_that_fell_silent_does_not_hold_the_lateness_of_the_others_back() -> None:
    """A watcher that came while a host was silent compared the steps from before (B18)."""
    phases = healthy_phases(4, 200)
    phases["backward"][2, 100:] += 40.0
    job, run = MadeJob(phases), Run(run_info(4))
    for rank in range(4):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 60)), 0.0)
        if rank != 3:
            run.add_rank(rank_frame(rank, 2, job.columns(rank, 60, 200)), 1.0)
    late = build_ranks(run, run.ages(1.0), NOBODY).lateness_ms
    assert late[2] == pytest.approx(40.0, abs=2.0)
    assert np.isnan(late[3])
    assert run.keeping_up(run.taking_part()).tolist() == [True, True, True, False]


@pytest.mark.parametrize(("metric", "shown"), [("work", 145.0), ("wait", 5.0), ("input", None), ("allreduce", None)])
def test_the_heat_map_carries_the_metric_that_is_asked_for(metric: Metric, shown: float | None) -> None:
    run, _ = run_with(40.0)
    lateness, chosen = heat_of(run, metric)
    assert chosen is not None
    assert (lateness.metric, chosen.metric) == ("lateness", metric)
    np.testing.assert_array_equal(lateness.step, chosen.step)
    np.testing.assert_array_equal(chosen.values, run.rings.take(metric, chosen.step))
    assert shown is None or chosen.values[1, -1] > 0
    assert heat_of(run)[1] is None


def test_the_heat_map_carries_the_memory_of_each_rank_in_gib() -> None:
    """Of a leak the map had nothing to show: what was read each second was drawn in the detail of a rank alone."""
    run = Run(run_info(2))
    for step in range(5):
        for rank in range(2):
            used = ProcessFigures(gpu_allocated=(10 + rank * step) << 30, rss_bytes=3 << 30)
            told = columns([step], {"duration": [100.0]})
            run.add_rank(rank_frame(rank, step, told, process=used), float(step))
    memory, resident = (heat_of(run, metric)[1] for metric in ("memory", "resident"))
    assert memory is not None
    assert memory.values.tolist() == [[10.0] * 5, [10.0, 11.0, 12.0, 13.0, 14.0]]
    assert resident is not None
    assert resident.values.tolist() == [[3.0] * 5] * 2


@pytest.mark.parametrize("metric", ["lateness", "work", "gpu"])
def test_before_the_first_step_every_metric_is_a_table_of_no_steps(metric: Metric) -> None:
    run = Run(run_info(4))
    heat_of(run)
    shown = [heat for heat in heat_of(run, metric) if heat is not None]
    assert all(heat.values.shape == (4, 0) for heat in shown)


def test_what_a_step_takes_without_the_late_rank_does_not_depend_on_how_late_it_is() -> None:
    base = [float(np.median(heat_of(run_with(excess)[0])[0].base_ms[-20:])) for excess in (0.0, 40.0, 400.0)]
    assert base[1] == pytest.approx(base[0], rel=0.02)
    assert base[2] == pytest.approx(base[0], rel=0.02)


def test_the_timeline_has_the_percentages_of_the_heat_map() -> None:
    """Its lateness was a share of the step as it became: 400 ms of a step of 560 ms were 71 % (B2)."""
    run, _ = run_with(400.0)
    heat, _ = heat_of(run)
    timeline = timeline_of(run)
    percent = 100 * heat.values / heat.base_ms
    np.testing.assert_array_equal(timeline.step[-len(heat.step) :], heat.step)
    np.testing.assert_allclose(timeline.late_pct[-20:], percent[1, -20:], rtol=1e-5)
    assert timeline.late_pct[-1] > 200
    assert set(timeline.late_rank[-20:].tolist()) == {1}
    alone = Run(run_info(1))
    alone.add_rank(rank_frame(0, 1, MadeJob(healthy_phases(1, 40)).columns(0, 0, 40)), 0.0)
    single = timeline_of(alone)
    assert np.isnan(single.late_pct).all(), "nobody to be late against"
    assert set(single.late_rank.tolist()) == {-1}


def test_nobody_is_the_latest_rank_of_a_step_that_the_latest_has_not_told_of() -> None:
    job, run = MadeJob(healthy_phases(4, 50), transfer_ms=5.0), Run(run_info(4))
    for rank, told in enumerate((50, 47, 50, 50)):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, told)), 0.0)
    timeline = timeline_of(run)
    assert timeline.step[-4:].tolist() == [46, 47, 48, 49]
    assert (timeline.late_rank[-4:] >= 0).tolist() == [True, False, False, False]
    assert np.isfinite(timeline.late_pct[-4:]).tolist() == [True, False, False, False]


def test_a_reading_of_a_gpu_holds_until_the_next() -> None:
    run = Run(run_info(2))
    points = np.array([[10, 90, 1, 1e9, 2e9, 97, 600, 1700.0], [10, 90, 1, 1e9, 2e9, 50, 300, 1200.0]])
    run.resources.add(np.array([0, 1]), points)
    points[:, 0] = 14
    points[:, RESOURCES.index("gpu_utilization_pct")] = (80, 40)
    run.resources.add(np.array([0, 1]), points)
    table = run.resources.over("gpu_utilization_pct", np.arange(8, 17))
    assert table[0].tolist()[2:] == [97, 97, 97, 97, 80, 80, 80]
    assert np.isnan(table[:, :2]).all(), "nothing is known before the first reading"
    assert table[1, -1] == 40


def test_where_a_rank_is_stuck_is_no_lateness() -> None:
    """The input of a rank that is stuck in it was orange (B6)."""
    shown = snapshot(Made(straggler=5))
    assert shown.ranks is not None
    assert shares_by_phase(shown.findings[0], lambda _phase: 41.0) == {"input": 1.0}
    assert shares_by_phase(HANG, lambda _phase: 41.0) == {}
