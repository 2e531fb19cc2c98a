"""Prints whether published scripts train the same under `ddpmon run`, to the last bit, and what it says of a hog.

    python bench/frameworks.py FOLDER [--only WORD] [--steps 40]

FOLDER holds checkouts of nanoGPT, examples (pytorch), transformers, accelerate, lightning and horovod; those that are
missing are left out. Each script trains on two Gloo ranks, each on a core of its own: once without ddpmon and once with
it, for a number of optimizer steps, so that every loss and the parameters can be compared; and then for a minute, in
the middle of which a process begins to compute on the core of rank 1. `frameworks_cases.py` says what is changed in a
script, which is at most its lines about devices. Nothing is judged here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from frameworks_cases import CASES, Case
from frameworks_witness import FOLDER, STEPS

ROOT = Path(__file__).resolve().parent.parent
RANKS, LIMIT_S = 2, 180.0
WARM_STEPS, WARM_S = 60, 15.0  # a warm-up of 50 steps is left out of all findings
LOOKS, EVERY_S = 6, 5.0


class Stage:
    """A copy of a script's folder in which it can be started.

    Args:
        case: the training.
        sources: the checkouts.
        folder: for the copy, the log and the files of ddpmon.
    """

    def __init__(self, case: Case, sources: Path, folder: Path) -> None:
        self.case, self.folder, self.log = case, folder, folder / "log"
        self.fresh, self.work = folder / "fresh", folder / "work"
        shutil.copytree(sources / case.folder, self.fresh)
        for name, edits in case.edits.items():
            text = (self.fresh / name).read_text()
            for old, new in edits:
                if old not in text:
                    raise ValueError(f"{name} has no {old!r}: it is another version than the one that was tried")
                text = text.replace(old, new)
            (self.fresh / name).write_text(text)
        if case.prepare is not None:
            case.prepare(self.fresh)

    def environment(self, **more: str) -> dict[str, str]:
        """Of the training, and of what looks at it."""
        path = [str(Path(sys.executable).parent), os.environ["PATH"]]
        own = {"PATH": os.pathsep.join(path), "XDG_RUNTIME_DIR": str(self.folder), "OMP_NUM_THREADS": "1"}
        own["HF_HOME"] = str(self.folder / "cache")
        return {**os.environ, "PYTHONPATH": str(ROOT), **own, **self.case.environment, **more}

    @contextmanager
    def training(self, *, watched: bool, **more: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start it without what an earlier one has saved; nothing of it is left at the end."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.fresh, self.work)
        rank = "$HOROVOD_LOCAL_RANK" if self.case.horovod else "$LOCAL_RANK"
        script = ["bash", "-c", f"exec taskset -c {rank} {shlex.quote(sys.executable)} {self.case.command}"]
        launcher = ["torchrun", "--standalone", "--nproc-per-node", str(RANKS), "--no-python"]
        launcher = ["horovodrun", "--gloo", "-np", str(RANKS)] if self.case.horovod else launcher
        ours = [sys.executable, "-m", "ddpmon.cli", "run", "--name", "tried", "--"] if watched else []
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                [*ours, *launcher, *script], cwd=self.work, env=self.environment(**more), stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        try:
            yield process
        finally:
            end(process)

    def end_of_log(self) -> str:
        """Its errors, or its last lines, for whoever has to find out what went wrong."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if "Error" in line][:8] or lines[-8:])


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and what it has started."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def trained(stage: Stage, steps: int, *, watched: bool) -> list[Any]:
    """The losses and the parameters of each rank after so many optimizer steps.

    Raises:
        RuntimeError: it has ended before, or has not come so far in time.
    """
    told = stage.folder / f"told-{watched}"
    told.mkdir()
    (stage.folder / "site").mkdir(exist_ok=True)
    (stage.folder / "site" / "sitecustomize.py").write_text("import frameworks_witness\n")
    path = os.pathsep.join([str(stage.folder / "site"), str(ROOT / "bench"), str(ROOT)])
    more = {"PYTHONPATH": path, FOLDER: str(told), STEPS: str(steps)}
    with stage.training(watched=watched, **more) as process, suppress(subprocess.TimeoutExpired):
        process.wait(LIMIT_S)
    found = [told / f"{rank}.json" for rank in range(RANKS)]
    if not all(path.exists() for path in found):
        raise RuntimeError(f"{stage.case.name} did not come to step {steps}:\n{stage.end_of_log()}")
    return [json.loads(path.read_text()) for path in found]


def comparison(stage: Stage, steps: int) -> str:
    """What became of the losses, in words."""
    plain, watched = (trained(stage, steps, watched=each) for each in (False, True))
    was_watched = "ddpmon: to watch this run" in stage.log.read_text(errors="replace")
    losses = [len(rank["losses"]) for rank in plain]
    same = "the same" if plain == watched else "DIFFERENT"
    return f"{sum(losses)} losses and the parameters of {RANKS} ranks: {same}{'' if was_watched else '; NOT WATCHED'}"


def status(stage: Stage) -> Any:
    """What `ddpmon status --json` says of the run, None before there is one."""
    command = [sys.executable, "-m", "ddpmon.cli", "status", "--json"]
    asked = subprocess.run(command, env=stage.environment(), capture_output=True, text=True, cwd="/", check=False)
    with suppress(ValueError):
        return json.loads(asked.stdout)
    return None


def findings(stage: Stage, pid: int | None = None) -> str:
    """All findings: their kind, ranks and phase, and whether they name `pid`."""
    said = status(stage) or {"findings": []}
    words = []
    for finding in said["findings"]:
        where = f" in {finding['phase']}" if finding.get("phase") else ""
        names = " by the hog" if pid is not None and re.search(rf"\b{pid}\b", json.dumps(finding)) else ""
        words.append(f"{finding['kind']} of {finding['ranks']}{where}{names}")
    return ", ".join(words) or "nothing"


def hogged(stage: Stage) -> Iterator[str]:
    """What is said before a process computes on the core of rank 1, and then every few seconds."""
    with stage.training(watched=True) as process:
        began = time.monotonic()
        while (said := status(stage)) is None or (said["run"]["step"] or 0) < WARM_STEPS:
            if process.poll() is not None or time.monotonic() > began + LIMIT_S:
                raise RuntimeError(f"{stage.case.name} did not come to step {WARM_STEPS}:\n{stage.end_of_log()}")
            time.sleep(1.0)
        time.sleep(WARM_S)
        yield f"before the hog: {findings(stage)}"
        hog = subprocess.Popen(["taskset", "-c", "1", sys.executable, "-S", "-c", "while True: pass"])
        try:
            for look in range(1, LOOKS + 1):
                time.sleep(EVERY_S)
                yield f"{look * EVERY_S:.0f} s after its start: {findings(stage, hog.pid)}"
        finally:
            hog.kill()
            hog.wait()


def main() -> None:
    """Print a block a script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", type=int, default=40)
    wanted = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no training is left
    for case in CASES:
        if wanted.only not in case.name or not (wanted.sources / case.folder).is_dir():
            continue
        print(f"{case.name}{', changed in its lines about devices' if case.edits else ''}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                stage = Stage(case, wanted.sources, Path(folder))
                print(f"    {comparison(stage, wanted.steps)}", flush=True)
                for line in hogged(stage):
                    print(f"    {line}", flush=True)
            except (RuntimeError, ValueError) as error:
                print(f"    {error}", flush=True)


if __name__ == "__main__":
    main()
