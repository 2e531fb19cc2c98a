"""Row 5: the tests that need a GPU, tests/probe/test_probe_gpu.py: NCCL with one rank, Gloo with two.

Their scenes run under torch's synchronisation check at "error", after warm-up steps. In a rehearsal they are collected
and skipped, since they need a GPU. On a GPU 1 minute.

    python bench/gpu/row_gpu_tests.py [--rehearse]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from course_figures import Figures, run_row

_ROOT = Path(__file__).resolve().parents[2]
_FILE = "tests/probe/test_probe_gpu.py"


def measure(figures: Figures, rehearse: bool) -> None:
    """Run the tests without the options of pyproject, whose plugins may be missing."""
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider", "-q", "-rfEs", _FILE]
    paths = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout[-8000:], done.stderr[-4000:], flush=True)
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error|skipped)", done.stdout)}
    if not counts or "error" in counts:  # nothing was collected: the tests have said nothing
        lines = (done.stderr or done.stdout).strip().splitlines()
        telling = [line for line in lines if "rror" in line] or ["no output", *lines]
        raise SystemExit(f"pytest ended with exit code {done.returncode}: {telling[-1][:200]}")
    figures.put(counts)
    failed = re.findall(r"^(?:FAILED|ERROR) \S*?::(\S+)", done.stdout, re.MULTILINE)
    figures.say("; ".join([", ".join(f"{count} {word}" for word, count in counts.items()), *failed]))
    all_ran = counts.get("passed", 0) > 0 and not counts.get("skipped")
    good = done.returncode == 0 and (rehearse or all_ran)
    figures.conclude(good, "all pass" if good else f"not all pass: {', '.join(failed) or 'some are skipped'}")


if __name__ == "__main__":
    run_row(measure, __doc__)
