"""Verdicts over tables: those of a live run, whatever the table lacks; and nothing made up where rows are missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ddpmon.diagnose.alert import at_or_above
from ddpmon.run.model import Run
from ddpmon.snapshot import Finding
from ddpmon.table.verdict import TableVerdict
from tests.live import TINY, live_run, step_of, watch_until
from tests.made_frames import MadeJob, healthy_phases, open_findings, play
from tests.table.tables import judged, rows_of, slow, text_of, write_table

PHASES = ("input", "forward", "backward", "optimizer")
ALL = ("duration", "work", "exposed", *PHASES)


def named(findings: tuple[Finding, ...] | list[Finding]) -> set[tuple[str, tuple[int, ...], str | None, int | None]]:
    return {(found.kind, found.ranks, found.phase, found.since_step) for found in findings}


def the_slow_rank(verdict: TableVerdict) -> Finding:
    """The one finding; it names rank 2."""
    (finding,) = verdict.findings
    assert (finding.kind, finding.ranks) == ("straggler", (2,))
    assert finding.severity == "critical"
    return finding


def of_ranks(findings: tuple[Finding, ...]) -> list[Finding]:
    """The lasting warnings that name ranks for their work; other jobs on the machine slow all, and are contention."""
    kinds = ("straggler", "intermittent_straggler", "slow_node")
    return [one for one in open_findings(findings) if one.kind in kinds and at_or_above(one.severity, "warning")]


@pytest.mark.live
def test_a_table_of_a_real_run_gives_the_findings_of_that_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fault = "--fault=backward:rank=2,ms=150,from=60"
    with live_run(monkeypatch, tmp_path, 4, "--steps=2000", fault, *TINY) as (run, observer):
        last = watch_until(observer, lambda s: step_of(s) >= 170, deadline_s=240, log=run.log)
        live = of_ranks(last.findings)
        watched = observer.run
    assert isinstance(watched, Run)
    write_table(watched, tmp_path / "table.csv")
    verdict = judged((tmp_path / "table.csv").read_bytes())
    found = of_ranks(verdict.findings)
    assert [(one.kind, one.ranks, one.nodes, one.phase) for one in found] == [
        (one.kind, one.ranks, one.nodes, one.phase) for one in live
    ]
    assert ("straggler", (2,), "backward") in [(one.kind, one.ranks, one.phase) for one in found]
    for one, other in zip(found, live, strict=True):
        assert abs((one.since_step or 0) - (other.since_step or 0)) <= 5
        assert one.cost_pct == pytest.approx(other.cost_pct, rel=0.2)


@pytest.mark.parametrize("phase", PHASES)
def test_it_says_what_the_live_watcher_says(phase: str) -> None:
    job = slow(phase)
    live = open_findings(play(job, steps_per_tick=20)[-1])
    found = judged(text_of(rows_of(job, ALL))).findings
    assert named(found) == named(live) != set()
    assert found[0].phase == phase


@pytest.mark.parametrize(
    "names", [("duration", "exposed"), ("duration", "work"), ("work", "exposed"), ("work",), ("work", "backward")]
)
def test_two_of_three_durations_are_enough_and_so_is_work_alone(names: tuple[str, ...]) -> None:
    job = slow()
    verdict = judged(text_of(rows_of(job, names)))
    finding = the_slow_rank(verdict)
    assert finding.since_step == 60
    assert finding.phase == ("backward" if "backward" in names else "work"), "phases that are not given are not known"
    derived = [note for note in verdict.notes if "derived" in note]
    assert bool(derived) == (names[0] == "work" and "exposed" not in names)


def test_the_host_is_named_where_the_table_has_it_and_left_out_where_not() -> None:
    rows = rows_of(slow())
    assert the_slow_rank(judged(text_of(rows))).nodes == ()
    assert the_slow_rank(judged(text_of(rows))).summary.startswith("rank 2 is late by")
    with_node = [row + (",node" if at == 0 else f",host{at % 2}") for at, row in enumerate(rows)]
    assert the_slow_rank(judged(text_of(with_node))).nodes == ("host1",)
    half = [row + (",node" if at == 0 else ",here" if row.split(",")[1] == "2" else ",") for at, row in enumerate(rows)]
    verdict = judged(text_of(half))
    assert the_slow_rank(verdict).nodes == ()
    assert any("column node lacks 3 of 4 ranks" in note for note in verdict.notes)


def test_a_slow_transfer_is_a_networks_unless_all_ranks_are_on_one_node() -> None:
    job = MadeJob(healthy_phases(4, 300), transfer_ms=10.0)
    job.wait[:, 100:] += 40.0
    rows = rows_of(job)
    on_one = [row + (",node" if at == 0 else ",a") for at, row in enumerate(rows)]
    for table, words in ((rows, "the network is slow, and durations do not show which link"), (on_one, "one host")):
        (finding,) = open_findings(judged(text_of(table)).findings)
        assert finding.kind == "slow_network"
        assert words in finding.summary


def test_a_trouble_that_was_over_is_kept_with_its_steps_and_its_worst() -> None:
    verdict = judged(text_of(rows_of(slow(since=60, until=110, steps=400), ALL)))
    (finding,) = verdict.findings
    assert (finding.ranks, finding.phase, finding.since_step) == ((2,), "backward", 60)
    assert finding.severity == "critical"
    assert finding.cleared_at_step is not None
    assert abs(finding.cleared_at_step - 110) <= 3


def test_twenty_troubles_one_after_the_other_are_all_kept() -> None:
    phases = healthy_phases(4, 2050)
    for start in range(50, 2050, 100):
        phases["input"][start // 100 % 4, start : start + 50] += 60.0
    found = judged(text_of(rows_of(MadeJob(phases), ALL))).findings
    stragglers = [one for one in found if one.kind == "straggler"]
    assert [one.ranks for one in stragglers] == [(start // 100 % 4,) for start in range(50, 2050, 100)]


def test_a_trouble_that_ends_with_its_ranks_rows_is_kept() -> None:
    rows = rows_of(slow(ranks=4, steps=300), ALL)
    short = [row for row in rows if not (row.split(",")[1] == "2" and int(row.split(",")[0]) >= 160)]
    verdict = judged(text_of(short))
    (finding,) = verdict.findings
    assert (finding.kind, finding.ranks, finding.since_step) == ("straggler", (2,), 60)
    assert finding.cleared_at_step is not None
    assert "rank 2 has rows from step 0 to step 159 only" in verdict.notes


@pytest.mark.parametrize("numbers", [[3, 7, 12, 13], [0, 1, 2, 40]])
def test_ranks_without_rows_are_missing_and_nobody_is_lost(numbers: list[int]) -> None:
    calm = judged(text_of(rows_of(MadeJob(healthy_phases(4, 200)), ALL, numbers=numbers)))
    assert calm.findings == ()
    assert calm.ranks == 4
    assert any(note.startswith("no rows of rank") for note in calm.notes)
    (finding,) = judged(text_of(rows_of(slow(), ALL, numbers=numbers))).findings
    assert finding.ranks == (numbers[2],)


def test_rows_that_are_missing_are_no_trouble_of_anybody() -> None:
    random = np.random.default_rng(1)
    heading, *rows = rows_of(MadeJob(healthy_phases(4, 400)), ALL)
    kept = [row for row in rows if random.random() > 0.1]
    verdict = judged(text_of([heading, *kept]))
    assert verdict.findings == ()
    assert verdict.enough
    assert any("steps lack rows of a rank" in note for note in verdict.notes)
    heading, *rows = rows_of(slow(steps=400), ALL)
    kept = [row for row in rows if random.random() > 0.1]
    assert abs((the_slow_rank(judged(text_of([heading, *kept]))).since_step or 0) - 60) <= 3


@pytest.mark.parametrize("gap", [(100, 200), (70, 160)])
def test_a_rank_without_rows_for_a_while_does_not_hold_the_others_up(gap: tuple[int, int]) -> None:
    rows = rows_of(slow(steps=300), ALL)
    cut = [row for row in rows[1:] if not (row.split(",")[1] == "0" and gap[0] <= int(row.split(",")[0]) < gap[1])]
    finding = the_slow_rank(judged(text_of([rows[0], *cut])))
    assert (finding.since_step, finding.cleared_at_step) == (60, None)


def test_a_rank_with_a_row_now_and_then_is_left_out() -> None:
    rows = rows_of(slow(steps=300), ALL)
    cut = [row for row in rows[1:] if not (row.split(",")[1] == "3" and int(row.split(",")[0]) % 10)]
    verdict = judged(text_of([rows[0], *cut]))
    assert the_slow_rank(verdict).since_step == 60
    assert any("rank 3, with rows at fewer than half of the steps" in note for note in verdict.notes)


def test_a_table_from_the_middle_of_a_run_is_judged_from_its_first_row() -> None:
    job = slow(since=30, steps=120)
    verdict = judged(text_of(rows_of(job, ALL, first=100_000)))
    assert the_slow_rank(verdict).since_step == 100_030
    assert any("begins at step 100,000" in note for note in verdict.notes)


def test_the_warm_up_is_not_judged() -> None:
    phases = healthy_phases(4, 60)
    phases["forward"][1, :20] += 400.0
    assert judged(text_of(rows_of(MadeJob(phases), ALL))).findings == ()
    assert judged(text_of(rows_of(MadeJob(phases), ALL, first=500))).findings, "elsewhere it would be called late"


def test_steps_of_an_evaluation_are_not_compared() -> None:
    phases = healthy_phases(4, 200)
    phases["other"][0, 30:] += 300.0
    rows = rows_of(MadeJob(phases), ALL)
    marked = [row + (",marked_ms" if not at else ",300" if (at - 1) // 4 >= 30 else ",") for at, row in enumerate(rows)]
    assert judged(text_of(marked)).findings == ()
    assert judged(text_of(rows)).findings


def test_a_sparse_log_is_judged_and_one_too_sparse_says_so() -> None:
    rows = rows_of(slow(steps=200), ALL)
    tenth = [rows[0], *(f"{10 * int(row.split(',', 1)[0])},{row.split(',', 1)[1]}" for row in rows[1:])]
    assert the_slow_rank(judged(text_of(tenth))).since_step == 600
    far = [rows[0], *(f"{1000 * int(row.split(',', 1)[0])},{row.split(',', 1)[1]}" for row in rows[1:])]
    verdict = judged(text_of(far))
    assert (verdict.findings, verdict.enough) == ((), False)
    assert any("1,000 steps apart" in note for note in verdict.notes)


@pytest.mark.parametrize(("ranks", "steps", "words"), [(4, 30, "not enough evidence"), (1, 200, "one rank")])
def test_too_little_is_said_to_be_too_little(ranks: int, steps: int, words: str) -> None:
    verdict = judged(text_of(rows_of(MadeJob(healthy_phases(ranks, steps)), ALL)))
    assert (verdict.findings, verdict.enough) == ((), False)
    assert any(words in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("steps", "words"), [(21, "1 step after the first 20 has rows"), (23, "3 steps after the first 20 have rows")]
)
def test_the_steps_that_can_be_compared_are_counted(steps: int, words: str) -> None:
    verdict = judged(text_of(rows_of(MadeJob(healthy_phases(4, steps)), ALL)))
    assert any(f"not enough evidence: {words} of all ranks" in note for note in verdict.notes)


def test_a_step_number_far_ahead_harms_nothing() -> None:
    rows = rows_of(slow(), ALL)
    verdict = judged(text_of([*rows, f"{1 << 48},0,100,90,10,5,30,55,0", "99999999999999999,1,1,1,1,1,1,1,1"]))
    assert the_slow_rank(verdict).since_step == 60
    assert verdict.refused == 1
