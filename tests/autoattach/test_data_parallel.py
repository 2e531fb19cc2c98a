"""DataParallel is one process: its steps and phases are measured, and no ranks are invented."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
from tests.probe.probe_ranks import STEPS, at_once, harvest, private_runs, wait_for_end
from tests.ranks import Group, running


def test_a_run_of_data_parallel_has_one_rank(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        private_runs(tmp_path),
        running(Group(1, "tests.autoattach.lone_model", [str(tmp_path)], [log])) as group,
    ):
        seen = harvest(group, log, "lone", 1, at_once, STEPS)
        (tmp_path / "release").touch()
        assert wait_for_end(group, log) == 0
    (rank,) = seen.ranks
    assert (seen.info.world_size, seen.info.parallel, seen.info.backend) == (1, "dp", "none")
    for step in range(1, STEPS):
        row = rank.steps[step]
        assert row["samples"] == 4
        assert min(row["forward"], row["backward"], row["optimizer"]) > 0
        assert row["forward"] + row["backward"] + row["optimizer"] + row["exposed"] <= row["duration"]
    assert (rank.frame.job_step, rank.frame.job_total) == (STEPS + 1, 100)
