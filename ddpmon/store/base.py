"""The store protocol: three operations, one error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

# The longest value that a watcher takes: what a frame may have (schema.MAX_FRAME_BYTES), and its signature.
MOST_VALUE_BYTES = (1 << 20) + 64
TOO_LONG = bytes(MOST_VALUE_BYTES + 1)  # what is read in place of each longer one: no frame, for its length
MOST_ANSWER_BYTES = 32 << 20  # that one get_many reads: a watcher asks for 512 frames of 50 kB, or for 31 of any size


class StoreUnavailable(ConnectionError):  # noqa: N818 (a state of the world and no mistake: docs/design.md "Store keys and frames")
    """The store cannot be reached, has died, or does not answer; the message is a sentence for a person."""


class StoreSilent(StoreUnavailable):
    """The store is there and does not answer: stopped, or cut off."""


class StoreHungUp(StoreSilent):
    """Connections are taken and closed at once: the store is full, or nobody listens behind a tunnel."""


class StoreRefuses(StoreUnavailable):
    """The store answers, and refuses what it was asked for: a login, a right, for want of room."""


class TargetError(ValueError):
    """A TARGET that cannot be understood: an unknown scheme, a bad host or port."""


@dataclass(frozen=True, slots=True)
class Through:
    """A socket file of this user's that leads to a store as another host reaches it.

    Attributes:
        path: the socket file.
        host: whose side it leads to, as the user calls it.
    """

    path: str
    host: str


class Store(Protocol):
    """Where frames are put and read. Every operation may raise StoreUnavailable."""

    def put(self, key: str, value: bytes) -> None:
        """Set `key` to `value`."""

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values of `keys`; None for a key that is missing or empty."""

    def close(self) -> None:
        """Let go of the connection. Never raises."""


@runtime_checkable
class Ageing(Protocol):
    """What a store that outlives its runs can do besides."""

    def ages(self, keys: Sequence[str]) -> list[float | None]:
        """Seconds since each of `keys` was put, by the store's own clock; None where it cannot tell."""


@runtime_checkable
class Expecting(Protocol):
    """What a store can do besides where it asks which keys there are before it reads them."""

    def expect(self, prefix: str) -> None:
        """Take it that the store has every key that begins so, which saves a round trip for each first read."""


def tcp_url(host: str, port: int) -> str:
    """The address of a run's own store."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def is_run_id(text: str) -> bool:
    """Whether a run may be called so: short, on one line, one part of a key, and no option on a command line."""
    return 0 < len(text) <= 256 and text.isprintable() and "/" not in text and not text.startswith("-")


def run_key(run_id: str) -> str:
    """The key of a run's RunInfo."""
    return f"ddpmon/{run_id}/run"


def run_prefix(run_id: str) -> str:
    """How all keys of a run begin."""
    return f"ddpmon/{run_id}/"


def rank_key(run_id: str, rank: int) -> str:
    """The key of one rank's RankFrame."""
    return f"ddpmon/{run_id}/rank/{rank}"


def history_key(run_id: str, rank: int) -> str:
    """The key of one rank's HistoryFrame."""
    return f"ddpmon/{run_id}/history/{rank}"


def host_key(run_id: str, rank: int) -> str:
    """The key of the HostFrame that one rank writes for its host."""
    return f"ddpmon/{run_id}/host/{rank}"


def node_key(run_id: str, node: int) -> str:
    """The key of one host's NodeFrame."""
    return f"ddpmon/{run_id}/node/{node}"


# Newline-separated run ids that this store holds, newest last; a store of many runs adds an id that is put here.
RUNS_KEY = "ddpmon/runs"
MOST_RUNS = 1000  # that a watcher looks at, the newest
