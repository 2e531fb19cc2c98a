"""How soon `status` names processes that take a rank's core: `python bench/hogs.py [--rounds 3] [--hogs 2]`.

Two Gloo ranks train (the example trainer), each pinned to a core that it fills. `status --json --fail-on warning` is
asked until it answers 0, then processes with endless loops are pinned to the core of rank 1, and `status --json` is
asked again and again until an answer names one of them. Printed: the time that the healthy answer took, the seconds
from the start of the hogs to the answer that names one, and what `--fail-on warning` exits with then. It needs two
cores and nothing beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
_RANK = (
    "import os, runpy; cores = sorted(os.sched_getaffinity(0)); "
    "os.sched_setaffinity(0, {cores[int(os.environ['LOCAL_RANK'])]}); runpy.run_module('trainer', run_name='__main__')"
)
_TRAINER = ("--steps=10000000", "--layers=2", "--width=96", "--heads=2", "--batch=4", "--context=64")
_HOG = "while True: pass"
_FAILING = ("--fail-on", "warning")
_PATIENCE_S = 120.0


@contextlib.contextmanager
def pinned_ranks(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Two ranks, each on a core of its own."""
    script = folder / "pinned.py"
    script.write_text(_RANK)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*launch, str(script), *_TRAINER], stdout=log, stderr=log, cwd=ROOT, env=environment)
    try:
        yield
    finally:
        launcher = psutil.Process(process.pid)
        for each in [*launcher.children(recursive=True), launcher]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait()


def ask(environment: dict[str, str], *options: str) -> tuple[int, dict[str, Any], float]:
    """The exit code of `status`, what it says, and the seconds that it took."""
    began = time.monotonic()
    command = [sys.executable, "-m", "ddpmon.cli", "status", "--json", *options]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    said: dict[str, Any] = json.loads(answer.stdout) if answer.stdout.startswith("{") else {}
    return answer.returncode, said, time.monotonic() - began


def until_healthy(environment: dict[str, str]) -> float:
    """Ask until no warning is found after the warm-up; the seconds of that answer.

    Raises:
        TimeoutError: a warning lasts, such as of other work on the ranks' cores.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        code, said, took = ask(environment, *_FAILING)
        if code == 0 and said["run"]["step"] is not None and said["run"]["step"] > 300:
            return took
        time.sleep(1.0)
    raise TimeoutError("the run without hogs is not healthy")


def until_named(environment: dict[str, str], pids: set[int], began: float) -> tuple[float, int, int]:
    """Ask until a finding's evidence names one of these processes; seconds since `began`, answers, the exit code."""
    answers = 0
    while time.monotonic() < began + _PATIENCE_S:
        _, said, _ = ask(environment)
        answers += 1
        if any(finding["evidence"].get("pid") in pids for finding in said.get("findings", ())):
            return time.monotonic() - began, answers, ask(environment, *_FAILING)[0]
    raise TimeoutError("no hog was named")


def one_round(hogs: int) -> None:
    """A run, its healthy answer, its hogs."""
    with tempfile.TemporaryDirectory() as name:
        places = {"XDG_RUNTIME_DIR": name, "TMPDIR": name, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        environment = {**os.environ, **places}
        with pinned_ranks(Path(name), environment), contextlib.ExitStack() as stack:
            healthy_s = until_healthy(environment)
            core = sorted(os.sched_getaffinity(0))[1]
            began, pids = time.monotonic(), set[int]()
            for _ in range(hogs):
                hog = subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", _HOG])
                stack.callback(hog.kill)
                pids.add(hog.pid)
            named_s, answers, code = until_named(environment, pids, began)
    print(
        f"healthy: exit 0 after {healthy_s:.2f} s; a hog named {named_s:.1f} s after its start, in answer {answers} "
        f"(exit {code})",
        flush=True,
    )


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hogs", type=int, default=2)
    options = parser.parse_args()
    for _ in range(options.rounds):
        one_round(options.hogs)


if __name__ == "__main__":
    main()
