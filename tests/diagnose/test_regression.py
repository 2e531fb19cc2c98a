"""The job against its own past: slower as a whole, slower on the network, and neither."""

from __future__ import annotations

import numpy as np
import pytest

from tests.made_frames import Floats, MadeJob, healthy_phases, noisy, open_findings, play

ONSET = 150


def all_slower(factor: float, ranks: int = 4, steps: int = 320) -> dict[str, Floats]:
    phases = healthy_phases(ranks, steps)
    for table in phases.values():
        table[:, ONSET:] *= factor
    return phases


@pytest.mark.parametrize("ranks", [1, 2, 4, 16])
def test_a_job_that_slows_as_a_whole_is_said_with_onset_and_cost(ranks: int) -> None:
    (finding,) = open_findings(play(MadeJob(all_slower(1.3, ranks)))[-1])
    assert (finding.kind, finding.ranks, finding.severity) == ("job_slower", (), "critical")
    assert finding.since_step is not None
    assert abs(finding.since_step - ONSET) <= 3
    assert finding.cost_pct == pytest.approx(100 * 30 / 132, abs=2.5)


@pytest.mark.parametrize("seed", range(3))
def test_a_rank_that_is_about_to_be_named_does_not_make_the_job_slower(seed: int) -> None:
    """A second before the straggler was named it was said that a different rank is late from step to step."""
    phases = {name: 0.3 * table for name, table in healthy_phases(2, ONSET + 40, 0.08, seed).items()}
    phases["backward"][1, ONSET:] += 60.0
    ticks = [open_findings(tick) for tick in play(MadeJob(phases), steps_per_tick=1)]
    assert {finding.kind for tick in ticks for finding in tick} == {"straggler"}
    assert ticks[-1][0].ranks == (1,)


def test_slow_seconds_are_information() -> None:
    short = {name: 0.2 * table for name, table in all_slower(1.3, 4).items()}
    (finding,) = open_findings(play(MadeJob(short))[-1])
    assert (finding.kind, finding.severity) == ("job_slower", "info")


@pytest.mark.parametrize(("steps", "severity"), [(320, "info"), (520, "warning")])
def test_a_little_slower_is_worth_a_warning_once_it_has_lasted(steps: int, severity: str) -> None:
    (finding,) = open_findings(play(MadeJob(all_slower(1.12, 4, steps)))[-1])
    assert (finding.kind, finding.severity) == ("job_slower", severity)


def test_it_names_the_phase_that_grew_on_all() -> None:
    phases = healthy_phases(4, 320)
    phases["input"][:, ONSET:] += 40.0
    (finding,) = open_findings(play(MadeJob(phases))[-1])
    assert (finding.kind, finding.phase) == ("job_slower", "input")


def test_five_percent_are_within_the_noise() -> None:
    assert all(findings == () for findings in play(MadeJob(all_slower(1.05))))


@pytest.mark.parametrize("extra_ms", [15.0, 40.0])
@pytest.mark.parametrize("end", [190, 220, 400])
def test_it_is_cleared_when_the_job_is_back_at_its_pace(end: int, extra_ms: float) -> None:
    phases = healthy_phases(4, 600)
    phases["forward"][:, ONSET:end] += extra_ms
    finding = play(MadeJob(phases))[-1][0]
    assert finding.kind == "job_slower"
    assert abs((finding.cleared_at_step or 0) - end) <= 3


def test_a_second_slowness_has_an_onset_of_its_own() -> None:
    phases = healthy_phases(4, 1000)
    phases["forward"][:, ONSET:400] += 40.0
    phases["forward"][:, 800:830] += 40.0
    said = play(MadeJob(phases))
    (again,) = open_findings(said[82])
    assert (again.kind, again.severity) == ("job_slower", "info")  # three seconds of it: not the first one's minutes
    assert abs((again.since_step or 0) - 800) <= 3


def test_a_drift_below_the_threshold_is_not_the_onset_of_what_follows() -> None:
    phases = healthy_phases(4, 700)
    phases["forward"][:, 200:] += 3.0
    phases["forward"][:, 600:] += 40.0
    (finding,) = open_findings(play(MadeJob(phases))[-1])
    assert (finding.kind, abs((finding.since_step or 0) - 600) <= 3) == ("job_slower", True)


def test_a_job_that_a_straggler_slows_is_not_slow_as_a_whole() -> None:
    phases = healthy_phases(4, 320)
    phases["forward"][2, ONSET:] += 60.0
    for findings in play(MadeJob(phases)):
        assert {finding.kind for finding in findings} <= {"straggler"}


