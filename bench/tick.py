"""What one tick of the watcher's model costs: taking the frames in, settling, and judging; and whether memory grows.

    python bench/tick.py [--ranks 64,1024,4096] [--ticks N] [--minutes M]

Frames are made up before the clock starts and do not go through msgpack. Each line is the median over ticks with the
quartiles, in ms of CPU time (others may use this machine too), once all rings are full; "judge" is the diagnosis alone.
Every rank sends figures of its process, and every host of 8 ranks its own, so that contention is judged too.
`--minutes` is how long a run of 64 ranks is simulated at one tick a second for the memory figure (60: the hour); 1,024
ranks get a twelfth of it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
import psutil
from detection_job import WORK_MS, Job, healthy_job
from detection_play import RUN_ID, rank_frame, run_info
from numpy.typing import NDArray

from ddpmon.diagnose.judge import Judge
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from ddpmon.schema import NodeFrame, RankFrame
from ddpmon.simulate.plan import Plan
from ddpmon.simulate.rank_frames import Frames
from ddpmon.simulate.scenarios import Scenario
from ddpmon.snapshot import Finding

_START = 64  # steps of the made-up job that are its warm-up
_PERIOD = 240  # steps after which it repeats; a multiple of every number of steps a tick
_CV = 0.03
_HOST_SIZE = 8


@dataclass(frozen=True)
class Spent:
    """One tick's times in ms, and what it said."""

    frames: float
    settle: float
    judge: float
    findings: tuple[Finding, ...]


class Endless:
    """A job that goes on without end in a bounded memory; with a straggler of 1.3x on its middle rank, or without."""

    def __init__(self, ranks: int, straggler: bool) -> None:
        self.job: Job = healthy_job(np.random.default_rng(ranks), ranks, _CV, steps=_START + _PERIOD)
        if straggler:
            late = np.zeros_like(self.job.skew)
            late[ranks // 2] = 0.3 * WORK_MS
            self.job.delay("forward", late)
        self.blobs = {name: table[:, _START:].copy() for name, table in self.job.columns().items()}
        self.run, self.judge = Run(run_info(self.job)), Judge()
        self.machines = Machines(ranks)
        self.step, self.second = 0, 0

    def tick(self, steps: int) -> Spent:
        """Bring `steps` new steps of every rank."""
        self.second += 1
        now, frames, nodes = float(self.second), list(self._frames(steps)), self.machines.nodes(self.second)
        began = time.thread_time()
        self.run.add_ranks(frames, now, {})
        for node in nodes:
            self.run.add_node(node, now)
        taken = time.thread_time()
        self.run.settle(now)
        settled = time.thread_time()
        findings = in_words(self.judge(self.run, self.run.ages(now)))
        judged = time.thread_time()
        return Spent((taken - began) * 1e3, (settled - taken) * 1e3, (judged - settled) * 1e3, findings)

    def _frames(self, steps: int) -> Iterator[RankFrame]:
        at = self.step % _PERIOD
        part: dict[str, NDArray[np.float32]] = {name: table[:, at : at + steps] for name, table in self.blobs.items()}
        numbers = range(self.step, self.step + steps)
        self.step += steps
        for rank in range(self.job.ranks):
            frame = rank_frame(self.job, part, rank, self.second, numbers, offset=self.step - steps)
            yield self.machines.under(frame)


class Machines:
    """What lies under the ranks of a healthy job: their processes, and hosts of eight GPUs each."""

    def __init__(self, ranks: int) -> None:
        plan = Plan(ranks, hosts=-(-ranks // _HOST_SIZE))
        self._places = np.arange(ranks)
        self._frames = Frames(plan, Scenario(), RUN_ID, self._places)
        self._frames.reach(1.0)
        self._ranks = {frame.rank: frame for frame in self._frames.ranks(self._places, 1.0)}

    def nodes(self, second: int) -> list[NodeFrame]:
        """Every host's frame."""
        return list(self._frames.nodes(self._places, float(second)))

    def under(self, frame: RankFrame) -> RankFrame:
        """The frame of a rank with the figures of its process, on its host."""
        like = self._ranks[frame.rank]
        placed = {"host": like.host, "node": like.node, "local_rank": like.local_rank, "gpu_uuid": like.gpu_uuid}
        return msgspec.structs.replace(frame, pid=like.pid, process=like.process, **placed)


def measure(ranks: int, steps: int, straggler: bool, ticks: int) -> None:
    """Fill the rings, then time `ticks` ticks of `steps` new steps and print the line."""
    endless = Endless(ranks, straggler)
    while endless.step < endless.run.rings.capacity + _PERIOD:
        endless.tick(_PERIOD // 2)
    spent = [endless.tick(steps) for _ in range(ticks)]
    said = sorted({f"{f.kind} {f.severity}" for f in spent[-1].findings if f.cleared_at_step is None})
    figures = (_quartiles([getattr(each, name) for each in spent]) for name in ("frames", "settle", "judge"))
    case = "straggler" if straggler else "healthy"
    print(f"{ranks:>6,} {steps:>6} {case:<10} {' '.join(figures)}  {', '.join(said) or '-'}", flush=True)


def grow(ranks: int, steps: int, ticks: int) -> None:
    """Print the resident memory over `ticks` simulated seconds, six times, once the rings are full."""
    endless = Endless(ranks, straggler=True)
    while endless.step < endless.run.rings.capacity + _PERIOD:
        endless.tick(_PERIOD // 2)
    process = psutil.Process()
    sizes = [process.memory_info().rss]
    for _ in range(6):
        for _ in range(ticks // 6):
            endless.tick(steps)
        sizes.append(process.memory_info().rss)
    told = " ".join(f"{size / 2**20:.1f}" for size in sizes)
    print(f"{ranks:>6,} ranks, {ticks:,} ticks of {steps} steps: resident MB {told}", flush=True)


def _quartiles(values: list[float]) -> str:
    low, middle, high = np.percentile(values, [25, 50, 75])
    return f"{middle:>8.2f} [{low:.2f} .. {high:.2f}]"


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="64,1024,4096")
    parser.add_argument("--ticks", type=int, default=30, help="ticks timed a line")
    parser.add_argument("--minutes", type=int, default=6, help="simulated minutes of 64 ranks for the memory figure")
    options = parser.parse_args()
    print(" ranks  steps case         add_rank, all ranks          settle                  judge       says")
    for ranks in map(int, options.ranks.split(",")):
        for steps in (2, 10):
            for straggler in (False, True):
                measure(ranks, steps, straggler, options.ticks)
    if options.minutes:
        grow(64, 10, 60 * options.minutes)
        grow(1024, 10, 5 * options.minutes)


if __name__ == "__main__":
    main()
