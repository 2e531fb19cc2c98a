"""A real training beside real trouble on its machine, and a watcher that has to say what, whose, and for which rank."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")
from ddpmon.sensors.process import ProcessSensor
from ddpmon.snapshot import Finding, Snapshot
from ddpmon.watcher.observer import Observer
from tests.live import live_run, watch_until
from tests.probe.probe_ranks import grouped, private_runs

CLASHES = ("cpu_", "gpu_", "numa_", "memory_", "shm_", "disk_", "nic_", "port_")
QUIET_STEPS = 100
ASKING_S = 240.0
# Ranks that compute: a rank that sleeps through most of its step loses nothing to whoever takes its core meanwhile.
COMPUTING = ("--layers=2", "--width=96", "--heads=2", "--batch=4", "--context=64")
# One process of several threads (hashing lets go of the interpreter): whatever else runs here takes less of that CPU.
HOG = """
import hashlib, os, sys, threading
os.sched_setaffinity(0, {int(sys.argv[1])})
def spin():
    while True:
        hashlib.sha256(bytes(1 << 20))
for _ in range(4):
    threading.Thread(target=spin).start()
"""


def clashes(snapshot: Snapshot) -> list[Finding]:
    """What stands of the machine."""
    standing = (finding for finding in snapshot.findings if finding.cleared_at_step is None)
    return [finding for finding in standing if finding.kind.startswith(CLASHES)]


def pin(pid: int, cpus: Iterable[int]) -> None:
    for thread in psutil.Process(pid).threads():
        with contextlib.suppress(OSError):  # it may have ended
            os.sched_setaffinity(thread.id, set(cpus))


@contextlib.contextmanager
def hog(cpu: int) -> Iterator[int]:
    """A stranger that takes most of this CPU; gives its number."""
    process = subprocess.Popen([sys.executable, "-c", HOG, str(cpu)])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def quota(pid: int, cpus: float) -> Iterator[None]:
    """A cgroup that allows the process so much CPU time."""
    v1 = Path("/sys/fs/cgroup/cpu")
    group = (v1 if v1.is_dir() else Path("/sys/fs/cgroup")) / f"ddpmon-test-{os.getpid()}"
    try:
        group.mkdir()
        if v1.is_dir():
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text(str(int(cpus * 100_000)))
        else:
            (group / "cpu.max").write_text(f"{int(cpus * 100_000)} 100000")
        (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no cgroup with a quota can be made here: {error}")
    try:
        yield
    finally:
        (group.parent / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def told(
    observer: Observer, log: Path, kind: str, ranks: set[int], culprit: int | None = None, words: str = ""
) -> Finding:
    """Watch until the clash is told of these ranks in these words, and of this culprit if one is given."""
    found: list[Finding] = []

    def fits(each: Finding) -> bool:
        by_it = culprit is None or each.evidence.get("pid") == culprit
        return each.kind == kind and ranks <= set(each.ranks) and by_it and words in each.summary

    def seen(snapshot: Snapshot) -> bool:
        found[:] = [each for each in clashes(snapshot) if fits(each)]
        return bool(found)

    watch_until(observer, seen, log=log)
    return found[0]


def asked(floor: str) -> tuple[int, list[int]]:
    """The exit code of one `ddpmon status --fail-on`, and the processes that its findings name."""
    command = (sys.executable, "-m", "ddpmon.cli", "status", "trainer", "--json", "--fail-on", floor)
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    named = [found["evidence"].get("pid") for found in json.loads(answer.stdout)["findings"]]
    return answer.returncode, [pid for pid in named if pid is not None]


def ask_until(what: Callable[[int, list[int]], bool], floor: str) -> None:
    """Ask again and again; each time a new process answers, which knows nothing of what was before."""
    until = time.monotonic() + ASKING_S
    while not what(*(answer := asked(floor))):
        assert time.monotonic() < until, answer


def cpus_in_quota() -> float:
    """How many CPUs' worth of time these tests may use."""
    return ProcessSensor(os.getpid()).read().quota_cpus or math.inf


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs to crowd one of them")
@pytest.mark.skipif(cpus_in_quota() < 2, reason="a CPU quota for everything here is the cause of every wait")
def test_clashes_are_named_with_rank_and_culprit_and_a_quiet_run_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    with live_run(monkeypatch, tmp_path, 2, *COMPUTING, "--steps=1000000") as (run, observer):
        quiet = watch_until(observer, lambda s: s.run is not None and (s.run.step or 0) >= QUIET_STEPS, log=run.log)
        # Whatever else runs here may be the reason, or a quota that the tests themselves run under.
        others = ("cpu_contention", "cpu_throttled", "memory_pressure")
        assert [each for each in clashes(quiet) if each.kind not in others and each.severity != "info"] == []
        assert quiet.ranks is not None
        pids = quiet.ranks.pid.tolist()

        for pid in pids:
            pin(pid, {first})
        pinned = told(observer, run.log, "cpu_pinned", {0, 1})
        assert f"share CPU {first}" in pinned.summary
        pin(pids[1], {second})
        watch_until(observer, lambda s: all(each.kind != "cpu_pinned" for each in clashes(s)), log=run.log)

        with hog(second) as culprit:
            contention = told(observer, run.log, "cpu_contention", {1}, culprit)
            assert f"pid {culprit}" in contention.summary
            ask_until(lambda _code, named: culprit in named, "critical")
            ask_until(lambda code, _named: code == 1, "warning")

        with quota(pids[1], 0.1):
            told(observer, run.log, "cpu_throttled", {1}, words="0.1 CPUs")


def test_the_holder_of_the_port_that_was_wanted_is_named(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        stack.enter_context(private_runs(tmp_path))
        log = tmp_path / "log"
        scene, where = ("scenes_machine", 2, log, str(tmp_path), "with_folders"), {"WANTED_PORT": str(port)}
        stack.enter_context(grouped(*scene, environment=where))
        clash = told(stack.enter_context(contextlib.closing(Observer(None))), log, "port_clash", {0})
    assert (clash.severity, clash.evidence["pid"]) == ("info", os.getpid())
    assert str(port) in clash.summary
