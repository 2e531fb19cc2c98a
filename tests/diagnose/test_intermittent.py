"""Rule B on made jobs: who costs the job now and then; and what chance may look like."""

from __future__ import annotations

import numpy as np
import pytest

from ddpmon.snapshot import Finding
from tests.made_frames import Floats, MadeJob, healthy_phases, open_findings, play

ONSET = 100


def hit_at(phases: dict[str, Floats], rank: int, steps: slice, extra_ms: float, phase: str = "forward") -> None:
    phases[phase][rank, steps] += extra_ms


def last_open(phases: dict[str, Floats]) -> list[Finding]:
    return open_findings(play(MadeJob(phases))[-1])


@pytest.mark.parametrize("ranks", [2, 4, 16])
@pytest.mark.parametrize("phase", ["input", "backward"])
def test_every_fifth_step_twice_as_long_is_named(ranks: int, phase: str) -> None:
    phases = healthy_phases(ranks, 300)
    hit_at(phases, 1, slice(ONSET, None, 5), 100.0, phase)
    (finding,) = last_open(phases)
    assert (finding.kind, finding.ranks, finding.phase) == ("intermittent_straggler", (1,), phase)
    assert finding.since_step == ONSET
    assert "in one step of 5" in finding.summary
    assert finding.cost_pct == pytest.approx(100 * 20 / (102 + 20), abs=2.0)
    assert finding.severity == "warning"


def test_a_rare_but_dear_one_is_found_over_a_longer_window() -> None:
    phases = healthy_phases(8, 500)
    hit_at(phases, 5, slice(ONSET, None, 20), 400.0)
    (finding,) = last_open(phases)
    assert (finding.kind, finding.ranks, finding.since_step) == ("intermittent_straggler", (5,), ONSET)
    assert finding.cost_pct == pytest.approx(100 * 20 / (102 + 20), abs=2.0)


def test_the_onset_stands_when_its_step_has_left_the_record() -> None:
    phases = healthy_phases(4, 2400)  # a record holds 2,048 steps
    hit_at(phases, 1, slice(ONSET, None, 5), 100.0)
    (finding,) = last_open(phases)
    assert (finding.since_step, finding.since_is_bound) == (ONSET, False)


@pytest.mark.parametrize(("first", "is_bound"), [(ONSET - 25, False), (ONSET - 10, True)])
def test_a_watcher_that_comes_late_says_before_only_where_a_late_step_may_be_missing(
    first: int, is_bound: bool
) -> None:
    phases = healthy_phases(4, 300)
    hit_at(phases, 1, slice(ONSET, None, 3), 100.0)
    (finding,) = open_findings(play(MadeJob(phases), begins_at=first)[-1])
    assert (finding.since_step, finding.since_is_bound) == (ONSET, is_bound)
    assert ("before step" in finding.summary) is is_bound


def test_it_is_cleared_when_nothing_has_been_seen_for_four_gaps() -> None:
    phases = healthy_phases(4, 400)
    hit_at(phases, 1, slice(ONSET, 250, 5), 100.0)
    (finding,) = play(MadeJob(phases))[-1]
    assert finding.kind == "intermittent_straggler"
    assert finding.cleared_at_step == 246


def test_a_rank_that_is_late_at_every_step_is_no_intermittent_one() -> None:
    phases = healthy_phases(4, 300)
    hit_at(phases, 1, slice(ONSET, None), 40.0)
    hit_at(phases, 1, slice(ONSET, None, 5), 100.0)
    assert [finding.kind for finding in last_open(phases)] == ["straggler"]


