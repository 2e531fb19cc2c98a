"""Two hosts with two ranks each in network namespaces, trained by torchrun over Gloo, watched from a third one."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from across import Job, torchrun
from network import Network, network, why_not
from watcher import ROOT, Seen, Watcher, watching

pytest.importorskip("torch")
from ddpmon.store.discovery import Announcement, discover

THROTTLED_MS = 40.0  # what the slow link costs a step at the least: half a megabyte crosses it
RANKS, WATCHER = (0, 1, 2, 3), 2
LASTS = 60  # steps of a fault: a verdict needs 22, and those in which a busy machine holds up others do not count
STRAGGLER_FROM, NODE_FROM, LINK_FROM = 55, 130, 205
NEAR = 20  # steps
EVEN = ("--fault=forward:rank=0+1+2+3,ms=20", "--fault=backward:rank=0+1+2+3,ms=30")  # ranks sleep, not fight for cores
FAULTS = (
    f"--fault=input:rank=1,ms=100,from={STRAGGLER_FROM},until={STRAGGLER_FROM + LASTS}",
    f"--fault=forward:rank=2+3,ms=100,from={NODE_FROM},until={NODE_FROM + LASTS}",
)
MODEL = ("--layers=2", "--width=64", "--heads=2", "--batch=2", "--context=32")
JOB = Job(2, 2, ["-m", "trainer", "--name=across", "--steps=100000", *MODEL, *EVEN, *FAULTS])
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5).close()"

READINGS = """
import json, sys, time
from ddpmon.codec import decode
from ddpmon.schema import NodeFrame
from ddpmon.store.base import node_key
from ddpmon.store.connect import connect, list_runs, parse_target
store, found = connect(parse_target(sys.argv[1])), {0: [], 1: []}
(run,) = list_runs(store)
for _ in range(6):
    keys = [node_key(run, node) for node in found]
    for node, key, data in zip(found, keys, store.get_many(keys)):
        found[node].append(decode(key, data, NodeFrame).figures.readings["host"])
    time.sleep(0.5)
