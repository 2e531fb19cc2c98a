"""From the parts of a look back to frames, in the way in which a watcher took them in first."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ddpmon.codec import decode
from ddpmon.figures import FIGURES, PLACE
from ddpmon.recording.looks import DamageError, Nodes, Part, Rows, Whole
from ddpmon.run.host_rows import HostRows, gather
from ddpmon.run.model import Run
from ddpmon.schema import (
    FrameError,
    HistoryFrame,
    HostFrame,
    NodeFrame,
    RankFrame,
    StepColumns,
    StepRows,
    names_of,
)

_TAKEN = StepColumns()


def _from_planes(data: bytes, kind: str) -> NDArray[Any]:
    width = np.dtype(kind).itemsize
    return np.ascontiguousarray(np.frombuffer(data, np.uint8).reshape(width, -1).T).view(kind).reshape(-1)


class Unpacker:
    """Gives parts to a `Run` in the way in which they were taken in first.

    Args:
        run: what takes them in.

    Raises:
        DamageError: by every method: the part cannot be read.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._before = np.zeros((run.info.world_size, len(FIGURES)), np.uint64)

    def begin(self) -> None:
        """Begin a chunk."""
        self._before[:] = 0

    def give(self, part: Part, read_at: float) -> None:
        """Let the run take a part in that was read at `read_at`."""
        run = self._run
        try:
            if isinstance(part, Rows):
                run.add_rows(self._rows(part), read_at)
            elif isinstance(part, Whole):
                frames = [decode("a rank's frame", data, RankFrame) for data in part.frames]
                run.add_ranks(frames, read_at, part.ages)
                for frame in frames:  # their steps are in the run's rings now
                    msgspec.structs.force_setattr(frame, "steps", _TAKEN)
            elif isinstance(part, Nodes):
                for data in part.frames:
                    node = decode("a host's frame", data, NodeFrame)
                    run.add_node(node, read_at - part.ages.get(node.node, 0.0))
            else:
                histories = [decode("a history", data, HistoryFrame) for data in part.frames]
                run.add_history(histories, are_last=part.are_last)
        except (FrameError, ValueError, IndexError) as error:
            raise DamageError(f"frames cannot be read ({error})") from None

    def _rows(self, part: Rows) -> HostRows:
        ranks = np.frombuffer(part.ranks, "<i4").astype(np.int64)
        if ((ranks < 0) | (ranks >= self._run.info.world_size)).any():
            raise DamageError("figures of a rank that the run does not have")
        apart = _from_planes(part.figures, "<u8").reshape(len(FIGURES), len(ranks)).T
        self._before[ranks] ^= apart
        figures = self._before[ranks].view(np.float64)
        phase = np.frombuffer(part.phase, "<u2").astype(np.int64)
        figures[:, PLACE["phase"]] = phase
        first = np.frombuffer(part.first, np.uint8).astype(np.bool_)
        frames = [self._host_frame(part, flag, np.flatnonzero(first == bool(flag)), figures) for flag in (0, 1)]
        rows, bad = gather([frame for frame in frames if frame.ranks], bool, self._run.info.world_size)
        if bad:
            raise DamageError("figures are out of their bounds")
        return rows

    def _host_frame(self, part: Rows, flag: int, kept: NDArray[np.int64], figures: NDArray[np.float64]) -> HostFrame:
        """The rows at `kept` as one host frame, whose writer's number says whether it is a first frame."""
        place = np.full(len(figures) + 1, len(kept))  # of those left out: of no rank of the frame
        place[kept] = np.arange(len(kept))
        ranks = np.frombuffer(part.ranks, "<i4")[kept]
        steps = [_step_rows(each, place) for each in part.steps]
        return HostFrame(
            run_id=self._run.info.run_id,
            rank=flag,
            seq=0,
            sent_at=0.0,
            ranks=ranks.tobytes(),
            figures=np.ascontiguousarray(figures[kept]).tobytes(),
            phases=part.phases,
            steps=steps,
        )


def _step_rows(packed: StepRows, place: NDArray[np.int64]) -> StepRows:
    wide, narrow = names_of(packed.columns)
    steps = _from_planes(packed.step, "<i8")
    values = _from_planes(packed.values, "<f4").reshape(len(wide), len(steps)).T
    halves = _from_planes(packed.halves, "<f2").reshape(len(narrow), len(steps)).T
    told = np.frombuffer(packed.place, "<u2").astype(np.int64)
    return StepRows(
        columns=packed.columns,
        place=place[np.minimum(told, len(place) - 1)].astype("<u2").tobytes(),
        step=steps.tobytes(),
        values=np.ascontiguousarray(values).tobytes(),
        halves=np.ascontiguousarray(halves).tobytes(),
    )
