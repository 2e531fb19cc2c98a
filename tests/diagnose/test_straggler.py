"""Rule A on made jobs: right rank, phase, onset and cost; and silence where nobody is to blame."""

from __future__ import annotations

import numpy as np
import pytest

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.alert_book import AlertBook
from ddpmon.diagnose.judge import Judge
from ddpmon.diagnose.late_policy import ALERTS
from ddpmon.run.model import Run
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding
from tests.made_frames import MadeJob, healthy_phases, open_findings, play, rank_frame, run_info

ONSET = 100


def faulty(
    phase: str, extra_ms: float, ranks: int = 4, rank: int = 2, steps: int = 240, until: int | None = None
) -> MadeJob:
    phases = healthy_phases(ranks, steps)
    phases[phase][rank, ONSET:until] += extra_ms
    return MadeJob(phases)


def last_open(job: MadeJob) -> list[Finding]:
    return open_findings(play(job)[-1])


@pytest.mark.parametrize("phase", ["input", "forward", "backward", "optimizer", "other"])
@pytest.mark.parametrize("ranks", [2, 4, 64])
def test_names_rank_phase_and_onset(phase: str, ranks: int) -> None:
    (finding,) = last_open(faulty(phase, 30.0, ranks, rank=1))
    assert (finding.kind, finding.ranks, finding.phase) == ("straggler", (1,), phase)
    assert finding.since_step is not None
    assert abs(finding.since_step - ONSET) <= 3
    assert "rank 1 (node0) is late by" in finding.summary
    assert phase in finding.summary


@pytest.mark.parametrize("before", [6, 12])
def test_a_long_step_by_chance_before_the_onset_is_not_the_onset(before: int) -> None:
    """It counted with up to twice the work of a late step: at 15 % that took 16 healthy steps to forget."""
    phases = healthy_phases(4, 240)
    phases["forward"][2, ONSET:] += 15.0
    phases["forward"][2, ONSET - before] += 150.0
    (finding,) = last_open(MadeJob(phases))
    assert finding.since_step is not None
    assert abs(finding.since_step - ONSET) <= 3


@pytest.mark.parametrize("extra_ms", [15.0, 30.0, 100.0])
def test_cost_is_what_the_job_would_save(extra_ms: float) -> None:
    (finding,) = last_open(faulty("forward", extra_ms))
    saved = 100 * extra_ms / (102 + extra_ms)
    assert finding.cost_pct == pytest.approx(
        saved, abs=2.5
    )  # the slowest of three others is a little above their median


@pytest.mark.parametrize(("extra_ms", "severity"), [(12.0, "warning"), (60.0, "critical")])
def test_severity_follows_cost(extra_ms: float, severity: str) -> None:
    (finding,) = last_open(faulty("backward", extra_ms))
    assert finding.severity == severity


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_a_rank_without_a_gpu_is_sent_to_its_cpus(phase: str) -> None:
    (finding,) = last_open(faulty(phase, 30.0))
    assert advice_text(finding.advice).startswith("check the CPUs of this rank: ")
    assert "GPU" not in advice_text(finding.advice)


def test_a_slowness_all_over_is_called_work() -> None:
    phases = healthy_phases(4, 240)
    for phase in ("forward", "backward"):
        phases[phase][3, ONSET:] *= 1.4
    (finding,) = open_findings(play(MadeJob(phases))[-1])
    assert (finding.ranks, finding.phase) == ((3,), "work")


def test_a_steady_fifteen_percent_is_named_within_thirty_steps() -> None:
    said = play(faulty("backward", 15.0), steps_per_tick=1)
    first = next(step for step, findings in enumerate(said) if findings)
    assert ONSET < first <= ONSET + 30


def test_two_stragglers_are_both_named_with_their_own_onsets() -> None:
    phases = healthy_phases(8, 260)
    phases["input"][1, ONSET:] += 40.0
    phases["forward"][5, ONSET + 60 :] += 60.0
    found = {finding.ranks[0]: finding for finding in open_findings(play(MadeJob(phases))[-1])}
    assert set(found) == {1, 5}
    assert (found[1].phase, found[5].phase) == ("input", "forward")
    assert abs((found[1].since_step or 0) - ONSET) <= 3
    assert abs((found[5].since_step or 0) - ONSET - 60) <= 3


