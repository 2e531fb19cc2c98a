"""The wire protocol of torch's TCPStore, as far as ddpmon speaks it.

A query is one byte and its operands. Integers are little-endian: a string or a value is a uint64 length and its bytes,
a list of keys a uint64 count and that many strings. After connecting, a client sends VALIDATE with the magic number and
PING with a nonce, which comes back. SET is not answered; CHECK answers one byte, READY where all keys are there;
MULTI_GET answers each value with its length, and breaks the connection where a key is missing; ADD, GETNUMKEYS and
DELETE_KEY answer an int64. WAIT answers one byte, STOP_WAITING once all keys are there, or WAIT_CANCELED after a
CANCEL_WAIT; torch's own clients send it before GET and MULTI_GET, ddpmon's never do. torch's own clients put `PREFIX`
before each key, and so must whoever shares a store with them.

Source: torch/csrc/distributed/c10d/TCPStoreBackend.hpp; the same in torch 2.6 to 2.15, with libuv and without.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

VALIDATE, SET, GET, ADD, CHECK, GETNUMKEYS, DELETE_KEY, MULTI_GET, PING = 0, 1, 3, 4, 5, 7, 8, 10, 13
WAIT, CANCEL_WAIT = 6, 12
READY, NOT_READY = b"\0", b"\1"
STOP_WAITING, WAIT_CANCELED = b"\0", b"\1"
MAGIC = 0x3C85F7CE
PREFIX = b"/"
END_KEY = PREFIX + b"ddpmon/end"  # set to its secret, it ends a server of ddpmon's own; never stored
COUNT = struct.Struct("<Q")
INT64 = struct.Struct("<q")
GREETING = struct.Struct("<BIB4s")


def greeting(nonce: bytes) -> bytes:
    """What a client says first: VALIDATE with the magic number, and PING with `nonce`, 4 bytes, which comes back."""
    return GREETING.pack(VALIDATE, MAGIC, PING, nonce)


def packed(data: bytes) -> bytes:
    """A string or a value: its length and its bytes."""
    return COUNT.pack(len(data)) + data


def packed_key(key: str) -> bytes:
    """A key, with the prefix that torch gives it."""
    return packed(PREFIX + key.encode())


def query_of_keys(query: int, keys: Sequence[str]) -> bytes:
    """CHECK or MULTI_GET of `keys`."""
    return b"".join((bytes((query,)), COUNT.pack(len(keys)), *map(packed_key, keys)))
