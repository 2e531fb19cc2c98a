"""Pauses: named, unnamed, and those of the garbage collector."""

from __future__ import annotations

import numpy as np
import pytest

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.pauses import GcMeasures, GcRule, LongStepMeasures, NamedPauseMeasures, find_pauses
from ddpmon.report.sentences import tell
from ddpmon.run.model import Run
from ddpmon.schema import HistoryFrame, Mark
from tests.made_frames import RUN_ID, Floats, columns, mark, rank_frame, run_info, tick


def job(work: Floats, marks: dict[int, list[Mark]] | None = None, gc: Floats | None = None) -> Run:
    """A run whose ranks worked [ranks, steps] ms a step, and waited for the last."""
    run = Run(run_info(len(work)))
    publish(run, work, 0, work.shape[1], marks or {}, gc)
    return run


def publish(
    run: Run, work: Floats, first: int, last: int, marks: dict[int, list[Mark]], gc: Floats | None = None, seq: int = 1
) -> None:
    part = work[:, first:last]
    longest = part.max(axis=0)
    for rank, row in enumerate(part):
        values = {"duration": (longest + 2).tolist(), "exposed": (longest + 2 - row).tolist()}
        values["forward"] = np.minimum(row, 50.0).tolist()
        values |= {name: [0.0] * len(row) for name in ("input", "backward", "optimizer")}
        said = [entry for entry in marks.get(rank, []) if first <= entry.step < last]
        values["marked"] = [sum(entry.ms for entry in said if entry.step == step) for step in range(first, last)]
        if gc is not None:
            values["gc"] = gc[rank, first:last].tolist()
        run.add_rank(rank_frame(rank, seq, columns(range(first, last), values), marks=said[-64:]), 0.0)


def work(ranks: int = 4, steps: int = 300) -> Floats:
    return 100 + np.random.default_rng(0).standard_normal((ranks, steps))


def pauses(run: Run) -> list[Alert]:
    return find_pauses(tick(run, run.ages(0.0)), ())


def test_a_checkpoint_is_told_of_with_its_share_of_the_time() -> None:
    table = work()
    marks = {0: [mark(step, "checkpoint", 4200.0) for step in (50, 150, 250)]}
    table[0, [50, 150, 250]] += 4200
    (finding,) = pauses(job(table, marks))
    assert (finding.kind, finding.severity, finding.ranks) == ("pause", "info", (0,))
    assert finding.measures == NamedPauseMeasures("checkpoint", 1, 4200.0, 12600.0, 3, 250, steps_not_compared=False)
    assert finding.cost_pct == pytest.approx(29, abs=0.5)


def test_a_watcher_that_comes_late_measures_the_pauses_over_the_time_whose_names_it_knows() -> None:
    table = work()
    table[0, ::50] += 4200
    run = Run(run_info(4))
    marks = {0: [mark(250, "checkpoint", 4200.0)]}
    for rank, row in enumerate(table[:, :200]):  # what the ranks remember has no names
        longest = table[:, :200].max(axis=0)
        values = {"duration": (longest + 2).tolist(), "exposed": (longest + 2 - row).tolist()}
        run.add_history(
            [HistoryFrame(run_id=RUN_ID, rank=rank, recent=columns(range(200), values), older=columns([], {}))]
        )
    publish(run, table, 200, 300, marks)
    (finding,) = (alert for alert in pauses(run) if isinstance(alert.measures, NamedPauseMeasures))
    seconds = float(table[:, 200:].max(axis=0).sum() + 200) / 1e3
    assert finding.cost_pct == pytest.approx(100 * 4.2 / seconds, rel=0.01)


def test_a_pause_of_all_names_nobody() -> None:
    marks = {rank: [mark(290, "eval", 800.0 + rank)] for rank in range(4)}
    (finding,) = pauses(job(work(), marks))
    assert finding.ranks == ()
    assert finding.measures == NamedPauseMeasures("eval", 4, 803.0, 803.0, 1, 290, steps_not_compared=False)


