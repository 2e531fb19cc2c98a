"""Steps are counted and timed right whatever form the loop and the model have."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from tests.probe.probe_ranks import STEPS, Played, play
from tests.probe.scenes_shapes import DELAY_S

DELAY_MS = 1000 * DELAY_S * 0.99
SLOW_FORWARD_AND_BACKWARD = (
    "output_in_a_dict",
    "output_in_a_tuple",
    "output_in_a_dataclass",
    "static_graph",
    "unused_parameters",
    "checkpointing",
    "reentrant_checkpointing",
    "reentrant_checkpointing_of_all",
    "gradient_penalty",
    "adversarial",
    "weighed_losses",
    "two_forwards_one_backward",
    "evaluating_without_gradients",
    "compiled_submodule",
    "forward_of_a_subclass",
    "forward_of_an_instance",
    "another_model_beside",
    "wrapped_anew",
)
COMPILED = ("ddp_of_compiled", "compiled_ddp")
LOGGED = ("logged_before_backward", "logged_after_backward", "logged_after_the_optimizer")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    scenes = ("accumulating", *SLOW_FORWARD_AND_BACKWARD, *LOGGED, *COMPILED)
    return play(tmp_path_factory.mktemp("shapes"), "scenes_shapes", 2, watch=scenes)


@pytest.mark.parametrize("scene", [*SLOW_FORWARD_AND_BACKWARD, *COMPILED, *LOGGED, "accumulating"])
def test_one_step_a_synchronising_backward(played: Played, scene: str) -> None:
    for rank in played.runs[scene].ranks:
        assert sorted(rank.steps)[: STEPS + 1] == list(range(len(rank.steps)))
        assert len(rank.steps) <= STEPS + 1
        for step in range(STEPS):
            parts = ("input", "forward", "backward", "optimizer", "exposed", "barrier")
            assert 0 < sum(rank.steps[step][part] for part in parts) <= rank.steps[step]["duration"] * 1.001


@pytest.mark.parametrize("scene", SLOW_FORWARD_AND_BACKWARD)
def test_forward_and_backward_are_timed(played: Played, scene: str) -> None:
    for rank in played.runs[scene].ranks:
        assert min(rank.column("forward")) >= DELAY_MS
        assert min(rank.column("backward")) >= DELAY_MS


def test_a_backward_begins_where_the_gradients_asked_for_before_it_did(played: Played) -> None:
    for rank in played.runs["gradient_penalty"].ranks:
        assert min(rank.column("backward")) >= 2 * DELAY_MS


@pytest.mark.parametrize("scene", COMPILED)
def test_a_compiled_models_forward_and_backward_are_timed(played: Played, scene: str) -> None:
    for rank in played.runs[scene].ranks:
        assert min(rank.column("forward")) > 0
        assert min(rank.column("backward")) >= DELAY_MS


def test_a_model_wrapped_anew_is_watched_on_and_its_wrapper_given_up(played: Played) -> None:
    for rank in played.runs["wrapped_anew"].ranks:
        assert rank.notes == {"same": [True] * (STEPS + 1), "held": [False] * STEPS + [True]}
    assert "attach was called twice" not in played.output


def test_another_models_forward_is_not_this_ones(played: Played) -> None:
    for rank in played.runs["another_model_beside"].ranks:
        assert min(rank.column("other")) >= 2 * DELAY_MS


def test_a_forward_without_gradients_is_not_the_steps(played: Played) -> None:
    for rank in played.runs["evaluating_without_gradients"].ranks:
        assert min(rank.column("other")) >= DELAY_MS


def test_micro_batches_belong_to_the_step_that_they_feed(played: Played) -> None:
    for rank in played.runs["accumulating"].ranks:
        assert [rank.steps[step]["loss"] for step in range(STEPS)] == [step + 2.0 for step in range(STEPS)]
        assert rank.column("samples") == [6.0] * (STEPS - 1)
        assert min(rank.column("forward")) >= 3 * DELAY_MS
        assert min(rank.column("backward")) >= 3 * DELAY_MS


@pytest.mark.parametrize("scene", LOGGED)
def test_a_loss_goes_to_its_step_whenever_it_is_logged(played: Played, scene: str) -> None:
    for rank in played.runs[scene].ranks:
        assert [rank.steps[step]["loss"] for step in range(STEPS)] == [0.0, 1.0, 2.0, 3.0]
        assert [rank.steps[step]["samples"] for step in range(STEPS)] == [10.0, 11.0, 12.0, 13.0]
