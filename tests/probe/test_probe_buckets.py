"""Bucket detail: one time a bucket, and the user's own communication hook goes on as before."""

from __future__ import annotations

import numpy
import pytest

pytest.importorskip("torch")
from tests.probe.probe_ranks import STEPS, Played, Rank, play
from tests.probe.scenes_buckets import HOOK_S

HOOK_MS = 1000 * HOOK_S * 0.99
DETAILED = ("no_hook", "hook_before_attach", "hook_after_attach")
SCENES = (*DETAILED, "hook_without_detail", "trained_already")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(tmp_path_factory.mktemp("buckets"), "scenes_buckets", 2, watch=SCENES)


def times(rank: Rank) -> numpy.typing.NDArray[numpy.float32]:
    """Milliseconds by step and bucket."""
    assert rank.frame.buckets is not None
    return numpy.frombuffer(rank.frame.buckets.ms, "<f4").reshape(-1, len(rank.frame.buckets.sizes))


@pytest.mark.parametrize("scene", DETAILED)
def test_the_buckets_sizes_sum_to_the_gradients(played: Played, scene: str) -> None:
    seen = played.runs[scene]
    assert seen.info.bucket_detail
    for rank in seen.ranks:
        assert rank.frame.buckets is not None
        assert len(rank.frame.buckets.sizes) > 1
        assert sum(rank.frame.buckets.sizes) == seen.info.gradient_bytes == rank.frame.gradient_bytes
    first, second = (rank.frame for rank in seen.ranks)
    assert first.buckets is not None
    assert (first.bucket_sizes, first.buckets_rebuilt) == (first.buckets.sizes, True), "as DDP's own log has them"
    assert (second.bucket_sizes, second.buckets_rebuilt) == ([], None), "rank 0 speaks for all"


@pytest.mark.parametrize("scene", DETAILED)
def test_there_is_one_time_a_bucket(played: Played, scene: str) -> None:
    for rank in played.runs[scene].ranks:
        assert rank.frame.buckets is not None
        steps = numpy.frombuffer(rank.frame.buckets.step, "<i8").tolist()
        assert steps == sorted(set(steps))
        assert len(steps) >= STEPS - 1, "all steps but the first, whose buckets are laid out otherwise"
        assert (times(rank) >= 0).all(), "zero: done before the bucket launched earlier"
        assert (times(rank).sum(axis=1) > 0).all()


@pytest.mark.parametrize("scene", ["hook_before_attach", "hook_after_attach"])
def test_a_users_hook_runs_once_a_bucket_and_its_time_counts(played: Played, scene: str) -> None:
    for rank in played.runs[scene].ranks:
        each_step = times(rank).shape[1]
        assert rank.notes["calls"] in range(STEPS * each_step + 1, (STEPS + 2) * each_step)
        # In sum: a reduction that is late reaches into the next bucket's time in the hook.
        assert (times(rank).sum(axis=1) >= HOOK_MS * each_step).all()


def test_a_users_hook_stays_after_detach(played: Played) -> None:
    for rank in played.runs["hook_before_attach"].ranks:
        assert rank.notes["after_detach"] == times(rank).shape[1]


def test_a_second_hook_is_refused_as_ddp_refuses_it(played: Played) -> None:
    for rank in played.runs["hook_after_attach"].ranks:
        assert rank.notes["second"] == "register_comm_hook can only be called once."


@pytest.mark.parametrize("scene", ["hook_without_detail", "trained_already"])
def test_without_detail_the_hook_runs_and_no_bucket_is_told(played: Played, scene: str) -> None:
    seen = played.runs[scene]
    assert not seen.info.bucket_detail
    for rank in seen.ranks:
        assert rank.frame.buckets is None
        assert rank.notes["calls"] >= STEPS + 1


def test_why_there_is_no_detail_is_told(played: Played) -> None:
    for rank in played.runs["trained_already"].ranks:
        assert rank.frame.notes == ["no bucket detail: the model has trained already: attach before the first backward"]
    assert all(rank.frame.notes == [] for rank in played.runs["no_hook"].ranks)
