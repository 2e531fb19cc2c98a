"""Whole hosts, uneven work, and ranks that are given more to do."""

from __future__ import annotations

import numpy as np
import pytest

from tests.made_frames import MadeJob, healthy_phases, open_findings, play, play_hosts

ONSET = 100


def two_hosts(ranks: int) -> list[str]:
    return ["left" if rank < ranks // 2 else "right" for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [4, 16])
def test_a_late_host_is_one_finding_not_many(ranks: int) -> None:
    phases = healthy_phases(ranks, 300)
    phases["forward"][ranks // 2 :, ONSET:] += 30.0
    (finding,) = open_findings(play(MadeJob(phases), hosts=two_hosts(ranks))[-1])
    assert (finding.kind, finding.nodes, finding.phase) == ("slow_node", ("right",), "forward")
    assert finding.ranks == tuple(range(ranks // 2, ranks))
    assert finding.since_step is not None
    assert abs(finding.since_step - ONSET) <= 3
    assert finding.cost_pct == pytest.approx(100 * 30 / 132, abs=2.5)


def test_one_late_rank_of_a_host_is_not_the_host() -> None:
    phases = healthy_phases(4, 300)
    phases["forward"][3, ONSET:] += 60.0
    found = open_findings(play(MadeJob(phases), hosts=two_hosts(4))[-1])
    assert [(finding.kind, finding.ranks) for finding in found] == [("straggler", (3,))]


def test_one_rank_that_is_late_by_far_more_than_its_neighbour_is_not_the_host() -> None:
    phases = healthy_phases(4, 300)
    phases["forward"][2, ONSET:] += 8.0
    phases["forward"][3, ONSET:] += 60.0
    found = open_findings(play(MadeJob(phases), hosts=two_hosts(4))[-1])
    assert [(finding.kind, finding.ranks) for finding in found if finding.severity != "info"] == [("straggler", (3,))]
    assert "slow_node" not in [finding.kind for finding in found]


def test_a_late_host_of_which_one_rank_stays_late_is_that_rank() -> None:
    phases = healthy_phases(4, 300)
    phases["forward"][2, ONSET:180] += 60.0
    phases["forward"][3, ONSET:] += 60.0
    ticks = play(MadeJob(phases), hosts=two_hosts(4))
    assert any([finding.kind for finding in open_findings(tick)] == ["slow_node"] for tick in ticks)
    assert [(finding.kind, finding.ranks) for finding in open_findings(ticks[-1])] == [("straggler", (3,))]
    assert "slow_node" in [finding.kind for finding in ticks[-1] if finding.cleared_at_step is not None]


def test_a_late_host_is_one_although_one_of_its_many_ranks_is_late_by_less() -> None:
    phases = healthy_phases(16, 260)
    phases["forward"][8:, ONSET:] += 30.0
    phases["forward"][11, ONSET:] -= 22.0
    (finding,) = open_findings(play(MadeJob(phases), hosts=two_hosts(16))[-1])
    assert (finding.kind, finding.nodes, finding.ranks) == ("slow_node", ("right",), tuple(range(8, 16)))


def test_with_a_rank_a_host_it_is_the_rank() -> None:
    phases = healthy_phases(4, 300)
    phases["forward"][3, ONSET:] += 60.0
    found = open_findings(play(MadeJob(phases), hosts=["a", "b", "c", "d"])[-1])
    assert [(finding.kind, finding.ranks, finding.nodes) for finding in found] == [("straggler", (3,), ("d",))]


def test_a_late_host_that_recovers_is_cleared() -> None:
    phases = healthy_phases(4, 300)
    phases["forward"][2:, ONSET:180] += 30.0
    said = play(MadeJob(phases), hosts=two_hosts(4))[-1]
    (over,) = (finding for finding in said if finding.kind == "slow_node")
    assert abs((over.cleared_at_step or 0) - 180) <= 3


def test_uneven_work_names_nobody_and_says_what_it_costs() -> None:
    random = np.random.default_rng(5)
    phases = healthy_phases(8, 300)
    for phase in ("forward", "backward"):
        phases[phase] *= random.lognormal(0, 0.3, phases[phase].shape)
    job = MadeJob(phases)
    (finding,) = open_findings(play(job)[-1])
    assert (finding.kind, finding.ranks, finding.severity) == ("uneven_work", (), "info")
    part = job.work[:, -50:]
    cost = 100 * (part.max(axis=0) - part.mean(axis=0)).sum() / (part + job.wait[:, -50:])[0].sum()
    assert finding.cost_pct == pytest.approx(cost, rel=0.05)


def test_uneven_work_is_over_from_about_where_it_is_even_again() -> None:
    random = np.random.default_rng(5)
    phases = healthy_phases(8, 500)
    phases["forward"][:, :250] *= random.lognormal(0, 0.8, (8, 250))
    (over,) = (finding for finding in play(MadeJob(phases))[-1] if finding.kind == "uneven_work")
    assert abs((over.cleared_at_step or 0) - 250) <= 20


def test_even_work_is_not_uneven() -> None:
    assert all(findings == () for findings in play(MadeJob(healthy_phases(8, 300, cv=0.05))))


def test_a_rank_with_more_samples_is_late_by_design() -> None:
    phases = healthy_phases(4, 300)
    for phase in ("forward", "backward"):
        phases[phase][2] *= 1.5
    job = MadeJob(phases)
    job.samples[2] = 12.0
    (finding,) = open_findings(play(job)[-1])
    assert (finding.kind, finding.ranks, finding.severity) == ("uneven_work", (2,), "info")
    assert "1.50 times the samples" in finding.summary
    job.samples[2] = 8.0
    assert [finding.kind for finding in open_findings(play(job)[-1])] == ["straggler"]


def test_a_straggler_that_moves_is_handed_over() -> None:
    phases = healthy_phases(4, 400)
    phases["backward"][1, ONSET:200] += 40.0
    phases["backward"][3, 200:] += 40.0
    last = play(MadeJob(phases))[-1]
    (finding,) = open_findings(last)
    assert finding.ranks == (3,)
    assert abs((finding.since_step or 0) - 200) <= 3
    assert [(old.ranks, abs((old.since_step or 0) - ONSET) <= 3) for old in last if old.cleared_at_step] == [
        ((1,), True)
    ]


def test_hosts_of_one_name_are_told_apart_by_their_node() -> None:
    phases = healthy_phases(4, 300)
    phases["forward"][2:, ONSET:] += 30.0
    said = play_hosts(MadeJob(phases), nodes=[0, 0, 1, 1], frame=lambda _tick, _rank: {"host": "container"})
    (finding,) = open_findings(said[-1])
    assert (finding.kind, finding.ranks, finding.nodes) == ("slow_node", (2, 3), ("container",))
