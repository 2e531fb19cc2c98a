"""Losses that are not finite, and losses that jump."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.losses import LossJumpMeasures, LossJumpRule, NonfiniteLossMeasures, find_nonfinite
from ddpmon.parts import BadLoss
from ddpmon.run.model import Run
from tests.made_frames import Floats, columns, rank_frame, run_info, tick

NAN = math.nan


def frames_of(run: Run, losses: Floats, first: int, last: int, **says: object) -> None:
    for rank in range(len(losses)):
        values = {"duration": [100.0] * (last - first), "loss": losses[rank, first:last].tolist()}
        run.add_rank(rank_frame(rank, last, columns(range(first, last), values), **says), float(last))


def follow(losses: Floats, per_tick: int = 10) -> list[list[Alert]]:
    """What the rule says, tick by tick, on [ranks, steps] losses."""
    run, rule = Run(run_info(len(losses))), LossJumpRule()
    said = []
    for first in range(0, losses.shape[1], per_tick):
        frames_of(run, losses, first, min(losses.shape[1], first + per_tick))
        said.append(rule(tick(run, run.ages(float(first + per_tick))), ()))
    return said


def steady(ranks: int, steps: int, mean: float = 2.0, noise: float = 0.1, seed: int = 0) -> Floats:
    return mean + noise * np.random.default_rng(seed).standard_normal((ranks, steps))


def non_finite(bad: dict[int, BadLoss], losses: Floats) -> Alert:
    run = Run(run_info(len(losses)))
    for rank, row in enumerate(losses):
        values = {"duration": [100.0] * len(row), "loss": row.tolist()}
        run.add_rank(rank_frame(rank, 1, columns(range(len(row)), values), bad_loss=bad.get(rank)), 0.0)
    (finding,) = find_nonfinite(tick(run, run.ages(0.0)), ())
    return finding


def test_the_rank_that_was_first_is_named() -> None:
    losses = steady(4, 100)
    losses[:, 81:] = NAN
    losses[2, 80:] = NAN
    bad = {rank: BadLoss(81, 99, 19, "nan") for rank in (0, 1, 3)} | {2: BadLoss(80, 99, 20, "nan")}
    finding = non_finite(bad, losses)
    assert (finding.kind, finding.severity, finding.ranks) == ("nonfinite_loss", "critical", (2,))
    assert finding.since_step == 80
    assert finding.measures == NonfiniteLossMeasures("nan", 80, 99, 77, (2,), (0, 1, 3), 81, None)


def test_when_all_begin_at_once_nobody_is_named() -> None:
    losses = steady(4, 100)
    losses[:, 80:] = NAN
    finding = non_finite({rank: BadLoss(80, 99, 20, "inf") for rank in range(4)}, losses)
    assert (finding.severity, finding.ranks) == ("critical", ())
    assert finding.measures == NonfiniteLossMeasures("inf", 80, 99, 80, (0, 1, 2, 3), (), None, None)


def test_a_loss_that_is_finite_again_was_a_passing_trouble() -> None:
    passing = non_finite({1: BadLoss(90, 91, 2, "nan")}, steady(4, 100))
    assert passing.severity == "warning"
    assert passing.measures == NonfiniteLossMeasures("nan", 90, 91, 2, (1,), (), None, 92)
    assert non_finite({1: BadLoss(90, 91, 2, "nan")}, steady(4, 400)).severity == "info"


def test_no_bad_loss_no_finding() -> None:
    run = Run(run_info(2))
    frames_of(run, steady(2, 50), 0, 50)
    assert find_nonfinite(tick(run, run.ages(50.0)), ()) == []


def test_the_rank_that_has_spoken_first_is_not_named_for_one_that_has_not_spoken() -> None:
    run = Run(run_info(4))

    def say(rank: int, seq: int, upto: int, bad: BadLoss | None) -> None:
        steps = columns(range(upto), {"duration": [100.0] * upto, "loss": [2.0] * upto})
        run.add_rank(rank_frame(rank, seq, steps, bad_loss=bad), float(seq))

    for rank in (1, 2, 3):
        say(rank, 1, 75, None)
    say(0, 1, 85, BadLoss(81, 84, 4, "nan"))
    assert find_nonfinite(tick(run, run.ages(1.0)), ()) == []
    say(2, 2, 90, BadLoss(80, 89, 10, "nan"))
    assert find_nonfinite(tick(run, run.ages(2.0)), ()) == []
    for rank in (1, 3):
        say(rank, 2, 90, BadLoss(81, 89, 9, "nan"))
    assert [finding.ranks for finding in find_nonfinite(tick(run, run.ages(2.0)), ())] == [(2,)]


def test_a_rank_that_will_not_speak_again_is_not_waited_for() -> None:
    run = Run(run_info(2))
    steps = columns(range(75), {"duration": [100.0] * 75})
    run.add_rank(rank_frame(0, 1, steps), 0.0)
    run.add_rank(
        rank_frame(1, 1, columns(range(90), {"duration": [100.0] * 90}), bad_loss=BadLoss(80, 89, 10, "nan")), 9.0
    )
    assert [finding.ranks for finding in find_nonfinite(tick(run, run.ages(9.0)), ())] == [(1,)]


@pytest.mark.parametrize("per_tick", [1, 10, 300])
def test_a_jump_of_all_is_nobody_s(per_tick: int) -> None:
    losses = steady(4, 300)
    losses[:, 200:] = 12.0
    said = follow(losses, per_tick)
    (finding,) = said[-1]
    assert (finding.kind, finding.severity, finding.ranks, finding.since_step) == ("loss_jump", "warning", (), 200)
    assert isinstance(finding.measures, LossJumpMeasures)
    assert finding.measures.before == pytest.approx(2, abs=0.1)
    assert finding.measures.after == pytest.approx(12)
    assert finding.measures.world_size == 4
    if per_tick == 10:
        assert not any(said[:20])


def test_a_jump_of_one_rank_is_its_own() -> None:
    for ranks in (2, 4):
        losses = steady(ranks, 300)
        losses[1, 200:] *= 8
        (finding,) = follow(losses)[-1]
        assert (finding.ranks, finding.since_step) == ((1,), 200)


def test_one_or_two_high_values_are_no_jump() -> None:
    losses = steady(4, 300)
    losses[:, 200:202] = 50.0
    losses[3, 250] = 1e9
    assert not any(follow(losses))


def test_losses_fall_rise_slowly_and_differ_without_a_jump() -> None:
    falling = 5.0 * np.exp(-np.arange(600) / 80)[None] * (1 + steady(4, 600, 0.0))
    assert not any(follow(falling))
    noisy = np.exp(np.random.default_rng(3).standard_normal((4, 600)))
    assert not any(follow(noisy))


def test_three_times_the_loss_is_no_jump_however_steady_it_was() -> None:
    losses = steady(4, 300, noise=0.001)
    losses[:, 200:] *= 3
    assert not any(follow(losses))


def test_a_rank_with_a_short_past_is_not_judged() -> None:
    losses = steady(4, 300)
    losses[1, :190] = NAN
    losses[1, 200:] *= 8
    assert not any(follow(losses))


def test_losses_about_zero_and_below_it() -> None:
    losses = steady(4, 300, mean=0.0, noise=0.01)
    assert not any(follow(losses))
    losses[:, 200:] += 1.0
    assert follow(losses)[-1][0].since_step == 200
    negative = steady(4, 300, mean=-5.0)
    negative[:, 200:] = 16.0
    assert follow(negative)[-1][0].since_step == 200


def test_a_trainer_that_logs_every_tenth_step_on_rank_0_alone() -> None:
    losses = np.full((4, 1000), NAN)
    losses[0, ::10] = steady(1, 100)[0]
    assert not any(follow(losses))
    losses[0, 700::10] = 30.0
    (finding,) = follow(losses)[-1]
    assert (finding.ranks, finding.since_step) == ((), 700)


def test_values_that_are_not_finite_are_gaps() -> None:
    losses = steady(4, 300)
    losses[:, 100:150] = math.inf
    losses[1, 200:] = NAN
    losses[2, ::3] = -math.inf
    losses[3, 220:230] = math.inf
    assert not any(follow(losses))


def test_a_jump_is_kept_for_fifty_normal_values_and_then_forgotten() -> None:
    losses = steady(4, 400)
    losses[:, 200:220] = 12.0
    said = follow(losses)
    standing = [bool(findings) for findings in said]
    assert standing == [False] * 20 + [True] * 6 + [False] * 14


def test_a_restart_from_step_0_is_no_jump() -> None:
    run, rule = Run(run_info(2)), LossJumpRule()
    frames_of(run, steady(2, 900), 0, 900)
    assert rule(tick(run, run.ages(900.0)), ()) == []
    again = steady(2, 300, mean=40.0)
    for first in range(0, 300, 10):
        frames_of(run, again, first, first + 10, pid=9999)
        assert rule(tick(run, run.ages(first + 10.0)), ()) == []
    frames_of(run, np.full((2, 310), 400.0), 300, 310, pid=9999)
    assert [finding.since_step for finding in rule(tick(run, run.ages(310.0)), ())] == [300]
