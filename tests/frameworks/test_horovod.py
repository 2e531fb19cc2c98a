"""`ddpmon run` on Horovod; skipped where it is not installed, for it has to be built (docs/any-run.md)."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from tests.probe.probe_ranks import Seen, harvest, private_runs, started, wait_for_end

RANKS, STEPS, BATCH = 2, 12, 4


def train(folder: Path, *, watched: bool) -> tuple[Seen | None, list[dict[str, Any]]]:
    """The run as the store showed it, if it had one, and what its ranks left behind."""
    launcher = shutil.which("horovodrun", path=str(Path(sys.executable).parent))
    assert launcher is not None
    command = [
        launcher,
        "--gloo",
        "-np",
        str(RANKS),
        sys.executable,
        "-m",
        "tests.frameworks.train_horovod",
        str(folder),
    ]
    ours = [sys.executable, "-m", "ddpmon.cli", "run", "--name", "horovod", "--"]
    log = folder / "log"
    with private_runs(folder), started([*ours, *command] if watched else command, log) as process:
        ready = lambda frame: frame.step >= STEPS - 1  # noqa: E731
        seen = harvest(process, log, "horovod", RANKS, ready, STEPS - 1) if watched else None
        (folder / "release").touch()
        assert wait_for_end(process, log) == 0, log.read_text()
    return seen, [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


def test_the_ranks_of_horovod_are_watched_and_no_bit_changes(tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip("horovod.torch")
    seen, told = train(tmp_path_factory.mktemp("watched"), watched=True)
    _, plain = train(tmp_path_factory.mktemp("plain"), watched=False)
    assert told == plain
    assert seen is not None
    assert (seen.info.parallel, seen.info.backend, seen.info.world_size) == ("horovod", "horovod", RANKS)
    punctual, late = seen.ranks
    for step in range(1, STEPS - 1):  # the first forward shows which model it is
        assert late.steps[step]["samples"] == BATCH
        assert late.steps[step]["loss"] == pytest.approx(told[1]["losses"][step + 1], rel=1e-6)
        waits = [rank.steps[step]["exposed"] + rank.steps[step]["barrier"] for rank in (punctual, late)]
        assert waits[0] > waits[1]
