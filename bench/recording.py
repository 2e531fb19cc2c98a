"""What recording costs, and how large and how quick to open a recording is; prints figures.

python bench/recording.py cost --ranks 64 --seconds 120   # CPU time of a watcher with and without a recorder
python bench/recording.py day --ranks 64 --hours 24       # a simulated day: size, and the time to open it
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1]))

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.figures import PLACE
from ddpmon.recording.bounds import Bounds
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.travel import Replay
from ddpmon.run.host_rows import HostRows
from ddpmon.run.model import Run
from ddpmon.schema import STEP_COLUMNS, NodeFrame, RankFrame, StepColumns, StepRows
from ddpmon.simulate.plan import Plan
from ddpmon.simulate.rank_frames import COLUMNS, Frames
from ddpmon.simulate.scenarios import scenario_of
from ddpmon.simulate.simulated_host import run_info
from ddpmon.snapshot import Finding, Link
from ddpmon.watcher.tap import Tick
from tests.recording.made_recordings import RUN_ID, WALL, simulated


class Timed(Recorder):
    """A recorder that counts the CPU time of all its calls."""

    spent = 0.0
    worst = 0.0

    def __getattribute__(self, name: str) -> object:
        found = object.__getattribute__(self, name)
        if name not in ("begin", "histories", "rows", "ranks", "nodes", "tick"):
            return found

        def timed(*args: object, **options: object) -> None:
            began = time.thread_time()
            found(*args, **options)
            spent = time.thread_time() - began
            self.spent += spent
            if name == "tick":
                self.worst = max(self.worst, spent)

        return timed


def cost(ranks: int, seconds: int) -> None:
    """Print the CPU time that recording takes of a second."""
    with tempfile.TemporaryDirectory() as folder:
        made: list[Timed] = []
        path = Path(folder) / "run.ddpmon"

        def make() -> Recorder:
            made.append(Timed(path))
            return made[0]

        with simulated(
            Plan(ranks=ranks, hosts=max(1, ranks // 8), scenario="mixed" if ranks > 8 else "straggler"), make=make
        ) as run:
            run.go(5)
            recorder = made[0]
            first, recorder.worst = recorder.spent, 0.0
            run.go(seconds)
        spent = recorder.spent - first
        recorder.close()
        size = path.stat().st_size
    share, worst = 100 * spent / seconds, 1e3 * recorder.worst
    print(f"{ranks:,} ranks, steps of 500 ms, {seconds} s: {share:.2f} % of a core, the longest tick {worst:.0f} ms")
    print(f"    the first 5 s (histories): {first:.2f} s of CPU time; the file: {size / 1e6:.1f} MB")


class Day:
    """A run whose frames are made without a store and without a judge, so that a day of it takes minutes.

    Args:
        ranks: of the run, eight on each host.
        recorder: what is told of it.
    """

    def __init__(self, ranks: int, recorder: Recorder) -> None:
        self.plan = Plan(ranks=ranks, hosts=max(1, ranks // 8))
        self.run = Run(run_info(self.plan, RUN_ID))
        self.recorder, self.random = recorder, np.random.default_rng(0)
        self.frames = Frames(self.plan, scenario_of(self.plan), RUN_ID, np.arange(ranks))
        self.everybody, self.began = np.arange(ranks), time.monotonic()
        self.hosts: dict[int, list[NodeFrame]] = {}
        recorder.begin(self.run)

    def look(self, second: int, findings: Sequence[Finding]) -> None:
        """One second: two steps, all figures, and every host; whole frames every five seconds."""
        now, run, everybody = self.began + second, self.run, self.everybody
        if second % 5 == 0:
            said = [
                replace(frame, seq=second + 1, step=2 * second, steps=StepColumns(), phase="exposed")
                for frame in self.whole()
            ]
            self.recorder.ranks(run, said, {})
            run.add_ranks(said, now, {})
        else:
            rows = self.rows(second)
            self.recorder.rows(run, rows)
            run.add_rows(rows, now)
        if second % 97 not in self.hosts:
            self.hosts[second % 97] = list(self.frames.nodes(everybody, float(second % 97)))
        nodes = [replace(node, seq=second) for node in self.hosts[second % 97]]
        self.recorder.nodes(run, nodes, {})
        for node in nodes:
            run.add_node(node, now)
        run.settle(now)
        link = Link("live")
        self.recorder.tick(run, Tick(now, WALL + second, True, True, link, None, "", self.alerts(findings), findings))

    def alerts(self, findings: Sequence[Finding]) -> list[Alert]:
        """The alerts of these findings."""
        return [
            Alert(each.kind, each.severity, Measures(), each.ranks, since_step=each.since_step) for each in findings
        ]

    def whole(self) -> list[RankFrame]:
        """A whole frame of every rank."""
        if not hasattr(self, "known"):
            self.frames.reach(5.0)
            self.known = [*self.frames.ranks(self.everybody, 5.0)]
        return self.known

    def rows(self, second: int) -> HostRows:
        """Figures of all ranks, of which a third change every second, and two steps of each."""
        count = self.plan.ranks
        figures = self.run.latest.figures.copy()
        figures[:, PLACE["seq"]], figures[:, PLACE["step"]] = second + 1, 2 * second
        for name in ("sent_at", "phase_s", "step_s", "cpu_pct", "runqueue_pct", "cost_us", "switches_per_s"):
            figures[:, PLACE[name]] = self.random.random(count) * 100
        steps = np.tile(np.array([2 * second - 1, 2 * second], "<i8"), count)
        table = (self.random.random((2 * count, len(COLUMNS))) * 50 + 20).astype("<f4")
        table[:, COLUMNS.index("duration")] = 500
        table[:, [COLUMNS.index(name) for name in ("barrier", "marked", "gc")]] = 0
        mask = sum(1 << STEP_COLUMNS.index(name) for name in COLUMNS)
        told = StepRows(mask, np.repeat(self.everybody, 2).astype("<u2").tobytes(), steps.tobytes(), table.tobytes())
        phase = np.full(count, "exposed", object)
        first = np.zeros(count, bool)
        return HostRows(self.everybody, figures, phase, first, self.everybody, {mask: [(0, count, told)]}, count)


def day(ranks: int, hours: float, mib: int) -> None:
    """Print how large a recording of so many simulated hours is, and how long it takes to open."""
    finding = Finding("straggler", "warning", "rank 5 is late", ranks=(5,), since_step=100)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.ddpmon"
        recorder = Recorder(path, Bounds(bytes=mib << 20))
        made, biggest, began = Day(ranks, recorder), 0, time.process_time()
        for second in range(int(hours * 3600)):
            made.look(second, [finding] if second > 100 else [])
            if second % 60 == 0:
                biggest = max(biggest, path.stat().st_size)
        spent = time.process_time() - began
        first = recorder.book.execute("SELECT min(t), max(t) FROM looks").fetchone()
        recorder.close()
        size = path.stat().st_size
        print(f"{ranks:,} ranks, {hours:g} h: {size / 2**20:.0f} MiB, at most {biggest / 2**20:.0f} of {mib} MiB")
        print(f"    frames from hour {first[0] / 3600:.1f} to {first[1] / 3600:.1f}; made in {spent:.0f} s of CPU time")
        for _ in range(3):
            _open(path)


def _open(path: Path) -> None:
    began, cpu = time.monotonic(), time.process_time()
    replay = Replay(path)
    snapshot = replay.tick()
    wall, spent = time.monotonic() - began, time.process_time() - cpu
    step = snapshot.run.step if snapshot.run else None
    print(f"    opened in {wall:.2f} s ({spent:.2f} s of CPU time): step {step}, {len(snapshot.findings)} findings")
    replay.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["cost", "day"])
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--mib", type=int, default=256)
    args = parser.parse_args()
    if args.what == "cost":
        cost(args.ranks, args.seconds)
    else:
        day(args.ranks, args.hours, args.mib)


if __name__ == "__main__":
    main()
