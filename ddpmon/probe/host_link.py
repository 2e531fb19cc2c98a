"""How ranks hand their figures to the one that writes for their host, and hear that these were sent to the store.

It is a socket of packets in the private folder. Nobody waits at it: what cannot be sent at once is not handed over, and
a rank that gets no receipt publishes its own frames. The kernel ends a connection with its process.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from types import TracebackType

import msgspec
from msgspec import Struct

from ddpmon.host_frames import RankRow
from ddpmon.parts import Count, Number, RankNumber
from ddpmon.schema import MAX_HOST_RANKS
from ddpmon.store.private import Folder, stem, usable_folder

_SUFFIX = ".sock"
_LARGEST = 1 << 17  # bytes of a packet; a longer one is cut off, and is no row. Chosen, not measured
_MOST_TURNS = 30  # of a second each, between two looks for a writer. Chosen, not measured: whole frames serve till then
_AT_ONCE = 8  # packets of a connection that are read in a turn, in which one comes. Chosen, not measured
_SILENT_S = 30.0  # after which a connection is closed: a forked child may keep it open. Chosen, not measured


class Receipt(Struct, frozen=True, array_like=True, gc=False):
    """The writer's word that it has sent a row to the store, which may still lose it.

    It says whose frame of which number that was, and when the writer will put the next ones.
    `next_at` is on the monotonic clock, which the processes of a host share.
    """

    writer: RankNumber
    seq: Count
    next_at: Number


_row = msgspec.msgpack.Decoder(RankRow)
_receipt = msgspec.msgpack.Decoder(Receipt)
_encoder = msgspec.msgpack.Encoder()


class HostLink:
    """A rank's connection to the writer of its host; belongs to the publisher's thread.

    A writer that is not found is looked for again after 1, 2, 4, 8, 16 and then every 30 turns: each look asks the file
    system, in the publisher's thread.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._failures = self._left_out = 0  # looks in vain in sequence, and turns until the next one

    def hand(self, host: str, row: RankRow) -> None:
        """Hand a row to the writer of `host`, if there is one and it has room; once a turn. Never raises.

        It waits for no other process. While it has no connection, the private folder's file system may hold it up.
        """
        try:
            if self._socket is None:
                self._look_for(host)
            if self._socket is not None:
                self._socket.send(_encoder.encode(row), socket.MSG_NOSIGNAL)
        except BlockingIOError:  # it does not read, or too many wait for it
            pass
        except OSError:  # it has ended
            self.close()

    def _look_for(self, host: str) -> None:
        """Connect to the writer, unless it was looked for in vain a short time ago."""
        self._left_out -= 1
        if self._left_out < 0:
            self._failures = min(self._failures + 1, _MOST_TURNS)
            self._left_out = min(_MOST_TURNS, 1 << self._failures - 1) - 1
            self._socket = _reach(host)
            if self._socket is not None:
                self._failures = self._left_out = 0

    def receipt(self) -> Receipt | None:
        """The newest receipt since this was last asked. Never waits, never raises."""
        newest = None
        for data in _packets(self._socket):
            with suppress(msgspec.MsgspecError):
                newest = _receipt.decode(data)
        return newest

    def close(self) -> None:
        """Let go of the connection. Never raises."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class HostDesk:
    """Where the writer of a host takes in what the other ranks hand over; belongs to the publisher's thread.

    Args:
        host: what the ranks of the host have in common.

    Raises:
        OSError: no socket can be opened in the private folder.
    """

    def __init__(self, host: str) -> None:
        self._file = f"{stem(host)}{_SUFFIX}"
        self._guests: dict[socket.socket, tuple[RankRow | None, float]] = {}
        folder = usable_folder()
        if folder is None:
            raise OSError("no private folder can be used")
        with folder:
            self._path = folder.path
            _clear_away(folder)
            folder.remove(self._file)  # of an earlier writer: this one has the lease
            self._door = folder.listen(self._file)
            self._inode = folder.inode(self._file)

    def __enter__(self) -> HostDesk:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def collect(self, run: str) -> list[RankRow]:
        """The newest row of each rank of `run` since the last collection; of two that claim one rank neither.

        A row that no watcher would take, for its lengths or figures, gets no receipt: its rank publishes whole frames.

        Args:
            run: the id of the run that this rank belongs to.
        """
        self._admit()
        now = monotonic()
        for guest, (_, heard_at) in [*self._guests.items()]:
            row = None
            for data in _packets(guest):
                with suppress(msgspec.MsgspecError):
                    row = _row.decode(data)
            if row is not None and row.run_id == run and row.is_whole and row.is_possible:
                self._guests[guest] = row, now
            else:
                self._guests[guest] = None, heard_at
                if now - heard_at > _SILENT_S or _has_ended(guest):
                    self._dismiss(guest)
        rows: dict[int, list[RankRow]] = {}
        for row, _ in self._guests.values():
            if row is not None:
                rows.setdefault(row.rank, []).append(row)
        return [max(of_rank, key=_seq) for of_rank in rows.values() if len({row.pid for row in of_rank}) == 1]

    def acknowledge(self, rows: Sequence[RankRow], writer: int, next_at: float) -> None:
        """Tell the ranks of these rows that they were sent to the store. Never waits, never raises."""
        numbers = {id(row) for row in rows}
        for guest, (row, _) in [*self._guests.items()]:
            if row is not None and id(row) in numbers:
                try:
                    guest.send(_encoder.encode(Receipt(writer, row.seq, next_at)), socket.MSG_NOSIGNAL)
                except OSError:
                    self._dismiss(guest)

    def close(self) -> None:
        """Close all connections, and remove the socket's file if it is still this one's. Never raises."""
        for guest in [*self._guests]:
            self._dismiss(guest)
        self._door.close()
        with suppress(OSError), Folder(self._path) as folder:
            if folder.inode(self._file) == self._inode:
                folder.remove(self._file)

    def _admit(self) -> None:
        with suppress(OSError):
            while len(self._guests) < MAX_HOST_RANKS:
                guest, _ = self._door.accept()
                guest.setblocking(False)
                self._guests[guest] = None, monotonic()

    def _dismiss(self, guest: socket.socket) -> None:
        self._guests.pop(guest, None)
        guest.close()


def _seq(row: RankRow) -> int:
    return row.seq


def _reach(host: str) -> socket.socket | None:
    folder = usable_folder()
    if folder is None:
        return None
    with folder:
        return folder.reach(f"{stem(host)}{_SUFFIX}")


def _packets(source: socket.socket | None) -> list[bytes]:
    """The packets that wait at a connection, oldest first, at most 8."""
    found: list[bytes] = []
    if source is not None:
        with suppress(OSError):  # nothing waits
            while len(found) < _AT_ONCE and (data := source.recv(_LARGEST)):
                found.append(data)
    return found


def _has_ended(guest: socket.socket) -> bool:
    """Whether the other side has closed the connection."""
    try:
        return not guest.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _clear_away(folder: Folder) -> None:
    """Remove the sockets of writers that were killed: nobody listens there."""
    for name in folder.names(_SUFFIX):
        if folder.is_stale(name):
            try:
                folder.reach(name).close()
            except ConnectionRefusedError:
                folder.remove(name)
            except OSError:
                continue