print(json.dumps(list(found.values())))
"""

why = why_not()
pytestmark = [pytest.mark.skipif(bool(why), reason=why), pytest.mark.timeout(600)]


class Launch:
    """One training over two hosts, followed from its first step to a slow link; what was seen on the way."""

    def __init__(self, net: Network, folder: Path) -> None:
        self.net, self.folder = net, folder
        self.url = f"tcp://{net.address(0)}:29480"
        self.announced: list[Announcement] = []
        self.loopback = self.outside = -1
        self.readings: list[list[int]] = []
        self.seen: dict[str, Seen] = {}

    def follow(self) -> None:
        with (
            torchrun(self.net, self.folder, JOB),
            watching(self.net.enter(WATCHER), self.url, self.folder / "watcher.log") as watcher,
        ):
            try:
                self._see(watcher)
            except TimeoutError as error:
                logs = "".join(path.read_text(errors="replace")[-3000:] for path in self.folder.glob("*.log"))
                pytest.fail(f"{error}\n{logs}")

    def _see(self, watcher: Watcher) -> None:
        self.seen["healthy"] = watcher.until(lambda seen: step_of(seen) > 20)
        self.announced = discover()
        self.seen["straggler"] = watcher.until(lambda seen: finding(seen, "straggler", [1], STRAGGLER_FROM))
        self.seen["slow_node"] = watcher.until(lambda seen: finding(seen, "slow_node", [2, 3], NODE_FROM))
        watcher.until(lambda seen: step_of(seen) >= LINK_FROM)
        self.net.throttle(1, mbit_s=10)  # half a megabyte takes 400 ms: more than any other job delays a transfer by
        self.seen["slow_network"] = watcher.until(lambda seen: transfer_rise_ms(seen) > THROTTLED_MS)
        with watching(self.net.enter(WATCHER), self.url, self.folder / "late.log") as late:
            self.seen["late"] = late.until(lambda seen: step_of(seen) > 0)
        left_at = step_of(self.seen["late"])
        self.seen["after"] = watcher.until(lambda seen: step_of(seen) > left_at + 10)
        # At the end: while these run, which takes long on a busy machine, the faults would come and go unseen.
        self.loopback, self.outside = self._connect(0, "127.0.0.1"), self._connect(WATCHER, self.net.address(0))
        self.readings = json.loads(self._run(WATCHER, READINGS, self.url).stdout or "[]")

    def _connect(self, host: int, address: str) -> int:
        """The exit code of an attempt to reach the store at `address` from a host."""
        return self._run(host, CONNECT, address, "29480").returncode

    def _run(self, host: int, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A Python script's run on a host."""
        command = [*self.net.enter(host), sys.executable, "-c", script, *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    folder = tmp_path_factory.mktemp("across")
    with pytest.MonkeyPatch.context() as patch, network(3) as net:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        patch.setattr("tempfile.tempdir", str(folder))
        launched = Launch(net, folder)
        launched.follow()
        yield launched


def step_of(seen: Seen) -> int:
    run = seen["status"]["run"]
    return -1 if run is None or run["step"] is None else int(run["step"])


def finding(seen: Seen, kind: str, ranks: list[int], since: int | None = None) -> dict[str, Any] | None:
    """The finding of this kind on these ranks, which began near the step `since` if that is given.

    On a busy machine there may be true ones on other ranks, and on these ranks before that step.
    """
    found = (found for found in seen["status"]["findings"] if (found["kind"], found["ranks"]) == (kind, ranks))
    return next((found for found in found if since is None or abs(found["since_step"] - since) <= NEAR), None)


def transfer_rise_ms(seen: Seen) -> float:
    """By how much the transfer is said to have slowed down, nobody being named; 0 where nothing is said."""
    found = finding(seen, "slow_network", [])
    return 0.0 if found is None else found["evidence"]["transfer_ms"] - found["evidence"]["normal_transfer_ms"]


def test_the_store_stands_on_the_interface_that_the_hosts_share(launch: Launch) -> None:
    assert [run.url for run in launch.announced] == [launch.url]
    assert launch.outside == 0, "another host reaches it"
    assert launch.loopback != 0, "it listens at that address and no other"


def test_the_hosts_are_named_and_each_has_one_frame_of_its_own(launch: Launch) -> None:
    status = launch.seen["straggler"]["status"]
    assert status["run"]["nodes"] == ["host0", "host1"]
    assert [rank["host"] for rank in status["ranks"]] == ["host0", "host0", "host1", "host1"]
    assert [rank["local_rank"] for rank in status["ranks"]] == [0, 1, 0, 1]
    assert [(node["node"], node["host"], node["ranks"]) for node in status["nodes"]] == [
        (0, "host0", [0, 1]),
        (1, "host1", [2, 3]),
    ]
    assert status["coverage"]["reporting"] == len(RANKS)


def test_one_rank_a_host_samples_it(launch: Launch) -> None:
    assert len(launch.readings) == 2
    for readings in launch.readings:
        assert readings == sorted(readings), "another rank, which began to sample later, has counted fewer"
        assert readings[0] > 0


def test_the_slow_rank_is_named_with_its_host_and_phase(launch: Launch) -> None:
    found = finding(launch.seen["straggler"], "straggler", [1], STRAGGLER_FROM)
    assert found is not None
    assert (found["nodes"], found["phase"]) == (["host0"], "input")


def test_a_host_whose_ranks_are_all_late_is_named_as_a_whole(launch: Launch) -> None:
    found = finding(launch.seen["slow_node"], "slow_node", [2, 3], NODE_FROM)
    assert found is not None
    assert found["nodes"] == ["host1"]


def test_a_slow_link_is_the_networks_and_no_ranks(launch: Launch) -> None:
    assert transfer_rise_ms(launch.seen["slow_node"]) < THROTTLED_MS, "that host was late, the link was not"
    found = finding(launch.seen["slow_network"], "slow_network", [])
    assert found is not None
    assert "equally on all ranks: the network is slow, and durations do not show which link" in found["summary"]


def test_a_second_watcher_that_comes_late_has_the_whole_history_and_its_going_changes_nothing(launch: Launch) -> None:
    first, last = launch.seen["late"]["history"]
    assert first == 0
    assert last >= LINK_FROM
    assert launch.seen["late"]["status"]["coverage"]["reporting"] == len(RANKS)
    assert launch.seen["after"]["link"][0] == "live"
    assert launch.seen["after"]["status"]["coverage"]["reporting"] == len(RANKS)


def test_no_namespace_is_left_when_a_test_fails() -> None:
    with contextlib.suppress(RuntimeError), network(2) as net:
        inside = net.enter(0)[3]
        assert inside in spaces()
        raise RuntimeError("as a test may do")
    assert inside not in spaces()


def spaces() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
