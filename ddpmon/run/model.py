"""A Run: all that is known of one run, built from frames only, with a bounded memory."""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ddpmon.machine import GpuFigures
from ddpmon.run.latest_frames import DuplicateRanks, LatestFrames
from ddpmon.run.marks import Marks
from ddpmon.run.medians import median
from ddpmon.run.process_roles import Instances
from ddpmon.run.recent import Recent, WorkMap
from ddpmon.run.rings import I64, Rings
from ddpmon.run.series import RunSeries, seeds
from ddpmon.schema import BucketColumns, HistoryFrame, NodeFrame, RankFrame, RunInfo, StepColumns

SILENT_S = 4.0  # a rank publishes every second: after this it no longer counts as reporting
LOST_S = 10.0
_BUCKET_STEPS = 64
_MOST_GPUS = 128  # a host, before those that are no longer told of are forgotten
_REASONS = 50
_RESOURCE_POINTS, _FEWEST_POINTS = 600, 64
_ALL_POINTS = 1 << 18
_RANKS_EVERY_SECOND = 1024  # of so many ranks the resources are taken down with every frame, of more less often
_HISTORIES_AT_ONCE = 256
_PEERS = 64  # ranks that tell how long a step of the job takes
RESOURCES = 7  # figures at one moment, packed as float64: as objects those of many ranks would take much memory


@dataclass(slots=True)
class RankState:
    """The newest frame of one rank, when it came (monotonic seconds), and its resources over time.

    `marked` is the newest step whose named phases have been taken in.
    """

    frame: RankFrame
    heard_at: float
    marked: int = -1
    resources: deque[bytes] = field(default_factory=deque)


