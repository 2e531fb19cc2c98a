"""`ddpmon run` on scripts that know nothing of ddpmon: what is watched, and that no bit of the training changes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("torch")
from tests.autoattach.scenes_run import LENGTH, PARTS, SAMPLES, SCENES
from tests.probe.probe_ranks import STEPS, Launched, Played, Seen, play, started, torchrun

RANKS = 2
_SCRIPT = "scenes_run"


def _torchrun(ranks: int, *arguments: str) -> list[str]:
    return [word.replace("tests.probe.", "tests.autoattach.") for word in torchrun(_SCRIPT, ranks, *arguments)]


@contextmanager
def by_ddpmon(_script: str, ranks: int, log: Path, *arguments: str) -> Iterator[Launched]:
    """Ranks of a torchrun that `ddpmon run` has become."""
    command = [sys.executable, "-m", "ddpmon.cli", "run", "--", *_torchrun(ranks, *arguments)]
    with started(command, log) as process:
        yield process


@contextmanager
def by_itself(_script: str, ranks: int, log: Path, *arguments: str) -> Iterator[Launched]:
    with started(_torchrun(ranks, *arguments), log) as process:
        yield process


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(tmp_path_factory.mktemp("run"), _SCRIPT, RANKS, watch=[*SCENES], launch=by_ddpmon)


@pytest.fixture(scope="module")
def unwatched(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(tmp_path_factory.mktemp("plain"), _SCRIPT, RANKS, also=[*SCENES], launch=by_itself)


def test_losses_are_the_same_to_the_last_bit(played: Played, unwatched: Played) -> None:
    for scene in SCENES:
        for rank in range(RANKS):
            assert played.notes(scene, rank) == unwatched.notes(scene, rank), scene


@pytest.mark.parametrize("scene", SCENES)
def test_the_losses_are_those_of_the_script(played: Played, scene: str) -> None:
    for number, rank in enumerate(played.runs[scene].ranks):
        wanted = played.notes(scene, number)["losses"][:STEPS]
        assert [rank.steps[step]["loss"] for step in range(STEPS)] == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    ("scene", "parameters"),
    [
        ("accumulating", None),
        ("two_models", 6),
        ("teaching", 3),
        ("one_after_another", 6),
        ("compiled", 6),
        ("sharded", 22),
    ],
)
def test_the_trained_model_with_most_parameters_is_watched(played: Played, scene: str, parameters: int | None) -> None:
    info = played.runs[scene].info
    assert info.loss_from == "what backward was called on"
    assert parameters is None or info.parameters == parameters
    assert info.parallel == ("fsdp2" if scene == "sharded" else "ddp")


def test_a_backend_of_others_is_named(played: Played) -> None:
    assert played.runs["other_backend"].info.backend == "elsewhere"


def test_samples_and_tokens_are_those_of_the_training(played: Played) -> None:
    def counts(seen: Seen) -> list[tuple[float, float | None]]:
        return [(rank.steps[1]["samples"], rank.steps[1].get("tokens")) for rank in seen.ranks]

    assert counts(played.runs["accumulating"]) == [(SAMPLES * PARTS, SAMPLES * LENGTH * PARTS)] * RANKS
    assert counts(played.runs["loading"]) == [(SAMPLES, None)] * RANKS


def test_a_script_that_attaches_itself_has_the_run_to_itself(played: Played) -> None:
    seen = played.runs["its own"]
    assert (seen.info.loss_from, seen.info.samples_from) == ("", "")
    for rank in seen.ranks:
        assert rank.steps[1]["tokens"] == 7
        assert rank.frame.job_total == 2000
        assert 1000 <= (rank.frame.job_step or 0) <= 1000 + STEPS


def test_each_run_is_announced_in_one_line_and_nothing_else_is_said(played: Played) -> None:
    said = [line for line in played.output.splitlines() if line.startswith("ddpmon: ")]
    assert [line for line in said if not line.startswith("ddpmon: to watch this run")] == []
    assert [line.split("; ")[1] for line in said if "; " in line] == [
        "watching Linear (6 parameters), the largest of 2 models that were built",
        "watching Linear (3 parameters), the largest of 2 models that were built",
    ]
