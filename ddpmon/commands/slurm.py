"""Where a Slurm job runs, and which runs it holds: asked with Slurm's own commands."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from typing import Literal

import msgspec

from ddpmon.commands.listing import Listing
from ddpmon.commands.remote import ask, last_line, remote_command, run_bounded
from ddpmon.format import age
from ddpmon.store.base import StoreUnavailable, TargetError

_LIMIT_S = 20.0
_WAIT_S = 20  # for srun to get a step beside the job's own
_FORMAT = "%T|%A|%i|%U|%u|%M|%N|%r"
_JOB = re.compile(r"[0-9]+([_+][0-9]+)?", re.ASCII)  # 12, 12_3 of an array, 12+1 of a heterogeneous job
Outcome = Literal["finished", "failed", "cancelled"]
_OVER: dict[str, Outcome] = {
    "BOOT_FAIL": "failed", "CANCELLED": "cancelled", "COMPLETED": "finished", "DEADLINE": "failed", "FAILED": "failed",
    "NODE_FAIL": "failed", "OUT_OF_MEMORY": "failed", "PREEMPTED": "cancelled", "REVOKED": "cancelled",
    "TIMEOUT": "failed",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Job:
    """A job as squeue shows it.

    Attributes:
        number: as the user knows it.
        plain_number: that of this job alone, where `number` is a task of an array.
        listed_number: as squeue lists it, such as 4711_3 of an array, whichever number the user has given.
        state: Slurm's word, such as "PENDING".
        reason: why it is in that state, in Slurm's word; empty where it has none.
        runs_for_s: how long it has been running.
        nodes: its hosts in Slurm's order, while it has any.
    """

    number: str
    plain_number: str
    listed_number: str
    state: str
    reason: str = ""
    runs_for_s: float = 0.0
    nodes: tuple[str, ...] = ()

    @property
    def is_running(self) -> bool:
        """Whether its hosts can be asked."""
        return self.state == "RUNNING" and bool(self.nodes)

    @property
    def outcome(self) -> Outcome | None:
        """How it has ended; None while it has not."""
        return _OVER.get(self.state)

    @property
    def words(self) -> str:
        """How it stands, in a sentence: "job 2 is PENDING (Resources)"."""
        if self.is_running:
            return f"job {self.number} has been running for {age(self.runs_for_s)}"
        reason = "" if self.outcome in ("cancelled", "finished") else self.reason  # that of an earlier state
        return f"job {self.number} is {self.state}{f' ({reason})' if reason else ''}"

    def step(self, nodes: int, command: str) -> list[str]:
        """The srun that runs a shell's command once on each of the first so many nodes, beside what runs there."""
        chosen = ",".join(self.nodes[:nodes])
        options = [f"--jobid={self.plain_number}", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}"]
        options += ["--ntasks-per-node=1", f"--nodelist={chosen}", "--input=none", f"--immediate={_WAIT_S}", "--quiet"]
        return ["srun", *options, "sh", "-c", command]


def find_job(number: str) -> Job:
    """Ask Slurm for a job.

    Raises:
        TargetError: `number` is no job's, or that of several jobs or of another user's.
        StoreUnavailable: there is no Slurm here, it does not answer, or it knows no such job.
    """
    if not _JOB.fullmatch(number):
        raise TargetError(f"{number!r} is not a Slurm job: --slurm takes its number, such as 4711 or 4711_3")
    asked = _slurm("squeue", "--noheader", f"--jobs={number}", "--states=all", f"--format={_FORMAT}").splitlines()
    rows = [parts for line in asked if len(parts := line.strip().split("|", _FORMAT.count("|"))) > _FORMAT.count("|")]
    if not rows:
        raise StoreUnavailable(f"Slurm does not know job {number}: it ended a while ago, or is another cluster's")
    running = [row for row in rows if row[0] == "RUNNING"]
    if len(running) > 1:
        raise TargetError(
            f"job {number} is an array of several jobs: name one of {', '.join(row[2] for row in running[:16])}"
        )
    return _job(number, running[0] if running else rows[0])


def _job(number: str, row: list[str]) -> Job:
    state, plain_number, listed_number, uid, user, time, nodes, reason = row
    if uid != str(os.geteuid()):
        raise TargetError(f"job {number} is {user}'s: Slurm lets nobody else look at its hosts")
    names = tuple(_slurm("scontrol", "show", "hostnames", nodes).split()) if nodes and state == "RUNNING" else ()
    why = "" if reason == "None" else reason
    return Job(number, plain_number, listed_number, state, why, _seconds(time), names)


def runs_of_job(job: Job, *arguments: str) -> Listing:
    """The job's runs on its first host, or else, since any host may hold rank 0, on all of them.

    Several jobs may share a host, so runs that name another job are left out. Runs that name no job, because they were
    started in an ssh session on the host, are listed only if the job has no run of its own.

    Raises:
        StoreUnavailable: the hosts cannot be asked.
    """
    command = remote_command(*arguments)
    found = _own(job, ask(job.step(1, command), job.nodes[0]))
    if found.runs or len(job.nodes) == 1:
        return found
    return _own(job, ask(job.step(len(job.nodes), command), f"the hosts of job {job.number}"))


def _own(job: Job, listing: Listing) -> Listing:
    """Without the runs of other jobs; the parts of a heterogeneous job all have the number of the first."""
    numbers = job.plain_number, job.listed_number.partition("+")[0]
    mine = [run for run in listing.runs if run.jobs.get("slurm") in numbers]
    nobodys = [run for run in listing.runs if "slurm" not in run.jobs]
    return msgspec.structs.replace(listing, runs=mine or nobodys)


def _seconds(time: str) -> float:
    """Slurm's [days-][[hours:]minutes:]seconds in seconds; 0 for another word, such as INVALID."""
    days, _, rest = time.rpartition("-")
    try:
        hours, minutes, seconds = (int(part) for part in ["0", "0", *rest.split(":")][-3:])
        return ((int(days or 0) * 24.0 + hours) * 60 + minutes) * 60 + seconds
    except ValueError:
        return 0.0


def _slurm(*command: str) -> str:
    """What a Slurm command prints.

    Raises:
        StoreUnavailable: it is not there, fails, or does not answer within bounds.
    """
    if shutil.which(command[0]) is None:
        raise StoreUnavailable(f"{command[0]} is not installed here: --slurm needs a host with the Slurm commands")
    done = run_bounded(command, command[0], _LIMIT_S, "a list of jobs")
    if done.returncode and b"Invalid job id" in done.stderr:
        return ""
    if done.returncode:
        raise StoreUnavailable(f"{command[0]} failed: {last_line(done.stderr)}")
    return done.stdout.decode("utf-8", "replace")
