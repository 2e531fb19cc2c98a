"""The address of a Redis server: what a person types, and what may be shown of it (never a password)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from ddpmon.store.base import TargetError, is_run_id

SCHEMES = ("redis://", "rediss://")
_PORT = 6379
_MOST_DB = 1 << 16
_FORM = (
    "a Redis store is redis://[user:password@]host[:port][/db][?run=ID], or rediss:// with [?ca=FILE]; "
    "percent-encode special characters in a password"
)


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where a Redis server is, and how to get in.

    Attributes:
        tls: encrypted, with the server's certificate checked.
        ca: a file of certificate authorities to trust beside the system's.
    """

    host: str
    port: int = _PORT
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca: str | None = None

    @property
    def url(self) -> str:
        """The address as a URL without the password."""
        return self._url(f"{quote(self.username, safe='')}@" if self.username else "", None)

    def url_of(self, run_id: str | None) -> str:
        """The address of one run here for whoever watches it: without a login, since each reader has its own."""
        return self._url("", run_id)

    def _url(self, user: str, run_id: str | None) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        db = f"/{self.db}" if self.db else ""
        options = [("ca", self.ca), ("run", run_id)]
        query = "&".join(f"{name}={quote(value)}" for name, value in options if value)
        return f"redis{'s' * self.tls}://{user}{host}:{self.port}{db}{'?' * bool(query)}{query}"

    def with_password_of(self, other: RedisAddress) -> RedisAddress:
        """This address, let in as `other` is, if that is the same server and user and this one has no password."""
        same = (self.host, self.port, self.tls) == (other.host, other.port, other.tls)
        if self.password is not None or not same or self.username not in (None, other.username):
            return self
        return replace(self, username=other.username, password=other.password, ca=self.ca or other.ca)


def parse_redis(text: str) -> tuple[RedisAddress, str | None]:
    """Understand a redis:// or rediss:// URL: the server, and the run that is asked for.

    Raises:
        TargetError: it makes no sense; the message holds no password.
    """
    shown = redacted(text)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise TargetError(f"{shown!r} is not an address: {_FORM}") from None
    if not host or parts.fragment or port == 0:
        raise TargetError(f"{shown!r} names no {'port' if host and not parts.fragment else 'host'}: {_FORM}")
    if unknown := sorted(options.keys() - {"run", "ca"}):
        raise TargetError(f"{unknown[0]!r} in {shown!r} is not known: {_FORM}")
    address = RedisAddress(
        host,
        port or _PORT,
        _database(parts, shown),
        unquote(parts.username) if parts.username else None,
        unquote(parts.password) if parts.password else None,
        parts.scheme == "rediss",
        _authority(options.get("ca"), parts, shown),
    )
    return address, _run(options.get("run"), shown)


def redacted(text: str) -> str:
    """A URL, well formed or not, without what may be a password."""
    scheme, there, rest = text.partition("://")
    if not there:
        return text
    before, at, after = rest.rpartition("@")
    if at:
        return f"{scheme}://{before.partition(':')[0]}@{after}"
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    host, colon, port = authority.rpartition(":")
    if colon and not port.isdecimal() and not authority.endswith("]"):
        return f"{scheme}://{host.partition(':')[0]}:..."
    return text


def _database(parts: SplitResult, shown: str) -> int:
    text = parts.path.strip("/")
    if not text:
        return 0
    if not text.isdecimal() or int(text[:6]) >= _MOST_DB:
        raise TargetError(f"the path of {shown!r} is not a database number: {_FORM}")
    return int(text)


def _authority(ca: str | None, parts: SplitResult, shown: str) -> str | None:
    if ca is None:
        return None
    if parts.scheme != "rediss":
        raise TargetError(f"{shown!r} is not encrypted, so ca= has no effect: write rediss://")
    try:
        found = Path(ca).is_file()
    except (OSError, ValueError):  # too long for a name, or not one at all
        found = False
    if not found:
        raise TargetError(f"the certificate file {ca!r} does not exist (ca= in {shown!r})")
    return ca


def _run(run_id: str | None, shown: str) -> str | None:
    if run_id is not None and not is_run_id(run_id):
        raise TargetError(f"run= in {shown!r} is not the id of a run")
    return run_id
