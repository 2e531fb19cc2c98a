"""Which way a rank's frame goes: as a row in the host frame of one rank of its host, or whole under its own key.

The rank that has the lease of the host writes for all. A rank publishes whole frames itself until a receipt says that
its rows were sent to the store, and again with the first turn at which a receipt is missing. A whole frame goes out as
well where figures do not say it all, and at least every 6.5 s for watchers that come.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from msgspec.structs import replace

from ddpmon.host_frames import RankRow, are_possible, figures_of, host_frame, is_told
from ddpmon.probe.frames import columns, halves, packed
from ddpmon.probe.host_link import HostDesk, HostLink
from ddpmon.probe.host_sampler import HostSampler
from ddpmon.probe.identity import Identity
from ddpmon.probe.record import StepRow
from ddpmon.probe.uplink import Uplink
from ddpmon.schema import HANDED_S, HOST_COLUMNS, MAX_FRAME_BYTES, MAX_HOST_RANKS, MAX_LAYOUTS, STEP_COLUMNS, RankFrame

# Chosen, not measured: how long before the writer's turn the others hand over, so that a busy host does not miss it.
_LEAD_S = 0.25
_ROOM = MAX_FRAME_BYTES - (64 << 10)  # bytes of a host frame
# Receipts, one a second, that may be missing until a writer is looked for again: a child of a dead one may keep its
# socket open. Chosen, not measured.
_MISSED = 5
_WIDE = len(STEP_COLUMNS) - len(HOST_COLUMNS)


class Word(NamedTuple):
    """What a rank says in one turn: its frame without steps, and the steps of the last seconds."""

    frame: RankFrame
    rows: Sequence[StepRow]

    @property
    def whole(self) -> RankFrame:
        """The frame with its steps."""
        return replace(self.frame, steps=columns(self.rows))


class HostShare:
    """Publishes one rank's frames; belongs to the publisher's thread.

    Args:
        identity: which rank this is.
        uplink: where frames go.
        machine: tells whether this rank has the lease of its host.
    """

    def __init__(self, identity: Identity, uplink: Uplink, machine: HostSampler) -> None:
        self._me, self._uplink, self._machine = identity, uplink, machine
        self._link = HostLink()
        self._desk: HostDesk | None = None
        self._whole: RankFrame | None = None  # the last one that said something new
        self._handed = -1  # the number of the frame whose row was handed over last
        self._missed = 0  # receipts in sequence
        self._speaks_for_host = False
        self._put = 0
        self._next_at = 0.0

    def put(self, word: Word, next_at: float, *, whole: bool) -> None:
        """Publish a frame.

        Args:
            word: it.
            next_at: when the turn after this one begins, in monotonic seconds.
            whole: it goes out whole in any case.

        Raises:
            StoreUnavailable: the store does not take it; nothing was handed over.
        """
        self._take_turn()
        others = [] if self._desk is None else self._others(self._desk)
        frame = replace(word.frame, writer=self._carried_by(others))
        self._handed = -1
        is_new = self._whole is None or not is_told(frame, self._whole)
        if whole or is_new or frame.writer < 0 or not are_possible(figures_of(frame, frame.seq)):
            self._uplink.put_rank(Word(frame, word.rows).whole)
        if self._whole is None or is_new:
            self._whole = frame
        row = handed(frame, self._whole.seq, recent(word.rows))
        if self._desk is None:
            self._link.hand(self._me.host_of(frame.run_id), row)
            self._handed = frame.seq
        elif others:
            self._write(self._desk, [row, *_that_fit(row, others)], next_at)

    def forget(self) -> None:
        """The store was lost and may come back empty: the next frame goes out whole, and no receipt is awaited."""
        self._whole, self._handed = None, -1

    def wait_s(self, usual: float) -> float:
        """Seconds until the next turn: a rank hands over a little before its writer's turn, so that rows are fresh.

        Args:
            usual: the wait, in seconds, of the writer itself and of a rank that knows of none.

        Returns:
            `usual`, or with a writer 0.5 to 1.5 s.
        """
        if self._desk is not None or not self._next_at:
            return usual
        delay = (self._next_at - _LEAD_S - monotonic()) % 1.0
        return delay if delay >= 0.5 else delay + 1.0

    def close(self) -> None:
        """Let go of the other ranks. Never raises."""
        self._link.close()
        if self._desk is not None:
            self._desk.close()
            self._desk = None

    def _take_turn(self) -> None:
        """Begin to write for the host once this rank has the lease, and end with it."""
        if self._machine.has_turn and not self._speaks_for_host:
            self._speaks_for_host = True
            self._uplink.take_over()
        if self._machine.has_turn and self._desk is None:
            with suppress(OSError):  # then every rank of the host publishes by itself
                self._desk = HostDesk(self._me.host_of(self._uplink.run))
                self._link.close()
        elif not self._machine.has_turn and self._desk is not None:
            self.close()

    def _others(self, desk: HostDesk) -> list[RankRow]:
        """What the other ranks have handed over since the last turn."""
        return [row for row in desk.collect(self._uplink.run) if row.rank != self._me.rank]

    def _carried_by(self, others: Sequence[RankRow]) -> int:
        """The rank whose host frames carry this one, -1 if none is known to.

        That is the writer whose receipt for the last row has come; or this rank, if it writes and others have come.
        """
        if self._desk is not None:
            return self._me.rank if others else -1
        receipt = self._link.receipt()
        if receipt is not None:
            self._next_at = receipt.next_at
        if receipt is not None and receipt.seq == self._handed:
            self._missed = 0
            return receipt.writer
        self._next_at = 0.0
        self._missed += self._handed >= 0
        if self._missed >= _MISSED:
            self._link.close()
            self._missed = 0
        return -1

    def _write(self, desk: HostDesk, rows: Sequence[RankRow], next_at: float) -> None:
        """Put a host frame, and tell the ranks in it."""
        self._put += 1
        self._uplink.put_host(host_frame(self._me.rank, self._put, time.time(), rows))
        desk.acknowledge(rows, self._me.rank, next_at)


def recent(rows: Sequence[StepRow]) -> Sequence[StepRow]:
    """Those of the last seconds."""
    since = monotonic() - HANDED_S
    return [row for row in rows if row.at >= since]


def handed(frame: RankFrame, whole: int, rows: Sequence[StepRow]) -> RankRow:
    """A rank's row; `whole` is the number of the whole frame that it belongs to."""
    wide, narrow = _filled(rows, 0, _WIDE), _filled(rows, _WIDE, len(STEP_COLUMNS))
    figures = figures_of(frame, whole)
    return RankRow(
        run_id=frame.run_id,
        rank=frame.rank,
        pid=frame.pid,
        seq=frame.seq,
        figures=struct.pack(f"<{len(figures)}d", *figures),
        phase=frame.phase,
        columns=sum(1 << column for column in (*wide, *narrow)),
        step=packed("q", [row.step for row in rows]),
        values=packed("f", [row.values[column] for row in rows for column in wide]),
        halves=halves([row.values[column] for row in rows for column in narrow]),
    )


def _filled(rows: Sequence[StepRow], first: int, end: int) -> list[int]:
    """The columns in this range that some row has a value in."""
    width = min((len(row.values) for row in rows), default=0)
    return [at for at in range(first, min(end, width)) if any(row.values[at] == row.values[at] for row in rows)]


def _that_fit(own: RankRow, rows: Sequence[RankRow]) -> list[RankRow]:
    """The rows of other ranks that one host frame has room for beside the writer's own."""
    left, fitting = _ROOM - _size(own), list[RankRow]()
    layouts = {own.columns}
    for row in rows:
        layouts.add(row.columns)
        left -= _size(row)
        if left >= 0 and len(layouts) <= MAX_LAYOUTS and len(fitting) < MAX_HOST_RANKS - 1:
            fitting.append(row)
    return fitting


def _size(row: RankRow) -> int:
    return len(row.figures) + len(row.values) + len(row.halves) + 10 * (len(row.step) // 8) + 512
