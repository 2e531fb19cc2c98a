"""From a TARGET to a store: what the watchers call."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from ddpmon.store.base import MOST_RUNS, RUNS_KEY, Store, StoreUnavailable, TargetError, Through, is_run_id, tcp_url
from ddpmon.store.lookup import addresses
from ddpmon.store.redis_url import SCHEMES, RedisAddress, parse_redis, redacted
from ddpmon.store.signed import CheckedStore, Checks, token_of_environment
from ddpmon.store.tcp_client import TcpClient

_SILENCE_S = 600.0  # a store that is stopped may come back: only our patience is short
HOST_AND_PORT = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?", re.ASCII)
_FORM = "TARGET is tcp://host:port, redis://host, or nothing for the run on this host"
_EXTERNAL = "it is redis://HOST, rediss://HOST or rendezvous"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a run is to be read: a store's address, and a run in it (None: the newest).

    Attributes:
        redis: the address of a Redis server, which holds many runs and outlives them; None for a run's own store.
        through: the tunnel that leads there; None where the address itself does.
    """

    host: str
    port: int
    run_id: str | None = None
    redis: RedisAddress | None = None
    through: Through | None = None

    @property
    def url(self) -> str:
        """The target as a URL, without the run and without a password; behind a tunnel with its host."""
        if self.redis is not None:
            return self.redis.url
        return tcp_url(self.host, self.port) + (f" on {self.through.host}" if self.through else "")


def parse_target(text: str) -> Target:
    """Understand a TARGET.

    Raises:
        TargetError: an unknown scheme, or a bad host or port.
    """
    if text.startswith(SCHEMES):
        address, run_id = parse_redis(text)
        return Target(address.host, address.port, run_id, address)
    if "://" not in text:
        raise TargetError(_not_a_url(text))
    shown = redacted(text)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise TargetError(f"{shown!r} is not an address ({error}): {_FORM}") from None
    if parts.scheme != "tcp":
        raise TargetError(f"unknown scheme {parts.scheme!r} in {shown!r}: {_FORM}")
    if not host:
        raise TargetError(f"{shown!r} names no host: {_FORM}")
    if not port:
        raise TargetError(f"{shown!r} names no port: {_FORM}")
    return Target(host, port, parts.path.strip("/") or None)


def external_store_of_environment() -> Target | None:
    """The external store that DDPMON_STORE names; None where it names none.

    Raises:
        TargetError: it makes no sense; the message holds no password.
    """
    text = os.environ.get("DDPMON_STORE", "")
    if text in ("", "rendezvous"):
        return None
    if not text.startswith(SCHEMES):
        shown = redacted(text)[:80]
        raise TargetError(f"DDPMON_STORE={shown!r} is not a store that ranks can publish to: {_EXTERNAL}")
    try:
        return parse_target(text)
    except TargetError as error:
        raise TargetError(f"DDPMON_STORE: {error}") from None


def connect(target: Target, *, timeout_s: float = 5.0, checks: Checks | None = None) -> CheckedStore:
    """Open the store at `target` to watch; no operation on it holds its caller for longer than `timeout_s`.

    A Redis server asks for a password: where `target` has none, that of DDPMON_STORE is taken if it is the same server.

    Args:
        target: the store.
        timeout_s: the longest that the opening or an operation takes.
        checks: what is believed; by default what DDPMON_TOKEN signs.

    Raises:
        StoreUnavailable: it cannot be reached or is no store, or redis-py is not installed.
    """
    store = (
        TcpClient(target.host, target.port, timeout_s=timeout_s, through=target.through)
        if target.redis is None
        else _redis(target.redis, timeout_s)
    )
    return CheckedStore(store, checks or Checks(token_of_environment()))


def _redis(address: RedisAddress, timeout_s: float) -> Store:
    """A Redis server, in a thread of its own: redis-py has a limit for each piece of an answer, not for the whole."""
    from ddpmon.store.patience import PatientStore
    from ddpmon.store.redis import RedisStore, load_redis

    load_redis()
    url = address.url
    with suppress(TargetError):
        mine = external_store_of_environment()
        if mine is not None and mine.redis is not None:
            address = address.with_password_of(mine.redis)

    _find(address)

    def opener() -> Store:
        store = RedisStore(address, timeout_s=timeout_s)
        store.be_patient(_SILENCE_S)
        return store

    return PatientStore(opener, url, patience_s=timeout_s)


def _find(address: RedisAddress) -> None:
    """Look its host's name up, so that a slow DNS is not told as a server that does not answer.

    Raises:
        StoreUnavailable: the name is not known, or was not found in time.
    """
    try:
        addresses(address.host, address.port)
    except StoreUnavailable:
        raise
    except OSError as error:
        raise StoreUnavailable(f"no store at {address.url}: {address.host}: {error.strerror or error}") from None


def list_runs(store: Store) -> list[str]:
    """The ids of the runs that the store holds, newest last: the newest thousand; what can be no id is left out.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    (value,) = store.get_many([RUNS_KEY])
    if value is None or len(value) > 1 << 20:
        return []
    lines = value.decode("utf-8", "replace").split("\n")
    return [line for line in lines if is_run_id(line)][-MOST_RUNS:]


def _not_a_url(text: str) -> str:
    if lacks_scheme(text):
        return f"{text!r} lacks its scheme, tcp://{text}: {_FORM}"
    return f"{text!r} is not an address: {_FORM}"


def lacks_scheme(text: str) -> bool:
    """Whether it is a host and a port without `tcp://` before them."""
    parts = HOST_AND_PORT.fullmatch(text.partition("/")[0])
    return parts is not None and parts["port"] is not None
