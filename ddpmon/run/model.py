"""A Run: all that is known of one run, built from frames only, with a bounded memory."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpmon.machine import GpuFigures, ProcessFigures
from ddpmon.run.bucket_times import BucketTimes
from ddpmon.run.duplicate_ranks import DuplicateRanks
from ddpmon.run.finished import Finished
from ddpmon.run.gpus import Gpus
from ddpmon.run.host_rows import HostRows
from ddpmon.run.latest_frames import LatestFrames
from ddpmon.run.lives import MOST_RESTARTS, Restarts, note_restart, out_of_step, with_the_first
from ddpmon.run.marks import Marks
from ddpmon.run.outages import Outages
from ddpmon.run.recent import RECENT, Recent
from ddpmon.run.resources import OWN, Resources
from ddpmon.run.rings import I64, Rings
from ddpmon.run.series import SEEDS, RunSeries, seeds
from ddpmon.run.step_map import StepMap
from ddpmon.run.step_times import StepTimes
from ddpmon.schema import HistoryFrame, NodeFrame, RankFrame, RunInfo, StepColumns

SILENT_S = 4.0  # a rank publishes every second: after this it no longer counts as reporting
LOST_S = 10.0
_REASONS = 50
_HISTORIES_AT_ONCE = 256


@dataclass(slots=True)
class RankState:
    """One rank that has been heard of.

    Attributes:
        rank: which.
        latest: what the ranks have said last.
        marked: the newest step whose named phases have been taken in.
    """

    rank: int
    latest: LatestFrames
    marked: int = -1

    @property
    def frame(self) -> RankFrame:
        """Its newest frame; of a rank that a host frame tells of it is made of the figures, without steps."""
        return self.latest.frame(self.rank)

    @property
    def process(self) -> ProcessFigures | None:
        """Its process, by the newest figures."""
        return self.latest.process_of(self.rank)


class Run:
    """All ranks' history and newest frames.

    Attributes:
        rank_count: how many ranks there are: the world size, or fewer where a table leaves numbers out.
        rings: the last steps of every rank; recent, finished and step_map are what is drawn of them.
        series: the job over all its steps; begun again once the ranks have restarted. marks: likewise.
        ranks: [world] each rank's state, None before its first frame. states: the same of those heard of, by rank.
        latest: what their newest frames say, as columns. resources: what they used over time.
        nodes: node number -> its newest frame and when it came.
        buckets: what each bucket of a reduction takes, where ranks tell.
        rejected: why frames could not be accepted, and how often. refused: how many were not believed: forged,
            replayed or unsigned.
        restarted: the newest restarts: (step of the run, how many ranks, the first of them).
        restarts: how many times a rank came back as another process. doubles: ranks as which two processes write.
        outages: when the store could not be read. step_times: when the newest steps ended.
    """

    def __init__(self, info: RunInfo) -> None:
        self.info = info
        self.rank_count = info.world_size
        self.rings = Rings(info.world_size)
        self.recent = Recent(self.rings)
        self.step_map, self.finished = StepMap(self.rings), Finished(self.rings)
        self.series, self.step_times, self.marks = RunSeries(), StepTimes(), Marks()
        self.ranks: list[RankState | None] = [None] * info.world_size
        self.states: dict[int, RankState] = {}
        self.latest = LatestFrames(info.world_size)
        self.resources = Resources(info.world_size)
        self.nodes: dict[int, tuple[NodeFrame, float]] = {}
        self.rejected: Counter[str] = Counter()
        self.refused = 0
        self.duplicates, self.outages = DuplicateRanks(), Outages()
        self.restarts = self._life = 0
        self._out_of_step: tuple[tuple[int, int], NDArray[np.bool_]] | None = None
        self.restarted: Restarts = deque(maxlen=MOST_RESTARTS)
        self._older = dict[int, StepColumns]()  # rank -> what begins the series
        self._counted, self._members = (-1, -1), dict[int | str, tuple[int, ...]]()
        self._gpus, self.buckets = Gpus(LOST_S), BucketTimes()

    def add_rank(self, frame: RankFrame, now: float, age_s: float = 0.0) -> None:
        """Take one rank's frame in; `age_s` is how old it was when it was read at `now`."""
        self.add_ranks([frame], now, {frame.rank: age_s})

    def add_ranks(self, frames: Sequence[RankFrame], now: float, ages: Mapping[int, float]) -> None:
        """Take in frames of different ranks that were read at `now`; `ages` tells of those that were old by then."""
        fresh, heard_at = [], []
        for frame in frames:
            at = now - ages.get(frame.rank, 0.0) if ages else now
            if self._belongs(frame.run_id, frame.rank) and self._is_new(frame, at):
                fresh.append(frame)
                heard_at.append(at)
        if not fresh:
            return
        ranks = np.array([frame.rank for frame in fresh])
        before = self.latest.seq[ranks]
        self.latest.take(fresh, heard_at)
        self.rings.add([(frame.rank, frame.steps) for frame in fresh])
        self._take_resources(ranks, before)
        for frame in fresh:
            self._take_details(frame)

    def _is_new(self, frame: RankFrame, heard_at: float) -> bool:
        """Whether a frame is not known already, and was not overtaken; a rank that has restarted forgets its past."""
        rank, latest = frame.rank, self.latest
        if rank not in self.states:
            self.states[rank] = self.ranks[rank] = RankState(rank, latest)
            latest.restarts[rank] = 0
            return True
        known_seq, sent_at = latest.figures[rank, :2].tolist()
        again = frame.seq < known_seq and frame.sent_at - sent_at > SILENT_S  # a container may use a number again
        if again or (frame.pid, frame.host) != (latest.pid[rank], latest.host[rank]):
            if self.duplicates.refuse(latest.frame(rank), float(latest.heard_at[rank]), frame, heard_at):
                return False
            self._restart(rank, self.states[rank])
            return True
        return bool(frame.seq > known_seq)

    def _take_details(self, frame: RankFrame) -> None:
        """Take in what only whole frames have: named phases, bucket detail."""
        if frame.steps.step:
            self.marks.since = min(self.marks.since, int.from_bytes(frame.steps.step[:8], "little", signed=True))
        if frame.marks:
            state = self.states[frame.rank]
            state.marked = self.marks.add(frame.rank, frame.marks, state.marked)
        if frame.buckets is not None:
            self.buckets.add(frame.rank, frame.buckets)

    def _take_resources(self, ranks: I64, before: I64) -> None:
        """Take down what these ranks use now; their last frames had the numbers in `before`."""
        ranks = ranks[self.resources.due(ranks, before, self.latest.seq[ranks])]
        if ranks.size:
            own = np.stack([self.latest.column(name)[ranks] for name in ("step", *OWN)], axis=1)
            self.resources.add(ranks, np.concatenate([own, self.gpu_numbers(ranks)], axis=1))

    def missing_whole(self, rows: HostRows) -> NDArray[np.bool_]:
        """[n] whether the whole frame that these figures belong to is not known: it must be read first."""
        ranks, latest = rows.ranks, self.latest
        known = (latest.column("pid")[ranks] == rows.column("pid")) & (latest.whole_seq[ranks] >= rows.column("whole"))
        earlier = rows.column("seq") < latest.column("seq")[ranks]
        again = earlier & (rows.column("sent_at") - latest.column("sent_at")[ranks] > SILENT_S)
        found: NDArray[np.bool_] = again | ~known
        return found

    def add_rows(self, rows: HostRows, now: float) -> NDArray[np.bool_]:
        """Take in the figures that host frames have, as far as they are new and their whole frames are known.

        Args:
            rows: of different ranks.
            now: when they were read, in monotonic seconds. A row that is seen first is as old as it says, compared
                with the rank's whole frame.

        Returns:
            [n] which rows were taken.
        """
        latest, ranks = self.latest, rows.ranks
        before = latest.seq[ranks]
        new: NDArray[np.bool_] = ~self.missing_whole(rows) & (rows.column("seq") > before)
        taken = ranks[new]
        if taken.size:
            later = rows.column("sent_at")[new] - latest.column("sent_at")[taken]
            as_told = np.clip(latest.heard_at[taken] + later, latest.heard_at[taken], now)
            heard_at = np.where(rows.first[new], as_told, now)
            latest.take_rows(taken, rows.figures[new], rows.phase[new], heard_at)
            for who, steps, tables in rows.steps_of(new):
                self.rings.add_rows(who, steps, tables)
            self._take_resources(taken, before[new])
        return new

    def _restart(self, rank: int, state: RankState) -> None:
        """Forget what the rank's former process told: its steps are counted from the beginning."""
        note_restart(self.restarted, int(self.latest.step.max()), rank)
        self.rings.clear(rank)
        self.buckets.forget(rank)
        self.resources.forget(rank)
        self.restarts += 1
        state.marked = -1
        self.latest.restarts[rank] += 1
        if self.latest.restarts[rank] > self._life:
            self._life, self.marks = int(self.latest.restarts[rank]), Marks()

    def add_history(self, frames: Iterable[HistoryFrame], *, are_last: bool = True) -> None:
        """Take in what ranks remember of the time before this watcher, before anything is settled.

        Of each frame only what is drawn is kept for longer than it takes to read it.

        Args:
            frames: of ranks that have not given theirs before.
            are_last: whether no further ones will come; the series begins then.
        """
        part: list[tuple[int, StepColumns]] = []
        for frame in frames:
            if self._belongs(frame.run_id, frame.rank) and self.latest.restarts[frame.rank] <= 0:
                self._older[frame.rank] = seeds(frame.older)
                part.append((frame.rank, frame.recent))
            if len(part) >= _HISTORIES_AT_ONCE:
                self.rings.add(part)
                part = []
        self.rings.add(part)
        if are_last:
            self.series.seed(self._older, self.out_of_step(), self.share_counted())
            self._older = {}

    def add_node(self, frame: NodeFrame, now: float) -> None:
        """Take a host's frame in."""
        if self._belongs(frame.run_id, 0):
            known = self.nodes.get(frame.node)
            if known is None or frame.seq != known[0].seq:
                self.nodes[frame.node] = (frame, now)
                self._gpus.add(frame, now, len(self.nodes))

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
        """The rank's GPU as its host last reported it; None without one, or once the host has fallen silent."""
        return self._gpus.of(rank, self.latest)

    def gpu_numbers(self, ranks: I64) -> NDArray[np.float64]:
        """[len(ranks), 3] percent of time, power in W and SM clock in MHz of these ranks' GPUs; NaN where unknown."""
        return self._gpus.numbers(ranks, self.latest)

    def gpus(self) -> tuple[GpuFigures | None, ...]:
        """[world] every rank's GPU."""
        return self._gpus.of_all(self.latest)

    def reject(self, reason: str) -> None:
        """Count a frame that could not be accepted."""
        known = reason in self.rejected or len(self.rejected) < _REASONS
        self.rejected[reason if known else "frames that cannot be read"] += 1

    def settle(self, now: float) -> None:
        """After a tick's frames: carry finished steps over into the run's series."""
        self.outages.end_outage(now)
        ranks = self._continuing(now)
        self.step_times.note(self.latest.step, self.latest.heard_at - self.latest.step_s)
        who = np.flatnonzero(ranks)
        if not who.size:
            return
        steps = self.finished_after(self.series.newest, who)
        if steps.size:  # of which others may have made ones of the same numbers
            mixed = self.restarts or self.out_of_step().any()
            tables = self.rings.takes(SEEDS, steps, who if mixed else None)
            self.series.add(steps, tables, self.ranks_left(), self.share_counted())

    def ranks_left(self) -> int:
        """How many ranks make the run's steps: those that are not done and not at other steps."""
        return self.rank_count - int((self.latest.finished | self.out_of_step()).sum())

    def share_counted(self) -> float:
        """The share of all ranks whose samples are counted: those that are not at other steps than the rest."""
        return 1 - int(self.out_of_step().sum()) / self.rank_count

    def _continuing(self, now: float) -> NDArray[np.bool_]:
        """[world] the ranks that continue the series; it begins again once most of them have restarted."""
        ranks = self.taking_part() & self.reporting(now) & (self.rings.last >= 0)
        ranks = ranks if ranks.any() else self.taking_part()
        if not self.restarts or not ranks.any():
            return ranks
        ranks = with_the_first(ranks, self.latest, self.rings, LOST_S)
        if int(self.rings.last[ranks].max()) < self.series.newest:
            self.series, self.step_times = RunSeries(), StepTimes()
            self.restarted.clear()
        return ranks

    def ages(self, now: float) -> NDArray[np.float64]:
        """[world] seconds since each rank was heard of, NaN where it never was."""
        ages: NDArray[np.float64] = now - self.latest.heard_at
        return ages

    def silences(self, now: float) -> NDArray[np.float64]:
        """[world] seconds in which each rank could have been heard and was not; NaN where it never was.

        Less than its age where the store could not be read meanwhile.
        """
        return self.ages(now) - self.outages.unreadable_s_since(self.latest.heard_at)

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
        """[world] the ranks that share no step with most others, by more than 10 s; not to be written."""
        known = self.restarts, self.latest.changes
        if self._out_of_step is None or self._out_of_step[0] != known:
            found = out_of_step(self.latest, self.rings, LOST_S)
            found.flags.writeable = False
            self._out_of_step = known, found
        return self._out_of_step[1]

    def keeping_up(self, ranks: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """[world] those of `ranks` that are at most 20 steps behind most of them.

        The others have fallen silent, which a watcher that has just come knows only once they are lost.
        """
        if not ranks.any():
            return ranks
        found: NDArray[np.bool_] = ranks & (self.rings.last >= np.median(self.rings.last[ranks]) - RECENT)
        return found

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
            found = steps[self.rings.present(steps, np.flatnonzero(chosen)).all(axis=0)]
            if len(found) >= count or span >= self.rings.capacity or steps[0] == 0:
                return found[-count:]
            span = self.rings.capacity

    def finished_after(self, step: int, who: I64) -> I64:
        """The steps (ascending) behind `step`, as far as they are kept, that all ranks in `who` have a record of."""
        newest = int(self.rings.last[who].min(initial=1 << 62))
        steps = np.arange(max(step + 1, newest - self.rings.capacity + 1, 0), newest + 1)
        complete: I64 = steps[self.rings.present(steps, who).all(axis=0)]
        return complete

    def bucket_bytes(self) -> int:
        """Gradient bytes of one reduction as the buckets have it; 0 without bucket detail."""
        return sum(self.buckets.sizes)

    def _belongs(self, run_id: str, rank: int) -> bool:
        if run_id != self.info.run_id or rank >= self.info.world_size:
            self.reject("a frame of another run")
            return False
        return True
