"""The buckets of a simulated run: they are timed as DDP reduces them, and agree with the steps of the same frames."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ddpmon.schema import RankFrame
from ddpmon.simulate.plan import GRADIENT_BYTES, Plan
from ddpmon.simulate.rank_frames import Frames
from ddpmon.simulate.scenarios import scenario_of
from tests.recording.made_recordings import simulated


def said(plan: Plan, seconds: float) -> list[RankFrame]:
    """The frames that all ranks put then."""
    everybody = np.arange(plan.ranks)
    frames = Frames(plan, scenario_of(plan), "simulated", everybody)
    frames.reach(seconds)
    return [*frames.ranks(everybody, seconds)]


def table(frame: RankFrame) -> NDArray[np.float32]:
    """[steps, buckets] ms."""
    assert frame.buckets is not None
    return np.frombuffer(frame.buckets.ms, "<f4").reshape(-1, len(frame.buckets.sizes))


def column(frames: list[RankFrame], name: str) -> NDArray[np.float32]:
    """[ranks, steps] ms."""
    return np.array([np.frombuffer(frame.steps.values[name], "<f4") for frame in frames])


@pytest.mark.parametrize("scenario", ["healthy", "straggler", "intermittent", "slow-node"])
@pytest.mark.parametrize("step_ms", [50.0, 500.0])
def test_buckets_take_no_longer_than_the_all_reduce_and_the_last_ones_are_what_is_exposed(
    scenario: str, step_ms: float
) -> None:
    frames = said(Plan(16, 2, scenario, step_ms=step_ms, bucket_detail=True), 40)
    for frame in frames:
        assert frame.buckets is not None
        assert frame.buckets.step == frame.steps.step
        assert (len(frame.buckets.sizes), sum(frame.buckets.sizes)) == (frame.bucket_count, GRADIENT_BYTES)
    ms = np.array([table(frame) for frame in frames])
    assert (ms > 0).all()
    assert (ms.sum(axis=2) <= column(frames, "allreduce") + 0.01).all()
    transfer, exposed = ms.min(axis=0), column(frames, "exposed").min(axis=0)
    assert (transfer.sum(axis=1) > exposed).all(), "most of it is hidden behind backward"
    assert (transfer[:, -1] < exposed).all(), "the last buckets follow each other after backward"
    pace = transfer / np.array(frames[0].buckets.sizes if frames[0].buckets else [])
    np.testing.assert_allclose(pace, np.broadcast_to(pace[:, :1], pace.shape), rtol=0.01)


def test_the_others_wait_for_a_late_rank_in_the_first_bucket_after_its_lateness() -> None:
    plan = Plan(16, 2, "intermittent", bucket_detail=True)  # rank 3 is late by 360 ms in input, in every fifth step
    frames = said(plan, 40)
    step, work = np.frombuffer(frames[0].steps.step, "<i8"), 0.9 * plan.step_ms
    late = (step >= plan.fault_step) & (step % 5 == 0)
    assert late.any()
    for frame in frames:
        waits = table(frame)[late, 0]
        assert (waits < 0.1 * work).all() if frame.rank == 3 else (waits > 0.6 * work).all()
        assert (table(frame)[late, 2:] < 0.1 * work).all()


def test_the_same_seed_makes_the_same_buckets_whoever_publishes_them() -> None:
    plan = Plan(16, 2, "mixed", bucket_detail=True)
    frames = said(plan, 15)
    own = np.arange(8, 16)
    half = Frames(plan, scenario_of(plan), "simulated", own)
    half.reach(15)
    assert [frame.buckets for frame in half.ranks(np.arange(8), 15)] == [frame.buckets for frame in frames[8:]]
    for with_detail, without in zip(frames, said(Plan(16, 2, "mixed"), 15), strict=True):
        assert without.buckets is None
        assert with_detail.steps == without.steps, "what a run publishes without bucket detail stays the same"


@pytest.mark.parametrize("scenario", ["straggler", "hang", "churn"])
def test_a_watcher_sees_the_newest_steps_of_all_buckets(scenario: str) -> None:
    """Host frames have no room for them: they come in whole frames, once a second."""
    with simulated(Plan(16, 2, scenario, bucket_detail=True)) as run:
        run.go(18)
        snapshot = run.observer.tick()
    assert snapshot.notices == ()
    assert snapshot.run is not None
    assert snapshot.timeline is not None
    buckets = snapshot.timeline.buckets
    assert buckets is not None
    assert buckets.last_step >= (snapshot.run.step or 0) - 3
    assert buckets.exposed_ms[0] == 0 < buckets.exposed_ms[-1]
    assert snapshot.job is not None
    assert snapshot.job.busbw_gb_s is not None
