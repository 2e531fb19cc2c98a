"""The GPU course as a command: it needs a GPU or a rehearsal, it runs to its end whatever fails, and calls add up."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parents[1]
ENDED = subprocess.CompletedProcess[str]


def course(out: Path, *words: str, **variables: str) -> ENDED:
    """Run the command where CUDA shows no GPU."""
    command = [sys.executable, str(ROOT / "bench/gpu/course.py"), "--out", str(out), *words]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def verdicts(out: Path) -> dict[int, str]:
    """The last column of the table, by row."""
    rows = [
        line.strip("| ").split(" | ")
        for line in (out / "table.md").read_text(encoding="utf-8").splitlines()
        if line[:1] == "|"
    ]
    return {int(row[0]): row[-1] for row in rows if row[0].isdigit()}


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Row 2 is stopped at its limit, row 5 fails, row 6 runs, and what row 9 imports is missing."""
    out = tmp_path_factory.mktemp("course")
    (out / "msgspec.py").write_text("raise ModuleNotFoundError(\"No module named 'msgspec'\", name='msgspec')\n")
    variables = {"PYTEST_ADDOPTS": "--no-such-option", "PYTHONPATH": str(out)}
    done = course(out, "--rehearse", "--rows=2,5,6,9", "--limit=2=0.1", **variables)
    assert done.returncode == 0, done.stderr
    assert (out / "table.md").read_text(encoding="utf-8") in done.stdout
    return out


def test_without_a_gpu_it_says_so_and_measures_nothing(tmp_path: Path) -> None:
    done = course(tmp_path / "out")
    assert (done.returncode, done.stdout.partition(":")[0]) == (3, "no GPU")
    assert not (tmp_path / "out").exists()


def test_a_row_that_fails_or_runs_past_its_limit_leaves_the_others_running(rehearsed: Path) -> None:
    found = verdicts(rehearsed)
    assert found[2] == "not run: stopped at its limit of 0.1 s"
    assert found[5].startswith("not run: failed with exit code 1")
    assert "--no-such-option" in found[5]
    assert found[6].startswith("rehearsed only: ")
    assert found[9] == "not run: the module msgspec is missing"
    assert {verdict for row, verdict in found.items() if row not in (2, 5, 6, 9)} == {"not run: not chosen so far"}


def test_a_later_call_adds_to_what_the_folder_holds(rehearsed: Path) -> None:
    before = verdicts(rehearsed)
    assert course(rehearsed, "--rehearse", "--minutes=0").returncode == 0
    found = verdicts(rehearsed)
    assert [found[row] for row in (2, 5, 6, 9)] == [before[row] for row in (2, 5, 6, 9)]
    assert found[1].startswith("not run: no time was left")


def test_what_a_stopped_row_has_started_is_stopped_too(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    course(tmp_path, "--rehearse", "--rows=5", "--limit=5=1", COURSE_TEST=mark)  # it has started pytest by then
    assert verdicts(tmp_path)[5] == "not run: stopped at its limit of 1 s"
    assert [process.pid for process in psutil.process_iter() if mark in variables_of(process)] == []


def variables_of(process: psutil.Process) -> str:
    try:
        return process.environ().get("COURSE_TEST", "")
    except psutil.Error:
        return ""
