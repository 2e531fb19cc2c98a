"""The demo with simulated GPUs: what the store then says, and that nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")
from ddpmon.machine import GpuFigures
from ddpmon.schema import NodeFrame, RankFrame, RunInfo, decode
from ddpmon.store.base import node_key, rank_key, run_key
from ddpmon.store.connect import connect, parse_target
from ddpmon.store.discovery import discover

DEMO = (sys.executable, "-m", "ddpmon.cli", "demo", "--nproc=2")
PATIENCE_S = 240.0
Said = tuple[RunInfo, list[RankFrame], list[GpuFigures]]


@contextlib.contextmanager
def demo(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "TMPDIR": str(folder)}
    process = subprocess.Popen(
        [*DEMO, *options], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def said(process: subprocess.Popen[str]) -> Said:
    """What the run says once its GPUs have their processes."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        for run in discover():
            with closing(connect(parse_target(run.url))) as store:
                keys = [run_key(run.run_id), rank_key(run.run_id, 0), rank_key(run.run_id, 1), node_key(run.run_id, 0)]
                info, *ranks, node = store.get_many(keys)
            if info and node and all(ranks):
                gpus = decode("node", node, NodeFrame).gpus
                if gpus and gpus[0].process_count == 2:
                    frames = [decode("rank", rank, RankFrame) for rank in ranks if rank]
                    return decode("run", info, RunInfo), frames, gpus
        time.sleep(0.2)
    raise AssertionError("the demo never spoke of its GPUs")


@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("gcc")), reason="needs a C compiler")
def test_the_ranks_have_simulated_gpus_that_are_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with demo(tmp_path, "--fake-gpus=3") as process:
        info, ranks, gpus = said(process)
        tree = psutil.Process(process.pid).children(recursive=True)
    assert info.device == "cpu (simulated GPUs)"
    assert [rank.gpu_uuid for rank in ranks] == [gpu.uuid for gpu in gpus[:2]]
    assert {gpu.name for gpu in gpus} == {"simulated GPU"}
    assert [gpu.process_count for gpu in gpus] == [2, 1, 0]
    ours, foreign = gpus[0].processes or []
    assert ours.process.pid == ranks[0].pid
    assert (foreign.process.command or "").endswith(" simulated_foreign_process.py")
    assert foreign.process.parents[0] == process.pid
    assert foreign.process.pid in {process.pid for process in tree}
    assert process.returncode == 128 + signal.SIGTERM
    assert psutil.wait_procs(tree, timeout=PATIENCE_S)[1] == []
    assert not list(tmp_path.glob("ddpmon-demo-*"))


def test_without_a_compiler_the_demo_says_so_in_one_sentence(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run([*DEMO, "--fake-gpus=2"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ddpmon: simulated GPUs need a C compiler (cc or gcc), and there is none here\n"
