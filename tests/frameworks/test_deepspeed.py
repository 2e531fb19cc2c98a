"""`ddpmon run` on DeepSpeed; skipped where it is not installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from tests.probe.probe_ranks import Seen, harvest, private_runs, started, wait_for_end

RANKS, STEPS, BATCH, PARTS = 2, 12, 4, 2
PARAMETERS = 2 * (16 * 16 + 16)


def train(folder: Path, stage: int, *, watched: bool) -> tuple[Seen | None, list[dict[str, Any]]]:
    """The run as the store showed it, if it had one, and what its ranks left behind."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    command = [*launcher, "-m", "tests.frameworks.train_deepspeed", str(folder), str(stage)]
    ours = [sys.executable, "-m", "ddpmon.cli", "run", "--name", "deepspeed", "--"]
    log = folder / "log"
    with private_runs(folder), started([*ours, *command] if watched else command, log) as process:
        ready = lambda frame: frame.step >= STEPS - 1  # noqa: E731
        seen = harvest(process, log, "deepspeed", RANKS, ready, STEPS - 1) if watched else None
        (folder / "release").touch()
        assert wait_for_end(process, log) == 0, log.read_text()
    return seen, [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_ranks_of_deepspeed_are_watched_and_no_bit_changes(
    tmp_path_factory: pytest.TempPathFactory, stage: int
) -> None:
    pytest.importorskip("deepspeed")
    seen, told = train(tmp_path_factory.mktemp("watched"), stage, watched=True)
    _, plain = train(tmp_path_factory.mktemp("plain"), stage, watched=False)
    assert told == plain
    assert seen is not None
    assert (seen.info.parallel, seen.info.world_size, seen.info.parameters) == ("deepspeed", RANKS, PARAMETERS)
    punctual, late = seen.ranks
    assert "checkpoint" in {mark.name for mark in punctual.frame.marks}
    for step in range(1, STEPS - 1):
        assert late.steps[step]["samples"] == BATCH * PARTS
        parts = told[1]["losses"][PARTS * step : PARTS * (step + 1)]
        assert late.steps[step]["loss"] == pytest.approx(sum(parts) / PARTS, rel=1e-6)
        waits = [rank.steps[step]["exposed"] + rank.steps[step]["barrier"] for rank in (punctual, late)]
        assert waits[0] > waits[1]
