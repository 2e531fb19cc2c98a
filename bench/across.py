"""One torchrun on each of several hosts that are network namespaces; nothing of them is left at the end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from network import INTERFACE, Network

ROOT = Path(__file__).resolve().parents[1]
PORT = 29500


@dataclass(frozen=True)
class Job:
    """What every torchrun starts.

    Attributes:
        hosts: on how many hosts, from host 0 on.
        ranks: how many ranks a host.
        program: what they run, with its arguments.
        options: further ones of torchrun's.
        environment: variables beside those of this process.
    """

    hosts: int
    ranks: int
    program: Sequence[str]
    options: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def torchrun(net: Network, folder: Path, job: Job) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The launchers, one a host; their output goes to hostN.log in `folder`."""
    started = [_launch(net, folder, job, host) for host in range(job.hosts)]
    try:
        yield started
    finally:
        for process in started:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a launcher and all that it started."""
    for each in stopped_family(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()


def stopped_family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """A launcher and all that it started, stopped (SIGSTOP), so that nobody starts another one meanwhile."""
    if process.poll() is not None:
        return []
    parent = psutil.Process(process.pid)
    parent.suspend()
    family = [parent, *parent.children(recursive=True)]
    for each in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.suspend()
    return family


def _launch(net: Network, folder: Path, job: Job, host: int) -> subprocess.Popen[bytes]:
    where = f"--nnodes={job.hosts} --nproc-per-node={job.ranks} --node-rank={host} --master-addr={net.address(0)}"
    launcher = [sys.executable, "-m", "torch.distributed.run", *where.split(), f"--master-port={PORT}", *job.options]
    environment = {"DDPMON_HOSTNAME": f"host{host}", "GLOO_SOCKET_IFNAME": INTERFACE, "OMP_NUM_THREADS": "1"}
    with (folder / f"host{host}.log").open("wb") as log:
        return subprocess.Popen(
            [*net.enter(host), *launcher, *job.program],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment, **job.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
