"""The parent: starts the store, lays its keys out as rank 0 does, and lets the processes publish."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from secrets import token_hex

from ddpmon.codec import encode
from ddpmon.schema import RunInfo
from ddpmon.simulate.opening import address_of, lay_out, open_store
from ddpmon.simulate.plan import GRADIENT_BYTES, PARAMETERS, Plan
from ddpmon.simulate.worker import Account, work
from ddpmon.store.base import StoreUnavailable
from ddpmon.store.connect import Target
from ddpmon.store.discovery import Announcement, announce, withdraw
from ddpmon.store.server_process import start
from ddpmon.version import __version__

_LINGER_S = 0.8  # as rank 0 does, so that watchers read the last frames
_READY_S = 120.0


@dataclass(slots=True)
class Simulation:
    """A run that is being published.

    Attributes:
        url: where it can be watched. run_id: which run of that store it is.
    """

    url: str
    run_id: str
    _processes: list[SpawnProcess]
    _reports: list[Connection]
    _gone: bool = False

    def wait(self, seconds: float | None) -> bool:
        """Wait until it is over, or for so long; returns whether a process has ended by itself."""
        ended = wait([process.sentinel for process in self._processes], seconds)
        return bool(ended)

    def end(self) -> Account:
        """Let every rank say that it has finished; returns what was published."""
        # By a pipe: an Event that a killed process waits for is never set to an end.
        for report in self._reports:
            with suppress(OSError):
                report.send("end")
        total = Account()
        for report in self._reports:
            try:
                total = total + (
                    report.recv() if report.poll(30.0) else Account(error="a simulating process did not end")
                )
            except (EOFError, OSError):
                total = total + Account(error="a simulating process died")
        for process in self._processes:
            process.join(5.0)
        return total


@contextmanager
def simulate(plan: Plan, target: Target | None = None) -> Iterator[Simulation]:
    """Publish a run: into the store at `target`, or into one of our own on loopback.

    Raises:
        StoreUnavailable: the store cannot be reached or hosted.
    """
    run_id = f"simulated-{plan.scenario}-{int(time.time())}-{token_hex(4)}"
    if target is not None:
        with _publishing(plan, target, run_id, address_of(target, run_id), 0) as simulation:  # among others
            yield simulation
        return
    server = start("127.0.0.1", ranks=plan.ranks)
    try:
        there = Target("127.0.0.1", server.port)
        with _publishing(plan, there, run_id, there.url, server.pid) as simulation:
            yield simulation
    finally:
        server.end()


@contextmanager
def _publishing(plan: Plan, target: Target, run_id: str, url: str, store_pid: int) -> Iterator[Simulation]:
    store = open_store(target)
    file: Path | None = None
    simulation = None
    try:
        info = encode(run_info(plan, run_id))
        lay_out(store, target, run_id, info, plan.ranks, plan.nodes)
        simulation = Simulation(url, run_id, *_start(plan, target, run_id, info))
        file = _announce(plan, url, run_id, store_pid)
        yield simulation
    finally:
        if simulation is not None:
            for process in simulation._processes:
                if process.is_alive():
                    process.terminate()
            time.sleep(_LINGER_S)
        withdraw(file)
        store.close()


def run_info(plan: Plan, run_id: str) -> RunInfo:
    """What is said of the run: that it is simulated, first of all."""
    return RunInfo(
        run_id=run_id,
        name=f"simulated-{plan.scenario}",
        world_size=plan.ranks,
        node_keys=list(range(plan.nodes)),
        backend="simulated",
        device="simulated",
        parameters=PARAMETERS,
        gradient_bytes=GRADIENT_BYTES,
        bucket_detail=plan.bucket_detail,
        started_at=time.time() - plan.past_s,
        host=socket.gethostname(),
        pid=os.getpid(),
        versions={"simulated": f"by ddpmon {__version__}"},
    )


def _start(plan: Plan, target: Target, run_id: str, info: bytes) -> tuple[list[SpawnProcess], list[Connection]]:
    context = multiprocessing.get_context("spawn")
    processes, reports = [], []
    for place in range(plan.processes):
        mine, its = context.Pipe()
        process = context.Process(target=work, args=(plan, place, target, run_id, info, its), daemon=True)
        process.start()
        its.close()
        processes.append(process)
        reports.append(mine)
    for report in reports:
        _await_ready(report)
    began = time.time()
    for report in reports:
        report.send(began)
    return processes, reports


def _await_ready(report: Connection) -> None:
    """Wait until a process has made its past and has connected.

    Raises:
        StoreUnavailable: it could not.
    """
    try:
        said = report.recv() if report.poll(_READY_S) else Account(error="a simulating process did not start")
    except (EOFError, OSError):
        said = Account(error="a simulating process died while it started")
    if isinstance(said, Account):
        raise StoreUnavailable(said.error)


def _announce(plan: Plan, url: str, run_id: str, store_pid: int) -> Path | None:
    return announce(
        Announcement(
            run_id=run_id,
            name=f"simulated-{plan.scenario}",
            url=url,
            pid=os.getpid(),
            host=socket.gethostname(),
            world_size=plan.ranks,
            started_at=time.time(),
            store_pid=store_pid,
        )
    )
