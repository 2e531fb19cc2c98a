"""Each rank tells of its own process, and one of a host's ranks of the host."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("torch")
from ddpmon.schema import NodeFrame, decode
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


def line(process: subprocess.Popen[str], within_s: float = PATIENCE_S) -> str | None:
    """The next line that it says; None if it says none for so long."""
    assert process.stdout is not None
    return process.stdout.readline().strip() if select.select([process.stdout], [], [], within_s)[0] else None


def first_to_say(one: subprocess.Popen[str], other: subprocess.Popen[str]) -> bool:
    """Whether it is the one that says something first."""
    assert one.stdout is not None
    assert other.stdout is not None
    return one.stdout in select.select([one.stdout, other.stdout], [], [], PATIENCE_S)[0]


def test_another_local_rank_takes_over_from_one_that_dies_or_ends(tmp_path: Path) -> None:
    with private_runs(tmp_path), rank(0) as first, rank(1) as second, rank(2) as third:
        assert [line(process) for process in (first, second, third)] == ["waiting"] * 3
        assert (line(first) or "").startswith("sampling")
        assert (line(second, within_s=4), line(third, within_s=0)) == (None, None)
        first.kill()
        heir, last = (second, third) if first_to_say(second, third) else (third, second)
        assert (line(heir) or "").startswith("sampling")
        assert line(last, within_s=2) is None
        assert heir.stdin is not None
        heir.stdin.write("\n")
        assert (line(last) or "").startswith("sampling")


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
        and {"checkpoints", "data"} <= {use for disk in node.figures.disks for use in disk.uses}
        and all(each is not None and each.cpu_pct is not None for each in own)
    )


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
    assert (node.by_rank, node.notes) == (0, [])
    for each in seen.ranks:
        figures = each.frame.process
        assert figures is not None
        assert figures.compute_threads == 1
        assert figures.cpus is not None
        assert figures.threads is not None
        assert figures.threads > 1
        assert figures.gpu_memory is None
        assert each.frame.notes == []
    assert [(each.port, each.wanted_for) for each in node.figures.ports] == [(port, "this run's store")]
    assert node.figures.ports[0].process is not None
    assert node.figures.ports[0].process.pid == os.getpid()
