"""What `ddpmon diagnose TABLE.csv` costs: tables of made-up steps with one straggler of 1.3x, timed as whole processes.

    python bench/table.py [--ranks 8,1000] [--steps 1000] [--rounds 3]

A line a table: rows, megabytes, seconds of the process from start to end (median and spread over the rounds), its peak
memory, and the verdict that it printed first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PHASES = ("input", "forward", "backward", "optimizer")
_SHARES = (0.1, 0.3, 0.5, 0.1)
_WORK_MS = 100.0


def write(path: Path, ranks: int, steps: int) -> None:
    """Write a table with the columns of a thorough log; the middle rank's forward is 30 ms longer from half way on."""
    rng = np.random.default_rng(ranks)
    phases = {
        name: share * _WORK_MS * rng.lognormal(0, 0.03, (steps, ranks))
        for name, share in zip(PHASES, _SHARES, strict=True)
    }
    phases["forward"][steps // 2 :, ranks // 2] += 0.3 * _WORK_MS
    work = np.sum(list(phases.values()), axis=0)
    duration = np.broadcast_to(work.max(axis=1, keepdims=True) + 5, work.shape)
    step, rank = np.indices(work.shape)
    columns = [step, rank, duration, work, duration - work, *phases.values()]
    head = ",".join(["step", "rank", "duration_ms", "work_ms", "exposed_ms", *(f"{name}_ms" for name in PHASES)])
    table = np.column_stack([column.ravel() for column in columns])
    np.savetxt(path, table, "%d,%d" + ",%.3f" * (len(columns) - 2), header=head, comments="")


def diagnosed(path: Path) -> tuple[float, int, str]:
    """Seconds, peak bytes, and the first finding's sentence of `ddpmon diagnose` on a table."""
    command = [sys.executable, "-m", "ddpmon.cli", "diagnose", str(path), "--json"]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    findings = json.loads(said)["findings"]
    return time.perf_counter() - began, used.ru_maxrss * 1024, findings[0]["summary"] if findings else "nothing"


def main(worlds: list[int], steps: int, rounds: int) -> None:
    """Measure each world size."""
    for ranks in worlds:
        with tempfile.TemporaryDirectory(prefix="ddpmon-bench-") as folder:
            path = Path(folder) / "table.csv"
            write(path, ranks, steps)
            seen = [diagnosed(path) for _ in range(rounds)]
            seconds = sorted(one[0] for one in seen)
            table = f"{ranks:,} ranks x {steps:,} steps: {ranks * steps:,} rows, {path.stat().st_size / 1e6:.1f} MB"
            spread = f"{np.median(seconds):.1f} s [{seconds[0]:.1f} .. {seconds[-1]:.1f}]"
            print(f"{table}: {spread}, {seen[0][1] / 1e6:.0f} MB: {seen[0][2]}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="8,1000")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    main([int(ranks) for ranks in options.ranks.split(",")], options.steps, options.rounds)