def test_steps_are_not_compared_where_most_hold_a_pause_of_one_rank() -> None:
    marks = {0: [mark(step, "log", 200.0) for step in range(200, 300, 2)]}
    (finding,) = pauses(job(work(), marks))
    assert finding.measures == NamedPauseMeasures("log", 1, 200.0, 10000.0, 50, 298, steps_not_compared=True)


def test_a_cheap_pause_long_ago_is_not_told_of() -> None:
    assert pauses(job(work(), {0: [mark(40, "save", 100.0)]})) == []
    assert pauses(job(work(), {0: [mark(280, "save", 100.0)]})) != []
    assert pauses(job(work(), {0: [mark(40, "save", 900.0)]})) != []


def test_repeated_frames_do_not_count_a_pause_twice() -> None:
    run = job(work(), {0: [mark(290, "save", 100.0), mark(290, "save", 50.0)]})
    publish(run, work(), 280, 300, {0: [mark(290, "save", 100.0), mark(290, "save", 50.0)]}, seq=2)
    (finding,) = pauses(run)
    assert isinstance(finding.measures, NamedPauseMeasures)
    assert (finding.measures.times, finding.measures.total_ms, finding.ranks) == (1, 150.0, (0,))


def test_pauses_on_record_are_bounded() -> None:
    run = Run(run_info(1))
    for first in range(0, 5000, 50):
        marks = {0: [mark(step, f"n{step % 50 * 2}", 1.0) for step in range(first, first + 50)]}
        publish(run, np.full((1, 5000), 100.0), first, first + 50, marks, seq=first + 1)
    assert len(run.marks.pauses) == 32
    assert max(map(len, run.marks.pauses.values())) <= 64


def test_an_unnamed_pause_names_the_rank_that_held_the_others_up() -> None:
    table = work()
    table[2, 280] += 2100
    (finding,) = pauses(job(table))
    assert (finding.kind, finding.severity, finding.ranks, finding.since_step) == ("pause", "info", (2,), 280)
    assert finding.phase == "other"
    assert isinstance(finding.measures, LongStepMeasures)
    assert (finding.measures.times, finding.measures.last_step) == (1, 280)
    assert finding.measures.last_ms == finding.measures.total_ms == pytest.approx(2100, abs=10)


def test_no_rank_holds_the_others_up_when_all_take_long() -> None:
    table = work()
    table[:, 280] += 2100
    assert pauses(job(table)) == []


def test_long_first_steps_and_named_pauses_are_not_unnamed_ones() -> None:
    table = work(steps=40)
    table[1, 5] += 9000
    assert pauses(job(table)) == []
    table = work()
    table[0, 280] += 2000
    found = pauses(job(table, {0: [mark(280, "save", 2000.0)]}))
    assert [finding.measures.name for finding in found if isinstance(finding.measures, NamedPauseMeasures)] == ["save"]
    assert len(found) == 1


def test_names_come_in_harmless() -> None:
    (finding,) = pauses(job(work(), {0: [mark(290, "\x1b[31msave\n" + "x" * 99, 100.0)]}))
    assert tell(finding).summary.isprintable()
    assert len(tell(finding).summary) < 200


def collected(gc: Floats, per_tick: int = 10) -> list[Alert]:
    """What the rule says at the end of a job that has these pauses in its work, [ranks, steps] ms."""
    table = work(*gc.shape) + gc
    run, rule = Run(run_info(len(table))), GcRule()
    found: list[Alert] = []
    for seq, first in enumerate(range(0, table.shape[1], per_tick), start=1):
        publish(run, table, first, min(table.shape[1], first + per_tick), {}, gc, seq)
        found = rule(tick(run, run.ages(0.0)), ())
    return found


