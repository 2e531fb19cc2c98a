"""A watcher that reads host frames sees and says what one sees and says that reads every rank's whole frames."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from ddpmon.codec import encode
from ddpmon.schema import HostFrame
from ddpmon.simulate.host_writers import HostWriters
from ddpmon.simulate.plan import Plan
from ddpmon.simulate.rank_frames import Frames
from ddpmon.simulate.scenarios import scenario_of
from ddpmon.simulate.simulated_host import run_info
from ddpmon.snapshot import Snapshot
from ddpmon.store.base import RUNS_KEY, host_key, node_key, rank_key, run_key
from ddpmon.store.signed import CheckedStore, Checks
from ddpmon.watcher import link
from ddpmon.watcher.observer import Observer
from tests.simulate.own_clock import OwnClock

RUN = "simulated"


class Memory:
    """A store in memory, into which a run is published second by second, by host frames or without them."""

    def __init__(self, plan: Plan, *, hosts: bool) -> None:
        own = np.arange(plan.ranks)
        self.frames, self.everybody, self.hosts = Frames(plan, scenario_of(plan), RUN, own), own, hosts
        self.writers = HostWriters(plan, self.frames, own)
        self.data = {RUNS_KEY: RUN.encode(), run_key(RUN): encode(run_info(plan, RUN))}
        self.read: list[str] = []
        self.last_read: list[str] = []

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        self.read += keys
        return [self.data.get(key) for key in keys]

    def put(self, key: str, value: bytes) -> None:
        """Nobody puts anything here."""

    def close(self) -> None:
        """Nothing is held."""

    def reach(self, seconds: float) -> None:
        """Publish what is put in this second."""
        self.frames.reach(seconds)
        due = {*self.everybody[self.everybody % 5 == int(seconds) % 5].tolist()}
        turn = self.writers.turn(self.everybody, seconds, due)
        for frame in turn if self.hosts else self.frames.ranks(self.everybody, seconds):
            key = host_key if isinstance(frame, HostFrame) else rank_key
            self.data[key(RUN, frame.rank)] = encode(frame)
        for node in self.frames.nodes(self.everybody, seconds):
            self.data[node_key(RUN, node.node)] = encode(node)
        self.last_read, self.read = self.read, []


def said(plan: Plan, seconds: int, patch: pytest.MonkeyPatch, *, hosts: bool) -> tuple[list[Snapshot], Memory]:
    """What a watcher says in every second."""
    memory = Memory(plan, hosts=hosts)
    patch.setattr(link, "connect", lambda *_target, **_checks: CheckedStore(memory, Checks(None)))
    patch.setattr("ddpmon.watcher.feed._TOLD_S", 0.0)  # a simulated second takes less than a real one
    observer, clock = Observer("tcp://127.0.0.1:1"), OwnClock(patch)
    snapshots = []
    for second in range(1, seconds + 1):
        clock.pass_second()
        memory.reach(float(second))
        snapshots.append(observer.tick())
    return snapshots, memory


@pytest.mark.parametrize("scenario", ["mixed", "clash", "memory", "churn", "hang"])
def test_verdicts_and_pictures_are_those_of_whole_frames(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(32, 4, scenario, step_ms=250.0, processes=1)
    whole, _ = said(plan, 50, monkeypatch, hosts=False)
    rows, memory = said(plan, 50, monkeypatch, hosts=True)
    for expected, found in zip(whole, rows, strict=True):
        assert found.findings == expected.findings
        assert found.notices == expected.notices == ()
        assert found.ranks is not None
        assert expected.ranks is not None
        assert (found.ranks.state, [*found.ranks.phase]) == (expected.ranks.state, [*expected.ranks.phase])
        assert [*found.ranks.process] == [*expected.ranks.process]
        for name in ("step", "work_ms", "wait_ms", "loss"):
            np.testing.assert_array_equal(getattr(found.ranks, name), getattr(expected.ranks, name), err_msg=name)
        for name in ("cpu_pct", "step_s", "cost_us"):
            np.testing.assert_allclose(found.ranks.figures[name], expected.ranks.figures[name], atol=0.2)
    if scenario == "mixed":
        assert sum("/rank/" in key for key in memory.last_read) <= 9, "the others are in host frames"


@pytest.mark.parametrize("scenario", ["clash", "memory", "churn"])
@pytest.mark.parametrize("seconds", [10.0, 40.0, 90_000.0])
def test_a_gpu_holds_what_its_processes_hold_and_is_as_busy_as_they_are(scenario: str, seconds: float) -> None:
    plan, own = Plan(8, 1, scenario, step_ms=250.0, processes=1), np.arange(8)
    frames = Frames(plan, scenario_of(plan), RUN, own)
    if seconds < 100:
        frames.reach(seconds)
    told = {frame.gpu_uuid: frame for frame in frames.ranks(own, seconds)} if seconds < 100 else {}
    (node,) = frames.nodes(own, seconds)
    for gpu in node.gpus:
        assert gpu.processes is not None
        held, shares = [each.memory or 0 for each in gpu.processes], [each.sm_pct or 0.0 for each in gpu.processes]
        assert sum(held) < (gpu.memory_used or 0) <= (gpu.memory_total or 0)
        assert sum(shares) == pytest.approx(gpu.utilization_pct)
        assert sum(shares) <= 100
        if frame := told.get(gpu.uuid):
            assert frame.process is not None
            assert (frame.pid, frame.process.gpu_memory) == (gpu.processes[0].process.pid, held[0])
            assert (frame.process.gpu_allocated or 0) <= (frame.process.gpu_peak or 0) <= held[0]


@pytest.mark.parametrize("scenario", ["mixed", "churn"])
def test_writers_that_die_every_few_seconds_change_no_verdict(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(32, 4, scenario, step_ms=250.0, processes=1, writer_life_s=5.0)
    whole, _ = said(plan, 50, monkeypatch, hosts=False)
    rows, _ = said(plan, 50, monkeypatch, hosts=True)
    assert whole[-1].findings
    for before, expected, found in zip(whole, whole[1:], rows[1:], strict=False):  # frames may come a second later
        about = [{(each.kind, each.ranks) for each in snapshot.findings} for snapshot in (before, expected, found)]
        assert about[0] & about[1] <= about[2] <= about[0] | about[1]
        assert found.notices == ()


def test_a_host_frame_that_cannot_be_true_is_refused_and_its_ranks_are_read_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = Plan(8, 1, "healthy", step_ms=100.0, processes=1)
    memory = Memory(plan, hosts=True)
    monkeypatch.setattr(link, "connect", lambda *_target, **_checks: CheckedStore(memory, Checks(None)))
    observer = Observer("tcp://127.0.0.1:1")
    for second in range(1, 4):
        memory.reach(float(second))
        before = observer.tick()
    key = host_key(RUN, 0)
    good = msgspec.to_builtins(msgspec.msgpack.decode(memory.data[key], type=HostFrame), builtin_types=(bytes,))
    wrong = {
        "twice": (5, good[5][:4] * 8),
        "beyond": (5, np.arange(1, 9, dtype="<i4").tobytes()),
        "infinite": (6, np.full(len(good[6]) // 8, np.inf).tobytes()),
        "unknown": (6, np.full(len(good[6]) // 8, np.nan).tobytes()),
        "short": (6, good[6][:-8]),
        "phases": (7, []),
    }
    for number, (place, value) in enumerate(wrong.values(), 100):
        bad = [*good]
        bad[place], bad[3] = value, number
        memory.data[key] = msgspec.msgpack.encode(bad)
        after = observer.tick()
        assert len(after.notices) == 1 or number > 100
    assert before.ranks is not None
    assert after.ranks is not None
    assert after.ranks.step.tolist() == before.ranks.step.tolist()
    assert sum(observer.run.rejected.values()) == len(wrong) if observer.run else False
