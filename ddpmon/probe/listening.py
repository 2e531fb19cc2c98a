"""Where rank 0's store listens, and under which address others reach it (DDPMON_LISTEN)."""

from __future__ import annotations

import ipaddress
import os
import socket
from contextlib import suppress
from dataclasses import dataclass

from ddpmon.probe.identity import is_loopback, side_towards, spans_hosts, store_address
from ddpmon.store.base import TargetError
from ddpmon.store.connect import HOST_AND_PORT
from ddpmon.store.lookup import addresses

_FORM = "HOST[:PORT], with an address of this host or 0.0.0.0 for all of them, such as 0.0.0.0:29480"
_ALL = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # all addresses of this host -> the one by which it reaches itself


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the store of this run listens.

    Attributes:
        host: what the server binds to.
        ranks: the address that the ranks use.
        others: the address that is announced to watchers.
        port: the only port that will do; None for the first that is free.
    """

    host: str
    ranks: str
    others: str
    port: int | None = None


def listening() -> Listening:
    """What DDPMON_LISTEN asks for; without it loopback for a run on one host, else this host's side of MASTER_ADDR.

    Raises:
        TargetError: DDPMON_LISTEN makes no sense.
        OSError: the run spans hosts, and this one has no address that others could reach, or the name is not known.
    """
    text = os.environ.get("DDPMON_LISTEN", "")
    if not text:
        address = store_address()
        return Listening(address, address, address)
    host, port = parse_listen(text)
    if host in _ALL:
        own = store_address() if spans_hosts() else _ALL[host]
        return Listening(host, own, own if spans_hosts() else _outward(own), port)
    if spans_hosts() and is_loopback(str(addresses(host, port or 0)[0][4][0])):
        raise TargetError(f"DDPMON_LISTEN={text!r} is loopback, which the ranks on other hosts cannot reach; {_FORM}")
    return Listening(host, host, host, port)


def in_question() -> str:
    """What may be wrong where the store cannot listen, as the end of a sentence; "" without DDPMON_LISTEN."""
    text = os.environ.get("DDPMON_LISTEN", "")
    return f" (DDPMON_LISTEN={text[:80]!r} must name an address of this host)" if text else ""


def parse_listen(text: str) -> tuple[str, int | None]:
    """Host and port of a DDPMON_LISTEN.

    Raises:
        TargetError: it is no HOST[:PORT].
    """
    with suppress(ValueError):
        return str(ipaddress.ip_address(text)), None  # IPv6 without brackets
    parts = HOST_AND_PORT.fullmatch(text)
    host = parts["host"].strip("[]") if parts else ""
    port = int(parts["port"]) if parts and parts["port"] else None
    if not host or (port is not None and not 0 < port < 65536) or (":" in host and not _is_address(host)):
        raise TargetError(f"DDPMON_LISTEN={text[:80]!r} is not {_FORM}")
    return host, port


def _is_address(text: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(text))
    return False


def _outward(own: str) -> str:
    """The address of this host that others see: on the way out, else that of some interface, else its own loopback."""
    if (found := side_towards("192.0.2.1")) is not None and not is_loopback(found):
        return found
    with suppress(Exception):
        import psutil

        every = [address for found in psutil.net_if_addrs().values() for address in found]
        return next(str(a.address) for a in every if a.family == socket.AF_INET and not is_loopback(a.address))
    return own
