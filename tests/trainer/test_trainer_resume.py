from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import torch

from tests.trainer.trainer_runs import ENVIRONMENT, TINY, dump, launched, train
from trainer.checkpoint import save
from trainer.compare import differ


def test_a_resumed_run_goes_on_exactly(tmp_path: Path) -> None:
    options = ("--accumulate", "2", "--checkpoint-every", "100")
    whole = dump(tmp_path, "whole", 2, "--steps", "6", *options)
    dump(tmp_path, "first", 2, "--steps", "3", "--checkpoint", "sub/run.pt", *options)
    second = dump(tmp_path, "second", 2, "--steps", "6", "--checkpoint", "sub/run.pt", *options)
    assert second["first_step"] == 3
    assert [len(losses) for losses in second["losses"]] == [3, 3]
    assert differ(whole, second) is None
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["run.pt"]


def ranks_of(launcher: psutil.Process) -> dict[str, psutil.Process]:
    return {child.environ().get("RANK", ""): child for child in launcher.children(recursive=True)}


def test_a_killed_rank_is_restarted_and_the_run_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    steps = ("--steps", "30", "--checkpoint-every", "5")
    whole = dump(tmp_path, "whole", 2, *steps)
    slow = ("--fault", "host:rank=0,ms=50", "--checkpoint", "run.pt", "--dump", "survived")
    log = tmp_path / "log"
    with launched(tmp_path, 2, log, *steps, *slow, launcher="torchrun", restarts=1) as process:
        while not (tmp_path / "run.pt").exists():
            assert process.poll() is None, log.read_text()
            time.sleep(0.01)
        ranks_of(psutil.Process(process.pid))["1"].send_signal(signal.SIGKILL)
        assert process.wait(timeout=240) == 0, log.read_text()
    assert "resumed from run.pt at step" in log.read_text()
    survived = json.loads((tmp_path / "survived").read_text())
    assert survived["first_step"] % 5 == 0
    assert survived["first_step"] > 0
    assert differ(whole, survived) is None


LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
runpy.run_module("trainer", run_name="__main__")
"""


def test_a_full_disk_costs_one_sentence_and_not_the_old_checkpoint(tmp_path: Path) -> None:
    out = train(tmp_path, 1, "--steps", "2", "--checkpoint", "run.pt", launcher="none")
    before = (tmp_path / "run.pt").read_bytes()
    options = ("--steps", "4", "--checkpoint", "run.pt", "--checkpoint-every", "1")
    process = subprocess.run(
        [sys.executable, "-c", LIMITED, *TINY, *options],
        cwd=tmp_path,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "done: 2 steps" in out
    assert "done: 2 steps" in process.stdout
    complaints = process.stderr.splitlines()
    assert len([line for line in complaints if "run.pt not written (File too large)" in line]) == 2
    assert "Traceback" not in process.stderr
    assert (tmp_path / "run.pt").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt"]


def test_a_file_that_is_no_checkpoint_is_refused_by_every_rank(tmp_path: Path) -> None:
    (tmp_path / "run.pt").write_bytes(b"not a checkpoint")
    out = train(tmp_path, 2, "--checkpoint", "run.pt", launcher="spawn", code=2)
    assert out.count("\n") == 1
    assert "run.pt is not a checkpoint" in out
    assert (tmp_path / "run.pt").read_bytes() == b"not a checkpoint"


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "other.pt", {"step": 3, "shape": {"layers": 9}})
    out = train(tmp_path, 1, "--checkpoint", "other.pt", launcher="none", code=2)
    assert "another size" in out
    save(tmp_path / "foreign.pt", {"weights": torch.zeros(2)})
    out = train(tmp_path, 1, "--checkpoint", "foreign.pt", launcher="none", code=2)
    assert "not a checkpoint of this trainer" in out
