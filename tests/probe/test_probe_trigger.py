"""Every synchronising backward is a step, and timed whole, while one lasting hook notices them and after it gave up."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from tests.probe.probe_ranks import Played, play
from tests.probe.scenes_trigger import CHANGE, DELAY_S, FROZEN, STEPS

DELAY_MS = 1000 * DELAY_S * 0.99
STEADY = ("nothing_changes", "accumulating")
CHANGING = (
    "a_second_forward",
    "a_forward_for_nothing",
    "another_models_backward",
    "gradients_by_hand",
    "a_backward_within",
)
ALSO = ("never_sure", "frozen_in_between")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("trigger")
    for scene in ALSO:
        (folder / f"{scene}.release").touch()
    return play(folder, "scenes_trigger", 2, watch=(*STEADY, *CHANGING), also=ALSO, steps=STEPS)


@pytest.mark.parametrize("scene", [*STEADY, *CHANGING])
def test_one_step_a_synchronising_backward(played: Played, scene: str) -> None:
    for rank in played.runs[scene].ranks:
        assert sorted(rank.steps)[:STEPS] == list(range(STEPS))
        assert len(rank.steps) <= STEPS + 1


# The step of the change itself may be cut short: what its backward is like shows only when it has begun.
@pytest.mark.parametrize("scene", [*STEADY, *CHANGING])
def test_backward_is_timed_whole(played: Played, scene: str) -> None:
    least = 2 * DELAY_MS if scene == "accumulating" else DELAY_MS
    for rank in played.runs[scene].ranks:
        short = [step for step in range(STEPS) if step != CHANGE and rank.steps[step]["backward"] < least]
        assert short == []


@pytest.mark.parametrize("scene", STEADY)
def test_a_regular_job_is_watched_by_one_lasting_hook(played: Played, scene: str) -> None:
    assert played.notes(scene)["lasting"][-1] == 1


def test_detach_takes_the_lasting_hook_back(played: Played) -> None:
    assert played.notes("nothing_changes")["left"] == 0


@pytest.mark.parametrize("scene", CHANGING)
def test_an_irregular_job_is_watched_by_its_outputs_again(played: Played, scene: str) -> None:
    lasting = played.notes(scene)["lasting"]
    assert (lasting[CHANGE - 1], lasting[-1]) == (1, 0)


def test_a_parameter_that_is_frozen_at_times_is_no_trouble(played: Played) -> None:
    notes = played.notes("frozen_in_between")
    assert notes["enabled"]
    assert [notes["lasting"][step] for step in (FROZEN[-1], -1)] == [0, 1]


def test_nothing_lasting_where_a_gradient_may_be_missing(played: Played) -> None:
    assert set(played.notes("never_sure")["found"].values()) == {0}
