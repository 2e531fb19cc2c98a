"""`ddpmon run` on Hugging Face's Trainer, Accelerate and Lightning: losses, counts, steps, phases; no bit changes.

`make frameworks` builds an environment with these packages; the tests are skipped where they are not installed.
"""

from __future__ import annotations

import json
import math
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from tests.probe.probe_ranks import Seen, harvest, private_runs, started, wait_for_end

RANKS, STEPS, PARTS = 2, 12, 2
SCRIPTS = {"trainer": "transformers", "accelerate": "accelerate", "lightning": "lightning"}


class Trained:
    """One training: its run as the store showed it, if it had one, and what its ranks left behind."""

    def __init__(self, folder: Path, seen: Seen | None, output: str) -> None:
        self.seen, self.output = seen, output
        self.told: list[dict[str, Any]] = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


def train(script: str, folder: Path, *, watched: bool) -> Trained:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    command = [*launcher, "-m", f"tests.frameworks.train_{script}", str(folder)]
    ours = [sys.executable, "-m", "ddpmon.cli", "run", "--name", script, "--"]
    log = folder / "log"
    with private_runs(folder), started([*ours, *command] if watched else command, log) as process:
        ready = lambda frame: frame.step >= STEPS - 1  # noqa: E731
        seen = harvest(process, log, script, RANKS, ready, STEPS - 1) if watched else None
        (folder / "release").touch()
        assert wait_for_end(process, log) == 0, log.read_text()
    return Trained(folder, seen, log.read_text())


@pytest.fixture(scope="module", params=SCRIPTS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Trained, Trained]:
    name = request.param
    pytest.importorskip(SCRIPTS[name])
    if name == "lightning" and not entry_points(group="lightning.pytorch.callbacks_factory", name="ddpmon"):
        pytest.skip("ddpmon is not installed with its entry points")
    return (
        name,
        train(name, tmp_path_factory.mktemp(name), watched=True),
        train(name, tmp_path_factory.mktemp(f"plain-{name}"), watched=False),
    )


def test_losses_and_parameters_are_the_same_to_the_last_bit(both: tuple[str, Trained, Trained]) -> None:
    _, watched, plain = both
    assert watched.told == plain.told


def test_the_losses_are_those_of_the_training(both: tuple[str, Trained, Trained]) -> None:
    name, watched, _ = both
    assert watched.seen is not None
    first = 1 if name == "trainer" else 0  # its first step has begun when it is noticed
    found = [[rank.steps[step]["loss"] for step in range(first, STEPS - 1)] for rank in watched.seen.ranks]
    if name == "trainer":  # it logs the mean of the ranks, rounded
        assert all("loss" not in rank.steps[0] or math.isnan(rank.steps[0]["loss"]) for rank in watched.seen.ranks)
        mean = [sum(losses) / RANKS for losses in zip(*found, strict=True)]
        assert mean == pytest.approx(watched.told[0]["losses"][first : STEPS - 1], rel=1e-3)
        return
    for losses, told in zip(found, watched.told, strict=True):
        parts = [told["losses"][PARTS * step : PARTS * (step + 1)] for step in range(STEPS - 1)]
        assert losses == pytest.approx([sum(part) / PARTS for part in parts], rel=1e-5)


def test_samples_tokens_steps_and_phases(both: tuple[str, Trained, Trained]) -> None:
    name, watched, _ = both
    assert watched.seen is not None
    batch, tokens = {"trainer": (2, 16.0), "accelerate": (4, None), "lightning": (4, None)}[name]
    for rank in watched.seen.ranks:
        assert rank.steps[3]["samples"] == PARTS * batch
        assert rank.steps[3].get("tokens") == (None if tokens is None else PARTS * tokens)
        frame = rank.frame
        if name != "accelerate":
            assert (frame.job_step, frame.job_total) == (STEPS, STEPS)
        wanted = {"trainer": {"eval", "checkpoint"}, "accelerate": set(), "lightning": {"eval"}}[name]
        assert wanted <= {mark.name for mark in frame.marks}


def test_where_the_loss_is_read_is_said_and_one_line_is_printed(both: tuple[str, Trained, Trained]) -> None:
    name, watched, _ = both
    assert watched.seen is not None
    said = {"trainer": "Trainer.training_step", "accelerate": "backward was called on", "lightning": "training_step of"}
    assert said[name] in watched.seen.info.loss_from
    assert sum(line.startswith("ddpmon: ") for line in watched.output.splitlines()) == 1
