"""A Redis or Valkey server as the store: many runs in one place, kept for a while after their processes have gone.

Keys are those of every store, each with a time to live. The ids of the runs stand in a sorted set under RUNS_KEY:
putting an id there adds it, reading gives those whose run is still kept. Beside each run stands its time to live,
from which the age of any of its keys follows on the server's own clock.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic, time
from typing import Any

from ddpmon.store.base import (
    MOST_RUNS,
    MOST_VALUE_BYTES,
    RUNS_KEY,
    TOO_LONG,
    StoreRefuses,
    StoreSilent,
    StoreUnavailable,
    TargetError,
    is_run_id,
    run_key,
)
from ddpmon.store.redis_url import RedisAddress

DEFAULT_TTL_S = 24 * 3600
_LEAST_TTL_S, _MOST_TTL_S = 60, 366 * 24 * 3600
_CHUNK = 256  # keys a round trip
_MOST_AT_ONCE, _MOST_A_KEY = 256 << 20, 64 << 10  # bytes that one read may bring, in all or a key
_MOMENT_S, _FAR_AHEAD_S = 0.001, 366 * 86_400.0
_FAREWELL_S = 0.5
# A host that has vanished, or a link that was cut, is noticed within half a minute.
_WATCHFUL = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}

_AdviceFor = tuple[tuple[str, str], ...]
_NO_LOGIN = "; set DDPMON_STORE to this address with your user and password: {}://USER:PASSWORD@HOST"
_CLUSTER = "is a Redis Cluster, and ddpmon needs a single server"
# redis-py's class of an error -> the code that the server gave, which redis-py strips, what it means, what to do.
_REFUSALS = {
    "NoPermissionError": (
        "NOPERM ",
        "does not give this account the rights that ddpmon needs",
        "; the page on attaching (docs/attach.md, Accounts) has them",
    ),
    "ClusterDownError": ("CLUSTERDOWN ", _CLUSTER, ""),
    "MovedError": ("MOVED ", _CLUSTER, ""),
    "AskError": ("ASK ", _CLUSTER, ""),
    "ClusterCrossSlotError": ("CROSSSLOT ", _CLUSTER, ""),
    "TryAgainError": ("TRYAGAIN ", _CLUSTER, ""),
    "OutOfMemoryError": ("OOM ", "is full", "; raise its maxmemory, or lower DDPMON_TTL_S"),
    "ReadOnlyError": ("READONLY ", "is a replica that cannot be written to", "; give the address of its primary"),
}

_scores: dict[tuple[str, str], float] = {}  # of the runs that this process has named in a store: when they began


class RedisStore:
    """A client of a Redis server, for one thread at a time.

    Args:
        address: the server.
        timeout_s: how long one operation may wait for the server.
        ttl_s: how long the server keeps a key after it was put last.

    Raises:
        StoreUnavailable: it cannot be reached, does not let us in, or is no Redis.
    """

    def __init__(self, address: RedisAddress, *, timeout_s: float = 5.0, ttl_s: int = DEFAULT_TTL_S) -> None:
        self.address = address.url
        self._secret = address.password
        self._no_login = "" if address.username or address.password else _NO_LOGIN.format("redis" + "s" * address.tls)
        self._ttl_s = ttl_s
        self._patience_s = timeout_s
        self._unanswered: deque[float] = deque()  # when each command whose answer is still to come was sent
        self._broken = False  # nothing more is put
        self._gone = False  # and nothing read
        self._redis: Any = load_redis()
        self._connection: Any = _connection(self._redis, address, timeout_s)
        tls = " (rediss:// is for a port with TLS, redis:// for one without)" if address.tls else ""
        with self._in_words(f"no store at {self.address}", tls, _advice_for(address)):
            self._connection.connect()

    def put(self, key: str, value: bytes) -> None:
        """Set `key` to `value`; fire and forget: that the server refuses is told by a later call."""
        with self._in_words(f"the store at {self.address} does not answer"):
            if key == RUNS_KEY:
                self._add_run(value.decode())
            else:
                self._send("SET", key, value, "EX", self._ttl_s)

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values of `keys`, a few hundred a round trip; None for a key that is missing, empty or no string.

        Whoever can write may have put more than any memory holds: of each value no more is read than a frame may have,
        and of all together no more than frames would take.
        """
        with self._in_words(f"the store at {self.address} does not answer"):
            if list(keys) == [RUNS_KEY]:
                return [b"\n".join(self._kept(self._names())) or None]
            found: list[bytes | None] = []
            left = max(_MOST_AT_ONCE, _MOST_A_KEY * len(keys))
            for start in range(0, len(keys), _CHUNK):
                part = keys[start : start + _CHUNK]
                answers = self._ask_each([("GETRANGE", key, 0, MOST_VALUE_BYTES) for key in part])
                values = [answer if isinstance(answer, bytes) else b"" for answer in answers]
                left -= sum(map(len, values))
                if left < 0:
                    raise ValueError("it holds far more data for this run than frames need")
                found += [(value if len(value) <= MOST_VALUE_BYTES else TOO_LONG) or None for value in values]
        return found

    def ages(self, keys: Sequence[str]) -> list[float | None]:
        """Seconds since each of `keys` was put, on the server's clock; None for one that is missing."""
        with self._in_words(f"the store at {self.address} does not answer"):
            left_s = self._left(keys)
            kept_s = {run: self._time_to_live(run) for run in {_run_of(key) for key in keys}}
        ages: list[float | None] = []
        for key, left in zip(keys, left_s, strict=True):
            kept = kept_s[_run_of(key)]
            ages.append(None if kept is None or left is None else max(0.0, kept - left))
        return ages

    def be_patient(self, seconds: float) -> None:
        """From now on let an operation wait this long for the server."""
        self._patience_s = seconds

    def close(self) -> None:
        """Drop the connection, once what was put has arrived. Never raises."""
        if not self._broken:
            self._broken = True
            with suppress(Exception):  # closing on answers that nobody has read could cut off what was put last
                self._take_answers(_FAREWELL_S)
        self._gone = True
        with suppress(Exception):
            self._connection.disconnect()

    def _add_run(self, run_id: str) -> None:
        """Name a run, or refresh its name; the first time clear away the names of runs that have expired."""
        named = (self.address, run_id)
        if named not in _scores:
            names = self._names()
            if gone := set(names) - set(self._kept(names)):
                self._send("ZREM", RUNS_KEY, *gone)
            newest = self._ask("ZRANGE", RUNS_KEY, -1, -1, "WITHSCORES")
            _scores[named] = _score(time(), float(newest[1]) if newest else 0.0)
        self._send("ZADD", RUNS_KEY, "NX", _scores[named], run_id)
        self._send("EXPIRE", RUNS_KEY, _MOST_TTL_S)
        self._send("SET", _ttl_key(run_id), self._ttl_s, "EX", self._ttl_s)

    def _names(self) -> list[bytes]:
        """What stands in the set of runs, newest last: the newest, some of which may have expired."""
        return [name for name in self._ask("ZRANGE", RUNS_KEY, -MOST_RUNS, -1) if isinstance(name, bytes)]

    def _kept(self, names: Sequence[bytes]) -> list[bytes]:
        """Those that are the id of a run which the server still holds."""
        ids = [name for name in names if _is_an_id(name)]
        left = self._left([run_key(name.decode()) for name in ids])
        return [name for name, seconds in zip(ids, left, strict=True) if seconds is not None]

    def _left(self, keys: Sequence[str]) -> list[float | None]:
        """Seconds until each key expires; None for one that is missing."""
        left: list[float | None] = []
        for start in range(0, len(keys), _CHUNK):
            chunk = keys[start : start + _CHUNK]
            answers = self._ask_each([("PTTL", key) for key in chunk])
            left += [ms / 1e3 if isinstance(ms, int) and ms >= 0 else None for ms in answers]
        return left

    def _time_to_live(self, run_id: str) -> float | None:
        (value,) = self._ask_each([("GETRANGE", _ttl_key(run_id), 0, 10)])
        return float(value) if isinstance(value, bytes) and value.isdigit() and len(value) < 10 else None

    def _ask(self, *command: Any) -> list[Any]:
        """One command whose answer is a list."""
        (answer,) = self._ask_each([command])
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, list):
            raise ValueError("it answers, but not as Redis does")
        return answer

    def _ask_each(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        if self._gone:  # redis-py would connect again, and what was asked before is never answered there
            raise ConnectionResetError("the connection was abandoned")
        self._take_answers(self._patience_s)
        self._complain_if_silent(0.0)
        self._connection.send_packed_command(self._connection.pack_commands(commands), check_health=False)
        self._unanswered.extend([monotonic()] * len(commands))
        answers: list[Any] = []
        self._take_answers(self._patience_s, answers)
        self._complain_if_silent(0.0)
        return answers

    def _send(self, *command: Any, look: bool = True) -> None:
        if self._broken:
            raise ConnectionResetError("the connection was abandoned")
        if look:
            self._take_answers(0.0)
            self._complain_if_silent(self._patience_s)
        self._connection.send_packed_command(self._connection.pack_command(*command), check_health=False)
        self._unanswered.append(monotonic())

    def _take_answers(self, wait_s: float, into: list[Any] | None = None) -> None:
        """Read the answers that have come, or come within `wait_s`; one that is an error is raised.

        That a key holds something else than was asked for is an answer, too.
        """
        until = monotonic() + wait_s
        while self._unanswered and self._connection.can_read(max(0.0, until - monotonic())):
            try:
                answer = self._connection.read_response()
            except self._redis.exceptions.ResponseError as error:
                if into is None or not str(error).startswith("WRONGTYPE"):
                    raise
                answer = error
            self._unanswered.popleft()
            if into is not None:
                into.append(answer)

    def _complain_if_silent(self, allowed_s: float) -> None:
        if self._unanswered and monotonic() - self._unanswered[0] >= allowed_s:
            self._broken = True
            raise StoreSilent(f"the store at {self.address} does not answer")

    @contextmanager
    def _in_words(self, trouble: str, hint: str = "", advice_for: _AdviceFor = ()) -> Iterator[None]:
        """Whatever goes wrong is one sentence, and this connection is not used again; `hint` is for silence."""
        errors = self._redis.exceptions
        try:
            yield
        except StoreUnavailable:
            raise
        except (errors.TimeoutError, TimeoutError):
            self._broken = self._gone = True
            raise StoreSilent(f"the store at {self.address} does not answer{hint}") from None
        except errors.AuthenticationError as error:
            self._broken = self._gone = True
            said = f"the store at {self.address} refuses the login: {self._line(error).rstrip('.')}{self._no_login}"
            raise StoreRefuses(said) from None
        except errors.ResponseError as error:
            self._broken = self._gone = True
            code, meaning, advice = _REFUSALS.get(type(error).__name__, ("", "refuses", ""))
            said = f"the store at {self.address} {meaning}: {code}{self._line(error)}{advice}"
            raise StoreRefuses(said) from None
        except Exception as error:
            self._broken = self._gone = True
            advice = next((told for sign, told in advice_for if sign in str(error)), "")
            raise StoreUnavailable(f"{trouble}: {self._line(error).rstrip('.')}{advice}") from None

    def _line(self, error: Exception) -> str:
        """The first line of a message that may come from the server: printable, short, and without the password."""
        lines = str(error).strip().splitlines()
        text = lines[0] if lines else type(error).__name__
        if self._secret:
            text = text.replace(self._secret, "***")
        return "".join(letter if letter.isprintable() else " " for letter in text[:160])


def _advice_for(address: RedisAddress) -> _AdviceFor:
    """What to do where a connection cannot be opened, by a part of redis-py's message."""
    if address.tls:
        return () if address.ca else (("CERTIFICATE_VERIFY_FAILED", "; name the authority that signed it: ?ca=FILE"),)
    needs_tls = "; a port with TLS needs rediss://"
    return ("reset by peer", needs_tls), ("closed by server", needs_tls)


def _score(now: float, newest: float) -> float:
    """When a run began, in Unix seconds: no run is older than those it finds, since clocks may have been set back.

    A newest one that is no time, or far ahead, is somebody's mischief.
    """
    return max(now, newest + _MOMENT_S) if newest < now + _FAR_AHEAD_S else now


def ttl_of_environment() -> int:
    """How long a run is kept: DDPMON_TTL_S, in seconds.

    Raises:
        TargetError: it is no such number.
    """
    text = os.environ.get("DDPMON_TTL_S", "")
    if not text:
        return DEFAULT_TTL_S
    if text.isdecimal() and len(text) < 10 and _LEAST_TTL_S <= int(text) <= _MOST_TTL_S:
        return int(text)
    raise TargetError(f"DDPMON_TTL_S={text[:40]!r} is not a number of seconds from {_LEAST_TTL_S} to {_MOST_TTL_S}")


def load_redis() -> Any:
    """The module of redis-py.

    Raises:
        StoreUnavailable: it is not installed.
    """
    try:
        import redis
    except ImportError:
        raise StoreUnavailable("a redis:// store needs redis-py: pip install redis") from None
    return redis


def _connection(redis: Any, address: RedisAddress, timeout_s: float) -> Any:
    """A connection of redis-py's, not opened yet: it does not retry, and speaks the protocol of every version."""
    options: dict[str, Any] = {
        "host": address.host,
        "port": address.port,
        "db": address.db,
        "username": address.username,
        "password": address.password,
        "protocol": 2,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": min(timeout_s, 3.0),
        "socket_keepalive": True,
        "socket_keepalive_options": {getattr(socket, n): v for n, v in _WATCHFUL.items() if hasattr(socket, n)},
    }
    if not address.tls:
        return redis.Connection(**options)
    return redis.SSLConnection(**options, ssl_cert_reqs="required", ssl_check_hostname=True, ssl_ca_certs=address.ca)


def _ttl_key(run_id: str) -> str:
    return f"ddpmon/{run_id}/ttl"


def _run_of(key: str) -> str:
    """The run that a key belongs to: ddpmon/RUN/..."""
    return key.split("/", 2)[1] if key.count("/") > 1 else ""


def _is_an_id(name: bytes) -> bool:
    try:
        return is_run_id(name.decode())
    except UnicodeDecodeError:
        return False
