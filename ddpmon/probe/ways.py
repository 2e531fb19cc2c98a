"""What rank 0's line says: the run's name, the way from another host, and from outside of a container."""

from __future__ import annotations

import os
import pwd
import shlex
from collections.abc import Mapping
from urllib.parse import urlsplit

from ddpmon.store.discovery import Announcement, discover, has_rank_0
from ddpmon.store.namespaces import in_container
from ddpmon.store.server import FIRST_PORT


def from_elsewhere(url: str, *, is_hosted: bool, is_said: bool) -> str:
    """The end of rank 0's line; "" where there is no other way.

    Args:
        url: the store's.
        is_hosted: whether rank 0 hosts the store.
        is_said: whether the line gives the address already.
    """
    there = f"ddpmon watch {shlex.quote(url)}"
    if is_hosted and in_container():
        return f" (inside this container; outside of it: {_outside(url, there)})"
    if is_hosted and (login := _from_login(os.environ)):
        return f" (from another host: {login})"
    return "" if is_said or is_local(url) else f" (from another host: {there})"


def called(run: Announcement) -> str:
    """What `ddpmon watch` calls a run on this host: its name, or its id where another run here has the same name."""
    others = (each.name for each in discover() if each.run_id != run.run_id and has_rank_0(each))
    is_plain = not run.name.startswith("-") and "://" not in run.name and run.name.isprintable()
    return run.name if is_plain and run.name and run.name not in others else run.run_id


def _from_login(environment: Mapping[str, str]) -> str:
    """The command for the host from which this job was submitted, or this shell was opened; "" where neither is known.

    A job inherits the variables of the shell that submitted it, so Slurm's come first.
    """
    if job := environment.get("SLURM_JOB_ID", ""):
        return f"ddpmon watch --slurm {shlex.quote(job)}"
    _, _, host, port = (*environment.get("SSH_CONNECTION", "").split(), "", "", "", "")[:4]
    if not host:
        return ""
    ssh = "" if port == "22" else f"DDPMON_SSH={shlex.quote(f'ssh -p {port}')} "
    return f"{ssh}ddpmon watch --ssh {shlex.quote(f'{_user()}@{host}')}"


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container may have a user without a name
        return str(os.geteuid())


def _outside(url: str, there: str) -> str:
    port = urlsplit(url).port
    if is_local(url):
        asked = f"DDPMON_LISTEN=0.0.0.0:{FIRST_PORT}"
        return f"{there} if it shares the host's network, else start it with {asked} and publish that port"
    return f"{there}, or the host's port that you have published for {port}"


def is_local(url: str) -> bool:
    """Whether only this host reaches it."""
    return url.startswith(("tcp://127.", "tcp://localhost:", "tcp://[::1]:"))
