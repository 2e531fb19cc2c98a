from __future__ import annotations

import math
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.trainer.trainer_runs import dump, launched, ranks, train, until_printed

ENDLESS = ("--steps", "100000", "--log-every", "1")


def test_torchrun_and_spawn_compute_the_same(tmp_path: Path) -> None:
    a = dump(tmp_path, "a", 2, "--steps", "5", launcher="torchrun")
    b = dump(tmp_path, "b", 2, "--steps", "5", "--workers", "1", launcher="spawn")
    assert a == b
    assert [len(losses) for losses in a["losses"]] == [5, 5]


def test_one_process_learns_without_ddp(tmp_path: Path) -> None:
    out = train(tmp_path, 1, "--steps", "150", "--lr", "0.01", "--eval-every", "75", launcher="none")
    done = re.search(r"^done: 150 steps, loss (\S+) -> (\S+), \S+ seconds$", out, re.MULTILINE)
    assert done
    assert float(done[2]) < float(done[1]) - 1
    assert len(re.findall(r"^step \d+  loss ", out, re.MULTILINE)) == 8
    assert out.count("held-out loss") == 2


def test_accumulation_makes_as_many_steps_of_more_samples(tmp_path: Path) -> None:
    whole = dump(tmp_path, "whole", 2, "--steps", "4")
    parts = dump(tmp_path, "parts", 2, "--steps", "4", "--batch", "1", "--accumulate", "2")
    assert [len(losses) for losses in parts["losses"]] == [4, 4]
    # Both see the same samples in a step, so losses agree but for rounding.
    for one, other in zip(whole["losses"], parts["losses"], strict=True):
        assert [float.fromhex(x) for x in one] == pytest.approx([float.fromhex(x) for x in other], rel=1e-4)


@pytest.mark.parametrize("hook", ["fp16", "powersgd"])
def test_communication_hooks_compress(tmp_path: Path, hook: str) -> None:
    options = ("--steps", "6", "--bucket-cap-mb", "0.01", "--amp", "--eval-every", "3")
    hooked = dump(tmp_path, hook, 2, *options, "--comm-hook", hook)
    assert len(hooked["parameters"]) == 64
    assert len(set(hooked["losses"][0])) == 6


def test_every_fault_at_once_changes_no_loss(tmp_path: Path) -> None:
    kinds = ("input", "forward", "backward", "host", "gc")
    faults = [word for kind in kinds for word in ("--fault", f"{kind}:rank=1,ms=5,from=1,every=2")]
    options = ("--steps", "4", "--accumulate", "2")
    faulty = dump(tmp_path, "faulty", 2, *options, *faults, "--workers", "1")
    assert faulty == dump(tmp_path, "plain", 2, *options)


def test_a_mistake_found_by_the_ranks_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    out = train(tmp_path, 2, "--text", "text", launcher="spawn", code=2)
    assert out.count("\n") == 1
    assert "holds no text" in out


@pytest.mark.parametrize(("launcher", "number"), [("none", signal.SIGINT), ("spawn", signal.SIGTERM)])
def test_a_signal_ends_the_run_with_a_short_message(tmp_path: Path, launcher: str, number: signal.Signals) -> None:
    log = tmp_path / "log"
    with launched(tmp_path, 2, log, *ENDLESS, launcher=launcher) as process:
        until_printed("step 1 ", process, log)
        process.send_signal(number)
        assert process.wait(timeout=60) == 130
    assert f"stopped by {number.name}" in log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("fault", ["hang_input", "skip"])
def test_a_rank_that_hangs_ends_with_a_signal(tmp_path: Path, fault: str) -> None:
    log = tmp_path / "log"
    with ranks(tmp_path, 2, log, *ENDLESS, "--workers", "1", "--fault", f"{fault}:rank=1,from=2") as group:
        until_printed("step 2 ", group, log)
        family = [child for rank in group.processes for child in psutil.Process(rank.pid).children(recursive=True)]
        group.send_signal(signal.SIGTERM)
        assert group.wait(timeout=60) == 130
    assert "rank 1 stopped by" in log.read_text()
    assert psutil.wait_procs(family, timeout=60)[1] == []


def test_a_rank_that_hangs_ends_with_its_launcher(tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = (*ENDLESS, "--workers", "1", "--fault", "hang_forward:rank=1,from=2")
    with launched(tmp_path, 2, log, *options, launcher="spawn") as process:
        until_printed("step 2 ", process, log)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    assert "rank 1 stopped by" in log.read_text()
    assert psutil.wait_procs(family, timeout=60)[1] == []


def test_ranks_end_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with launched(tmp_path, 2, log, *ENDLESS, launcher="spawn") as process:
        until_printed("step 1 ", process, log)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        assert psutil.wait_procs(family, timeout=60)[1] == []


def test_a_rank_whose_data_ends_early_ends_as_ever(tmp_path: Path) -> None:
    out = train(tmp_path, 1, "--steps", "100", "--fault", "end:rank=0,from=3")
    assert "done: 3 steps" in out


def test_a_rank_that_fails_ends_the_run_with_its_traceback(tmp_path: Path) -> None:
    out = train(tmp_path, 2, "--steps", "100", "--fault", "raise:rank=1,from=3", code=1)
    assert "RuntimeError: an injected fault" in out
    assert "step 100" not in out


def test_a_nan_reaches_every_ranks_parameters(tmp_path: Path) -> None:
    found = dump(tmp_path, "nan", 2, "--steps", "3", "--fault", "nan:rank=1,from=1")
    first, second = ([math.isnan(float.fromhex(loss)) for loss in losses] for losses in found["losses"])
    assert (first, second) == ([False, False, True], [False, True, True])
