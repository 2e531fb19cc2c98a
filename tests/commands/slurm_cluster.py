"""A real Slurm cluster of two hosts on loopback: munged, slurmctld and two slurmd, with ports and keys of its own."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel")
SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
CONFIG = """
ClusterName=ddpmon
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0
ReturnToService=2
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
KillWait=1
NodeName=node7 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1
NodeName=node8 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1
PartitionName=all Nodes=node7,node8 Default=YES MaxTime=INFINITE State=UP
"""


@dataclass
class Cluster:
    """Hosts node7 and node8.

    Attributes:
        folder: where its configuration is, which SLURM_CONF must name.
    """

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What Slurm's commands need to find it."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def submit(self, script: str, *options: str, environment: Mapping[str, str] | None = None) -> str:
        """The number of a new job."""
        command = ["sbatch", "--parsable", f"--output={self.folder}/%j.out", *options, f"--wrap={script}"]
        return self._said(*command, environment=environment).strip().partition(";")[0]

    def cancel(self, job: str) -> None:
        """Cancel a job, and wait until it has ended."""
        self._said("scancel", job)
        self.until_state(job, "CANCELLED")

    def clear(self) -> None:
        """Cancel every job, and wait until the hosts have nothing to do."""
        self._said("scancel", "--partition=all")
        _wait_until_idle(self)

    def until_state(self, job: str, *states: str) -> None:
        """Wait until the first part of a job has one of these states."""
        deadline = time.monotonic() + 60
        while self.state(job) not in states:
            assert time.monotonic() < deadline, self._said("scontrol", "show", "job", job)
            time.sleep(0.2)

    def state(self, job: str) -> str:
        """Slurm's word for how a job stands."""
        lines = self._said("squeue", "--noheader", f"--jobs={job}", "--states=all", "--format=%T").split()
        return lines[0] if lines else ""

    def _said(self, *command: str, environment: Mapping[str, str] | None = None) -> str:
        variables = {**os.environ, **self.environment, **(environment or {})}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Cluster]:
    """A cluster that ends with the block, and its jobs with it; skips where there is none."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=SBIN) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root and {', '.join(missing) or 'Slurm'} (slurmctld, slurmd, slurm-client, munge)")
    cluster = Cluster(folder)
    with ExitStack() as daemons:
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        (folder / "state").mkdir()
        (folder / "slurm.conf").write_text(
            CONFIG.format(host=socket.gethostname(), folder=folder, ports=_free_ports(3))
        )
        own = {f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")}
        _serve(daemons, folder, "munged", "--force", "--foreground", f"--socket={folder}/munge.sock", *own)
        _serve(daemons, folder, "slurmctld", "-D", "-f", f"{folder}/slurm.conf")
        for node in ("node7", "node8"):
            _serve(daemons, folder, "slurmd", "-D", "-f", f"{folder}/slurm.conf", "-N", node)
        _wait_until_idle(cluster)
        try:
            yield cluster
        finally:
            cluster.clear()


def _serve(daemons: ExitStack, folder: Path, program: str, *arguments: str) -> None:
    """A daemon that ends with the stack."""
    path = shutil.which(program, path=SBIN) or program
    with (folder / f"{program}.log").open("ab") as log:
        process = subprocess.Popen(
            [path, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    daemons.callback(process.wait)
    daemons.callback(process.terminate)


def _wait_until_idle(cluster: Cluster) -> None:
    deadline = time.monotonic() + 60
    command = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
    while time.monotonic() < deadline:
        done = subprocess.run(
            command, env={**os.environ, **cluster.environment}, capture_output=True, text=True, check=False
        )
        if sorted(done.stdout.split()) == ["idle", "idle", "node7", "node8"]:
            return
        time.sleep(0.3)
    logs = "".join(path.read_text(errors="replace")[-600:] for path in sorted(cluster.folder.glob("*.log")))
    pytest.skip(f"Slurm does not run here: {logs}")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        doors = [held.enter_context(socket.socket()) for _ in range(count)]
        for door in doors:
            door.bind(("127.0.0.1", 0))
        return [int(door.getsockname()[1]) for door in doors]
