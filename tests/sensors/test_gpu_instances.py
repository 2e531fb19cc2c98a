"""Ranks on MIG instances, as the simulated NVML tells of these, joined to the instance that they are on."""

from __future__ import annotations

import os
import sys

import msgspec
import numpy as np
import pytest

from ddpmon.diagnose.judge import Judge
from ddpmon.machine import GpuFigures, ProcessFigures
from ddpmon.report.build import build_ranks
from ddpmon.report.host_gpus import gpu_states
from ddpmon.report.hosts import build_nodes
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from tests.fake_nvml.scenario import SimulatedDevice, SimulatedProcess
from tests.made_frames import MadeJob, healthy_phases, node_frame, open_findings, rank_frame, run_info
from tests.sensors.simulated_host import Host

GIB = 1 << 30
STRANGER = 1 << 30


@pytest.fixture
def gpus(host: Host) -> list[GpuFigures]:
    """A board with two instances, one with this process and a stranger on it; and a whole GPU."""
    ours, theirs = SimulatedProcess(os.getpid(), GIB), SimulatedProcess(STRANGER, 8 * GIB)
    host.gpu.instances = [
        SimulatedDevice("MIG-cccc", "MIG 1g.10gb", 10 * GIB, GIB, None),
        SimulatedDevice("MIG-dddd", "MIG 2g.20gb", 20 * GIB, 9 * GIB, None, [ours, theirs]),
    ]
    return msgspec.convert(host.read(), list[GpuFigures])


@pytest.mark.parametrize("name", ["MIG-dddd", "GPU-dddd", "GPU-aaaa"], ids=["by name", "as a GPU", "by its board"])
def test_a_rank_on_an_instance_is_joined_to_it(gpus: list[GpuFigures], name: str) -> None:
    run, judge, job = Run(run_info(3)), Judge(), MadeJob(healthy_phases(3, 10))
    places = [(name, os.getpid()), ("MIG-cccc", 4001), ("GPU-bbbb", 4002)]
    for tick in range(5):
        for rank, (uuid, pid) in enumerate(places):
            process = ProcessFigures(gpu_memory=GIB)
            frame = rank_frame(rank, tick, job.columns(rank, 0, 10), gpu_uuid=uuid, pid=pid, process=process)
            run.add_rank(frame, float(tick))
        run.add_node(node_frame(0, tick, gpus=gpus), float(tick))
        said = in_words(judge(run, run.ages(float(tick))))
    assert [gpu and gpu.uuid for gpu in run.gpus()] == ["MIG-dddd", "MIG-cccc", "GPU-bbbb"]
    assert [gpu and gpu.uuid for gpu in map(run.gpu_of, range(3))] == ["MIG-dddd", "MIG-cccc", "GPU-bbbb"]
    shared = [found for found in open_findings(said) if found.kind == "gpu_shared"]
    assert [(found.ranks, found.evidence["pid"]) for found in shared] == [((0,), STRANGER)]
    ranks = build_ranks(run, run.ages(4.0), np.empty(0, np.int64))
    states = {state.gpu.uuid: state for state in gpu_states(ranks, build_nodes(run, 4.0)[0])}
    assert [states[uuid].ranks for uuid in ("GPU-aaaa", "MIG-cccc", "MIG-dddd", "GPU-bbbb")] == [(), (1,), (0,), (2,)]
    assert [on.process.pid for on in states["MIG-dddd"].foreign_processes] == [STRANGER]


def test_a_rank_that_moves_to_another_instance_is_joined_to_that(gpus: list[GpuFigures]) -> None:
    run, job = Run(run_info(1)), MadeJob(healthy_phases(1, 10))
    run.add_rank(rank_frame(0, 0, job.columns(0, 0, 10), gpu_uuid="GPU-aaaa", pid=STRANGER), 0.0)
    board, one, two, other = gpus
    one, emptied = (msgspec.structs.replace(gpu, processes=on) for gpu, on in ((one, two.processes), (two, [])))
    where = []
    for seq, frame in enumerate((gpus, [board, one, emptied, other])):
        run.add_node(node_frame(0, seq, gpus=frame), 0.0)
        where.append(run.gpu_of(0))
    assert [gpu and gpu.uuid for gpu in where] == ["MIG-dddd", "MIG-cccc"]


def test_the_frame_of_a_host_costs_the_same_beside_many_hosts(gpus: list[GpuFigures]) -> None:
    def calls(hosts: int) -> int:
        run, seen = Run(run_info(1)), list[str]()
        for node in range(hosts):
            own = [msgspec.structs.replace(gpu, uuid=f"{gpu.uuid}-{node}") for gpu in gpus]
            run.add_node(node_frame(node, 0, gpus=own), 0.0)
        frame = node_frame(0, 1, gpus=gpus)
        sys.setprofile(lambda _frame, event, _arg: seen.append(event))
        run.add_node(frame, 0.0)
        sys.setprofile(None)
        return len(seen)

    assert calls(40) == calls(10)
