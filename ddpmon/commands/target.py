"""Which run a command's TARGET means, and the way there."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from ddpmon.commands.console import printable
from ddpmon.commands.listing import Listed, runs_here, runs_of_environment
from ddpmon.commands.remote import runs_over_ssh
from ddpmon.commands.slurm import Job, find_job, runs_of_job
from ddpmon.commands.tunnel import Tunnel
from ddpmon.store.base import StoreUnavailable, TargetError
from ddpmon.store.connect import Target, lacks_scheme, parse_target
from ddpmon.store.tcp_connection import knock

_KNOCK_S = 3.0


@contextmanager
def reached(target: str | None, ssh: str | None = None, slurm: str | None = None) -> Iterator[str | None]:
    """The address of the run that is meant, with a tunnel to it for as long as the block lasts if it takes one.

    Args:
        target: an address, a run's name or id or the beginning of one, or None for the only run there.
        ssh: look on this host instead, where ssh logs in.
        slurm: look on the nodes of this job instead.

    Yields:
        What the Observer takes; None where no run is on this host yet.

    Raises:
        TargetError: the words make no sense, or there are several runs to choose from; the message lists them.
        StoreUnavailable: there is no such run, or no way to it.
    """
    if ssh is not None and slurm is not None:
        raise TargetError("--ssh and --slurm exclude each other: the hosts of a job are reached through Slurm")
    if ssh is not None:
        with _through(ssh, _on_host(target, ssh)) as address:
            yield address
    elif slurm is not None:
        job = find_job(slurm)
        run = _chosen(runs_of_job(job), target, f"the hosts of job {slurm}", f"--slurm {slurm} ")
        with _way_to(job, run) as address:
            yield address
    else:
        yield here(target)


def here(target: str | None) -> str | None:
    """The address that TARGET means on this host; None for none yet.

    Raises:
        TargetError: several runs fit, or none does and it is a file, a folder, or an address without its scheme.
        StoreUnavailable: it is neither an address nor a run.
    """
    if target is not None and "://" in target:
        return target
    if target == "":
        raise TargetError("TARGET is empty: leave it out for the only run on this host")
    runs = runs_here()
    if target is None:
        _only(runs, "this host")
        return None  # the Observer finds it by itself, and again after a restart
    exact = any(target in (run.id, run.name) for run in runs)
    more, trouble = ([], "") if exact else runs_of_environment(runs)
    fitting = _fitting([*runs, *more], target)
    local, stored = {run.id for run in fitting if run in runs}, {run.id for run in fitting if run in more}
    where = "this host and in the store of DDPMON_STORE" if local and stored else "this host"
    found = _only(fitting, where if local or not stored else "in the store of DDPMON_STORE")
    if found is None:
        raise _unknown(target, trouble)
    return found.target


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


@contextmanager
def _through(host: str, address: str) -> Iterator[str]:
    """A tunnel to a run's own store; a Redis server is reached as it is, with the login that belongs to its address."""
    there = parse_target(address)
    if there.redis is not None:
        yield address
        return
    with closing(Tunnel(host, there)) as tunnel:
        tunnel.open()
        yield tunnel.url


def _on_host(target: str | None, host: str) -> str:
    """The run's address, as `host` sees it."""
    if target is not None and "://" in target:
        return target
    runs = runs_over_ssh(host, "--brief")
    return _chosen(runs, target, host, f"--ssh {shlex.quote(host)} ").target


def _chosen(runs: Sequence[Listed], wanted: str | None, where: str, options: str) -> Listed:
    """The run that is wanted of those elsewhere; the only one where nothing is.

    Raises:
        TargetError: several fit.
        StoreUnavailable: none does.
    """
    fitting = runs if wanted is None else _fitting(runs, wanted)
    found = _only(fitting, where, options)
    if found is None:
        others = f"; there are: {', '.join(printable(run.id) for run in runs[:8])}" if runs else ""
        raise StoreUnavailable(f"no run{f' called {wanted!r}' if wanted else ''} on {where}{others}")
    return found


def _fitting(runs: Sequence[Listed], wanted: str) -> list[Listed]:
    """The runs with this id; or else of this name; or else those whose id or name begins so."""
    tests: tuple[Callable[[Listed], bool], ...] = (
        lambda run: run.id == wanted,
        lambda run: run.name == wanted,
        lambda run: bool(wanted) and (run.id.startswith(wanted) or (run.name or "").startswith(wanted)),
    )
    return next((found for test in tests if (found := [run for run in runs if test(run)])), [])


def _only(runs: Sequence[Listed], where: str, options: str = "") -> Listed | None:
    """The only one of these runs, or of those whose rank 0 lives; None for none.

    Raises:
        TargetError: there are several.
    """
    runs = [run for run in runs if run.state != "lost"] or runs
    if len(runs) > 1:
        lines = [f"  {options}{shlex.quote(run.id)}   {printable(_described(run))}" for run in runs]
        place = where if where.startswith("in ") else f"on {where}"
        raise TargetError("\n".join([f"several runs {place}: name one of these as TARGET", *lines]))
    return runs[0] if runs else None


def _described(run: Listed) -> str:
    """A run in a store has not been asked for its name."""
    return run.url if run.world_size is None else f"{run.name}, {run.world_size} ranks, {run.url}"


@contextmanager
def _way_to(job: Job, run: Listed) -> Iterator[str]:
    """The run's own address where it can be reached from here, or a tunnel through its node."""
    target = parse_target(run.target)
    if target.redis is not None or _reachable(target, run):
        yield run.target
        return
    node = run.host or job.nodes[0]
    with closing(Tunnel(node, target)) as tunnel:
        try:
            tunnel.open()
        except StoreUnavailable as error:
            inside = f"srun --jobid={job.number} --overlap -N1 -n1 -w {shlex.quote(node)} --pty ddpmon watch"
            raise StoreUnavailable(f"{error}; this shows the run from its own host: {inside}") from None
        yield tunnel.url


def _reachable(target: Target, run: Listed) -> bool:
    """Whether the store answers from here; a loopback address is another host's, unless the run is here too."""
    if _is_loopback(target.host) and run.id not in {each.id for each in runs_here()}:
        return False
    try:
        knock(target.host, target.port, _KNOCK_S)
    except OSError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _on_disk(text: str) -> str:
    """What has this name here: "folder", "file", or empty for nothing."""
    try:
        return "folder" if Path(text).is_dir() else "file" if Path(text).exists() else ""
    except (OSError, ValueError):  # too long for a name, or not one at all
        return ""