def test_slow_steps_that_fall_on_anybody_name_nobody() -> None:
    phases = healthy_phases(4, 500)
    for step in range(ONSET, 500, 5):
        phases["forward"][(step // 5) % 4, step] += 100.0
    for findings in play(MadeJob(phases)):
        assert [finding for finding in findings if finding.ranks] == []


def test_a_few_slow_steps_are_not_enough() -> None:
    phases = healthy_phases(16, 300)
    hit_at(phases, 1, slice(ONSET, ONSET + 20, 4), 500.0)
    said = [finding for findings in play(MadeJob(phases)) for finding in findings]
    assert {(finding.kind, finding.severity, finding.ranks) for finding in said} == {("pause", "info", (1,))}


def test_of_two_ranks_the_quick_one_is_not_the_others_fault() -> None:
    phases = healthy_phases(2, 400)
    for table in phases.values():
        table[0, ONSET::5] *= 0.5  # rank 0 has an easy step now and then: rank 1 is as it always was
    for findings in play(MadeJob(phases)):
        assert [finding for finding in findings if 1 in finding.ranks] == []


def test_what_nobody_waits_for_is_not_blamed() -> None:
    phases = healthy_phases(4, 300)
    hit_at(phases, 1, slice(ONSET, None, 5), 100.0)
    job = MadeJob(phases)
    job.wait[:] = 10.0
    found = open_findings(play(job)[-1])
    assert [finding.ranks for finding in found if finding.severity != "info"] == []


def test_garbage_collection_is_the_cause_where_it_holds_the_excess() -> None:
    phases = healthy_phases(4, 300)
    hit_at(phases, 1, slice(ONSET, None, 5), 100.0)
    job = MadeJob(phases)
    job.gc = np.zeros((4, 300))
    job.gc[1, ONSET::5] = 95.0
    causes = [finding.cause for finding in open_findings(play(job)[-1]) if finding.kind == "intermittent_straggler"]
    assert [cause and cause.startswith("garbage collection") for cause in causes] == [True]


@pytest.mark.parametrize("ranks", [4, 8, 64])
def test_two_ranks_that_come_and_go_each_in_steps_of_its_own_are_both_named(ranks: int) -> None:
    phases = healthy_phases(ranks, 400)
    hit_at(phases, 1, slice(ONSET, None, 5), 100.0)
    hit_at(phases, 3, slice(ONSET + 2, None, 5), 100.0)
    found = last_open(phases)
    assert {finding.kind for finding in found} == {"intermittent_straggler"}
    assert sorted(rank for finding in found for rank in finding.ranks) == [1, 3]
    assert all(finding.cost_pct == pytest.approx(100 * 20 / (102 + 40), abs=2.0) for finding in found)


@pytest.mark.parametrize("ranks", [4, 8, 64])
def test_two_ranks_that_come_and_go_in_the_same_steps_are_named_together(ranks: int) -> None:
    phases = healthy_phases(ranks, 400)
    for rank in (1, 3):
        hit_at(phases, rank, slice(ONSET, None, 5), 100.0, "input")
    (finding,) = last_open(phases)
    assert (finding.kind, finding.ranks, finding.phase) == ("intermittent_straggler", (1, 3), "input")
    assert finding.since_step == ONSET
    assert "ranks 1, 3 are late together" in finding.summary
    assert "in one step of 5" in finding.summary
    assert finding.cost_pct == pytest.approx(100 * 20 / (102 + 20), abs=2.0)


def test_a_host_that_something_disturbs_now_and_then_is_named() -> None:
    phases, hosts = healthy_phases(8, 400), ["a", "a", "b", "b", "c", "c", "d", "d"]
    for rank in (4, 5):
        hit_at(phases, rank, slice(ONSET, 300, 10), 200.0)
    said = play(MadeJob(phases), hosts=hosts)
    (finding,) = open_findings(said[29])
    assert (finding.kind, finding.ranks, finding.nodes) == ("slow_node", (4, 5), ("c",))
    assert finding.cost_pct == pytest.approx(100 * 20 / (102 + 20), abs=2.0)
    assert [(f.kind, f.cleared_at_step) for f in said[-1]] == [("slow_node", 291)]


@pytest.mark.parametrize("ranks", [4, 16])
def test_long_steps_of_some_ranks_that_are_others_each_time_name_nobody(ranks: int) -> None:
    phases, random = healthy_phases(ranks, 600), np.random.default_rng(ranks)
    for step in range(ONSET, 600, 4):
        phases["forward"][random.permutation(ranks)[: ranks // 4 + 1], step] += 100.0
    for findings in play(MadeJob(phases)):
        assert [finding for finding in findings if finding.ranks] == []
