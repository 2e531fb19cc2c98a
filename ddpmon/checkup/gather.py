"""Where this process stands among the job's hosts, and all hosts' facts through the launcher's own store."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from ddpmon.checkup.facts import Facts

DEFAULT_PORT = 29500
WAIT_S = 60.0
_HOSTED_S = 5.0
_PREFIX = "ddpmon/check"


@dataclass(frozen=True, slots=True)
class Place:
    """This process among those of the check.

    Attributes:
        host, hosts: this host's number and how many there are.
        speaks: whether this process speaks for its host.
        ranks: how many were started on this host; None where nothing but this shell was.
        meeting: (address, port) of the store to meet at, None on one host.
        hosted: whether a launcher already hosts that store; else host 0's process must.
    """

    host: int = 0
    hosts: int = 1
    speaks: bool = True
    ranks: int | None = None
    meeting: tuple[str, int] | None = None
    hosted: bool = False

    @property
    def launched(self) -> bool:
        """Whether a launcher has started this process."""
        return self.ranks is not None


def find_place(environment: Mapping[str, str] = os.environ) -> Place:
    """Read it from the launcher's variables.

    Raises:
        ValueError: a launcher's variable is missing or no number.
    """
    if "GROUP_RANK" in environment:
        return _torchrun(environment)
    if "SLURM_PROCID" in environment and "SLURM_STEP_ID" in environment:
        return _slurm(environment)
    return Place()


def _torchrun(environment: Mapping[str, str]) -> Place:
    hosts = _number(environment, "GROUP_WORLD_SIZE", default=1)
    return Place(
        host=_number(environment, "GROUP_RANK"),
        hosts=hosts,
        speaks=_number(environment, "LOCAL_RANK") == 0,
        ranks=_number(environment, "LOCAL_WORLD_SIZE"),
        meeting=(environment.get("MASTER_ADDR", ""), _number(environment, "MASTER_PORT")) if hosts > 1 else None,
        hosted=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


def _slurm(environment: Mapping[str, str]) -> Place:
    hosts = _number(environment, "SLURM_NNODES", default=1)
    port = _number(environment, "MASTER_PORT", default=DEFAULT_PORT)
    return Place(
        host=_number(environment, "SLURM_NODEID", default=0),
        hosts=hosts,
        speaks=_number(environment, "SLURM_LOCALID", default=0) == 0,
        ranks=max(1, _number(environment, "SLURM_NTASKS", default=1) // hosts),
        meeting=(environment.get("MASTER_ADDR") or _first_host(environment), port) if hosts > 1 else None,
    )


def _first_host(environment: Mapping[str, str]) -> str:
    """The first host of the job, as Slurm's own command spells the list out."""
    hosts = environment.get("SLURM_JOB_NODELIST", "")
    try:
        command = ["scontrol", "show", "hostnames", hosts]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        raise ValueError("the first host is unknown: set MASTER_ADDR to it") from None


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    value = environment.get(name)
    if value is None and default is not None:
        return default
    try:
        return int(value or "")
    except ValueError:
        raise ValueError(
            f"{name}={value or ''} is not a number: start this under torchrun or srun, or by itself"
        ) from None


class UnreachableError(Exception):
    """The store that the hosts should meet at cannot be reached; the message says from where and what to do."""


def gather(place: Place, mine: Facts, wait_s: float = WAIT_S) -> tuple[list[Facts], list[int]]:
    """Hand in this host's facts; host 0 gets all that came in time, and the numbers of the hosts that are missing.

    The others get their own facts alone.

    Raises:
        UnreachableError: the store cannot be reached.
    """
    if place.meeting is None:
        return [mine], []
    store = _meet(place, wait_s)
    try:
        store.set(f"{_PREFIX}/{place.host}", msgspec.msgpack.encode(mine))
        if place.host != 0:
            return [mine], []
        found = {0: mine} | _others(store, place.hosts)
    except Exception as error:
        raise UnreachableError(_sentence(place, error)) from None
    missing = [host for host in range(place.hosts) if host not in found]
    return _told_apart(found), missing


def _told_apart(found: dict[int, Facts]) -> list[Facts]:
    """The hosts in order of number, which stands with the names of those that are called alike."""
    alike = Counter(facts.host for facts in found.values())
    return [
        msgspec.structs.replace(facts, host=f"{facts.host} (host {number})") if alike[facts.host] > 1 else facts
        for number, facts in sorted(found.items())
    ]


def _meet(place: Place, wait_s: float) -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    assert place.meeting is not None
    address, port = place.meeting
    serves = place.host == 0 and not place.hosted
    patience = timedelta(seconds=_HOSTED_S if place.hosted else wait_s)  # a launcher's store is up by now
    try:
        store = TCPStore(address, port, is_master=serves, timeout=patience, wait_for_workers=False)
        store.set_timeout(timedelta(seconds=wait_s))
        return store
    except Exception as error:
        raise UnreachableError(_sentence(place, error)) from None


def _others(store: Any, hosts: int) -> dict[int, Facts]:
    found: dict[int, Facts] = {}
    for host in range(1, hosts):
        try:
            found[host] = msgspec.msgpack.decode(store.get(f"{_PREFIX}/{host}"), type=Facts)
        except Exception:  # late, gone, or of another release: it is told as missing
            store.set_timeout(timedelta(seconds=1))  # who waited this long for one does not wait again for each
    return found


def _sentence(place: Place, error: Exception) -> str:
    address, port = place.meeting or ("", 0)
    words = (str(error) or type(error).__name__).splitlines()[0][:160]
    return (
        f"host {place.host} cannot reach the others at {address}:{port} ({words}): "
        "the ranks could not either; check the address, the port and the firewall"
    )
