"""Bad losses, collections, the loader's state and DDP's settings, as a watcher reads them."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")
from ddpmon.parts import BadLoss, Loader, Settings
from ddpmon.schema import RankFrame
from tests.probe.probe_ranks import Played, Rank, play
from tests.probe.probe_stage import HELD, SLOW_S

SCENES = (
    "losses_that_are_not_finite",
    "collections",
    "loaders",
    "the_usual_settings",
    "other_settings",
    "a_static_graph",
)
FP16 = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.fp16_compress_hook"


def held(frame: RankFrame) -> bool:
    return frame.phase == HELD


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(tmp_path_factory.mktemp("troubles"), "scenes_troubles", 2, watch=SCENES, ready=held)


def ranks(played: Played, scene: str) -> list[Rank]:
    return played.runs[scene].ranks


def test_losses_that_are_not_finite_are_counted_on_their_rank(played: Played) -> None:
    _, bad = ranks(played, "losses_that_are_not_finite")
    assert bad.frame.bad_loss == BadLoss(first_step=1, last_step=3, count=2, value="nan")
    assert math.isnan(bad.steps[1]["loss"])
    assert bad.steps[3]["loss"] == -math.inf


def test_what_is_no_number_is_no_bad_loss(played: Played) -> None:
    odd, _ = ranks(played, "losses_that_are_not_finite")
    assert odd.frame.bad_loss is None
    assert math.isnan(odd.steps[2]["loss"])
    assert odd.steps[1]["loss"] == 1.5


def test_only_collections_on_the_training_thread_count(played: Played) -> None:
    elsewhere, here = ranks(played, "collections")
    assert min(here.column("gc")) >= 1000 * SLOW_S * 0.99
    assert set(elsewhere.column("gc")) == {0.0}


def test_the_training_loader_is_told_and_not_an_evaluations(played: Played) -> None:
    reading, ended = ranks(played, "loaders")
    assert reading.frame.loader == Loader(workers=0, batches=5, ended=False)
    assert ended.frame.loader == Loader(workers=1, batches=5, ended=True)


def test_without_a_loader_there_is_none(played: Played) -> None:
    assert [rank.frame.loader for rank in ranks(played, "the_usual_settings")] == [None, None]


def test_ddps_settings_are_told(played: Played) -> None:
    usual, other, static = (played.runs[scene].info for scene in SCENES[3:])
    assert usual.settings == Settings(False, False, False, "float32", None, 25 << 20)
    assert other.bucket_detail
    assert other.settings == Settings(True, True, False, "mixed", FP16, 25 << 20)
    assert static.settings == Settings(False, False, True, "float32", FP16, 25 << 20)


def test_a_healthy_rank_has_no_stall_and_no_failure(played: Played) -> None:
    frames = [rank.frame for seen in played.runs.values() for rank in seen.ranks]
    assert {(frame.stall, frame.failure, frame.state) for frame in frames} == {(None, None, "running")}
    assert [frame.notes for frame in frames] == [[]] * len(frames)
