"""Where a Slurm job runs, and which ddpmon runs it holds: asked with Slurm's own commands."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

from ddpmon.commands.listing import Listed
from ddpmon.commands.remote import ask, last_line, remote_command
from ddpmon.store.base import StoreUnavailable, TargetError

_LIMIT_S = 20.0
_WAIT_S = 20  # for srun to get a step beside the job's own
_PARTS = 4  # state, number, number as the user knows it, nodes
_JOB = re.compile(r"[0-9]+([_+][0-9]+)?", re.ASCII)  # 12, 12_3 of an array, 12+1 of a heterogeneous job


@dataclass(frozen=True, slots=True)
class Job:
    """A job that runs, and its nodes in Slurm's order."""

    number: str
    nodes: tuple[str, ...]

    def step(self, nodes: int, command: str) -> list[str]:
        """The srun that runs a shell's command once on each of the first so many nodes, beside what runs there."""
        chosen = ",".join(self.nodes[:nodes])
        options = [f"--jobid={self.number}", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}"]
        options += ["--ntasks-per-node=1", f"--nodelist={chosen}", "--input=none", f"--immediate={_WAIT_S}", "--quiet"]
        return ["srun", *options, "sh", "-c", command]


def find_job(number: str) -> Job:
    """Ask Slurm for a job.

    Raises:
        TargetError: `number` is no job's.
        StoreUnavailable: there is no Slurm here, or no such job, or it is not running.
    """
    if not _JOB.fullmatch(number):
        raise TargetError(f"{number!r} is not a Slurm job: --slurm takes its number, such as 4711 or 4711_3")
    asked = _slurm("squeue", "--noheader", f"--jobs={number}", "--states=all", "--format=%T %A %i %N").splitlines()
    parts = [part for line in asked if len(part := line.split()) >= _PARTS - 1]
    running = [part for part in parts if part[0] == "RUNNING" and len(part) == _PARTS]
    if len(running) > 1:
        raise TargetError(
            f"job {number} is an array of several jobs: name one of {', '.join(part[2] for part in running[:16])}"
        )
    if not parts:
        raise StoreUnavailable(f"Slurm does not know job {number}: it has ended, or it belongs to another cluster")
    if not running:
        raise StoreUnavailable(f"job {number} is {parts[0][0]}: there is nothing to watch on its hosts")
    _, plain_number, _, nodes = running[0]
    names = _slurm("scontrol", "show", "hostnames", nodes).split()
    if not names:
        raise StoreUnavailable(f"Slurm does not list the hosts {nodes!r} of job {number}")
    return Job(plain_number, tuple(names))


def runs_of_job(job: Job) -> list[Listed]:
    """The runs on the job's first node, or else, since any node may hold rank 0, on all of them.

    Raises:
        StoreUnavailable: the nodes cannot be asked.
    """
    command = f"exec {remote_command('--brief')}"
    found = ask(job.step(1, command), job.nodes[0])
    if found or len(job.nodes) == 1:
        return found
    return ask(job.step(len(job.nodes), command), f"the hosts of job {job.number}")


def _slurm(*command: str) -> str:
    """What a Slurm command prints.

    Raises:
        StoreUnavailable: it is not there or fails.
    """
    if shutil.which(command[0]) is None:
        raise StoreUnavailable(f"{command[0]} is not installed here: --slurm needs a host with the Slurm commands")
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise StoreUnavailable(f"{command[0]} did not answer within {_LIMIT_S:.0f} s") from None
    except OSError as error:
        raise StoreUnavailable(f"{command[0]} cannot be run: {error.strerror or error}") from None
    if done.returncode and b"Invalid job id" in done.stderr:
        return ""
    if done.returncode:
        raise StoreUnavailable(f"{command[0]} failed: {last_line(done.stderr)}")
    return done.stdout.decode("utf-8", "replace")
