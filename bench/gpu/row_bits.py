"""Row 10: losses and parameters with ddpmon, without it and with bucket detail, bit for bit.

Four trainers run at the same time with the same seed, each as a job of its own: two with DDPMON=0 (if these differ the
training itself cannot be repeated, and nothing can be said), one watched, one watched with bucket detail. On a GPU half
a minute.

    python bench/gpu/row_bits.py [--rehearse]
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from course_figures import Figures, run_row

from ddpmon.trainer.compare import differ, read_dump

_ROOT = Path(__file__).resolve().parents[2]
_WAYS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "off": ({"DDPMON": "0"}, ()),
    "off again": ({"DDPMON": "0"}, ()),
    "on": ({}, ()),
    "buckets": ({}, ("--buckets",)),
}
_STEPS, _REHEARSED_STEPS = 150, 20
_TRAINING_S = 120.0


def train(way: str, folder: Path, rehearse: bool) -> Path:
    """Train as one rank; returns the dump.

    Raises:
        SystemExit: the training failed.
    """
    variables, options = _WAYS[way]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "XDG_RUNTIME_DIR": str(folder)}
    dump = folder / f"{way}.json"
    steps = f"--steps={_REHEARSED_STEPS if rehearse else _STEPS}"
    backend = f"--backend={'gloo' if rehearse else 'nccl'}"
    command = [sys.executable, "-m", "ddpmon.trainer", backend, steps, "--batch=16", f"--dump={dump}", *options]
    environment = {**os.environ, **rank, **where, **variables}
    done = subprocess.run(
        command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=_TRAINING_S, check=False
    )
    if done.returncode or not dump.exists():
        lines = done.stderr.strip().splitlines() or ["no output"]
        telling = [line for line in lines if "Error" in line] or lines
        raise SystemExit(f"the training '{way}' failed: {telling[-1][:200]}")
    return dump


def measure(figures: Figures, rehearse: bool) -> None:
    """Train in all ways at the same time, and compare each with the first."""
    with tempfile.TemporaryDirectory(prefix="ddpmon-course-") as name, ThreadPoolExecutor(len(_WAYS)) as pool:
        written = pool.map(lambda way: train(way, Path(name), rehearse), _WAYS)
        dumps = {way: read_dump(path) for way, path in zip(_WAYS, written, strict=True)}
    found = {way: differ(dumps["off"], dumps[way]) for way in ("off again", "on", "buckets")}
    figures.put({way: difference or "identical" for way, difference in found.items()})
    figures.say("; ".join(f"{way}: {difference or 'identical'}" for way, difference in found.items()))
    if found["off again"]:
        raise SystemExit(f"the training cannot be repeated without ddpmon: {found['off again']}")
    different = [way for way, difference in found.items() if difference]
    figures.conclude(not different, f"different: {', '.join(different)}" if different else "identical")


if __name__ == "__main__":
    run_row(measure, __doc__)
