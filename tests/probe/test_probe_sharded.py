"""FSDP on real ranks: a delay lands in its phase on its rank, the others wait, and a step has one sync point."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import torch

from tests.probe.probe_ranks import Played, play

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
RANKS, SLOW_RANK, SLOW_MS, STEPS = 4, 1, 500.0, 6  # as in the scenes
SLOW = {"forward": 1, "backward": 2, "input": 3, "optimizer": 4}
SINCE = {"fsdp2": (2, 6), "hsdp": (2, 8), "replicated": (2, 11), "fsdp1": (2, 6)}  # on Gloo, with one mesh
SCENES = [scene for scene, release in SINCE.items() if release <= TORCH]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(tmp_path_factory.mktemp("sharded"), "scenes_sharded", RANKS, watch=SCENES, steps=STEPS)


@pytest.mark.parametrize("scene", SCENES)
def test_the_kind_of_parallelism_is_published(played: Played, scene: str) -> None:
    info = played.runs[scene].info
    assert info.parallel == {"hsdp": "fsdp2", "replicated": "replicate"}.get(scene, scene)
    assert info.world_size == RANKS


@pytest.mark.parametrize("scene", SCENES)
def test_every_synchronising_backward_is_a_step(played: Played, scene: str) -> None:
    for number, rank in enumerate(played.runs[scene].ranks):
        losses = played.notes(scene, number)["losses"]
        assert [rank.steps[step]["loss"] for step in range(STEPS)] == pytest.approx(losses[:STEPS], rel=1e-6)


@pytest.mark.parametrize("phase", SLOW)
@pytest.mark.parametrize("scene", SCENES)
def test_a_delay_lands_in_its_phase_on_its_rank_and_the_others_wait(played: Played, scene: str, phase: str) -> None:
    step = SLOW[phase]
    for number, rank in enumerate(played.runs[scene].ranks):
        row = rank.steps[step]
        if number == SLOW_RANK:
            assert row[phase] >= SLOW_MS
        else:
            assert row["exposed"] + row["barrier"] >= 0.6 * SLOW_MS, "it may have come a little later itself"
