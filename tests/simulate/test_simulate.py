"""Simulated runs: they look like real ones to a watcher, and every process makes the same run."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from ddpmon.codec import decode, encode
from ddpmon.figures import State
from ddpmon.schema import HistoryFrame, NodeFrame, RankFrame
from ddpmon.simulate.plan import Plan, PlanError
from ddpmon.simulate.rank_frames import Frames
from ddpmon.simulate.scenarios import scenario_of
from ddpmon.simulate.simulated_host import run_info
from ddpmon.snapshot import Finding, Snapshot
from ddpmon.store.base import RUNS_KEY, history_key, node_key, rank_key, run_key
from ddpmon.store.signed import CheckedStore, Checks
from ddpmon.watcher import link
from ddpmon.watcher.observer import Observer
from tests.simulate.own_clock import OwnClock

RUN = "simulated-test"


class Memory:
    """A store in memory, into which a simulated run is published second by second."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.everybody = np.arange(plan.ranks)
        self.frames = Frames(plan, scenario_of(plan), RUN, self.everybody)
        self.data = {RUNS_KEY: RUN.encode(), run_key(RUN): encode(run_info(plan, RUN))}

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return [self.data.get(key) for key in keys]

    def put(self, key: str, value: bytes) -> None:
        """Nobody puts anything here."""

    def close(self) -> None:
        """Nothing is held."""

    def reach(self, seconds: float, state: State = "running", who: NDArray[np.int64] | None = None) -> None:
        self.frames.reach(seconds)
        for rank in self.frames.ranks(self.everybody if who is None else who, seconds, state):
            self.data[rank_key(RUN, rank.rank)] = encode(rank)
        for node in self.frames.nodes(self.everybody, seconds):
            self.data[node_key(RUN, node.node)] = encode(node)

    def remember(self, seconds: float) -> None:
        for history in self.frames.histories(self.everybody, seconds):
            self.data[history_key(RUN, history.rank)] = encode(history)


def seen(plan: Plan, seconds: int, patch: pytest.MonkeyPatch) -> Snapshot:
    """The last picture of a watcher that looks once a simulated second."""
    memory = Memory(plan)
    patch.setattr(link, "connect", lambda *_target, **_checks: CheckedStore(memory, Checks(None)))
    observer, clock = Observer("tcp://127.0.0.1:1"), OwnClock(patch)
    for second in range(1, seconds + 1):
        clock.pass_second()
        memory.reach(float(second))
        snapshot = observer.tick()
    assert snapshot.notices == ()
    return snapshot


def found(snapshot: Snapshot, kind: str) -> Finding:
    return next(finding for finding in snapshot.findings if finding.kind == kind)


