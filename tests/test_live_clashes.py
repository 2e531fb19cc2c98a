"""A real training beside real trouble on its machine, and a watcher that has to say what, whose, and for which rank."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")
from ddpmon.diagnose.finding import Finding
from ddpmon.observe import Observer
from ddpmon.snapshot import Snapshot
from tests.live import TINY, LiveRun, live_run, watch_until

CLASHES = ("cpu_", "gpu_", "numa_", "memory_", "shm_", "disk_", "nic_", "port_")
QUIET_STEPS = 300
STORE_PORT = 29480
HOG = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


def clashes(snapshot: Snapshot) -> list[Finding]:
    """What stands of the machine."""
    standing = (finding for finding in snapshot.findings if finding.cleared_at_step is None)
    return [finding for finding in standing if finding.kind.startswith(CLASHES)]


def pin(pid: int, cpus: Iterable[int]) -> None:
    for thread in psutil.Process(pid).threads():
        with contextlib.suppress(OSError):  # it may have ended
            os.sched_setaffinity(thread.id, set(cpus))


@contextlib.contextmanager
def hogs(cpu: int) -> Iterator[set[int]]:
    """Three strangers that take this CPU; gives their numbers."""
    processes = [subprocess.Popen([sys.executable, "-c", HOG, str(cpu)]) for _ in range(3)]
    try:
        yield {process.pid for process in processes}
    finally:
        for process in processes:
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


def told(observer: Observer, run: LiveRun, kind: str, ranks: set[int], culprits: set[int] | None = None) -> Finding:
    """Watch until the clash is told of these ranks, and of one of these culprits if some are given."""
    found: list[Finding] = []

    def fits(each: Finding) -> bool:
        return each.kind == kind and ranks <= set(each.ranks) and (not culprits or each.evidence["pid"] in culprits)

    def seen(snapshot: Snapshot) -> bool:
        found[:] = [each for each in clashes(snapshot) if fits(each)]
        return bool(found)

    watch_until(observer, seen, run=run)
    return found[0]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs to crowd one of them")
def test_clashes_are_named_with_rank_and_culprit_and_a_quiet_run_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    arguments = [*TINY, "--steps=1000000", "--fault=forward:rank=0+1,ms=20"]
    with live_run(monkeypatch, tmp_path, 2, *arguments) as (run, observer):
        quiet = watch_until(observer, lambda s: s.run is not None and (s.run.step or 0) >= QUIET_STEPS, run=run)
        others = ("cpu_contention", "memory_pressure")  # whatever else runs here may be the reason
        assert [each for each in clashes(quiet) if each.kind not in others and each.severity != "info"] == []
        assert quiet.ranks is not None
        pids = quiet.ranks.pid.tolist()

        for pid in pids:
            pin(pid, {first})
        pinned = told(observer, run, "cpu_pinned", {0, 1})
        assert f"share CPU {first}" in pinned.summary
        pin(pids[1], {second})
        watch_until(observer, lambda s: all(each.kind != "cpu_pinned" for each in clashes(s)), run=run)

        with hogs(second) as culprits:
            contention = told(observer, run, "cpu_contention", {1}, culprits)
            assert f"pid {contention.evidence['pid']}" in contention.summary

        with quota(pids[1], 0.1):
            throttled = told(observer, run, "cpu_throttled", {1})
            assert "0.1 CPUs" in throttled.summary


def test_the_holder_of_the_port_that_was_wanted_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind(("127.0.0.1", STORE_PORT))
            holder.listen()
        except OSError:
            pytest.skip(f"port {STORE_PORT} is in use on this machine")
        with live_run(monkeypatch, tmp_path, 2, *TINY, "--steps=1000000") as (run, observer):
            clash = told(observer, run, "port_clash", {0})
            assert (clash.severity, clash.evidence["pid"]) == ("info", os.getpid())
            assert str(STORE_PORT) in clash.summary
