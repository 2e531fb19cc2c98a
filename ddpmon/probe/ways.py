"""The commands in rank 0's line: they show its run on this host, and from where the user probably is."""

from __future__ import annotations

import os
import pwd
import shlex
from urllib.parse import urlsplit

from ddpmon.store.discovery import Announcement, discover, has_rank_0, is_loopback
from ddpmon.store.namespaces import in_container
from ddpmon.store.server import FIRST_PORT


def ways(run: Announcement, *, is_found: bool) -> str:
    """The command for this host, and in brackets the one for elsewhere where that is another.

    Args:
        run: as it is announced.
        is_found: whether this user's other shells find it by its name.
    """
    there = f"ddpmon watch {shlex.quote(run.url)}"
    here = f"ddpmon watch {shlex.quote(_called(run))}" if is_found else there
    if run.store_pid and in_container():
        return f"{here} (inside this container; outside of it: {_outside(run.url, there)})"
    elsewhere = _from_elsewhere(run.url) or ("" if is_loopback(run.url) else there)
    return f"{here} (from another host: {elsewhere})" if elsewhere not in ("", here) else here


def _called(run: Announcement) -> str:
    """Its name, or its id where another run here has the same name, or where the name cannot stand as an argument."""
    others = (each.name for each in discover() if each.run_id != run.run_id and has_rank_0(each))
    is_plain = not run.name.startswith("-") and "://" not in run.name and run.name.isprintable()
    return run.name if is_plain and run.name and run.name not in others else run.run_id


def _outside(url: str, there: str) -> str:
    if is_loopback(url):
        asked = f"DDPMON_LISTEN=0.0.0.0:{FIRST_PORT}"
        return f"{there} if it shares the host's network, else start it with {asked} and publish that port"
    return f"{there}, or the host's port that you have published for {urlsplit(url).port}"


def _from_elsewhere(url: str) -> str:
    """The command for the host from which this job was submitted, or this shell was opened; "" where neither is known.

    A job inherits the variables of the shell that submitted it, so Slurm's come first.
    """
    if not url.startswith("tcp://"):
        return ""
    if job := os.environ.get("SLURM_JOB_ID", ""):
        return f"ddpmon watch --slurm {shlex.quote(job)}"
    return by_ssh()


def by_ssh(default: str = "") -> str:
    """The command for the host from which this shell was opened by ssh.

    Args:
        default: what this host is called where it was not opened by ssh; "" for no command then.
    """
    _, _, host, port = (*os.environ.get("SSH_CONNECTION", "").split(), "", "", "", "")[:4]
    if not host:
        host, port = default, "22"
    ssh = "" if port == "22" else f"DDPMON_SSH={shlex.quote(f'ssh -p {port}')} "
    return f"{ssh}ddpmon watch --ssh {shlex.quote(f'{_user()}@{host}')}" if host else ""


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container may have a user without a name
        return str(os.geteuid())
