"""The ranks' newest frames as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from sys import intern
from typing import Any, overload

import numpy as np
from msgspec.structs import force_setattr, replace
from numpy.typing import NDArray

from ddpmon.figures import FIGURES, PLACE, STATES, State
from ddpmon.host_frames import figures_of, process_of, with_figures, without_figures
from ddpmon.machine import ProcessFigures
from ddpmon.parts import BadLoss, Failure, Stall
from ddpmon.schema import RankFrame

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Words = NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class Places:
    """[world] each rank's host, the number of that, its place there, and its process; empty or -1 where unknown."""

    host: tuple[str, ...]
    node: Ints
    local_rank: Ints
    pid: Ints


class LatestFrames:
    """One entry a rank in every column: arrays for what is compared, lists for what is shown.

    Attributes:
        heard_at: when its newest figures came, NaN for a rank never heard of.
        figures: [world, len(FIGURES)] of its newest frame; `column` has them by name.
        state, phase: of that frame; "unknown" and empty before the first.
        whole: its last whole frame without the figures of its process, None before the first; `frame` has them.
        whole_seq: the number of that, -1 before.
        noted: whether that has notes.
        host, gpu_uuid, stall, failure, node, local_rank, pid: of that frame; empty, None or -1 before.
        process: what its process has that is no figure, None before; `process_of` has all of it.
        writer: the rank whose host frames carry its figures, as that frame says, -1 for none.
        bad_loss: those of the ranks that have one.
        restarts: how often the rank has restarted, -1 before the first; the run counts it.
        processes_seen: how often a rank was heard of first, or as another process: until it changes, so is `places`.
        changes: how often anything of this has changed.
    """

    def __init__(self, world_size: int) -> None:
        self.heard_at: Floats = np.full(world_size, np.nan)
        # All ranks' values of a figure lie beside each other, since whole columns are what most readers take.
        self.figures: Floats = np.repeat(np.array([figure.before for figure in FIGURES])[:, None], world_size, 1).T
        self.whole_seq, self.restarts, self.writer = (np.full(world_size, -1, np.int64) for _ in range(3))
        self.noted: Flags = np.zeros(world_size, np.bool_)
        self.state: Words = np.full(world_size, "unknown", object)
        self.phase: Words = np.full(world_size, "", object)
        self.whole: list[RankFrame | None] = [None] * world_size
        self.node: list[int] = [-1] * world_size
        self.local_rank: list[int] = [-1] * world_size
        self.pid: list[int] = [-1] * world_size
        self.host: list[str] = [""] * world_size
        self.process: list[ProcessFigures | None] = [None] * world_size
        self.gpu_uuid: list[str | None] = [None] * world_size
        self.stall: list[Stall | None] = [None] * world_size
        self.failure: list[Failure | None] = [None] * world_size
        self.bad_loss: dict[int, BadLoss] = {}
        self.processes_seen = self.changes = 0
        self._places: tuple[int, Places] | None = None
        self._made: dict[int, RankFrame] = {}  # of figures, for rules that ask for the same frame in a tick

    def take(self, frames: Sequence[RankFrame], heard_at: Sequence[float]) -> None:
        """Take new whole frames over, of different ranks."""
        self.changes += 1
        ranks = [frame.rank for frame in frames]
        self.figures[ranks] = [figures_of(frame, frame.seq) for frame in frames]
        process: ProcessFigures | None = None
        for frame in frames:
            rank = frame.rank
            process = _share(frame, process)
            self._made.pop(rank, None)
            if (known := self.whole[rank]) is None or _who(known) != _who(frame):
                self.processes_seen += 1
            self.whole[rank] = frame
            self.host[rank], self.state[rank], self.phase[rank] = frame.host, frame.state, frame.phase
            self.node[rank], self.local_rank[rank], self.pid[rank] = frame.node, frame.local_rank, frame.pid
            self.process[rank], self.stall[rank], self.failure[rank] = frame.process, frame.stall, frame.failure
            self.gpu_uuid[rank] = frame.gpu_uuid
            if frame.bad_loss is not None:
                self.bad_loss[rank] = frame.bad_loss
            elif rank in self.bad_loss:
                del self.bad_loss[rank]
        self.heard_at[ranks] = heard_at
        self.whole_seq[ranks] = [frame.seq for frame in frames]
        self.writer[ranks] = [frame.writer for frame in frames]
        self.noted[ranks] = [bool(frame.notes) for frame in frames]

    def take_rows(self, ranks: Ints, figures: Floats, phase: Words, heard_at: Floats) -> None:
        """Take newer figures over, of different ranks whose whole frames are known; one row each."""
        self.changes += 1
        for rank in self._made.keys() & set(ranks.tolist()) if self._made else ():
            del self._made[rank]
        self.heard_at[ranks] = heard_at
        self.figures[ranks] = figures
        self.phase[ranks] = phase
        self.state[ranks] = _STATES[figures[:, PLACE["state"]].astype(np.int64)]
        seconds = figures[:, PLACE["stall_s"]]
        stuck = ~np.isnan(seconds)
        for rank, stall_s in zip(ranks[stuck].tolist(), seconds[stuck].tolist(), strict=True):
            stall = self.stall[rank]
            self.stall[rank] = None if stall is None else replace(stall, seconds=stall_s)

    def column(self, name: str) -> Floats:
        """[world] a figure of the ranks' newest frames by its name in `FIGURES`, NaN where unknown."""
        found: Floats = self.figures[:, PLACE[name]]
        return found

    @property
    def places(self) -> Places:
        """Where the ranks run, frozen."""
        if self._places is None or self._places[0] != self.processes_seen:
            numbers = (np.array(each) for each in (self.node, self.local_rank, self.pid))
            self._places = self.processes_seen, Places(tuple(self.host), *numbers)
        return self._places[1]

    def frame(self, rank: int) -> RankFrame:
        """The newest frame of a rank that has been heard of, without its steps."""
        whole = self.whole[rank]
        assert whole is not None
        made = self._made.get(rank)
        if made is None:
            made = self._made[rank] = with_figures(whole, self.figures[rank].tolist(), self.phase[rank])
        return made

    def process_of(self, rank: int) -> ProcessFigures | None:
        """A rank's process by its newest figures."""
        return process_of(self.process[rank], self.figures[rank].tolist())

    def processes(self, figures: Floats) -> Sequence[ProcessFigures | None]:
        """[world] every rank's process; `figures` are a copy of its figures that nobody writes to."""
        return Processes(tuple(self.process), figures)

    @property
    def seq(self) -> Ints:
        """[world] the number of the newest frame, -1 before the first."""
        return self.column("seq").astype(np.int64)

    @property
    def step(self) -> Ints:
        """[world] the last finished step, -1 before the first."""
        return self.column("step").astype(np.int64)

    @property
    def phase_s(self) -> Floats:
        """[world] how long the rank has been in its phase; 0 before the first frame."""
        return self.column("phase_s")

    @property
    def step_s(self) -> Floats:
        """[world] how long ago it finished a step, NaN where unknown."""
        return self.column("step_s")

    @property
    def cost_us(self) -> Floats:
        """[world] what the probe costs a step, NaN where unknown."""
        return self.column("cost_us")

    @property
    def dropped_steps(self) -> Ints:
        """[world] steps that could not be recorded."""
        return self.column("dropped_steps").astype(np.int64)

    @property
    def dropped_frames(self) -> Ints:
        """[world] frames that could not be put."""
        return self.column("dropped_frames").astype(np.int64)

    @property
    def thinned(self) -> Flags:
        """[world] whether steps were left out of the newest frame."""
        found: Flags = self.column("thinned") > 0
        return found

    @property
    def known(self) -> Flags:
        """[world] the ranks heard of."""
        found: Flags = self.column("seq") >= 0
        return found

    @property
    def running(self) -> Flags:
        """[world] the ranks that say that they run."""
        return self._are("running")

    @property
    def stalled(self) -> Flags:
        """[world] the ranks that say that they stand still."""
        return self._are("stalled")

    @property
    def finished(self) -> Flags:
        """[world] the ranks that say that they have finished."""
        return self._are("finished")

    @property
    def failed(self) -> Flags:
        """[world] the ranks that say that they have failed."""
        return self._are("failed")

    @property
    def ended(self) -> Flags:
        """[world] the ranks that have finished or failed."""
        found: Flags = self.finished | self.failed
        return found

    @property
    def states(self) -> set[str]:
        """The states that the ranks heard of are in."""
        codes = self.column("state")
        return {STATES[int(code)] for code in np.unique(codes[codes >= 0])}

    def _are(self, state: State) -> Flags:
        found: Flags = self.column("state") == STATES.index(state)
        return found


