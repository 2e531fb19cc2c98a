"""Row 13: trainings without a line of ddpmon's: what `ddpmon run` sees of them on a GPU, and that it changes no bit.

Five jobs of one rank (`any_run_job.py`): `torch.compile` around and inside DDP, a `GradScaler` with two micro-batches a
step, FSDP2 and Lightning. (Of one rank on a GPU, Accelerate and Hugging Face's Trainer make no DDP model.) Each trains
three times at the same time: twice by itself (if these differ, the job cannot be repeated, and its bits say nothing),
once under `ddpmon run`. Then `ddpmon status --json` is asked until it has the last step. On a GPU 3 minutes.

    python bench/gpu/row_any_run.py [--rehearse]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
from any_run_job import KINDS, STEPS
from course_figures import Figures, run_row
from row_two_ranks import status

_NAME = "course"
_WAYS = ("off", "off again", "on")
_TRAINING_S, _ANSWER_S, _POLL_S = 180.0, 20.0, 0.5
_MISSED = 1  # step at the start: FSDP2's is noticed when its first one has begun
_SAME = 1e-6  # relative: what a float32 holds


@contextmanager
def training(kind: str, way: str, folder: Path, rehearse: bool) -> Iterator[subprocess.Popen[bytes]]:
    """Train in the background; the job is let go at the end of the block."""
    job = [str(Path(__file__).with_name("any_run_job.py")), kind, str(folder), *(["--rehearse"] if rehearse else [])]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    ours = [sys.executable, "-m", "ddpmon.cli", "run", "--name", _NAME, "--"] if way == "on" else []
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
    with (folder / "log").open("wb") as log:
        command = [*ours, *launcher, "--nproc-per-node=1", *job]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            (folder / "release").touch()
            try:
                process.wait(_ANSWER_S)
            except subprocess.TimeoutExpired:
                for rank in psutil.Process(process.pid).children(recursive=True):  # which lead groups of their own
                    rank.kill()
                process.kill()
                process.wait()


def wait_for_result(process: subprocess.Popen[bytes], folder: Path) -> dict[str, Any]:
    """The losses of the job, and the digest of its parameters.

    Raises:
        RuntimeError: it ended before that, or takes too long.
    """
    until = time.monotonic() + _TRAINING_S
    while not (folder / "result.json").exists():
        if process.poll() is not None or time.monotonic() > until:
            lines = (folder / "log").read_text(errors="replace").strip().splitlines()
            errors = [line for line in lines if "Error" in line] or lines or ["no output"]
            raise RuntimeError(errors[0][:200])
        time.sleep(_POLL_S)
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


def wait_for_status(folder: Path) -> dict[str, Any]:
    """The status of the run once it has the last step; the newest status if that does not come; {} without a run."""
    until, found = time.monotonic() + _ANSWER_S, dict[str, Any]()
    while time.monotonic() < until:
        found = status(folder, _NAME) or found
        if found and (found["run"]["step"] or 0) >= STEPS - 1 - _MISSED and found["job"]["loss"] is not None:
            break
        time.sleep(_POLL_S)
    return found


def problem(kind: str, results: dict[str, dict[str, Any]], found: dict[str, Any]) -> str:
    """What is wrong with a job, or nothing."""
    if results["off"] == results["off again"] != results["on"]:
        return "losses or parameters differ"
    if not found or not found["ranks"]:
        return "no run was found"
    step, phases = found["run"]["step"], found["ranks"][0]["phases_ms"]
    if step is None or step < STEPS - 1 - _MISSED:
        return f"the newest step is {step}"
    missing = [name for name in ("forward", "backward", "optimizer") if not phases[name]]
    if missing:
        return f"no {' and no '.join(missing)}"
    return wrong_loss(kind, results["on"]["losses"], found["job"]["loss"])


def wrong_loss(kind: str, losses: list[float], loss: float | None) -> str:
    """What is wrong with the loss of the status, which may lack the newest step: its loss is known a step later."""
    of_steps = [sum(losses[at : at + 2]) for at in range(0, len(losses), 2)] if kind == "GradScaler" else losses
    is_known = loss is not None and any(abs(loss - true) <= _SAME * abs(true) for true in of_steps[-2:])
    return "" if is_known else f"the loss of the status is {loss}, not {of_steps[-1]}"


def train(kind: str, figures: Figures, rehearse: bool) -> str:
    """Train one job in all ways; returns what is wrong, or nothing."""
    with tempfile.TemporaryDirectory(prefix="ddpmon-course-") as name, ExitStack() as running:
        folders = {way: Path(name, way.replace(" ", "-")) for way in _WAYS}
        for folder in folders.values():
            folder.mkdir()
        jobs = {way: running.enter_context(training(kind, way, at, rehearse)) for way, at in folders.items()}
        try:
            results = {way: wait_for_result(process, folders[way]) for way, process in jobs.items()}
        except RuntimeError as error:
            return f"the training failed: {error}"
        found = wait_for_status(folders["on"])
    if results["off"] != results["off again"]:
        figures.skip(f"bits of {kind}", "the job cannot be repeated without ddpmon")
    put_status(kind, found, figures)
    return problem(kind, results, found)


def put_status(kind: str, found: dict[str, Any], figures: Figures) -> None:
    """Keep what the status says of the job's one rank."""
    for rank in found.get("ranks", ()):
        shown = {"step": rank["step_ms"], "exposed": rank["exposed_ms"], "barrier": rank["barrier_ms"]}
        words = ", ".join(f"{of} {ms:.2f}" for of, ms in (shown | rank["phases_ms"]).items() if ms is not None)
        step, cost = found["run"]["step"], found["monitor"]["cost_us_per_step"]
        figures.put({f"{kind}: ms": words, f"{kind}: newest step": step, f"{kind}: own account µs": cost})
        figures.put({f"{kind}: loss": found["job"]["loss"], f"{kind}: loss from": found["run"]["loss_from"]})


def measure(figures: Figures, rehearse: bool) -> None:
    """Train all jobs; that of Lightning where it is installed."""
    wrong: dict[str, str] = {}
    for kind in KINDS:
        if kind == "Lightning" and find_spec("lightning") is None:
            figures.skip(kind, "the module lightning is missing")
            continue
        found = train(kind, figures, rehearse)
        figures.say(f"{kind}: {found or 'the same bits, all phases, the right loss'}")
        wrong |= {kind: found} if found else {}
    shown = "; ".join(f"{kind}: {found}" for kind, found in wrong.items())
    figures.conclude(not wrong, shown or "the same bits, all phases and the right loss in all jobs")


if __name__ == "__main__":
    run_row(measure, __doc__)