def test_a_straggler_is_named_with_its_phase_and_onset(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(32, 4, "straggler", step_ms=200.0)
    finding = found(seen(plan, 40, monkeypatch), "straggler")
    assert (finding.ranks, finding.phase) == ((10,), "backward")
    assert abs((finding.since_step or 0) - plan.fault_step) <= 3


def test_a_slow_host_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = found(seen(Plan(32, 4, "slow-node", step_ms=200.0), 40, monkeypatch), "slow_node")
    assert finding.nodes == ("node0002",)


def test_who_comes_now_and_then_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = seen(Plan(32, 4, "intermittent", step_ms=100.0), 60, monkeypatch)
    assert found(snapshot, "intermittent_straggler").ranks == (6,)


def test_a_hang_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = seen(Plan(8, 2, "hang", step_ms=200.0), 60, monkeypatch)
    assert found(snapshot, "hang").ranks == (2,)
    assert snapshot.run is not None
    assert snapshot.run.state == "stalled"


def test_strangers_on_a_gpu_and_on_the_cpus_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = seen(Plan(32, 4, "clash", step_ms=200.0), 60, monkeypatch)
    assert 21 in found(snapshot, "gpu_shared").ranks


def test_the_memory_of_torch_that_grows_or_is_uneven_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = seen(Plan(32, 4, "memory", step_ms=200.0), 60, monkeypatch)
    grows = found(snapshot, "gpu_memory_growth")
    assert grows.ranks == (10,)
    assert "have grown by 600 MiB in 5 min" in grows.summary, "what it grows by a second, 300 times"
    assert snapshot.run is not None
    assert snapshot.run.elapsed_s is not None
    assert snapshot.run.elapsed_s >= 300.0, "no run has leaked for longer than it has gone on"
    assert found(snapshot, "gpu_memory_uneven").ranks == (21,)
    assert {finding.kind for finding in snapshot.findings} == {"gpu_memory_growth", "gpu_memory_uneven"}


def test_a_healthy_run_has_no_warning_and_ranks_that_come_back_are_counted_in(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = seen(Plan(32, 4, "healthy", step_ms=200.0), 40, monkeypatch)
    assert [finding for finding in snapshot.findings if finding.severity != "info"] == []
    churned = seen(Plan(32, 4, "churn", step_ms=200.0), 40, monkeypatch)
    assert churned.ranks is not None
    assert (churned.ranks.pid[8:16] - churned.ranks.pid[:8] > 50_000).all(), "the ranks of host 1 are other processes"
    assert churned.ranks.step[8] < churned.ranks.step[0]


def test_ranks_that_restart_twice_have_restarted_at_the_second_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step of the first restart stood there."""
    steps = []
    memory = Memory(Plan(16, 2, "mixed"))
    monkeypatch.setattr(link, "connect", lambda *_target, **_checks: CheckedStore(memory, Checks(None)))
    observer, clock = Observer("tcp://127.0.0.1:1"), OwnClock(monkeypatch)
    for second in range(1, 90):
        clock.pass_second()
        memory.reach(float(second))
        told = [each for each in observer.tick().findings if "restarted_alone" in each.evidence]
        steps += [each.since_step for each in told if each.since_step is not None]
    first, last = dict.fromkeys(steps)
    assert last > first + 20


@pytest.mark.parametrize("everybody", [True, False])
def test_the_throughput_of_a_run_that_is_over_names_the_ranks_that_it_is_of(
    everybody: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All had finished, or all but those at other steps, so that `status` spoke of samples/s of 0 or of 8 ranks."""
    memory = Memory(Plan(32, 4, "churn", step_ms=200.0))
    monkeypatch.setattr(link, "connect", lambda *_target, **_checks: CheckedStore(memory, Checks(None)))
    observer, clock = Observer("tcp://127.0.0.1:1"), OwnClock(monkeypatch)
    for second in range(1, 41):
        clock.pass_second()
        memory.reach(float(second))
        running = observer.tick()
    assert running.ranks is not None
    others = running.ranks.step > running.ranks.step.max() // 2
    memory.reach(41.0, "finished", memory.everybody if everybody else np.flatnonzero(others))
    over = observer.tick()
    assert (over.job.throughput_ranks, running.job.throughput_ranks) == (24, 24)


def test_who_attaches_after_ranks_came_back_sees_what_a_watcher_of_the_whole_run_sees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = Plan(32, 4, "mixed", step_ms=200.0)
    memory = Memory(plan)
    monkeypatch.setattr(link, "connect", lambda *_target, **_checks: CheckedStore(memory, Checks(None)))
    early, clock = Observer("tcp://127.0.0.1:1"), OwnClock(monkeypatch)
    for second in range(1, 59):
        clock.pass_second()
        memory.reach(float(second))
        memory.remember(float(second))
        whole = verdicts(early.tick())
        if second >= 45:
            assert {kind for kind, _, _ in whole} >= {"straggler", "slow_node"}
            assert verdicts(Observer("tcp://127.0.0.1:1").tick()) == whole


def verdicts(snapshot: Snapshot) -> list[tuple[str, tuple[int, ...], int | None]]:
    late = [finding for finding in snapshot.findings if finding.kind.endswith(("straggler", "slow_node"))]
    return sorted((finding.kind, finding.ranks, finding.since_step) for finding in late)


def test_a_rank_that_comes_back_remembers_its_own_life_and_counts_on() -> None:
    plan = Plan(8, 2, "churn", step_ms=20.0)
    memory, told = Memory(plan), []
    for second in range(1, 50):
        memory.reach(float(second))
        memory.remember(float(second))
        frame = decode("", memory.data[rank_key(RUN, 4)], RankFrame)
        history = decode("", memory.data[history_key(RUN, 4)], HistoryFrame)
        if len(history.recent):
            assert np.frombuffer(history.recent.step, "<i8")[-1] == frame.step
        told.append(frame.step)
    back = int(np.flatnonzero(np.diff(told) < 0)[0]) + 1
    ahead = decode("", memory.data[rank_key(RUN, 0)], RankFrame).step
    assert told[back] <= 50, "about a second's steps at most"
    assert (np.diff(told[back:]) > 30).all()
    assert ahead > told[-1] + 1000


def test_the_whole_history_of_an_old_run_is_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(16, 2, "healthy", step_ms=250.0, hours=1.0)
    memory = Memory(plan)
    memory.reach(1.0)
    memory.remember(1.0)
    monkeypatch.setattr(link, "connect", lambda *_target, **_checks: CheckedStore(memory, Checks(None)))
    snapshot = Observer("tcp://127.0.0.1:1").tick()
    assert snapshot.series is not None
    assert snapshot.run is not None
    steps = snapshot.series.step
    assert steps[0] == 0
    assert steps[-1] >= plan.first_step == 14400
    assert np.diff(steps).max() <= 64
    assert snapshot.series.loss[0] > 3 * snapshot.series.loss[-1]
    assert snapshot.series.throughput[1:-1] == pytest.approx(16 * 32 / 0.25, rel=0.1)
    assert (snapshot.run.elapsed_s or 0) > 3590


def test_processes_that_share_a_run_make_the_same_run() -> None:
    plan = Plan(12, 3, "mixed", step_ms=100.0, hours=0.01)
    whole, part = (Frames(plan, scenario_of(plan), RUN, np.arange(first, 12)) for first in (0, 5))
    for frames in (whole, part):
        frames.reach(15.0)
    mine = [frame.steps for frame in whole.ranks(np.arange(5, 12), 15.0)]
    assert mine == [frame.steps for frame in part.ranks(np.arange(7), 15.0)]


def test_frames_and_histories_stay_bounded_as_the_run_goes_on() -> None:
    plan = Plan(4, 1, "healthy", step_ms=10.0)
    memory = Memory(plan)
    for second in range(0, 120, 5):
        memory.reach(float(second))
        memory.remember(float(second))
    assert decode("", memory.data[rank_key(RUN, 3)], RankFrame).step > 10_000
    assert decode("", memory.data[node_key(RUN, 0)], NodeFrame).seq == 116
    assert all(len(value) < 40_000 for value in memory.data.values())
    history = decode("", memory.data[history_key(RUN, 3)], HistoryFrame)
    assert (len(history.recent), len(history.older) <= 256) == (256 + 2 * 32, True)
    assert history.older.stride >= 32


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ranks": 0}, "0 ranks"),
        ({"ranks": 4, "hosts": 9}, "4 ranks on 9 hosts"),
        ({"ranks": 4, "scenario": "sabotage"}, "'sabotage' is not one of healthy"),
        ({"ranks": 4, "scenario": "slow-node"}, "slow-node needs at least 2 hosts"),
        ({"ranks": 4, "step_ms": 1.0}, "steps of 1 ms"),
        ({"ranks": 4, "hours": -1.0}, "a history of -1 hours"),
        ({"ranks": 4, "processes": 5}, "5 processes"),
        ({"ranks": 4, "seconds": float("nan")}, "nan seconds"),
        ({"ranks": 4, "seed": -1}, "the seed -1"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(options: dict[str, float], words: str) -> None:
    with pytest.raises(PlanError, match=re.escape(words)):
        Plan(**options)  # type: ignore[arg-type]


def test_the_command_publishes_says_what_it_did_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ddpmon.cli", "simulate", "--ranks=8", "--scenario=healthy", "--seconds=3"]
    command += ["--processes=1"]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("simulating 8 ranks on 1 host (scenario healthy); ")
    (frames, histories) = re.findall(r"published (\d+) rank frames, (\d+) history frames", done.stdout)[0]
    assert int(frames) >= 8, "every rank has spoken"
    assert int(histories) >= 8
    assert list(tmp_path.rglob("*.json")) == []


def test_the_command_refuses_nonsense_with_2() -> None:
    command = [sys.executable, "-m", "ddpmon.cli", "simulate", "--ranks=0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ddpmon: cannot simulate 0 ranks: use 1 to 131,072\n"


def test_a_simulation_whose_processes_are_killed_ends_too(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "ddpmon.cli", "simulate", "--ranks=16"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for child in psutil.Process(process.pid).children():
            child.kill()
        _, said = process.communicate()
    assert process.returncode == 3
    assert said == b"ddpmon: a simulating process died\n", "said once, however many died"
    assert not list(tmp_path.glob("ddpmon*/*"))


@pytest.mark.parametrize(("scheme", "starts"), [("tcp", "another `ddpmon simulate`"), ("redis", "redis-server")])
def test_a_store_that_is_not_there_is_named_with_what_starts_one(scheme: str, starts: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [sys.executable, "-m", "ddpmon.cli", "simulate", "--ranks=4", "--scenario=healthy"]
    command += [f"--store={scheme}://127.0.0.1:{port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"--store needs one that runs: {starts} starts one, and without --store " in done.stderr