@pytest.mark.parametrize("worse_at", [78, 82, 88, 95])
def test_one_that_becomes_worse_soon_was_there_before(worse_at: int) -> None:
    phases = healthy_phases(4, 200)
    phases["backward"][2, 60:] += 50.0
    phases["backward"][2, worse_at:] += 400.0
    (finding,) = last_open(MadeJob(phases))
    assert (finding.ranks, finding.since_step) == ((2,), 60)


def test_it_is_cleared_when_it_is_over_and_kept_as_such() -> None:
    (finding,) = play(faulty("input", 40.0, until=160))[-1]
    assert finding.cleared_at_step is not None
    assert abs(finding.cleared_at_step - 160) <= 3
    assert (
        f" was late by 40.1 ms a step, mostly in input (from step 100 to {finding.cleared_at_step:,})."
        in finding.summary
    )
    assert finding.severity == "critical", "as at its worst"
    assert (finding.ranks, finding.phase) == ((2,), "input")


@pytest.mark.parametrize("steps_per_tick", [1, 10])
def test_it_is_cleared_no_sooner_for_all_that(steps_per_tick: int) -> None:
    said = play(faulty("input", 40.0, until=160), steps_per_tick)
    first = next(tick for tick, findings in enumerate(said) if any(each.cleared_at_step for each in findings))
    assert 160 + 20 < (first + 1) * steps_per_tick <= 200


def test_steps_that_are_not_compared_do_not_put_the_end_of_it_off() -> None:
    phases = healthy_phases(4, 400)
    marked = np.zeros((4, 400))
    marked[0, 163::3] = 300.0  # only every third step is compared from there on
    phases["input"][2, ONSET:160] += 40.0
    phases["other"] += marked
    (finding,) = (each for each in play(MadeJob(phases, marked=marked))[-1] if each.kind == "straggler")
    assert abs((finding.cleared_at_step or 0) - 160) <= 4


def test_what_was_over_at_once_is_not_said_to_be_over_before_it_began() -> None:
    lives = AlertBook().group("late ranks")
    for step in range(100, 103):
        lives.observe(1, step, high=True, low=False)
    for life in lives:
        life.describe(Alert("straggler", "warning", Measures(), since_step=100))
    for step in range(103, 103 + ALERTS.clear_judgements):
        assert lives.resolved == []
        lives.observe(1, step, high=False, low=True, calm=step - 10)
    assert [each.cleared_at_step for each in lives.resolved] == [100]


def test_a_watcher_that_comes_late_says_before() -> None:
    phases = healthy_phases(4, 3000)
    phases["input"][2] += 30.0
    (finding,) = open_findings(play(MadeJob(phases), steps_per_tick=250)[-1])
    assert finding.since_is_bound
    assert "before step" in finding.summary


