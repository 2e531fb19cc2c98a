"""Recordings of simulated runs, made as fast as this machine can: seconds pass when they are told to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np

from ddpmon.codec import encode
from ddpmon.diagnose.alert import Alert
from ddpmon.recording.bounds import Bounds
from ddpmon.recording.recorder import Recorder
from ddpmon.run.model import Run
from ddpmon.schema import HostFrame
from ddpmon.simulate.host_writers import HostWriters
from ddpmon.simulate.plan import Plan
from ddpmon.simulate.rank_frames import Frames
from ddpmon.simulate.scenarios import scenario_of
from ddpmon.simulate.simulated_host import run_info
from ddpmon.snapshot import Finding, Snapshot
from ddpmon.store.base import RUNS_KEY, history_key, host_key, node_key, rank_key, run_key
from ddpmon.store.signed import CheckedStore, Checks
from ddpmon.watcher.observer import Observer
from ddpmon.watcher.tap import Tick

RUN_ID = "simulated-run"
WALL = 1_790_000_000.0
_CLOCKS = (
    "ddpmon.watcher.feed",
    "ddpmon.watcher.link",
    "ddpmon.watcher.observer",
    "ddpmon.recording.recorder",
    "ddpmon.simulate.rank_frames",
    "ddpmon.simulate.host_writers",
    "ddpmon.simulate.simulated_host",
)


class Said(Recorder):
    """A recorder that also takes down what was said live, look by look."""

    def __init__(self, path: Path | None, bounds: Bounds | None = None) -> None:
        super().__init__(path, bounds)
        self.said: list[tuple[float, tuple[Alert, ...], tuple[Finding, ...]]] = []

    def tick(self, run: Run, tick: Tick) -> None:
        super().tick(run, tick)
        if tick.is_judged:
            self.said.append((tick.read_at, tuple(tick.alerts), tuple(tick.findings)))


class Clock:
    """Stands in for the module `time`: it goes on when it is told to."""

    now = 0.0

    def monotonic(self) -> float:
        return 50_000.0 + self.now

    def time(self) -> float:
        return WALL + self.now


class SimulatedRun:
    """A simulated run and an observer that records it.

    Args:
        plan: the run.
        clock: says how many seconds ago it began.
        tap: what listens.
    """

    def __init__(self, plan: Plan, clock: Clock, tap: Recorder | None) -> None:
        self.plan, self.clock = plan, clock
        self._values: dict[str, bytes] = {}
        self._frames = Frames(plan, scenario_of(plan), RUN_ID, np.arange(plan.ranks))
        self._writers = HostWriters(plan, self._frames, np.arange(plan.ranks))
        self._everybody = np.arange(plan.ranks)
        self._values[run_key(RUN_ID)] = encode(run_info(plan, RUN_ID))
        self._values[RUNS_KEY] = RUN_ID.encode()
        self.observer = Observer("tcp://127.0.0.1:1", tap=tap)

    def put(self, key: str, value: bytes) -> None:
        self._values[key] = value

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return [self._values.get(key) for key in keys]

    def close(self) -> None:
        """Nothing is open."""

    def publish(self) -> None:
        """All that is published in a second."""
        seconds, due = self.clock.now, {*self._everybody[self._everybody % 5 == int(self.clock.now) % 5].tolist()}
        self._frames.reach(seconds)
        for frame in self._writers.turn(self._everybody, seconds, due):
            key = host_key if isinstance(frame, HostFrame) else rank_key
            self._values[key(RUN_ID, frame.rank)] = encode(frame)
        if int(seconds) % 5 == 0:
            for history in self._frames.histories(self._everybody, seconds):
                self._values[history_key(RUN_ID, history.rank)] = encode(history)
        for node in self._frames.nodes(self._everybody, seconds):
            self._values[node_key(RUN_ID, node.node)] = encode(node)

    def finish(self) -> None:
        """Every rank says that it has finished."""
        for frame in self._frames.ranks(self._everybody, self.clock.now + 1, "finished"):
            self._values[rank_key(RUN_ID, frame.rank)] = encode(frame)

    def go(self, seconds: int, seen: Callable[[Snapshot], None] | None = None) -> None:
        """Let so many seconds pass, each with a tick of the observer."""
        for _ in range(seconds):
            self.clock.now += 1.0
            self.publish()
            snapshot = self.observer.tick()
            if seen is not None:
                seen(snapshot)


@contextlib.contextmanager
def simulated(
    plan: Plan, tap: Recorder | None = None, make: Callable[[], Recorder] | None = None
) -> Iterator[SimulatedRun]:
    """A simulated run whose clock goes on only with `SimulatedRun.go`; `make` makes the recorder on that clock."""
    clock = Clock()
    with contextlib.ExitStack() as stack:
        for module in _CLOCKS:
            stack.enter_context(patch(f"{module}.time", clock))
        run = SimulatedRun(plan, clock, make() if make is not None else tap)
        stack.enter_context(
            patch("ddpmon.watcher.link.connect", lambda _target, checks: CheckedStore(run, checks or Checks(None)))
        )
        yield run


def record(plan: Plan, seconds: int, path: Path | None = None, bounds: Bounds | None = None) -> Said:
    """A recording of so many seconds of a simulated run."""
    made: list[Said] = []

    def make() -> Recorder:
        made.append(Said(path, bounds))
        return made[0]

    with simulated(plan, make=make) as run:
        run.go(seconds)
    return made[0]
