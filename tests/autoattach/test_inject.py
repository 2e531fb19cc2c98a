"""`ddpmon inject`: a training that runs already is watched, by all ranks from the same step on."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
from ddpmon.commands.inject import PAYLOAD, inject
from tests.probe.probe_ranks import PATIENCE_S, STEPS, Seen, at_once, harvest, private_runs, wait_for_end
from tests.ranks import Group, running

RANKS = 2


def asked(folder: Path, *how: str) -> Seen:
    """The run of two ranks that are asked one after the other; `folder / "log"` is what they say."""
    log = folder / "log"
    with (
        private_runs(folder),
        running(Group(RANKS, "tests.autoattach.asked_later", [str(folder), *how], [log])) as group,
    ):
        if not how:
            for rank in range(RANKS):
                assert inject([pid_of(folder / f"{rank}.pid")], every=False) == 0
        seen = harvest(group, log, "Linear", RANKS, at_once, STEPS)
        (folder / "release").touch()
        assert wait_for_end(group, log) == 0
    return seen


def pid_of(path: Path) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int(path.read_text())


def assert_together(seen: Seen) -> None:
    """Step 0 is the same step of the training on all ranks, and it was measured whole."""
    first = seen.ranks[0].steps[0]["loss"]
    for rank in seen.ranks:
        assert [rank.steps[step]["loss"] for step in range(STEPS)] == [first + step for step in range(STEPS)]
        assert rank.steps[1]["backward"] > 0


def test_ranks_that_are_asked_at_different_steps_and_again_begin_with_the_same_one(tmp_path: Path) -> None:
    assert_together(asked(tmp_path, "by-itself"))
    (said,) = [line for line in (tmp_path / "log").read_text().splitlines() if "no rank is watched" in line]
    assert "of 2 ranks these were not asked within 1 s, or could not be: 1; ask all ranks again" in said


@pytest.mark.skipif(not hasattr(sys, "remote_exec"), reason="needs Python 3.14")
def test_processes_are_asked_from_outside(tmp_path: Path) -> None:
    assert_together(asked(tmp_path))


@pytest.mark.skipif(not hasattr(sys, "remote_exec"), reason="needs Python 3.14")
def test_a_process_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert inject([(1 << 22) - 1], every=False) == 3
    assert "there is no such process" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("raise ModuleNotFoundError(\"No module named 'msgspec'\")", "cannot import ddpmon: No module named 'msgspec'"),
        ("def watch_running(): raise RuntimeError('no store')", "RuntimeError: no store"),
    ],
)
def test_what_keeps_an_asked_process_from_being_watched_is_said(tmp_path: Path, fault: str, words: str) -> None:
    (tmp_path / "ddpmon" / "autoattach").mkdir(parents=True)
    for package in (tmp_path / "ddpmon", tmp_path / "ddpmon" / "autoattach"):
        (package / "__init__.py").touch()
    (tmp_path / "ddpmon" / "autoattach" / "running.py").write_text(fault)
    asked = f"import sys; sys.modules['torch.nn.parallel.distributed'] = sys; exec(open({str(PAYLOAD)!r}).read())"
    done = subprocess.run([sys.executable, "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert line.startswith("ddpmon: nothing is watched: ")
    assert line.endswith(words)


@pytest.mark.skipif(hasattr(sys, "remote_exec"), reason="needs a Python before 3.14")
def test_an_older_python_is_told_what_to_do_instead(capsys: pytest.CaptureFixture[str]) -> None:
    assert inject([1], every=False) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "start it again with `ddpmon run -- COMMAND`" in line


def test_nobody_is_asked_without_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert inject([], every=False) == inject([7], every=True) == 2
    assert capsys.readouterr().err.count("or --all") == 2