def spikes(phases: dict[str, np.ndarray], seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(12):
        phases["forward"][random.integers(len(phases["forward"])), random.integers(30, 290)] += 500.0


def staggered_gc(phases: dict[str, np.ndarray], _seed: int) -> None:
    for rank in range(len(phases["forward"])):
        phases["forward"][rank, 10 + 7 * rank :: 100] += 50.0


def checkpoints_of_rank_0(phases: dict[str, np.ndarray], _seed: int) -> None:
    phases["other"][0, 50::100] += 2000.0


def all_slower(phases: dict[str, np.ndarray], _seed: int) -> None:
    for table in phases.values():
        table[:, 150:] *= 1.3


def nothing(_phases: dict[str, np.ndarray], _seed: int) -> None:
    pass


def rotating_uneven_work(phases: dict[str, np.ndarray], seed: int) -> None:
    random = np.random.default_rng(seed)
    phases["forward"] *= random.lognormal(0, 0.25, phases["forward"].shape)
    phases["backward"] *= random.lognormal(0, 0.25, phases["backward"].shape)


@pytest.mark.parametrize(
    "what", [nothing, spikes, staggered_gc, checkpoints_of_rank_0, all_slower, rotating_uneven_work]
)
@pytest.mark.parametrize("ranks", [4, 16])
@pytest.mark.parametrize("seed", range(5))
def test_names_nobody_when_nobody_is_late(what, ranks: int, seed: int) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    phases = healthy_phases(ranks, 300, seed=seed)
    what(phases, seed)
    for findings in play(MadeJob(phases)):
        assert [f for f in findings if f.severity != "info" and f.ranks] == []


def test_ranks_that_have_just_come_back_do_not_hide_one_that_has_long_been_late() -> None:
    """A watcher that came between the returns of some ranks named nobody for most of the time."""
    job, run, judge = faulty("backward", 60.0, ranks=16, steps=420), Run(run_info(16)), Judge()
    came_back = dict.fromkeys(range(12, 16), 300)
    said = []
    for tick, end in enumerate(range(312, 420, 6)):
        begins = [came_back.get(rank, 150) for rank in range(job.ranks)]
        frames = [rank_frame(rank, tick, job.columns(rank, first, end)) for rank, first in enumerate(begins)]
        run.add_ranks(frames, float(tick), {})
        run.settle(float(tick))
        said.append([(each.kind, each.ranks) for each in judge(run, run.ages(float(tick))) if each.ranks == (2,)])
    assert said == [[("straggler", (2,))]] * len(said)


def test_a_watcher_that_comes_after_a_restart_names_who_is_late_among_the_ranks_that_went_on() -> None:
    """The ranks that are back count their steps from 0 and have no step in common with the others."""
    job, begun = faulty("backward", 60.0, ranks=16, steps=600), 240
    for comes_at in range(260, 600, 20):
        run, judge = Run(run_info(16)), Judge()
        shown = [
            (max(0, comes_at - begun - 256), comes_at - begun) if rank >= 12 else (max(0, comes_at - 256), comes_at)
            for rank in range(16)
        ]
        run.add_ranks([rank_frame(rank, 1, job.columns(rank, *part)) for rank, part in enumerate(shown)], 0.0, {})
        run.settle(0.0)
        (straggler,) = (each for each in judge(run, run.ages(0.0)) if each.kind == "straggler")
        assert straggler.ranks == (2,)


def ids_while_ranks_restart(job: MadeJob, again: set[int], every_s: int = 7) -> list[dict[tuple[str, ...], int]]:
    """What lasts (its kind and hosts, or its ranks) with its id, tick by tick; some ranks restart from tick 30 on."""
    run, judge = Run(run_info(job.ranks, node_keys=list(range(job.ranks // 2)))), Judge()
    said: list[dict[tuple[str, ...], int]] = []
    for tick in range(60):
        life = max(0, (min(tick, 49) - 30) // every_s + 1)
        began = 30 + (life - 1) * every_s if life else 0
        for rank in range(job.ranks):
            first, pid = (10 * (tick - began), 100 * life) if rank in again else (10 * tick, 0)
            part = job.columns(rank, first, first + 10)
            where = {"host": f"node{rank // 2}", "node": rank // 2, "local_rank": rank % 2}
            run.add_rank(rank_frame(rank, tick, part, pid=pid + rank, **where), float(tick))
        run.settle(float(tick))
        alerts = [each for each in judge(run, run.ages(float(tick))) if each.cleared_at_step is None]
        said.append({(each.kind, *each.nodes): each.id for each in alerts if each.kind in ("straggler", "slow_node")})
    return said


@pytest.mark.parametrize("every_s", [1, 7])
@pytest.mark.parametrize("blip", [0, 14])
def test_a_late_rank_keeps_its_id_while_other_ranks_restart(every_s: int, blip: int) -> None:
    phases = healthy_phases(8, 700)
    phases["backward"][2, 60 : 60 + blip] += 60.0  # it is late for too short a time to be confirmed
    phases["backward"][2, 150:] += 60.0
    said = ids_while_ranks_restart(MadeJob(phases), {6, 7}, every_s)
    assert all(("straggler", "node1") in each for each in said[30:])
    assert len({each["straggler", "node1"] for each in said[30:]}) == 1


def test_an_onset_that_the_record_has_lost_stands_while_other_ranks_restart() -> None:
    """The steps on record are judged again then, which show no more than a bound."""
    run, judge = Run(run_info(8)), Judge()
    ticks = run.rings.capacity // 100 + 6
    phases = healthy_phases(8, 100 * ticks)
    phases["backward"][2, 150:] += 60.0
    job, said = MadeJob(phases), set()
    for tick in range(ticks):
        again = tick - (ticks - 3)  # so many ticks ago ranks 6 and 7 have come back
        for rank in range(8):
            is_back = rank >= 6 and again >= 0
            part = job.columns(rank, 100 * (again if is_back else tick), 100 * (again if is_back else tick) + 100)
            run.add_rank(rank_frame(rank, tick, part, pid=100 * is_back + rank), float(tick))
        run.settle(float(tick))
        late = [each for each in judge(run, run.ages(float(tick))) if each.ranks == (2,)]
        said |= {(each.since_step, each.since_is_bound) for each in late}
    assert run.restarts
    assert said == {(150, False)}


def test_a_trouble_that_was_over_while_it_was_forgotten_comes_back_with_an_onset_of_its_own() -> None:
    book = AlertBook()
    found = Alert("straggler", "warning", Measures(), since_step=150)
    late = book.group("late ranks")
    for step in range(ALERTS.confirmations):
        late.observe(2, step, high=True, low=False)
    (life,) = late
    life.describe(found)
    book.keep_only()
    late = book.group("late ranks")
    late.observe(2, 1_000, high=False, low=True)
    for step in range(ALERTS.confirmations):
        late.observe(2, 2_000 + step, high=True, low=False)
    (again,) = late
    bound = Alert("straggler", "warning", Measures(), since_step=2_000, since_is_bound=True)
    assert again.describe(bound).since_step == 2_000
    assert again.id == life.id


def test_no_host_gets_the_id_of_another_one_whose_ranks_restart() -> None:
    phases = healthy_phases(12, 700)
    phases["backward"][2:4, 100:330] += 60.0
    phases["backward"][4:6, 400:] += 60.0
    said = ids_while_ranks_restart(MadeJob(phases), {0, 1})
    ids = {
        host: {each["slow_node", host] for each in said if ("slow_node", host) in each} for host in ("node1", "node2")
    }
    assert len(ids["node1"]) == len(ids["node2"]) == 1
    assert ids["node1"] != ids["node2"]


def test_warm_up_is_not_judged() -> None:
    phases = healthy_phases(4, 60)
    phases["forward"][1, :20] += 400.0
    assert all(findings == () for findings in play(MadeJob(phases)))


def test_steps_that_the_user_marked_are_not_judged() -> None:
    phases = healthy_phases(4, 200)
    marked = np.zeros((4, 200))
    marked[0, 30:] = 300.0 * (np.arange(170) % 4 > 0)  # an evaluation on rank 0 at three steps of four
    phases["other"] += marked
    assert all(findings == () for findings in play(MadeJob(phases, marked=marked)))
    assert any(play(MadeJob(phases))[-1]), "without the marks it would be called a straggler"


def test_a_rank_that_nobody_waits_for_is_not_blamed() -> None:
    job = faulty("forward", 40.0)
    job.wait[:] = 10.0  # the others do not wait: whatever the rank does, it is not what the job waits for
    findings = open_findings(play(job)[-1])
    assert [f.ranks for f in findings if f.severity != "info"] == []
    assert any("unattributed" in f.summary for f in findings)


def test_long_delays_are_told_in_seconds() -> None:
    phases = {name: 100 * table for name, table in healthy_phases(4, 120).items()}
    phases["forward"][2, 50:] += 4000.0
    (finding,) = open_findings(play(MadeJob(phases, transfer_ms=200.0))[-1])
    assert finding.summary.startswith("rank 2 (node0) is late by 4.0")
    assert " s a step, mostly in forward (since step 50)" in finding.summary


def test_the_phases_tell_although_another_rank_is_late_now_and_then() -> None:
    """The mean of the phases of the other rank is so much longer that they seemed not to show the lateness."""
    phases = healthy_phases(2, 300)
    phases["backward"][1, ONSET:] += 40.0
    phases["input"][0, ONSET::5] += 120.0
    late = next(finding for finding in last_open(MadeJob(phases)) if finding.kind == "straggler")
    assert (late.ranks, late.phase) == ((1,), "backward")
    assert "record the durations" not in advice_text(late.advice)
