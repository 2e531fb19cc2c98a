"""The GPUs that the hosts tell of, and which rank is on which, as columns: no tick has a Python loop over all ranks."""

from __future__ import annotations

from itertools import chain
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from ddpmon.machine import GpuFigures
from ddpmon.run.latest_frames import LatestFrames
from ddpmon.run.process_roles import Instances
from ddpmon.schema import NodeFrame

NUMBERS = ("utilization_pct", "power_w", "sm_clock_mhz")
_MOST = 128  # a host, before those that no rank names any more are forgotten
_numbers_of, _uuid_of, _board_of = attrgetter(*NUMBERS), attrgetter("uuid"), attrgetter("board")
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Gpus:
    """The newest figures of all GPUs, and when they came.

    The frames of a tick are taken in together, when somebody asks for the first time.

    Args:
        lost_s: after which a host that is silent is lost, and its figures with it.
    """

    def __init__(self, lost_s: float) -> None:
        self._lost_s = lost_s
        self._fresh: list[tuple[NodeFrame, float]] = []
        self._hosts = 0
        self._has_mig = False
        self._place: dict[str, int] = {}  # UUID -> its row; the last row of all columns is that of no GPU
        self._figures: NDArray[np.object_] = np.array([None], object)
        self._heard_at: Floats = np.array([-np.inf])
        self._numbers: Floats = np.full((1, len(NUMBERS)), np.nan)
        self._rows: Ints | None = None  # [world] of each rank's GPU; None while it has to be found again
        self._found_for = -1

    def add(self, frame: NodeFrame, now: float, hosts: int) -> None:
        """Take a host's GPUs in, of a run on so many hosts."""
        self._fresh.append((frame, now))
        self._hosts = hosts

    def of(self, rank: int, latest: LatestFrames) -> GpuFigures | None:
        """The GPU of a rank; None without one, or if its host fell silent before the rank was heard of last."""
        row = int(self._rows_of(latest)[rank])
        is_lost = latest.heard_at[rank] - self._heard_at[row] > self._lost_s
        found: GpuFigures | None = None if is_lost else self._figures[row]
        return found

    def of_all(self, latest: LatestFrames) -> tuple[GpuFigures | None, ...]:
        """[world] the GPUs of all ranks."""
        rows = self._rows_with(latest, latest.heard_at)
        return tuple(self._figures[rows].tolist())

    def numbers(self, ranks: Ints, latest: LatestFrames) -> Floats:
        """[len(ranks), len(NUMBERS)] figures of these ranks' GPUs, NaN where unknown."""
        rows = self._rows_with(latest, latest.heard_at[ranks], ranks)
        found: Floats = self._numbers[rows]
        return found

    def _rows_with(self, latest: LatestFrames, heard_at: Floats, ranks: Ints | None = None) -> Ints:
        """The rows of the GPUs of these ranks, by default all; the last one where a host is lost."""
        rows = self._rows_of(latest)
        rows = rows if ranks is None else rows[ranks]
        with np.errstate(invalid="ignore"):
            found: Ints = np.where(heard_at - self._heard_at[rows] > self._lost_s, len(self._figures) - 1, rows)
        return found

    def _rows_of(self, latest: LatestFrames) -> Ints:
        """[world] the row of each rank's GPU, the last one for a rank without."""
        self._take()
        if self._rows is None or self._found_for != latest.processes_seen:
            self._found_for = latest.processes_seen
            names = latest.gpu_uuid
            if self._has_mig:
                there = Instances(gpu for gpu in self._figures.tolist() if gpu is not None)
                pairs = zip(names, latest.pid, strict=True)
                names = [None if name is None else there.of(name, pid) for name, pid in pairs]
            get, none = self._place.get, len(self._figures) - 1
            self._rows = np.array([none if name is None else get(name, none) for name in names], np.int64)
        return self._rows

    def _take(self) -> None:
        """Take in what has come."""
        if not self._fresh:
            return
        fresh, self._fresh = self._fresh, []
        gpus = [gpu for frame, _ in fresh for gpu in frame.gpus]
        if not gpus:
            return
        heard_at = np.repeat([now for _, now in fresh], [len(frame.gpus) for frame, _ in fresh])
        names = list(map(_uuid_of, gpus))
        self._make_room(names, float(heard_at.max()))
        rows = [*map(self._place.__getitem__, names)]
        self._figures[rows] = gpus
        self._heard_at[rows] = heard_at
        numbers = np.array([*chain.from_iterable(map(_numbers_of, gpus))], np.float64)  # None becomes NaN
        self._numbers[rows] = numbers.reshape(-1, len(NUMBERS))
        if self._has_mig or any(map(_board_of, gpus)):
            self._has_mig, self._rows = True, None

    def _make_room(self, names: list[str], now: float) -> None:
        """Have a row for each of these UUIDs; of far too many, those that no rank names any more are forgotten."""
        unknown = [name for name in dict.fromkeys(names) if name not in self._place]
        if not unknown:
            return
        if len(self._place) > _MOST * max(1, self._hosts):
            kept = [name for name, row in self._place.items() if now - self._heard_at[row] <= self._lost_s]
        else:
            kept = [*self._place]
        old = [self._place[name] for name in kept]
        size = len(kept) + len(unknown) + 1
        figures, heard_at = np.full(size, None, object), np.full(size, -np.inf)
        numbers = np.full((size, len(NUMBERS)), np.nan)
        for fresh, known in ((figures, self._figures), (heard_at, self._heard_at), (numbers, self._numbers)):
            fresh[: len(old)] = known[old]
        self._figures, self._heard_at, self._numbers = figures, heard_at, numbers
        self._place = {name: row for row, name in enumerate([*kept, *unknown])}
        self._rows = None
