"""The demo's training run: a process tree that never outlives us."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ddpmon.format import plural
from ddpmon.store.discovery import Announcement, discover, withdraw_run

FAULT_FROM = 60
STOP_S = 8.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Plan:
    """What the demo trains and which trouble it makes."""

    nproc: int
    steps: int
    fault: str

    @property
    def slow_rank(self) -> int:
        """The rank that is made slow."""
        return min(2, self.nproc - 1)

    @property
    def delay_ms(self) -> int:
        """What it loses a step; more where more ranks share the cores and steps are long anyway."""
        return max(150, 35 * self.nproc)

    def command(self, name: str) -> list[str]:
        """The command line of the training run."""
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.nproc}"]
        fault = f"{self.fault}:rank={self.slow_rank},ms={self.delay_ms},from={FAULT_FROM}"
        return [*launcher, "-m", "ddpmon.trainer", f"--steps={self.steps}", f"--name={name}", f"--fault={fault}"]


class Training:
    """A running training and its log."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.name = f"demo-{secrets.token_hex(3)}"
        self.log = folder / "training.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                plan.command(self.name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"DDPMON_BUCKETS": "1"} | os.environ,
                start_new_session=True,
            )
        self._launcher = psutil.Process(self._process.pid)
        self._planned, self._began = plan.nproc, time.monotonic()

    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def announced(self) -> Announcement | None:
        """Its announcement on this host; None before there is one."""
        return next((run for run in discover() if run.name == self.name), None)

    def wait_until_announced(self, limit_s: float) -> Announcement | None:
        """Its announcement, printing how far it is; None when it ends first or the limit is reached."""
        stage = ""
        while self.exit_code() is None and time.monotonic() - self._began < limit_s:
            if (run := self.announced()) is not None:
                return run
            if self._doing() != stage:
                stage = self._doing()
                print(self.stage(), flush=True)
            time.sleep(0.2)
        return None

    def stage(self) -> str:
        """How far it is before it is announced, in a sentence."""
        if (code := self.exit_code()) is not None:
            return f"the training ended before its first step (exit code {code}): press q to see the end of its log"
        return (
            f"starting {plural(self._planned, 'rank')} ({time.monotonic() - self._began:.0f} s so far): {self._doing()}"
        )

    def _doing(self) -> str:
        ranks = min(len(self.ranks()), self._planned)
        if not ranks:
            return "the launcher imports torch"
        return (
            "all ranks import torch and connect to each other"
            if ranks == self._planned
            else "the launcher starts the ranks"
        )

    @property
    def was_signalled(self) -> bool:
        """Whether a signal from outside ended the launcher, which torchrun reports as an exception of its own."""
        return (self.exit_code() or 0) < 0 or "SignalException: Process " in self.log.read_text(errors="replace")

    def last_lines(self, count: int) -> list[str]:
        """The end of its log."""
        return self.log.read_text(errors="replace").splitlines()[-count:]

    def ranks(self) -> list[int]:
        """The processes of its ranks, in their order; none before they have started."""
        try:
            return sorted(child.pid for child in self._launcher.children())
        except psutil.Error:
            return []

    def stop(self) -> None:
        """End the whole tree: the ranks at once, the launcher is asked, and what is left after a while is killed.

        The run is withdrawn first: to a guard on this host it has ended, and was neither killed nor interrupted.
        """
        # Each rank leads a session of its own: a signal to the launcher's group alone would not reach them.
        tree = self._tree()
        run = self.announced()
        if run is not None:
            withdraw_run(run.run_id)
            _kill(tree[1:])
        if self._process.poll() is None:
            self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        _kill({*tree, *self._tree()})
        self._process.wait()
        if run is not None:
            withdraw_run(run.run_id)  # rank 0 may have announced it again meanwhile
            _end_store(run)

    def _tree(self) -> list[psutil.Process]:
        try:
            return [self._launcher, *self._launcher.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _end_store(run: Announcement) -> None:
    """End the store of a rank 0 that could not end it: nobody is to read a demo's last words."""
    if run.store_pid:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
            store = psutil.Process(run.store_pid)
            store.terminate()
            store.wait(STOP_S)


@contextlib.contextmanager
def running(plan: Plan) -> Iterator[Training]:
    """Train while the block runs; whatever ends the block, a signal included, ends the training."""
    with tempfile.TemporaryDirectory(prefix="ddpmon-demo-") as folder, _signals_as_exit():
        training = Training(plan, Path(folder))
        try:
            yield training
        finally:
            _ignore_signals()
            training.stop()


@contextlib.contextmanager
def _signals_as_exit() -> Iterator[None]:
    """Make the signals that would end us unwind the stack, once: a second must not interrupt the clearing up."""

    def leave(number: int, _frame: Any) -> None:
        _ignore_signals()
        raise SystemExit(128 + number)

    earlier: dict[int, Any] = {number: signal.signal(number, leave) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
