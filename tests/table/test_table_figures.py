"""Figures that a table can be checked against by hand: onsets, costs, and what a sentence may claim."""

from __future__ import annotations

import numpy as np
import pytest

from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding
from tests.made_frames import Floats, MadeJob, healthy_phases, noisy
from tests.table.tables import judged, rows_of, text_of

PHASES = ("input", "forward", "backward", "optimizer")
ALL = ("duration", "work", "exposed", *PHASES)


def findings(job: MadeJob, names: tuple[str, ...] = ALL) -> list[Finding]:
    return [found for found in judged(text_of(rows_of(job, names))).findings if found.kind != "advice"]


def true_cost(job: MadeJob, without: dict[str, Floats], part: slice) -> float:
    """Percent of the job's time in these steps that it would save with the other phases."""
    better = np.sum(list(without.values()), axis=0)
    saved = (job.work.max(axis=0) - better.max(axis=0))[part].sum()
    return float(100 * saved / (job.work + job.wait)[0, part].sum())


@pytest.mark.parametrize("length", [25, 32, 33, 34, 43])
def test_a_fault_that_has_just_ended_keeps_its_onset_and_its_cost(length: int) -> None:
    phases = healthy_phases(4, 200)
    phases["backward"][3, 100 : 100 + length] += 35.0
    (finding,) = findings(MadeJob(phases))
    assert (finding.ranks, finding.phase, finding.since_step) == ((3,), "backward", 100)
    assert finding.severity == "critical"
    assert finding.cost_pct == pytest.approx(24, abs=5)


