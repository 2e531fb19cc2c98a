"""Pauses: named, unnamed, and those of the garbage collector."""

from __future__ import annotations

import numpy as np

from ddpmon.diagnose.finding import Finding
from ddpmon.diagnose.pauses import GcRule, find_pauses
from ddpmon.run.model import Run
from ddpmon.schema import Mark
from tests.made_frames import Floats, columns, mark, rank_frame, run_info


def job(work: Floats, marks: dict[int, list[Mark]] | None = None, gc: Floats | None = None) -> Run:
    """A run whose ranks worked [ranks, steps] ms a step, and waited for the last."""
    run = Run(run_info(len(work)))
    tell(run, work, 0, work.shape[1], marks or {}, gc)
    return run


def tell(
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


def pauses(run: Run) -> list[Finding]:
    return find_pauses(run, run.ages(0.0))


def test_a_checkpoint_is_told_of_with_its_share_of_the_time() -> None:
    table = work()
    marks = {0: [mark(step, "checkpoint", 4200.0) for step in (50, 150, 250)]}
    table[0, [50, 150, 250]] += 4200
    (finding,) = pauses(job(table, marks))
    assert (finding.kind, finding.severity, finding.ranks) == ("pause", "info", (0,))
    assert finding.summary == "checkpoint on rank 0: 4.2 s at step 250 (3 times, 29 % of the run's time)"


def test_a_pause_of_all_names_nobody() -> None:
    marks = {rank: [mark(290, "eval", 800.0 + rank)] for rank in range(4)}
    (finding,) = pauses(job(work(), marks))
    assert finding.ranks == ()
    assert "eval on 4 ranks: 0.8 s at step 290 (1 time" in finding.summary


def test_a_cheap_pause_long_ago_is_not_told_of() -> None:
    assert pauses(job(work(), {0: [mark(40, "save", 100.0)]})) == []
    assert pauses(job(work(), {0: [mark(280, "save", 100.0)]})) != []
    assert pauses(job(work(), {0: [mark(40, "save", 900.0)]})) != []


def test_repeated_frames_do_not_count_a_pause_twice() -> None:
    run = job(work(), {0: [mark(290, "save", 100.0), mark(290, "save", 50.0)]})
    tell(run, work(), 280, 300, {0: [mark(290, "save", 100.0), mark(290, "save", 50.0)]}, seq=2)
    (finding,) = pauses(run)
    assert (finding.evidence["times"], finding.evidence["total_ms"], finding.ranks) == (1, 150.0, (0,))


def test_pauses_on_record_are_bounded() -> None:
    run = Run(run_info(1))
    for first in range(0, 5000, 50):
        marks = {0: [mark(step, f"n{step % 50 * 2}", 1.0) for step in range(first, first + 50)]}
        tell(run, np.full((1, 5000), 100.0), first, first + 50, marks, seq=first + 1)
    assert len(run.marks.pauses) == 32
    assert max(map(len, run.marks.pauses.values())) <= 64


def test_an_unnamed_pause_names_the_rank_that_held_the_others_up() -> None:
    table = work()
    table[2, 280] += 2100
    (finding,) = pauses(job(table))
    assert (finding.kind, finding.severity, finding.ranks, finding.since_step) == ("pause", "info", (2,), 280)
    assert finding.summary == "rank 2 held the others up for 2.1 s at step 280 (other)"


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
    assert [finding.summary.split()[0] for finding in found] == ["save"]


def test_names_come_in_harmless() -> None:
    (finding,) = pauses(job(work(), {0: [mark(290, "\x1b[31msave\n" + "x" * 99, 100.0)]}))
    assert finding.summary.isprintable()
    assert len(finding.summary) < 200


def collected(gc: Floats, per_tick: int = 10) -> list[Finding]:
    """What the rule says at the end of a job that has these pauses in its work, [ranks, steps] ms."""
    table = work(*gc.shape) + gc
    run, rule = Run(run_info(len(table))), GcRule()
    found: list[Finding] = []
    for seq, first in enumerate(range(0, table.shape[1], per_tick), start=1):
        tell(run, table, first, min(table.shape[1], first + per_tick), {}, gc, seq)
        found = rule.update(run, run.ages(0.0))
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
        assert "80 ms" in finding.summary
        assert "gc.freeze()" in finding.advice


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
    assert rule.update(run, run.ages(0.0)) == []


def test_two_collections_are_too_few_and_an_unknown_column_is_no_collection() -> None:
    gc = np.zeros((4, 100))
    gc[0, [40, 80]] = 500.0
    assert collected(gc) == []
    for unknown in (None, np.full((4, 300), np.nan)):
        run, rule = job(work(), gc=unknown), GcRule()
        assert rule.update(run, run.ages(0.0)) == []


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
        assert len(GcRule().update(run, run.ages(0.0))) == verdicts


def test_rare_stalls_are_told_of_for_what_they_cost_together() -> None:
    table = work(8, 600)
    table[5, 60::50] += 400
    (finding,) = pauses(job(table))
    assert (finding.kind, finding.severity, finding.ranks, finding.since_step) == ("pause", "info", (5,), 60)
    assert finding.evidence["times"] == 11
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
