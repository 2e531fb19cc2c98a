"""The ranks' newest frames as columns, and processes that publish as the same rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ddpmon.machine import ProcessFigures
from ddpmon.parts import BadLoss, Failure, Stall
from ddpmon.schema import RankFrame

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
V = TypeVar("V")
KEEPS_ITS_PLACE_S = 10.0  # a process that publishes as a rank keeps its place so long after its last frame


class LatestFrames:
    """One entry a rank in every column: arrays for what is compared, lists for what is shown.

    Attributes:
        heard_at: when its newest frame came, NaN for a rank never heard of.
        step, seq, phase_s, dropped_steps, dropped_frames: of that frame; step and seq are -1 before the first.
        step_s, cost_us, cpu_pct, rss_bytes: NaN where unknown.
        finished, failed, stalled, thinned, noted: what the frame says of itself; `noted` where it has notes.
        host, state, phase, gpu_uuid, process, stall, failure: empty, "unknown" or None before the first frame.
        bad_loss: those of the ranks that have one.
        node, local_rank, pid: -1 before the first.
        restarts: how often the rank has restarted, -1 before the first; the run counts it.
    """

    def __init__(self, world_size: int) -> None:
        self.heard_at: Floats = np.full(world_size, np.nan)
        self.step: NDArray[np.int64] = np.full(world_size, -1, np.int64)
        self.seq: NDArray[np.int64] = np.full(world_size, -1, np.int64)
        self.restarts: NDArray[np.int64] = np.full(world_size, -1, np.int64)
        self.phase_s: Floats = np.zeros(world_size)
        self.step_s: Floats = np.full(world_size, np.nan)
        self.cost_us: Floats = np.full(world_size, np.nan)
        self.dropped_steps: NDArray[np.int64] = np.zeros(world_size, np.int64)
        self.dropped_frames: NDArray[np.int64] = np.zeros(world_size, np.int64)
        self.finished, self.failed, self.stalled, self.thinned, self.noted = (
            np.zeros(world_size, np.bool_) for _ in range(5)
        )
        self.node: list[int] = [-1] * world_size
        self.local_rank: list[int] = [-1] * world_size
        self.pid: list[int] = [-1] * world_size
        self.host: list[str] = [""] * world_size
        self.state: list[str] = ["unknown"] * world_size
        self.phase: list[str] = [""] * world_size
        self.process: list[ProcessFigures | None] = [None] * world_size
        self.cpu_pct, self.rss_bytes = (np.full(world_size, np.nan) for _ in range(2))
        self.gpu_uuid: list[str | None] = [None] * world_size
        self.stall: list[Stall | None] = [None] * world_size
        self.failure: list[Failure | None] = [None] * world_size
        self.bad_loss: dict[int, BadLoss] = {}

    def take(self, frames: Sequence[RankFrame], heard_at: Sequence[float]) -> None:
        """Take new frames over, of different ranks."""
        ranks = [frame.rank for frame in frames]
        for frame in frames:
            rank = frame.rank
            self.host[rank], self.state[rank], self.phase[rank] = frame.host, frame.state, frame.phase
            self.node[rank], self.local_rank[rank], self.pid[rank] = frame.node, frame.local_rank, frame.pid
            self.process[rank], self.stall[rank], self.failure[rank] = frame.process, frame.stall, frame.failure
            self.gpu_uuid[rank] = frame.gpu_uuid
            if frame.bad_loss is not None:
                self.bad_loss[rank] = frame.bad_loss
            elif rank in self.bad_loss:
                del self.bad_loss[rank]
        self.heard_at[ranks] = heard_at
        self.step[ranks] = [frame.step for frame in frames]
        self.seq[ranks] = [frame.seq for frame in frames]
        self.phase_s[ranks] = [frame.phase_s for frame in frames]
        self.step_s[ranks] = [_nan if frame.step_s is None else frame.step_s for frame in frames]
        self.cost_us[ranks] = [_nan if frame.cost_us is None else frame.cost_us for frame in frames]
        self.dropped_steps[ranks] = [frame.dropped_steps for frame in frames]
        self.dropped_frames[ranks] = [frame.dropped_frames for frame in frames]
        self.thinned[ranks] = [frame.thinned > 0 for frame in frames]
        self.noted[ranks] = [bool(frame.notes) for frame in frames]
        processes = [frame.process or _UNKNOWN for frame in frames]
        self.cpu_pct[ranks] = [_nan if process.cpu_pct is None else process.cpu_pct for process in processes]
        self.rss_bytes[ranks] = [_nan if process.rss_bytes is None else process.rss_bytes for process in processes]
        states = np.array([_STATES.index(frame.state) for frame in frames])
        for flags, state in ((self.finished, "finished"), (self.failed, "failed"), (self.stalled, "stalled")):
            flags[ranks] = states == _STATES.index(state)

    @property
    def known(self) -> Flags:
        """[world] the ranks heard of."""
        return self.seq >= 0

    @property
    def ended(self) -> Flags:
        """[world] the ranks that have finished or failed."""
        ended: Flags = self.finished | self.failed
        return ended

    @property
    def states(self) -> set[str]:
        """The states that the ranks heard of are in."""
        return {*self.state} - {"unknown"}


_nan = float("nan")
_UNKNOWN = ProcessFigures()
_STATES = ("running", "stalled", "finished", "failed")


@dataclass(frozen=True, slots=True)
class DuplicateRank:
    """A rank as which two processes write: the one that is followed, the other, and when it was last seen."""

    kept: tuple[int, str]
    other: tuple[int, str]
    at: float


class DuplicateRanks:
    """What is known of the processes that ranks were before.

    Attributes:
        seen: rank -> the two that write as it.
    """

    def __init__(self) -> None:
        self.seen: dict[int, DuplicateRank] = {}
        self._former: dict[int, RankFrame] = {}

    def refuse(self, known: RankFrame, heard_at: float, frame: RankFrame, now: float) -> bool:
        """Whether a frame comes from a second live process, and not from a restarted rank.

        Args:
            known: the rank's newest frame.
            heard_at: when that came.
            frame: the other process's.
            now: when this has come.
        """
        former = self._former.get(frame.rank)
        if former is not None and _process(former) == _process(frame) != _process(known):
            if frame.seq > former.seq:
                self.seen[frame.rank] = DuplicateRank(_process(known), _process(frame), now)
                if now - heard_at <= KEEPS_ITS_PLACE_S:
                    return True
            elif frame.sent_at <= former.sent_at:
                return True  # an old word of it
        self._former[frame.rank] = known
        return False


def _process(frame: RankFrame) -> tuple[int, str]:
    return frame.pid, frame.host