@pytest.mark.parametrize(("ranks", "seed"), [(2, 2), (3, 4), (3, 5)])
def test_a_straggler_among_noisy_ranks_does_not_make_the_others_slow(ranks: int, seed: int) -> None:
    """The typical one of a few noisy ranks is a faster one as long as it is not the same one in every step."""
    phases = {"forward": noisy(ranks, 320, 60.0, 0.25, seed), "input": np.zeros((ranks, 320))}
    phases["input"][-1, ONSET:] += 150.0
    kinds = {finding.kind for findings in play(MadeJob(phases)) for finding in findings}
    assert "straggler" in kinds
    assert "job_slower" not in kinds


def test_a_straggler_in_a_job_that_slows_as_a_whole_leaves_both() -> None:
    phases = all_slower(1.4, 8)
    phases["input"][5, 60:] += 40.0
    found = {finding.kind: finding for finding in open_findings(play(MadeJob(phases))[-1])}
    assert [*found] == ["straggler", "job_slower"], "as severe, and less dear: but it says who"
    assert found["straggler"].severity == found["job_slower"].severity
    assert abs((found["job_slower"].since_step or 0) - ONSET) <= 3
    assert abs((found["straggler"].since_step or 0) - 60) <= 3


def test_larger_batches_are_no_slowness() -> None:
    phases = all_slower(1.5)
    job = MadeJob(phases)
    job.samples[:, ONSET:] *= 1.5
    assert all(findings == () for findings in play(job))
    job.samples[:] = 8.0
    assert [finding.kind for finding in open_findings(play(job)[-1])] == ["job_slower"]


def test_a_slow_network_is_said_of_all_ranks_alike() -> None:
    job = MadeJob(healthy_phases(4, 320), transfer_ms=10.0)
    job.wait += noisy(1, 320, 2.0, 0.2, 3)
    job.wait[:, ONSET:] += 25.0
    (finding,) = open_findings(play(job, hosts=["a", "a", "b", "b"])[-1])
    assert (finding.kind, finding.ranks, finding.phase) == ("slow_network", (), None)
    assert finding.since_step is not None
    assert abs(finding.since_step - ONSET) <= 3
    assert finding.cost_pct == pytest.approx(100 * 25 / 137, abs=2.5)
    assert finding.severity == "warning"
    (within,) = open_findings(play(job)[-1])
    assert (within.kind, within.severity) == ("slow_network", "info")  # Gloo within a host is work of its cores


def test_a_network_that_is_quick_again_is_over_from_there_on() -> None:
    job = MadeJob(healthy_phases(4, 400), transfer_ms=10.0)
    job.wait += noisy(1, 400, 2.0, 0.2, 3)
    job.wait[:, ONSET:230] += 25.0
    (finding,) = (each for each in play(job)[-1] if each.kind == "slow_network")
    assert abs((finding.cleared_at_step or 0) - 230) <= 3


def test_a_network_beside_a_straggler_is_told_apart() -> None:
    phases = healthy_phases(4, 320)
    phases["forward"][1, 60:] += 40.0
    job = MadeJob(phases, transfer_ms=10.0)
    job.wait[:, ONSET:] += 30.0
    assert {finding.kind for finding in open_findings(play(job)[-1])} == {"straggler", "slow_network"}


def test_a_rank_that_is_not_seen_may_be_what_all_wait_for() -> None:
    job = MadeJob(healthy_phases(4, 320), transfer_ms=10.0)
    job.wait[:, ONSET:] += 30.0
    for findings in play(job, silent={3: 0}):
        assert [finding.kind for finding in findings if finding.kind in ("slow_network", "job_slower")] == []


def test_a_transfer_that_grows_a_little_of_a_step_is_not_worth_a_word() -> None:
    job = MadeJob(healthy_phases(4, 320), transfer_ms=1.0)
    job.wait[:, ONSET:] += 1.0
    assert all(findings == () for findings in play(job))


def test_a_slow_start_is_no_measure_for_what_follows() -> None:
    phases = healthy_phases(4, 500)
    for table in phases.values():
        table[:, :100] *= 1.5  # a cold page cache, say
    phases["forward"][:, 300:] += 30.0
    (finding,) = open_findings(play(MadeJob(phases))[-1])
    assert (finding.kind, abs((finding.since_step or 0) - 300) <= 3) == ("job_slower", True)


def test_ranks_that_start_anew_are_not_measured_against_their_former_life() -> None:
    from ddpmon.diagnose.judge import Judge
    from ddpmon.run.model import Run
    from tests.made_frames import rank_frame, run_info

    run, judge = Run(run_info(2)), Judge()
    jobs = [MadeJob(healthy_phases(2, 200)), MadeJob({n: 2 * t for n, t in healthy_phases(2, 200, seed=1).items()})]
    for life, job in enumerate(jobs):
        for tick in range(20):
            for rank in range(2):
                part = job.columns(rank, 10 * tick, 10 * tick + 10)
                run.add_rank(rank_frame(rank, tick + 1, part, pid=100 * life + rank + 1), float(tick))
            assert judge(run, np.zeros(2)) == ()
    assert run.rings.last.tolist() == [199, 199]
