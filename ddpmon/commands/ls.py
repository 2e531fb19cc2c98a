"""`ddpmon ls`: the runs that can be reached from here, and how to watch each."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing

import msgspec

from ddpmon.commands.console import NO_RUN, OK, STDOUT, USAGE, complain, has_terminal, printable
from ddpmon.commands.kubernetes import KubernetesJob
from ddpmon.commands.listing import (
    RUNS_SHOWN,
    SCHEMA_VERSION,
    Listed,
    looked_at,
    runs_here,
    runs_of,
    runs_of_environment,
)
from ddpmon.commands.places import SshHost
from ddpmon.commands.slurm import find_job, runs_of_job
from ddpmon.format import age, json_line, plural
from ddpmon.store.base import StoreUnavailable, TargetError
from ddpmon.store.connect import external_store_of_environment
from ddpmon.store.discovery import PastRun, past_runs, told_of_containers
from ddpmon.store.private import squatted
from ddpmon.store.redis_url import redacted
from ddpmon.version import __version__

HEAD = ("name", "state", "ranks", "hosts", "step", "ms/step", "age", "worst finding", "to watch it")
RIGHT = (2, 4, 5, 6)  # columns of numbers
HOSTS_NAMED = 2
PAST_NAMED = 3
UNKNOWN = "-"


def ls(
    target: str | None,
    ssh: str | None,
    as_json: bool,
    brief: bool,
    slurm: str | None = None,
    k8s: str | None = None,
) -> int:
    """Print the runs on this host, in a store, on an ssh host or of a job; returns the exit code."""
    try:
        runs = _runs(target, ssh, slurm, k8s, brief)
    except TargetError as error:
        complain(str(error))
        return USAGE
    except StoreUnavailable as error:
        complain(str(error))
        return NO_RUN
    commands = [_to_watch(run, target, ssh, slurm, k8s) for run in runs]
    past = None if target or ssh or slurm or k8s else past_runs()
    if as_json:
        print(_as_json(runs, commands, past))
    elif runs:
        print("\n".join(_in_terminal([*table(runs, commands)], commands)))
        if past is not None and (more := told_of_containers()):
            print(f"note: {printable(more)}")
    listed = {run.id for run in runs}
    if not as_json and (dead := [run for run in past or () if run.id not in listed]):
        print(_past_words(dead))
    if not runs:
        complain(f"no run {_where(target, ssh, slurm, k8s)}")
    return OK if runs else NO_RUN


def _past_words(past: Sequence[PastRun]) -> str:
    """A line on the runs that are not listed because their processes are dead; "killed" may be one that failed."""
    states = ["" if run.state == "killed" else f" ({printable(run.state)})" for run in past[:PAST_NAMED]]
    named = ", ".join(f"{printable(run.id)}{state}" for run, state in zip(past, states, strict=False))
    more = f" and {len(past) - PAST_NAMED} more, which --json names" if len(past) > PAST_NAMED else ""
    return f"note: {plural(len(past), 'run')} of the last 24 h did not end in order: {named}{more}"


def _runs(target: str | None, ssh: str | None, slurm: str | None, k8s: str | None, brief: bool) -> list[Listed]:
    if sum(each is not None for each in (target, ssh, slurm, k8s)) > 1:
        raise TargetError("STORE, --ssh, --slurm and --k8s exclude each other: each says where to look for runs")
    how = ["--brief"] if brief else []
    if ssh is not None:
        with closing(SshHost(ssh)) as host:
            return host.runs(*how)
    if slurm is not None:
        job = find_job(slurm)
        if not job.is_running:
            raise StoreUnavailable(f"{job.words}: it has no run to list now")
        return runs_of_job(job, *how).runs
    if k8s is not None:
        return KubernetesJob(k8s).runs(*how)
    if target is not None:
        runs = runs_of(target)
    else:
        runs = runs_here()
        runs += [] if brief else _elsewhere(runs)  # who asks briefly asks for what is on this host
    return runs if brief else looked_at(runs, target)


def _where(target: str | None, ssh: str | None, slurm: str | None, k8s: str | None) -> str:
    if target is not None:
        return f"in {redacted(target)}"
    if ssh is not None or slurm is not None:
        return f"on {ssh}" if ssh is not None else f"on the hosts of job {slurm}"
    if k8s is not None:
        return f"in the pods of job {k8s}"
    return f"on this host{f'; {why}' if (why := squatted() or told_of_containers()) else ''}"


def _elsewhere(known: Sequence[Listed]) -> list[Listed]:
    runs, trouble = runs_of_environment(known)
    if trouble:
        complain(trouble)
    elif not runs and not known and external_store_of_environment() is not None:
        complain("no run in the store of DDPMON_STORE")
    return runs


def table(runs: Sequence[Listed], commands: Sequence[str]) -> Iterator[str]:
    """The lines to print: aligned columns, then why a run could not be read."""
    rows = [HEAD, *((*_cells(run), printable(command)) for run, command in zip(runs, commands, strict=True))]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEAD) - 1)]
    for row in rows:
        cells = [
            cell.rjust(width) if place in RIGHT else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row[:-1], widths, strict=True))
        ]
        yield "  ".join([*cells, row[-1]])
    yield from (f"note: {printable(run.id)}: {printable(run.trouble)}" for run in runs if run.trouble)


def _in_terminal(lines: Sequence[str], commands: Sequence[str]) -> Iterator[str]:
    """The lines of the table. In a terminal that is too narrow for them each command stands below its row."""
    width = os.get_terminal_size(STDOUT).columns if has_terminal(STDOUT) else 0
    if not 0 < width < max(map(len, lines[: len(commands) + 1])):
        yield from lines
        return
    yield lines[0].removesuffix(HEAD[-1]).rstrip().removesuffix(" finding")
    for line, command in zip(lines[1:], map(printable, commands), strict=False):
        yield line.removesuffix(command).rstrip()
        yield f"    {command}"
    yield from lines[len(commands) + 1 :]


def _cells(run: Listed) -> tuple[str, ...]:
    return (
        printable(run.name or UNKNOWN),
        printable(run.state or UNKNOWN),
        UNKNOWN if run.world_size is None else str(run.world_size),
        _hosts(run),
        UNKNOWN if run.step is None else f"{run.step:,}",
        UNKNOWN if run.step_ms is None else f"{run.step_ms:.1f}",
        UNKNOWN if run.elapsed_s is None else age(run.elapsed_s),
        _worst(run),
    )


def _worst(run: Listed) -> str:
    """Its severity and kind, "none" for a run that was read and has none."""
    if run.worst is None:
        return "none" if run.hosts is not None else UNKNOWN
    return printable(f"{run.worst.severity}: {run.worst.kind}")


def _hosts(run: Listed) -> str:
    if run.hosts is None:
        return printable(run.host or UNKNOWN)
    return printable(", ".join(run.hosts)) if len(run.hosts) <= HOSTS_NAMED else f"{len(run.hosts)} hosts"


def _to_watch(run: Listed, target: str | None, ssh: str | None, slurm: str | None, k8s: str | None) -> str:
    there = ["--ssh", ssh] if ssh else ["--slurm", slurm] if slurm else ["--k8s", k8s] if k8s else []
    return shlex.join(["ddpmon", "watch", *there, run.target if target else run.id])


def _as_json(runs: Sequence[Listed], commands: Sequence[str], past: Sequence[PastRun] | None) -> str:
    rows = [{**msgspec.to_builtins(run), "watch": command} for run, command in zip(runs, commands, strict=True)]
    told = None if past is None else msgspec.to_builtins(past[:RUNS_SHOWN])
    return json_line({"schema_version": SCHEMA_VERSION, "release": __version__, "runs": rows, "past": told})