class Processes(Sequence[ProcessFigures | None]):
    """Every rank's process by its newest figures: made where one is asked for, for thousands would take their time.

    Args:
        known: what the ranks' last whole frames have besides.
        figures: [world, len(FIGURES)].
    """

    def __init__(self, known: Sequence[ProcessFigures | None], figures: Floats) -> None:
        self._known, self._figures = known, figures

    def __len__(self) -> int:
        return len(self._known)

    @overload
    def __getitem__(self, rank: int) -> ProcessFigures | None: ...
    @overload
    def __getitem__(self, rank: slice) -> Sequence[ProcessFigures | None]: ...
    def __getitem__(self, rank: int | slice) -> ProcessFigures | Sequence[ProcessFigures | None] | None:
        if isinstance(rank, slice):
            return [self[each] for each in range(*rank.indices(len(self)))]
        return process_of(self._known[rank], self._figures[rank].tolist())


def _share(frame: RankFrame, before: ProcessFigures | None) -> ProcessFigures | None:
    """Let a frame that is kept hold what most ranks have in common only once: of 4,096 they took 13 MB without it.

    Args:
        frame: the rank's.
        before: what is returned for the frame before, nearly always of the same host.

    Returns:
        What its process has that is no figure.
    """
    process = without_figures(frame.process)
    if process == before:
        process = before
    force_setattr(frame, "process", process)
    for name in ("run_id", "host", "state", "phase"):
        force_setattr(frame, name, intern(getattr(frame, name)))
    for name, nothing in _EMPTY.items():
        if not getattr(frame, name):
            force_setattr(frame, name, nothing)
    return process


_EMPTY: dict[str, list[Any]] = {"notes": [], "marks": [], "bucket_sizes": []}  # nobody writes to these
_who = attrgetter("host", "node", "local_rank", "pid", "gpu_uuid")
_STATES: Words = np.array(STATES, object)
