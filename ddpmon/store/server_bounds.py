"""What a store server takes from its clients: whoever reaches its port, of whatever user, is one of them."""

from __future__ import annotations

from ddpmon.store.base import MOST_VALUE_BYTES

# The longest frame that a watcher decodes, with its signature.
VALUE_BYTES = MOST_VALUE_BYTES
# A run's id has at most 256 characters of at most 4 bytes; "/ddpmon/" and "/history/131071" stand around it.
KEY_BYTES = 1100
# Keys of one MULTI_GET, which are kept until they are answered; ddpmon's clients ask for 1,024 at a time.
LIST_KEYS = 4096
# Keys that a client of torch's may wait for at once; ddpmon's own clients never wait.
WAITED_KEYS = 16
# What a value costs in memory beside its bytes and those of its key, measured with empty values.
ENTRY_BYTES = 200
# Answers are put together in parts of this size, and the next one when the client has taken the last.
PART_BYTES = 1 << 18
# Bytes that are read from a connection in its turn. It holds 30 frames of 2 kB.
READ_BYTES = 1 << 16
# Queries that a connection is served before it is the others' turn: tiny ones would take half a second a read.
QUERIES_A_TURN = 64
# Of the kernel for each direction of a connection (it takes twice of it): 1,000 idle readers hold 128 MB, not 4 GB.
SOCKET_BYTES = 1 << 16
# A client greets, completes a query, and takes a part of an answer within this. 256 KiB then need 26 kB/s.
OWING_S = 10.0
# While there is no room for a new connection, those that have asked nothing for so long are closed. A rank puts every
# second, and a watcher reads every second.
IDLE_S = 10.0

# For each rank: its own connection, one that it has just lost, and two watchers at once as they come with large runs.
_CONNECTIONS, _CONNECTIONS_A_RANK = 1024, 4
# 4,096 ranks may have 17,408. Buffers of the kernel for 20,000 idle readers take 2.6 GB at 128 kB each, beside rank 0.
_MOST_CONNECTIONS = 20_000
# A rank's frame (15 kB at most in docs/measured/scale.md, 55 kB with bucket detail), its history (28 kB), its share of
# its host's frame; beside them 32 MiB for a small run's and for other runs in the same store.
_STORED_BYTES, _STORED_BYTES_A_RANK = 32 << 20, 128 << 10
# 4,096 ranks may store 544 MiB. The store shares rank 0's memory cgroup, where more than 1 GiB would be missed.
_MOST_STORED_BYTES = 1 << 30
# Unfinished queries, unread answers and lists of keys. All ranks may be in the middle of a history (28 kB) at once.
_HELD_BYTES, _HELD_BYTES_A_RANK = 32 << 20, 32 << 10
# Descriptors that are no connections: the listening socket, epoll, the standard streams.
_OTHER_DESCRIPTORS = 16


class Bounds:
    """The bounds that depend on the run.

    Attributes:
        connections: that are open at once.
        stored_bytes: of all values, with their keys and what else they cost.
        held_bytes: of all that is kept for connections: unfinished queries, unread answers, keys that are waited for.
    """

    def __init__(self, ranks: int, descriptors: int) -> None:
        connections = min(_CONNECTIONS + _CONNECTIONS_A_RANK * ranks, _MOST_CONNECTIONS)
        self.connections = max(1, min(connections, descriptors - _OTHER_DESCRIPTORS))
        self.stored_bytes = min(_STORED_BYTES + _STORED_BYTES_A_RANK * ranks, _MOST_STORED_BYTES)
        self.held_bytes = _HELD_BYTES + _HELD_BYTES_A_RANK * ranks
