"""Each rank tells of its own process, and one of a host's ranks of the host."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
import torch
from torch.distributed import distributed_c10d

from ddpmon.codec import decode
from ddpmon.probe.host_sampler import HEIRS_WAIT_S, HostSampler
from ddpmon.probe.identity import Identity
from ddpmon.schema import NodeFrame
from ddpmon.store.base import node_key
from tests.probe.probe_ranks import PATIENCE_S, Reader, Seen, grouped, private_runs, wait_for_end
from tests.ranks import ROOT


@contextmanager
def rank(local_rank: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.probe.heirs", str(local_rank)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    """The next line that it says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(*processes: subprocess.Popen[str]) -> None:
    """Write a line to each."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")


def heir_of(one: subprocess.Popen[str], other: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """The one that samples first; both are asked again every second until then."""
    while True:
        for process in (one, other):
            if line(process) == "sampling":
                return process


def test_another_local_rank_takes_over_from_one_that_dies_or_ends(tmp_path: Path) -> None:
    with private_runs(tmp_path), rank(0) as first, rank(1) as second, rank(2) as third:
        assert [line(process) for process in (first, second, third)] == ["waiting"] * 3
        tell(first)
        assert line(first) == "sampling"
        tell(second, third)
        for process in (second, third):
            refused, seconds = line(process).split()
            assert refused == "refused"
            assert float(seconds) >= HEIRS_WAIT_S, "local rank 0 goes before"
        first.kill()
        heir = heir_of(second, third)
        last = third if heir is second else second
        assert {line(last).split()[0] for _ in range(3)} == {"refused"}
        tell(heir)
        while (said := line(last)).startswith("refused"):
            pass
        assert said == "sampling"


def node_of(reader: Reader, seen: Seen) -> NodeFrame | None:
    assert reader.store is not None
    key = node_key(seen.info.run_id, seen.info.node_keys[0])
    (data,) = reader.store.get_many([key])
    return None if data is None else decode(key, data, NodeFrame)


def whole(seen: Seen, node: NodeFrame | None) -> bool:
    own = [each.frame.process for each in seen.ranks]
    return (
        node is not None
        and node.figures.cpu_pct is not None
        and node.cost_pct is not None
        and not node.notes  # a sensor that a busy machine holds up for long is noted for a while
        and {"checkpoints", "data"} <= {use for disk in node.figures.disks for use in disk.uses}
        and all(each is not None and each.cpu_pct is not None for each in own)
        and not any(each.frame.notes for each in seen.ranks)
    )


@pytest.mark.parametrize("world", [None, SimpleNamespace(pg_map=None), SimpleNamespace(pg_map={1: "nccl"})])
def test_a_torch_that_keeps_its_process_groups_elsewhere_costs_their_number_alone(
    monkeypatch: pytest.MonkeyPatch, world: object
) -> None:
    monkeypatch.setattr(distributed_c10d, "_world", world)
    me = Identity(0, 1, 0, 0, (0,), "host", os.getpid(), torch.device("cuda", 0), None, "nccl")
    machine = HostSampler(me, lambda: "", {}, {})
    machine.start()
    try:
        while machine.process is None and not machine.notes:
            time.sleep(0.01)
        assert machine.notes == []
        assert machine.process is not None
        assert machine.process.nccl_groups is None
        assert machine.process.rss_bytes
    finally:
        machine.stop()


def test_frames_tell_of_the_host_and_of_each_process(tmp_path: Path) -> None:
    with ExitStack() as stack:
        port = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        stack.enter_context(private_runs(tmp_path))
        log, where = tmp_path / "log", {"WANTED_PORT": str(port)}
        process = stack.enter_context(
            grouped("scenes_machine", 2, log, str(tmp_path), "with_folders", environment=where)
        )
        reader, node, deadline = Reader("with_folders"), None, time.monotonic() + PATIENCE_S
        while (seen := reader.look(2)) is None or not whole(seen, node := node_of(reader, seen)):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        (tmp_path / "with_folders.release").touch()
        assert wait_for_end(process, log) == 0
    assert node is not None
    for each in seen.ranks:
        figures = each.frame.process
        assert figures is not None
        assert figures.compute_threads == 1
        assert figures.cpus is not None
        assert figures.threads is not None
        assert figures.threads > 1
        assert figures.gpu_memory is None
    assert [(each.port, each.wanted_for) for each in node.figures.ports] == [(port, "this run's store")]
    assert node.figures.ports[0].process is not None
    assert node.figures.ports[0].process.pid == os.getpid()
