"""Which way the frames of simulated ranks go: as rows of a host frame, or whole, as real ranks decide it."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from ddpmon.host_frames import RankRow, figures_of, host_frame
from ddpmon.schema import HostFrame, RankFrame
from ddpmon.simulate.plan import Plan
from ddpmon.simulate.rank_frames import Frames
from ddpmon.simulate.scenarios import I64

_WITHOUT_S = 2.0  # after the death of a writer, until another rank of the host has taken its place


class HostWriters:
    """The ranks of some hosts, of which one each writes for the others.

    Args:
        plan: the run.
        frames: of these ranks.
        own: their numbers.
    """

    def __init__(self, plan: Plan, frames: Frames, own: I64) -> None:
        self._plan, self._frames, self._own = plan, frames, own
        self._writer_of: dict[int, int] = {}  # rank -> the rank that has put its last row, of those that one has
        self._whole: dict[int, RankFrame] = {}

    def turn(self, places: I64, seconds: float, due: set[int]) -> Iterator[RankFrame | HostFrame]:
        """What the ranks at these places put in a turn; those in `due` put a whole frame in any case."""
        hosts: dict[int, list[tuple[RankFrame, RankRow]]] = {}
        wanted: dict[int, RankFrame] = {}
        for said, row in self._frames.rows(places, seconds):
            frame = replace(said, writer=self._writer_of.get(said.rank, -1))
            is_new = not _is_told(frame, self._whole.get(frame.rank))
            if is_new:
                self._whole[frame.rank] = frame
            if is_new or frame.writer < 0 or frame.rank in due:
                wanted[frame.rank] = frame
            hosts.setdefault(frame.node, []).append((frame, row))
        yield from self._whole_frames(places, seconds, wanted)
        for told in hosts.values():
            yield from self._of_host(told, seconds)

    def _whole_frames(self, places: I64, seconds: float, wanted: dict[int, RankFrame]) -> Iterator[RankFrame]:
        """The whole frames of these ranks, which are among those at `places`."""
        chosen = places[np.isin(self._own[places], [*wanted])]
        for frame in self._frames.ranks(chosen, seconds):
            yield replace(wanted[frame.rank], steps=frame.steps)

    def _of_host(self, told: Sequence[tuple[RankFrame, RankRow]], seconds: float) -> Iterator[HostFrame]:
        """The host frame of these ranks, where there is a writer and more than one rank."""
        writer = self._writer([frame.rank for frame, _ in told], seconds)
        for frame, _ in told:
            self._writer_of[frame.rank] = writer
        if writer >= 0:
            rows = [_filled(row, frame, self._whole[frame.rank].seq) for frame, row in told]
            yield host_frame(writer, int(seconds) + 1, time.time(), rows)

    def _writer(self, ranks: Sequence[int], seconds: float) -> int:
        """Which of these ranks of a host writes for them, -1 for none."""
        life = self._plan.writer_life_s
        if len(ranks) < 2:
            return -1
        if life is None:
            return ranks[0]
        turns, since = divmod(seconds, life)
        return -1 if turns and since < _WITHOUT_S else ranks[int(turns) % len(ranks)]


def _is_told(frame: RankFrame, whole: RankFrame | None) -> bool:
    """Whether figures say all that is new."""
    if whole is None or (frame.stall is None) != (whole.stall is None) or frame.buckets is not None:
        return False
    return (frame.writer, frame.pid) == (whole.writer, whole.pid)


def _filled(row: RankRow, frame: RankFrame, whole: int) -> RankRow:
    figures = figures_of(frame, whole)
    return replace(row, figures=struct.pack(f"<{len(figures)}d", *figures))
