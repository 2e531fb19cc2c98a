"""Which run a command's TARGET means, and the way there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ddpmon.commands.choose import fitting, of_job, only
from ddpmon.commands.kubernetes import KubernetesJob
from ddpmon.commands.listing import Listed, runs_here, runs_of_environment
from ddpmon.commands.places import SlurmJob, SshHost
from ddpmon.commands.way import Lookout
from ddpmon.store.base import StoreUnavailable, TargetError
from ddpmon.store.connect import external_store_of_environment, lacks_scheme, parse_target
from ddpmon.watcher.way import Way


@dataclass(frozen=True, slots=True)
class Route:
    """What the Observer takes.

    Attributes:
        target: the address of a run that can be reached from here; None for the run on this host, or where `way` leads.
        way: leads to a run that is elsewhere.
    """

    target: str | None
    way: Way | None = None


@contextmanager
def reached(
    target: str | None,
    ssh: str | None = None,
    slurm: str | None = None,
    k8s: str | None = None,
    job: str | None = None,
    *,
    waits: bool = False,
) -> Iterator[Route]:
    """The run that is meant, with a tunnel to it for as long as the block lasts if it takes one.

    Args:
        target: an address, a run's name or id or the beginning of one, or None for the only run there.
        ssh: look on this host instead, where ssh logs in.
        slurm: look on the hosts of this job instead.
        k8s: look in the pods of this job instead.
        job: only a run whose job a scheduler or a launcher calls so.
        waits: whether a run elsewhere that has not started yet is waited for.

    Raises:
        TargetError: the words make no sense, or there are several runs to choose from; the message lists them.
        StoreUnavailable: there is no such run, or no way to it.
    """
    if sum(each is not None for each in (ssh, slurm, k8s)) > 1:
        raise TargetError("--ssh, --slurm and --k8s exclude each other: each says where to look for the run")
    if target is not None and "://" in target and job is not None:
        raise TargetError("--job and an address exclude each other: the address says which store is read")
    if ssh is None and slurm is None and k8s is None:
        yield Route(here(target) if job is None else here_of_job(job, target))
        return
    place = SshHost(ssh) if ssh is not None else SlurmJob(slurm) if slurm is not None else KubernetesJob(k8s or "")
    with closing(Lookout(place, target, job)) as lookout:
        if target is not None and "://" in target:
            lookout.go_to(parse_target(target))
        else:
            lookout.look_first(waits=waits)
        yield Route(None, lookout)


def here(target: str | None) -> str | None:
    """The address that TARGET means on this host; None for none yet.

    Raises:
        TargetError: several runs fit, or none does and it is a file, a folder, or an address without its scheme; or an
            address, that of DDPMON_STORE included, makes no sense.
        StoreUnavailable: it is neither an address nor a run.
    """
    if target is not None and "://" in target:
        parse_target(target)
        return target
    if target == "":
        raise TargetError("TARGET is empty: leave it out for the only run on this host")
    runs = runs_here()
    if target is None:
        only(runs, "on this host")
        external_store_of_environment()
        return None  # the Observer finds it by itself, and again after a restart
    exact = any(target in (run.id, run.name) for run in runs)
    more, trouble = ([], "") if exact else runs_of_environment(runs)
    found = fitting([*runs, *more], target)
    chosen = only(found, _where(found, runs))
    if chosen is None:
        raise _unknown(target, trouble)
    return chosen.target


def here_of_job(job: str, target: str | None) -> str:
    """The address of the run on this host whose job is called so.

    Raises:
        TargetError: several runs fit.
        StoreUnavailable: there is none.
    """
    runs = of_job(runs_here(), job)
    chosen = only(runs if target is None else fitting(runs, target), f"of job {job} on this host")
    if chosen is None:
        raise StoreUnavailable(
            f"no run of job {job} on this host: `ddpmon ls --json` lists the jobs of the runs here; if it runs "
            f"on another host, add --ssh HOST or --k8s JOB, or use --slurm {job}"
        )
    return chosen.target


def _where(found: Sequence[Listed], here: Sequence[Listed]) -> str:
    are_here = {run in here for run in found}
    if are_here == {False}:
        return "in the store of DDPMON_STORE"
    return "on this host and in the store of DDPMON_STORE" if False in are_here else "on this host"


def _unknown(target: str, trouble: str) -> TargetError | StoreUnavailable:
    """Why TARGET is no run: what it looks like, or the trouble with the store where it might be."""
    if what := _on_disk(target):
        return TargetError(f"{target!r} is a {what}, not a run on this host: `ddpmon ls` lists runs")
    if lacks_scheme(target):
        return TargetError(f"no run on this host is called {target!r}; if it is an address, write tcp://{target}")
    if trouble:
        return StoreUnavailable(
            f"no run on this host is called {target!r}, and the store of DDPMON_STORE cannot be asked: {trouble}"
        )
    return StoreUnavailable(f"{target!r} is neither an address nor a run on this host: `ddpmon ls` lists runs")


def _on_disk(text: str) -> str:
    """What has this name here: "folder", "file", or empty for nothing."""
    try:
        return "folder" if Path(text).is_dir() else "file" if Path(text).exists() else ""
    except (OSError, ValueError):  # too long for a name, or not one at all
        return ""