def test_two_that_take_turns_are_told_each_time_with_their_severity() -> None:
    phases = healthy_phases(4, 400)
    for start in range(100, 400, 20):
        phases["backward"][start // 20 % 2, start : start + 20] += 50.0
    found = findings(MadeJob(phases))
    assert {finding.severity for finding in found if finding.kind == "straggler"} == {"critical"}
    onsets = [(finding.ranks, finding.since_step) for finding in found]
    assert len(onsets) == len(set(onsets))


def test_ranks_that_count_from_one_are_all_there() -> None:
    job = MadeJob(healthy_phases(4, 300))
    job.wait[:, 150:] += 30.0
    verdict = judged(text_of(rows_of(job, ALL, numbers=[1, 2, 3, 4])))
    (finding,) = [one for one in verdict.findings if one.kind != "advice"]
    assert (finding.kind, finding.since_step) == ("slow_network", 150)


def test_steps_that_are_long_by_far_are_all_lateness() -> None:
    phases = healthy_phases(8, 300)
    healthy = {name: table.copy() for name, table in phases.items()}
    phases["forward"][2, 100:] += 15.0
    phases["forward"][2, 100::5] += 100.0
    job = MadeJob(phases)
    found = next(finding for finding in findings(job) if finding.kind == "straggler")
    assert found.cost_pct == pytest.approx(true_cost(job, healthy, slice(200, 300)), rel=0.15)


def test_the_latest_rank_of_a_slow_host_is_named_and_paid_for() -> None:
    phases = healthy_phases(8, 300)
    healthy = {name: table.copy() for name, table in phases.items()}
    phases["forward"][4:, 100:] += 20.0
    phases["forward"][5, 100:] += 40.0
    job = MadeJob(phases)
    rows = rows_of(job, ALL)
    table = [rows[0] + ",node", *(f"{row},host{int(row.split(',')[1]) // 4}" for row in rows[1:])]
    (finding,) = [one for one in judged(text_of(table)).findings if one.kind != "advice"]
    assert (finding.kind, finding.nodes) == ("slow_node", ("host1",))
    assert finding.evidence["excess_ms"] == pytest.approx(20, abs=3)
    assert finding.cost_pct == pytest.approx(true_cost(job, healthy, slice(200, 300)), rel=0.1)
    assert "Rank 5 is the latest of them, by 6" in finding.summary


def test_what_the_transfer_hides_is_not_lost() -> None:
    phases = healthy_phases(4, 300)
    phases["backward"][1, 100:] += 20.0
    job = MadeJob(phases, transfer_ms=60.0)
    job.wait[:, 100:] -= 17.0  # backward is longer by it, and so much more of the transfer is behind it
    (finding,) = [one for one in findings(job) if one.kind == "straggler"]
    assert (finding.ranks, finding.severity) == ((1,), "info")
    assert "hidden behind the transfer" in finding.summary
    assert finding.cost_pct == pytest.approx(2, abs=1)


def test_of_two_that_are_late_each_is_told_what_it_costs_as_long_as_the_other_is() -> None:
    phases = healthy_phases(8, 300)
    phases["backward"][1, 100:] += 60.0
    phases["input"][6, 100:] += 40.0
    first, second = findings(MadeJob(phases))
    assert (first.ranks, second.ranks) == ((1,), (6,))
    assert "rank 6 is late too." in first.summary
    assert "Fixing it alone saves nothing yet, because rank 1 is late too." in second.summary


def test_steps_that_wait_for_one_and_then_another_are_no_slower_job() -> None:
    phases = healthy_phases(8, 400)
    for start in range(100, 400, 10):
        phases["forward"][start // 10 % 8, start : start + 10] += 50.0
    found = next(finding for finding in findings(MadeJob(phases)) if finding.kind == "job_slower")
    assert "most of it is waiting" in found.summary
    assert "what all ranks share" not in advice_text(found.advice)


def test_without_phases_no_phase_is_claimed() -> None:
    phases = healthy_phases(4, 200)
    phases["forward"][1, 100:] += 30.0
    (finding,) = findings(MadeJob(phases), ("duration", "exposed"))
    assert (finding.ranks, finding.phase) == ((1,), "work")
    assert "do not show which one" in advice_text(finding.advice)


def test_micro_batches_of_which_the_last_one_waits_are_waits() -> None:
    rows, total = ["step,rank,work_ms,exposed_ms"], noisy(4, 100, 100.0, 0.02, 1)
    total[1, 40:] += 40.0
    for step in range(100):
        wait = total[:, step].max() - total[:, step]
        for part in range(4):
            for rank in range(4):
                rows.append(f"{4 * step + part},{rank},{total[rank, step] / 4:.3f},{wait[rank] * (part == 3):.3f}")
    (finding,) = judged(text_of(rows)).findings
    assert (finding.kind, finding.ranks, finding.since_step) == ("straggler", (1,), 160)
    assert finding.severity in ("warning", "critical")


def test_a_loss_that_is_logged_now_and_then_is_not_nan() -> None:
    rows = rows_of(MadeJob(healthy_phases(2, 200)), ("duration", "exposed"))
    sparse = [row + ("," + ("2.5" if int(row.split(",")[0]) % 10 == 0 else "nan")) for row in rows[1:]]
    assert judged(text_of([rows[0] + ",loss", *sparse])).findings == ()
    broken = [row + ("," + ("2.5" if int(row.split(",")[0]) < 100 else "nan")) for row in rows[1:]]
    assert {one.kind for one in judged(text_of([rows[0] + ",loss", *broken])).findings} == {"nonfinite_loss"}


def test_figures_that_cannot_be_are_left_out_and_counted() -> None:
    rows = rows_of(MadeJob(healthy_phases(4, 200)), ("duration", "exposed"))
    zeros = [row if int(row.split(",")[0]) < 150 else f"{','.join(row.split(',')[:2])},0,0" for row in rows[1:]]
    verdict = judged(text_of([rows[0], *zeros]))
    assert any(note.startswith("left out: 200 rows with impossible numbers") for note in verdict.notes)
    assert verdict.steps == 150


@pytest.mark.parametrize(("times", "asked"), [(1.0, False), (0.001, True)])
def test_seconds_are_asked_about(times: float, asked: bool) -> None:
    phases = {name: times * table for name, table in healthy_phases(4, 100).items()}
    verdict = judged(text_of(rows_of(MadeJob(phases, times * 2.0), ("duration", "exposed"))))
    assert any("are these durations in seconds?" in note for note in verdict.notes) == asked
