"""Where runs are looked for: a host behind ssh, and the hosts of a Slurm job."""

from __future__ import annotations

import ipaddress
import shlex

from ddpmon.commands.listing import Listed, Listing, runs_here
from ddpmon.commands.remote import ask, remote_command
from ddpmon.commands.slurm import Job, find_job, runs_of_job
from ddpmon.commands.ssh_link import SshLink
from ddpmon.commands.way import Seen
from ddpmon.store.base import StoreUnavailable
from ddpmon.store.connect import Target
from ddpmon.store.tcp_connection import knock
from ddpmon.watcher.way import Fate

_KNOCK_S = 3.0


class SshHost:
    """A host where ssh logs in, once for everything.

    Args:
        host: as ssh takes it.

    Raises:
        TargetError: `host` makes no sense.
        StoreUnavailable: nobody is let in.
    """

    def __init__(self, host: str) -> None:
        self.name, self.options = host, f"--ssh {shlex.quote(host)} "
        self._link = SshLink(host)
        try:
            self._link.open()
        except BaseException:
            self._link.close()
            raise

    def look(self) -> Seen:
        """Ask the ddpmon there which runs it knows."""
        listing = ask(self._link.command(remote_command("--brief")), self.name)
        return Seen(listing, f"there is no run on {self.name} yet")

    def runs(self, *arguments: str) -> list[Listed]:
        """The runs there, as `ddpmon ls` with these arguments lists them."""
        return ask(self._link.command(remote_command(*arguments)), self.name).runs

    def reach(self, store: Target, run: Listed | None, *, attended: bool) -> Target:  # noqa: ARG002 (it is logged in)
        """A tunnel to a run's own store; a Redis server is reached from here, with the login of its address."""
        return store if store.redis is not None else self._link.forward(store)

    def trouble(self) -> str:
        """Why ssh is down."""
        return self._link.trouble()

    def refusal(self) -> str:
        """Why the host could not connect to the store."""
        return self._link.refusal()

    def close(self) -> None:
        """Log out."""
        self._link.close()


class SlurmJob:
    """The hosts of a Slurm job: found with squeue, asked with srun, and reached directly or else by ssh.

    Args:
        number: the job's.
    """

    def __init__(self, number: str) -> None:
        self.name, self.options = f"the hosts of job {number}", f"--slurm {number} "
        self._number = number
        self._job: Job | None = None
        self._link: SshLink | None = None

    def look(self) -> Seen:
        """Ask Slurm how the job stands, and its hosts for runs once it runs."""
        self._job = job = find_job(self._number)
        if not job.is_running:
            outcome = None if job.outcome is None else Fate(job.outcome, job.words)
            nothing = "its run has not started" if outcome is None else "there is nothing to watch on its hosts"
            return Seen(Listing(runs=[]), f"{job.words}; {nothing}", outcome)
        return Seen(runs_of_job(job, "--brief"), f"{job.words}, and there is no run on its hosts yet")

    def reach(self, store: Target, run: Listed | None, *, attended: bool) -> Target:
        """The store itself where it can be reached from here, or a tunnel through its host."""
        if store.redis is not None or _answers_here(store, run):
            return store
        job = self._job or find_job(self._number)
        host = (run.host if run is not None else None) or (job.nodes[0] if job.nodes else "")
        link = SshLink(host, attended=attended)
        try:
            link.open()
        except BaseException as error:
            link.close()
            if isinstance(error, StoreUnavailable):
                raise StoreUnavailable(f"{error}; this shows the run from its own host: {_inside(job, host)}") from None
            raise
        if self._link is not None:
            self._link.close()
        self._link = link
        return link.forward(store)

    def trouble(self) -> str:
        """Why ssh is down, where it takes ssh."""
        return "" if self._link is None else self._link.trouble()

    def refusal(self) -> str:
        """Why the host could not connect to the store."""
        return "" if self._link is None else self._link.refusal()

    def close(self) -> None:
        """Log out."""
        if self._link is not None:
            self._link.close()


def _inside(job: Job, host: str) -> str:
    return f"srun --jobid={job.plain_number} --overlap -N1 -n1 -w {shlex.quote(host)} --pty ddpmon watch"


def _answers_here(store: Target, run: Listed | None) -> bool:
    """Whether the store answers from here; a loopback address is another host's, unless the run is here too."""
    if _is_loopback(store.host) and (run is None or run.id not in {each.id for each in runs_here()}):
        return False
    try:
        knock(store.host, store.port, _KNOCK_S)
    except OSError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