class Run:
    """All ranks' history and newest frames.

    Attributes:
        rank_count: how many ranks there are: the world size, or fewer where a table leaves numbers out.
        rings: the last steps of every rank; recent and work_map are what is drawn of them.
        series: the job over all its steps; begun again once the ranks have restarted. marks: likewise.
        ranks: [world] each rank's newest frame, None before the first. states: the same of those heard of, by rank.
        standing: what these say, as columns.
        nodes: node number -> its newest frame and when it came.
        rejected: why frames could not be accepted, and how often. refused: how many were not believed: forged,
            replayed or unsigned.
        restarts: how many times a rank came back as another process. doubles: ranks as which two processes write.
    """

    def __init__(self, info: RunInfo) -> None:
        self.info = info
        self.rank_count = info.world_size
        self.rings = Rings(info.world_size)
        self.recent = Recent(self.rings)
        self.work_map = WorkMap(self.rings)
        self.series = RunSeries()
        self.marks = Marks()
        self.ranks: list[RankState | None] = [None] * info.world_size
        self.states: dict[int, RankState] = {}
        self.latest = LatestFrames(info.world_size)
        self.nodes: dict[int, tuple[NodeFrame, float]] = {}
        self.rejected: Counter[str] = Counter()
        self.refused = 0
        self.duplicates = DuplicateRanks()
        self.restarts = self._life = 0
        self._counted, self._members = (-1, -1), dict[int | str, tuple[int, ...]]()
        self._gpus: dict[str, tuple[GpuFigures, float]] = {}
        self._parted = False  # whether there are MIG instances
        self._instances: Instances | None = None  # None while they have to be gathered again
        self._resource_every = -(-info.world_size // _RANKS_EVERY_SECOND)
        self._resource_points = min(_RESOURCE_POINTS, max(_FEWEST_POINTS, _ALL_POINTS // info.world_size))
        self._buckets: dict[int, tuple[list[int], dict[int, NDArray[np.float32]]]] = {}

    def add_rank(self, frame: RankFrame, now: float, age_s: float = 0.0) -> None:
        """Take one rank's frame in; `age_s` is how old it was when it was read at `now`."""
        self.add_ranks([frame], now, {frame.rank: age_s})

    def add_ranks(self, frames: Sequence[RankFrame], now: float, ages: Mapping[int, float]) -> None:
        """Take in frames of different ranks that were read at `now`; `ages` tells of those that were old by then."""
        fresh, heard_at = [], []
        for frame in frames:
            at = now - ages.get(frame.rank, 0.0) if ages else now
            if self._belongs(frame.run_id, frame.rank) and self._take(frame, at):
                fresh.append(frame)
                heard_at.append(at)
        if fresh:
            self.latest.take(fresh, heard_at)
            self.rings.add([(frame.rank, frame.steps) for frame in fresh])

    def _take(self, frame: RankFrame, heard_at: float) -> bool:
        """Keep a frame, its phases and resources; False for one that is known already, or was overtaken."""
        state = self.states.get(frame.rank)
        if state is None:
            state = self.states[frame.rank] = self.ranks[frame.rank] = RankState(frame, heard_at)
            self.latest.restarts[frame.rank] = 0
        elif _is_another_process(state.frame, frame):
            if self.duplicates.refuse(state.frame, state.heard_at, frame, heard_at):
                return False
            self._restart(frame.rank, state)
        elif frame.seq <= state.frame.seq:
            return False
        due = not state.resources or frame.seq // self._resource_every != state.frame.seq // self._resource_every
        state.frame, state.heard_at = frame, heard_at
        if frame.marks:
            state.marked = self.marks.add(frame.rank, frame.marks, state.marked)
        if due:
            state.resources.append(struct.pack(f"{RESOURCES}d", *_resources(frame, self.gpu_of(frame.rank))))
            if len(state.resources) > self._resource_points:
                state.resources.popleft()
        if frame.buckets is not None:
            self._add_buckets(frame.rank, frame.buckets)
        return True

    def _restart(self, rank: int, state: RankState) -> None:
        """Forget what the rank's former process told: its steps are counted from the beginning."""
        self.rings.clear(rank)
        self._buckets.pop(rank, None)
        self.restarts += 1
        state.marked = -1
        self.latest.restarts[rank] += 1
        if self.latest.restarts[rank] > self._life:
            self._life, self.marks = int(self.latest.restarts[rank]), Marks()

    def add_history(self, frames: Iterable[HistoryFrame]) -> None:
        """Take in what the ranks remember; called once, when this watcher attaches.

        Of each frame only what is drawn is kept for longer than it takes to read it.
        """
        older: list[StepColumns] = []
        part: list[tuple[int, StepColumns]] = []
        for frame in frames:
            if self._belongs(frame.run_id, frame.rank):
                older.append(seeds(frame.older))
                part.append((frame.rank, frame.recent))
            if len(part) >= _HISTORIES_AT_ONCE:
                self.rings.add(part)
                part = []
        self.rings.add(part)
        self.series.seed(older)

    def add_node(self, frame: NodeFrame, now: float) -> None:
        """Take a host's frame in."""
        if self._belongs(frame.run_id, 0):
            known = self.nodes.get(frame.node)
            if known is None or frame.seq != known[0].seq:
                self.nodes[frame.node] = (frame, now)
                if len(self._gpus) > _MOST_GPUS * max(1, len(self.nodes)):
                    self._gpus = {uuid: told for uuid, told in self._gpus.items() if now - told[1] <= LOST_S}
                self._gpus |= {gpu.uuid: (gpu, now) for gpu in frame.gpus}
                self._parted = self._parted or any(gpu.board for gpu in frame.gpus)
                self._instances = None

    def place_of(self, rank: int) -> int | str:
        """The number of the rank's host; its name where no launcher numbers the hosts."""
        node = self.latest.node[rank]
        return node if node >= 0 else self.latest.host[rank]

    def ranks_on(self, node: int) -> tuple[int, ...]:
        """The ranks on a host that has been heard of."""
        members = self.members()
        return members.get(node) or members.get(self.nodes[node][0].host, ())

    def members(self) -> dict[int | str, tuple[int, ...]]:
        """`place_of` -> the ranks that run there, in node order.

        Containers on different hosts may well have one name.
        """
        counted = (self.restarts, len(self.states))
        if counted != self._counted:  # a rank moves only by a restart
            self._counted = counted
            latest = self.latest
            nodes: dict[int | str, list[int]] = {}
            for rank in np.flatnonzero(latest.known).tolist():
                nodes.setdefault(self.place_of(rank), []).append(rank)
            order = sorted(nodes, key=lambda node: latest.node[nodes[node][0]])
            self._members = {node: tuple(nodes[node]) for node in order}
        return self._members

    def gpu_of(self, rank: int) -> GpuFigures | None:
        """The rank's GPU as its host last told of it; None without one, or once the host has fallen silent."""
        state = self.ranks[rank]
        uuid = None if state is None else self._uuid(state.frame.gpu_uuid, state.frame.pid)
        found = None if uuid is None else self._gpus.get(uuid)
        if state is None or found is None or state.heard_at - found[1] > LOST_S:
            return None
        return found[0]

    def _uuid(self, name: str | None, pid: int) -> str | None:
        if name is None or not self._parted:
            return name
        if self._instances is None:
            self._instances = Instances(gpu for gpu, _ in self._gpus.values())
        return self._instances.of(name, pid)

    def gpus(self) -> tuple[GpuFigures | None, ...]:
        """[world] every rank's GPU."""
        if not self._gpus:
            return (None,) * len(self.ranks)
        known, latest = self._gpus.get, self.latest
        names = latest.gpu_uuid
        if self._parted:
            names = [self._uuid(name, pid) for name, pid in zip(names, latest.pid, strict=True)]
        told = [None if uuid is None else known(uuid) for uuid in names]
        heard = latest.heard_at.tolist()
        return tuple(None if t is None or h - t[1] > LOST_S else t[0] for t, h in zip(told, heard, strict=True))

    def reject(self, reason: str) -> None:
        """Count a frame that could not be accepted."""
        known = reason in self.rejected or len(self.rejected) < _REASONS
        self.rejected[reason if known else "frames that cannot be read"] += 1

    def settle(self, now: float) -> None:
        """After a tick's frames: carry finished steps over into the run's series."""
        ranks = self.taking_part() & self.reporting(now) & (self.rings.last >= 0)
        ranks = ranks if ranks.any() else self.taking_part()
        if not ranks.any():
            return
        if self.restarts and int(self.rings.last[ranks].max()) < self.series.newest:
            self.series = RunSeries()  # all have restarted
        steps = self.finished_after(self.series.newest, np.flatnonzero(ranks))
        if steps.size:
            take = self.rings.take
            self.series.add(steps, take("loss", steps), take("samples", steps), take("duration", steps))

    def ages(self, now: float) -> NDArray[np.float64]:
        """[world] seconds since each rank was heard of, NaN where it never was."""
        ages: NDArray[np.float64] = now - self.latest.heard_at
        return ages

    def reporting(self, now: float) -> NDArray[np.bool_]:
        """[world] whether each rank was heard of lately, or has said that it is done."""
        with np.errstate(invalid="ignore"):
            found: NDArray[np.bool_] = self.latest.finished | (self.ages(now) <= SILENT_S)
        return found

    def taking_part(self) -> NDArray[np.bool_]:
        """[world] the ranks whose steps are compared: those that have not ended, or the others have not left behind.

        A rank that has restarted counts its steps from 0, so it is compared only once most others have, too.
        """
        known: NDArray[np.bool_] = (self.rings.last >= 0) & ~self.out_of_step()
        ended = known & self.latest.ended
        if not ended.any():
            return known
        going_on = known & ~ended
        newest = int(self.rings.last[going_on if going_on.any() else known].max())
        found: NDArray[np.bool_] = going_on | (ended & (self.rings.last + 1 >= newest))
        return found

    def out_of_step(self) -> NDArray[np.bool_]:
        """[world] the ranks that have restarted while most have not (or the reverse), and are elsewhere by 10 s."""
        if not self.restarts:
            return np.zeros(self.info.world_size, np.bool_)
        lives, steps = self.latest.restarts, self.latest.step
        counts = np.bincount(lives[lives >= 0])
        most = lives == np.flatnonzero(counts == counts.max())[-1]
        found: NDArray[np.bool_] = (lives >= 0) & ~most
        if found.any():
            peers = np.flatnonzero(most)
            step_ms = self._usual_step_ms(peers)
            found &= ~(np.abs(steps - np.median(steps[peers])) * step_ms / 1e3 <= LOST_S)
        return found

    def _usual_step_ms(self, ranks: I64) -> float:
        """Of some of these ranks if they tell, else of all."""
        durations = self.rings.column["duration"]
        some = float(median(durations[ranks[:: -(-len(ranks) // _PEERS)]]))
        return float(median(durations[ranks])) if np.isnan(some) else some

    def finished_steps(self, count: int, ranks: NDArray[np.bool_] | None = None) -> I64:
        """The newest steps (ascending, at most `count`) that every one of `ranks` has a record of.

        `ranks` is by default every rank that takes part; so it is where none of `ranks` has a record.
        """
        chosen = self.taking_part() if ranks is None else ranks & (self.rings.last >= 0)
        chosen = chosen if chosen.any() else self.taking_part()
        if not chosen.any():
            return np.empty(0, np.int64)
        newest = int(self.rings.last[chosen].min())
        span = min(max(2 * count, 32), self.rings.capacity)
        while True:  # they nearly always follow on each other: look further back only where some are missing
            steps = np.arange(max(0, newest - span + 1), newest + 1)
            found = steps[self.rings.present(steps)[chosen].all(axis=0)]
            if len(found) >= count or span >= self.rings.capacity or steps[0] == 0:
                return found[-count:]
            span = self.rings.capacity

    def finished_after(self, step: int, who: I64) -> I64:
        """The steps (ascending) behind `step`, as far as they are kept, that all ranks in `who` have a record of."""
        newest = int(self.rings.last[who].min(initial=1 << 62))
        steps = np.arange(max(step + 1, newest - self.rings.capacity + 1, 0), newest + 1)
        complete: I64 = steps[self.rings.present(steps, who).all(axis=0)]
        return complete

    def bucket_transfer_ms(self) -> float:
        """True transfer a step: the sum over buckets of the minimum over ranks, median over steps; NaN if unknown."""
        if len(self._buckets) < self.info.world_size:
            return float("nan")
        tables = [steps for _, steps in self._buckets.values()]
        common = sorted(set.intersection(*(set(steps) for steps in tables)))[-20:]
        layouts = {tuple(sizes) for sizes, _ in self._buckets.values()}
        if not common or len(layouts) != 1:
            return float("nan")
        transfers = [np.min([steps[step] for steps in tables], axis=0).sum() for step in common]
        return float(np.median(transfers))

    def bucket_bytes(self) -> int:
        """Gradient bytes of one reduction as the buckets have it; 0 without bucket detail."""
        return sum(next(iter(self._buckets.values()))[0]) if self._buckets else 0

    def _add_buckets(self, rank: int, columns: BucketColumns) -> None:
        steps = np.frombuffer(columns.step, "<i8")
        table = np.frombuffer(columns.ms, "<f4").reshape(len(steps), len(columns.sizes))
        sizes, kept = self._buckets.get(rank, (columns.sizes, {}))
        if sizes != columns.sizes:
            kept = {}
        kept.update(zip(steps.tolist(), table, strict=True))
        self._buckets[rank] = (columns.sizes, dict(sorted(kept.items())[-_BUCKET_STEPS:]))

    def _belongs(self, run_id: str, rank: int) -> bool:
        if run_id != self.info.run_id or rank >= self.info.world_size:
            self.reject("a frame of another run")
            return False
        return True


def _is_another_process(known: RankFrame, frame: RankFrame) -> bool:
    """Whether the frame comes from another process; in a container a restarted rank may have the same number again."""
    again = frame.seq < known.seq and frame.sent_at - known.sent_at > SILENT_S
    return again or (frame.pid, frame.host) != (known.pid, known.host)


def _resources(frame: RankFrame, gpu: GpuFigures | None) -> tuple[float, ...]:
    """(step, CPU %, run-queue %, resident bytes, GPU %, GPU W, SM MHz), NaN where unknown."""
    process = frame.process
    values: tuple[float | None, ...] = (
        frame.step,
        process.cpu_pct if process else None,
        process.runqueue_pct if process else None,
        process.rss_bytes if process else None,
        gpu.utilization_pct if gpu else None,
        gpu.power_w if gpu else None,
        gpu.sm_clock_mhz if gpu else None,
    )
    return tuple(float("nan") if value is None else float(value) for value in values)
