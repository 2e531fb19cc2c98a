"""A real training on a host whose NVML is the fake one: what its frames say of the GPUs and of who is on them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("torch")
from ddpmon.codec import decode
from ddpmon.machine import GpuFigures
from ddpmon.schema import NodeFrame, RankFrame
from ddpmon.store.base import node_key, rank_key
from ddpmon.store.connect import connect, parse_target
from ddpmon.store.discovery import discover
from tests.fake_nvml.build import environment
from tests.fake_nvml.scenario import GIB, Scenario, SimulatedGpu, SimulatedProcess
from tests.live import TINY
from tests.ranks import ROOT, kill_family

PATIENCE_S = 240.0
TRAINING = (sys.executable, "-m", "trainer", "--nproc=2", "--steps=100000", *TINY)


@contextmanager
def training(folder: Path, variables: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Not forked from the tests' server: the loader reads where libraries lie when a program begins."""
    everything = {**os.environ, **variables, "XDG_RUNTIME_DIR": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(TRAINING, cwd=ROOT, env=everything, stdout=log, stderr=log, text=True)
    try:
        yield process
    finally:
        kill_family(process.pid)
        process.wait()


@contextmanager
def stranger(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not of the training, and waits."""
    script = folder / "stranger.py"
    script.write_text("import sys; sys.stdin.read()")
    process = subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE)
    try:
        yield process
    finally:
        process.communicate()


def said(process: subprocess.Popen[str]) -> tuple[list[int], list[GpuFigures]]:
    """The ranks' process numbers and their host's GPUs, as they are in the store now; none until it has them."""
    assert process.poll() is None, "the training has ended"
    for run in discover():
        with closing(connect(parse_target(run.url))) as store:
            *ranks, node = store.get_many([rank_key(run.run_id, 0), rank_key(run.run_id, 1), node_key(run.run_id, 0)])
        pids = [decode("rank", rank, RankFrame).pid for rank in ranks if rank]
        return pids, [] if node is None else decode("node", node, NodeFrame).gpus
    return [], []


def test_the_ranks_tell_of_their_hosts_gpus_and_of_a_strangers_process(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    told, scenario = tmp_path / "gpus", Scenario([SimulatedGpu("GPU-aaaa"), SimulatedGpu("GPU-bbbb")])
    scenario.write(told)
    with training(tmp_path, environment(library, told)) as process, stranger(tmp_path) as other:
        deadline = time.monotonic() + PATIENCE_S
        pids, gpus = said(process)
        while [gpu.process_count for gpu in gpus] != [2, 1]:
            assert time.monotonic() < deadline, (pids, gpus, (tmp_path / "log").read_text())
            for number, gpu in enumerate(scenario.gpus):
                gpu.processes = [SimulatedProcess(pid, 2 * GIB) for pid in pids[number : number + 1]]
            scenario.gpus[0].processes.append(SimulatedProcess(other.pid, GIB))
            scenario.write(told)
            time.sleep(0.2)
            pids, gpus = said(process)
        processes = gpus[0].processes or []
    assert [(gpu.uuid, gpu.name) for gpu in gpus] == [("GPU-aaaa", "simulated GPU"), ("GPU-bbbb", "simulated GPU")]
    assert [each.process.pid for each in processes] == [pids[0], other.pid], "the largest first"
    assert (processes[1].process.command or "").endswith(" stranger.py")
    assert processes[1].process.parents[0] == os.getpid()
