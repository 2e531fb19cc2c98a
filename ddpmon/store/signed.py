"""Signed frames: with a token, what is put carries a keyed hash, and a watcher with the same token believes no other.

An envelope is a mark that no frame begins with, the writer's start and a sequence number, a keyed BLAKE2b over key
(which names the run), start, number and bytes, and the bytes. The set of runs is a hint, and is not signed.
"""

from __future__ import annotations

import hmac
import os
import struct
import time
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

from ddpmon.store.base import RUNS_KEY, Ageing, Expecting, Store

MARK = b"\xc1dm1"  # msgpack never begins a value with this byte
UNSIGNED = "not signed, and this watcher has a DDPMON_TOKEN"
FORGED = "not signed with this DDPMON_TOKEN"
REPLAYED = "older than an earlier one (replayed, or from a second training)"
_MOST_COUNTED = 1 << 16
_DIGEST_BYTES = 16
_HEAD = struct.Struct(f"<4sQQ{_DIGEST_BYTES}s")


class Signer:
    """Signs what one process puts, in order.

    Args:
        token: the shared secret.
        start: what tells this process from an earlier one of the same rank: nanoseconds, growing.
    """

    def __init__(self, token: str, start: int | None = None) -> None:
        self._blank = _blank(token)
        self._start = time.time_ns() if start is None else start
        self._number = 0

    def begin(self) -> None:
        """Sign from now on as one that has started now: keys of others are taken over, whoever started first."""
        self._start, self._number = max(time.time_ns(), self._start + 1), 0

    def seal(self, key: str, value: bytes) -> bytes:
        """`value` in an envelope for `key`."""
        self._number += 1
        digest = _digest(self._blank, key, self._start, self._number, value)
        return _HEAD.pack(MARK, self._start, self._number, digest) + value


class SignedStore:
    """Another store, in which everything that is put is signed."""

    def __init__(self, store: Store, signer: Signer) -> None:
        self._store = store
        self._signer = signer

    def begin(self) -> None:
        """Take over keys that another process has written."""
        self._signer.begin()

    def put(self, key: str, value: bytes) -> None:
        """Set `key` to the signed `value`."""
        self._store.put(key, value if key == RUNS_KEY or not value else self._signer.seal(key, value))

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values of `keys` as they stand in the store."""
        return self._store.get_many(keys)

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()


class Checks:
    """Which values a watcher believes, and what it has refused.

    Args:
        token: the shared secret; None believes everything.

    Attributes:
        refused: why values were refused, and how many.
        doubt: why the value that was opened last was refused; empty if it was believed.
        unchecked: whether signed values were seen that could not be checked, for want of a token.
    """

    def __init__(self, token: str | None) -> None:
        self.refused: Counter[str] = Counter()
        self.doubt = ""
        self.unchecked = False
        self._blank = None if token is None else _blank(token)
        self._newest: dict[str, tuple[int, int]] = {}
        self._counted: dict[int, int] = {}  # hash of a key -> hash of the value that was refused there last

    def begin(self) -> None:
        """Another run is watched: forget those before it."""
        self.refused.clear()
        self._newest.clear()
        self._counted.clear()

    def open(self, key: str, value: bytes) -> bytes | None:
        """What lies in an envelope; None for what is not believed, which is counted once."""
        sealed = len(value) >= _HEAD.size and value.startswith(MARK)
        if self._blank is None:
            self.unchecked |= sealed
            return value[_HEAD.size :] if sealed else value
        content = value[_HEAD.size :]
        self.doubt = self._doubt(self._blank, key, value, content) if sealed else UNSIGNED
        if self.doubt:
            self._refuse(self.doubt, key, value)
        return None if self.doubt else content

    def notices(self) -> list[str]:
        """What was refused, and what could not be checked, in sentences."""
        said = [f"{count:,} frame{'s' * (count != 1)} dropped: {reason}" for reason, count in self.refused.items()]
        if self.unchecked:
            said.append("frames are signed, and cannot be checked here: this watcher has no DDPMON_TOKEN")
        return said

    def _doubt(self, blank: blake2b, key: str, value: bytes, content: bytes) -> str:
        """Why this envelope is not believed; "" if it is."""
        _, start, number, digest = _HEAD.unpack_from(value)
        if not hmac.compare_digest(digest, _digest(blank, key, start, number, content)):
            return FORGED
        if (start, number) < self._newest.get(key, (0, 0)):
            return REPLAYED
        self._newest[key] = (start, number)
        return ""

    def _refuse(self, reason: str, key: str, value: bytes) -> None:
        place, mark = hash(key), hash(value)
        if self._counted.get(place) != mark:  # it is read again and again until it is overwritten
            self._counted[place] = mark
            self.refused[reason] += 1
            if len(self._counted) > _MOST_COUNTED:
                del self._counted[next(iter(self._counted))]


class CheckedStore:
    """Another store, of which only values are read that `checks` believes."""

    def __init__(self, store: Store, checks: Checks) -> None:
        self.checks = checks
        self._store = store

    def put(self, key: str, value: bytes) -> None:
        """Set `key` to `value`, unsigned."""
        self._store.put(key, value)

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values of `keys` that are believed; None for the others."""
        values = self._store.get_many(keys)
        for place, key in enumerate(keys):  # in place: together they may be large
            if key != RUNS_KEY and (value := values[place]) is not None:
                values[place] = self.checks.open(key, value)
        return values

    def expect(self, prefix: str) -> None:
        """Take it that the store has every key that begins so."""
        if isinstance(self._store, Expecting):
            self._store.expect(prefix)

    def look_at(self, key: str) -> tuple[bytes | None, str]:
        """The value of `key`, or why it is not believed; neither where there is none."""
        self.checks.doubt = ""
        (value,) = self.get_many([key])
        return value, self.checks.doubt

    def ages(self, keys: Sequence[str]) -> list[float | None]:
        """Seconds since each of `keys` was put; None where the store cannot tell."""
        return self._store.ages(keys) if isinstance(self._store, Ageing) else [None] * len(keys)

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()


def token_of_environment() -> str | None:
    """DDPMON_TOKEN, if there is one. It is no option of a command: those can be read by every user of a machine."""
    return os.environ.get("DDPMON_TOKEN") or None


def signed(store: Store, signer: Signer | None) -> Store:
    """The store as a writer uses it."""
    return store if signer is None else SignedStore(store, signer)


def signer_of_environment() -> Signer | None:
    """This process's signer, if there is a token."""
    token = token_of_environment()
    return None if token is None else Signer(token)


def _blank(token: str) -> blake2b:
    """The keyed hash before any input."""
    key = blake2b(token.encode("utf-8", "surrogateescape"), digest_size=32, person=b"ddpmon-token").digest()
    return blake2b(key=key, digest_size=_DIGEST_BYTES, person=b"ddpmon-frame-1")


def _digest(blank: blake2b, key: str, start: int, number: int, value: bytes) -> bytes:
    name = key.encode("utf-8", "surrogateescape")
    state = blank.copy()
    state.update(struct.pack("<IQQ", len(name), start, number) + name)
    state.update(value)
    return state.digest()
