"""Where this process stands among the job's hosts, and all hosts' facts through a store where the ranks will meet."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from threading import Thread
from time import monotonic, sleep

import msgspec

from ddpmon.checkup.facts import Facts
from ddpmon.store.base import StoreUnavailable
from ddpmon.store.lookup import addresses
from ddpmon.store.server import StoreServer, bind
from ddpmon.store.server_bounds import Bounds
from ddpmon.store.tcp_client import TcpClient

DEFAULT_PORT = 29500
WAIT_S = 60.0
_TELL_AFTER_S = 10.0  # chosen: longer than any host needs that was started with the others
_LOOK_S = 0.3
_TIMEOUT_S = 30.0  # of an operation: the host of the store may be busy
_PREFIX = "ddpmon/check"
_DONE = f"{_PREFIX}/done"
_DESCRIPTORS = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """This process among those of the check.

    Attributes:
        host, hosts: this host's number and how many there are.
        speaks: whether this process speaks for its host.
        ranks: how many were started on this host; None where nothing but this shell was.
        meeting: (address, port) of the store to meet at, None on one host.
        hosted: whether a launcher already hosts that store; else the host that has its address must.
    """

    host: int = 0
    hosts: int = 1
    speaks: bool = True
    ranks: int | None = None
    meeting: tuple[str, int] | None = None
    hosted: bool = False

    @property
    def serves(self) -> bool:
        """Whether this process hosts that store: its host has the address, and no launcher hosts it."""
        return self.meeting is not None and not self.hosted and _is_here(*self.meeting)

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


def gather(
    place: Place, mine: Facts, say: Callable[[str], None], wait_s: float = WAIT_S
) -> tuple[list[Facts], list[int]]:
    """Hand in this host's facts; host 0 gets all that came in time, and the numbers of the hosts that are missing.

    The others get their own facts alone. The store stands on the host that has the address to meet at, as that of the
    training will; `say` is told what is waited for.

    Raises:
        UnreachableError: the store cannot be reached.
    """
    if place.meeting is None:
        return [mine], []
    until = monotonic() + wait_s
    try:
        _serve(place)
        with closing(_reached(place, until, say)) as store:
            return _exchanged(store, place, mine, until, say)
    except OSError as error:
        raise UnreachableError(_sentence(place, error)) from None


def _exchanged(
    store: TcpClient, place: Place, mine: Facts, until: float, say: Callable[[str], None]
) -> tuple[list[Facts], list[int]]:
    own = f"{_PREFIX}/{place.host}"
    store.put(own, msgspec.msgpack.encode(mine))
    store.get_many([own])  # it has arrived
    if place.host != 0:
        if place.serves:  # until host 0 has read everything
            _wait(lambda: store.get_many([_DONE]) != [None], until)
        return [mine], []
    found = {0: mine} | _others(store, place.hosts, until, say)
    with suppress(StoreUnavailable):  # the host of the store ends as soon as it sees this
        store.put(_DONE, b"1")
        store.get_many([_DONE])
    return _told_apart(found), [host for host in range(place.hosts) if host not in found]


def _told_apart(found: dict[int, Facts]) -> list[Facts]:
    """The hosts in order of number, which stands with the names of those that are called alike."""
    alike = Counter(facts.host for facts in found.values())
    return [
        msgspec.structs.replace(facts, host=f"{facts.host} (host {number})") if alike[facts.host] > 1 else facts
        for number, facts in sorted(found.items())
    ]


def _serve(place: Place) -> None:
    """Host the store in a thread of this process, where this is its host.

    Raises:
        OSError: somebody else listens at its port.
    """
    assert place.meeting is not None
    if not place.serves:
        return
    host, port = place.meeting
    listener = bind("::" if addresses(host, port)[0][0] == socket.AF_INET6 else "0.0.0.0", port)
    if listener.getsockname()[1] != port:
        listener.close()
        raise OSError("another program has this port")
    server = StoreServer(listener, Bounds(place.hosts, _DESCRIPTORS), secrets.token_bytes(16))
    Thread(target=server.serve, args=(lambda: False,), name="ddpmon-check", daemon=True).start()


def _is_here(host: str, port: int) -> bool:
    """Whether this is an address of this host: then it can be bound to."""
    with suppress(OSError):
        for family, kind, protocol, _, address in addresses(host, port):
            with suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.bind((address[0], 0))
                return True
    return False


def _reached(place: Place, until: float, say: Callable[[str], None]) -> TcpClient:
    """A connection to the store, which may come later.

    Raises:
        StoreUnavailable: there is none in time.
    """
    assert place.meeting is not None
    host, port = place.meeting
    told = monotonic() + _TELL_AFTER_S
    while True:
        try:
            return TcpClient(host, port, timeout_s=_TIMEOUT_S)
        except StoreUnavailable:
            if place.hosted or monotonic() >= until:  # a launcher's store is up by now
                raise
        if monotonic() >= told:
            say(f"host {place.host} waits for {host} (MASTER_ADDR): nobody answers at its port {port} yet")
            told = until
        sleep(_LOOK_S)


def _others(store: TcpClient, hosts: int, until: float, say: Callable[[str], None]) -> dict[int, Facts]:
    """What the other hosts have handed in, as far as it comes in time and can be read."""
    found: dict[int, Facts] = {}
    missing = [*range(1, hosts)]
    told = monotonic() + _TELL_AFTER_S
    while missing and monotonic() < until:
        for host, data in zip(missing, store.get_many([f"{_PREFIX}/{host}" for host in missing]), strict=True):
            with suppress(msgspec.MsgspecError):  # one of another release is told as missing
                found |= {} if data is None else {host: msgspec.msgpack.decode(data, type=Facts)}
        missing = [host for host in missing if host not in found]
        if missing and monotonic() >= told:
            say(f"host 0 waits for host{'s' * (len(missing) > 1)} {', '.join(map(str, missing[:8]))} of {hosts}")
            told = until
        sleep(_LOOK_S if missing else 0.0)
    return found


def _wait(is_over: Callable[[], bool], until: float) -> None:
    while not is_over() and monotonic() < until:
        sleep(_LOOK_S)


def _sentence(place: Place, error: Exception) -> str:
    address, port = place.meeting or ("", 0)
    words = (str(error) or type(error).__name__).splitlines()[0][:160]
    return (
        f"host {place.host} cannot reach the others at {address}:{port} ({words}): "
        "the ranks could not either; check the address, the port and the firewall"
    )