def test_staggered_collections_cost_what_the_job_waits_for() -> None:
    gc = np.zeros((4, 400))
    for rank in range(4):
        gc[rank, 30 + 10 * rank :: 40] = 80.0
    for per_tick in (10, 400):
        (finding,) = collected(gc, per_tick)
        assert (finding.kind, finding.severity) == ("gc_pauses", "warning")
        assert set(finding.ranks) == {0, 1, 2, 3}
        assert finding.cost_pct is not None
        assert abs(finding.cost_pct - 100 * 80 * 37 / (380 * 103 + 37 * 80)) < 0.5
        assert isinstance(finding.measures, GcMeasures)
        assert (finding.measures.pauses, finding.measures.pause_ms) == (37, 80.0)
        assert finding.measures.every_steps == pytest.approx(finding.measures.steps / 37)


@pytest.mark.parametrize("steps", [510, 530, 900])  # the window of 500 begins with step 20, before the onset, behind it
def test_the_onset_of_collections_is_the_first_of_them_however_full_the_window_is(steps: int) -> None:
    gc = np.zeros((4, steps))
    gc[1, 150::3] = 80.0
    (finding,) = collected(gc)
    assert (finding.since_step, finding.since_is_bound) == (150, False)


def test_the_rank_that_collects_is_named_first_and_a_small_cost_is_information() -> None:
    gc = np.zeros((4, 400))
    gc[3, 30::80] = 90.0
    gc[1, 30::80] = 10.0
    (finding,) = collected(gc)
    assert (finding.severity, finding.ranks) == ("info", (3,))
    gc[3, 30::80] = 40.0
    assert collected(gc) == []


def test_collections_that_nobody_waits_for_cost_nothing() -> None:
    gc = np.zeros((4, 400))
    gc[3, 30::40] = 80.0
    table = work(4, 400)
    table[0] += 100
    run, rule = job(table + gc, gc=gc), GcRule()
    assert rule(tick(run, run.ages(0.0)), ()) == []


def test_two_collections_are_too_few_and_an_unknown_column_is_no_collection() -> None:
    gc = np.zeros((4, 100))
    gc[0, [40, 80]] = 500.0
    assert collected(gc) == []
    for unknown in (None, np.full((4, 300), np.nan)):
        run, rule = job(work(), gc=unknown), GcRule()
        assert rule(tick(run, run.ages(0.0)), ()) == []


def test_the_first_steps_and_named_phases_may_collect() -> None:
    gc = np.zeros((4, 60))
    gc[0, 2:20:4] = 500.0
    assert collected(gc) == []
    gc = np.zeros((4, 300))
    gc[0, 50::50] = 500.0
    table = work() + gc
    marks = {0: [mark(step, "save", 500.0) for step in range(50, 300, 50)]}
    for said, verdicts in ((marks, 0), ({}, 1)):
        run = job(table, said, gc)
        assert len(GcRule()(tick(run, run.ages(0.0)), ())) == verdicts


def test_rare_stalls_are_told_of_for_what_they_cost_together() -> None:
    table = work(8, 600)
    table[5, 60::50] += 400
    (finding,) = pauses(job(table))
    assert (finding.kind, finding.severity, finding.ranks, finding.since_step) == ("pause", "info", (5,), 60)
    assert isinstance(finding.measures, LongStepMeasures)
    assert finding.measures.times == 11
    assert finding.cost_pct is not None
    assert abs(finding.cost_pct - 100 * 11 * 400 / (600 * 103.4 + 11 * 400)) < 0.5


def test_stalls_are_not_told_of_that_are_cheap_or_many_or_made_by_the_collector() -> None:
    cheap, many, collected_ones = work(8, 600), work(8, 600), work(8, 600)
    cheap[5, 60::200] += 400
    many[5, 60::8] += 400
    collected_ones[5, 60::50] += 400
    gc = np.zeros((8, 600))
    gc[5, 60::50] = 400
    assert pauses(job(cheap)) == []
    assert pauses(job(many)) == []
    assert pauses(job(collected_ones, gc=gc)) == []
    assert pauses(job(collected_ones)) != []
