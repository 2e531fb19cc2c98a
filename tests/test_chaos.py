"""The chaos course in its short form: six faults, and training, verdicts and processes are as they should be."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest
from network import why_not
from watcher import ROOT

pytest.importorskip("torch")

KINDS = (
    "watcher killed",
    "store's host stopped",
    "node's link cut",
    "rank killed",
    "frames forged",
    "wall clock jumped",
)

why = why_not() or ("" if shutil.which("cc") or shutil.which("gcc") else "clocks that jump need a C compiler")
pytestmark = [pytest.mark.skipif(bool(why), reason=why), pytest.mark.timeout(600)]


def test_a_short_course_of_faults_harms_nothing_and_leaves_nothing() -> None:
    command = [
        sys.executable,
        str(ROOT / "bench" / "chaos.py"),
        f"--faults={len(KINDS)}",
        "--seed=59",
        "--stores=tcp",
        "--busy",
    ]
    done = subprocess.run([*command, f"--kinds={','.join(KINDS)}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    table = {kind: re.search(rf"^{kind} +1 +1 ", done.stdout, re.MULTILINE) for kind in KINDS}
    assert all(table.values()), done.stdout
    assert re.search(r"losses: [1-9][\d,]* of 8 processes compared with an unmonitored run, 0 differ", done.stdout)
    assert "0 processes left behind" in done.stdout
