"""No frame of a host, however hostile, brings the watcher down or makes it say what is not so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ddpmon.codec import decode, encode
from ddpmon.diagnose.alert import Measures
from ddpmon.diagnose.contention.symptom import MOST_CULPRITS, Culprit, CulpritMeasures, culprits_of
from ddpmon.diagnose.judge import Judge
from ddpmon.machine import (
    CLOCK_REASONS,
    Disk,
    GpuFigures,
    GpuProcess,
    HostFigures,
    HostProcess,
    Nic,
    Pressure,
    Process,
    ProcessFigures,
    TakenPort,
)
from ddpmon.report.sentences import tell
from ddpmon.run.model import Run
from ddpmon.schema import NodeFrame, RankFrame
from ddpmon.shell_command import advice_text
from tests.diagnose.test_contention_lives import LOW, job
from tests.made_frames import MadeJob, healthy_phases, node_frame, open_findings, play_hosts, rank_frame, run_info


def test_hostile_names_are_made_harmless() -> None:
    evil = "\x1b[31m[bold red]rm -rf\n\u202e\x00" + "x" * 200
    process = Process(8123, [7000, 1], evil, evil)
    figures = HostFigures(
        cpu_count=8,
        memory_used=96 << 30,
        memory_total=100 << 30,
        processes=[HostProcess(process, 95.0, "2", 50 << 30)],
        disks=[Disk(evil, [evil], 1000 << 30, 5 << 30), LOW],
        nics=[Nic(evil, errors=0)],
        ports=[TakenPort(29500, evil, process)],
    )
    gpu = GpuFigures(
        0, "GPU-2", clock_reasons=[evil], xids=[79], processes=[GpuProcess(Process(102)), GpuProcess(process, 9 << 30)]
    )
    said = play_hosts(
        job(150),
        lambda tick, _node: msgspec.structs.replace(figures, nics=[Nic(evil, errors=9 * tick)]),
        lambda _tick, _node: [gpu],
        lambda tick, rank: ProcessFigures(runqueue_pct=30.0 * (rank == 2 and tick > 4), cpus=str(rank)),
        frame=lambda _tick, rank: {"gpu_uuid": "GPU-2" if rank == 2 else None, "host": evil},
    )
    found = open_findings(said[-1])
    kinds = {"gpu_shared", "gpu_errors", "cpu_contention", "memory_pressure", "disk_low", "nic_errors", "port_clash"}
    assert {each.kind for each in found} == kinds
    for each in found:
        texts = [each.summary, advice_text(each.advice), *each.nodes, *(value for value in each.evidence.values())]
        for text in texts:
            assert not isinstance(text, str) or text.isprintable(), text
            assert not isinstance(text, str) or len(text) < 500


def test_a_hostile_host_name() -> None:
    run, judge = Run(run_info(1)), Judge()
    for tick in range(4):
        run.add_rank(rank_frame(0, tick, job().columns(0, 0, 10)), float(tick))
        run.add_node(node_frame(0, tick, host="\x1b[2Jevil\n", figures=HostFigures(disks=[LOW])), float(tick))
        said = judge(run, run.ages(float(tick)))
    assert [(found.nodes, tell(found).summary.isprintable()) for found in said] == [(("\x1b[2Jevil\n",), True)]
    assert " on [2Jevil (checkpoints)" in tell(said[0]).summary


def test_the_culprits_of_a_clash_are_its_first_processes() -> None:
    assert culprits_of(Measures()) == culprits_of(CulpritMeasures(())) == frozenset()
    many = CulpritMeasures(tuple(Culprit(pid) for pid in range(100, 140)))
    assert culprits_of(many) == frozenset(range(100, 100 + MOST_CULPRITS))


NOTHING = HostFigures(
    pressure=Pressure(),
    processes=[HostProcess(Process(7))],
    disks=[Disk("/dev/shm", []), Disk("/work", [])],
    nics=[Nic("eth0")],
)
UNREAD = GpuFigures(0, "GPU-0")


@pytest.mark.parametrize(
    ("figures", "gpus", "process"),
    [
        (HostFigures(), [UNREAD], None),
        (NOTHING, [UNREAD], ProcessFigures()),
        (NOTHING, [msgspec.structs.replace(UNREAD, processes=[])], ProcessFigures()),
        (NOTHING, [msgspec.structs.replace(UNREAD, processes=[GpuProcess(Process(100))])], ProcessFigures()),
    ],
)
def test_where_nothing_could_be_read_nothing_is_said(
    figures: HostFigures, gpus: list[GpuFigures], process: ProcessFigures | None
) -> None:
    phases = healthy_phases(4, 200)
    phases["forward"][0, 60:] += 40.0
    said = play_hosts(
        MadeJob(phases),
        lambda _tick, _node: figures,
        lambda _tick, _node: gpus,
        lambda _tick, _rank: process,
        frame=lambda _tick, rank: {"gpu_uuid": None if rank else "GPU-0"},
    )
    (found,) = open_findings(said[-1])
    assert (found.kind, found.cause) == ("straggler", None)


def nonsense(kind: Any, large: bool) -> Any:
    """A struct with every number as large as it goes, or zero or negative."""
    number, whole = (1e15, 1 << 62) if large else (-1e15, 0)
    plain: dict[str, Any] = {
        "pid": 1 << 32 if large else 0,
        "parents": [1 << 32] * 32 if large else [],
        "started_at": number,
        "index": whole if large else -1,
        "numa_node": whole if large else -7,
        "clock_reasons": [*CLOCK_REASONS] if large else [],
        "xids": [whole] * 16 if large else [],
        "numa": ["0-99999999999,x", "-"] if large else ["", ","],
        "ports": [],
        "uses": [],
        "port": 65535 if large else 0,
        "nice": 99,
        "kind": "compute",
        "unread": {},
        "held": large,
        "quotas": {"0:7": number},
        "readings": {"processes": whole},
        "path": "/dev/shm" if large else "/",
        "cpus": "0-999999" if large else ",,",
        "process": Process(1 << 32) if large else Process(0),
    }
    values: dict[str, Any] = {}
    for each in msgspec.structs.fields(kind):
        text = str(each.type)
        values[each.name] = plain.get(each.name, number if "float" in text else whole if "int" in text else "x")
    return kind(**values)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("large", [True, False])
def test_numbers_as_large_or_small_as_they_go(large: bool) -> None:
    gpu = msgspec.structs.replace(
        nonsense(GpuFigures, large), uuid="GPU-0", processes=[nonsense(GpuProcess, large)], board=None
    )
    figures = msgspec.structs.replace(
        nonsense(HostFigures, large),
        pressure=nonsense(Pressure, large),
        processes=[nonsense(HostProcess, large)],
        disks=[nonsense(Disk, large)],
        nics=[nonsense(Nic, large)],
        ports=[nonsense(TakenPort, large)],
    )
    node = decode("n", encode(node_frame(0, 0, figures=figures, gpus=[gpu])), NodeFrame)
    process = nonsense(ProcessFigures, large)
    part = job().columns(0, 0, 10)
    decode("r", encode(rank_frame(0, 0, part, process=process)), RankFrame)
    phases = healthy_phases(4, 250)
    phases["forward"][0, 60:] += 40.0
    said = play_hosts(
        MadeJob(phases),
        lambda _tick, _node: node.figures,
        lambda _tick, _node: node.gpus,
        lambda _tick, _rank: process,
        frame=lambda _tick, rank: {"gpu_uuid": "GPU-0" if rank < 2 else None},
    )
    assert {found.kind for found in open_findings(said[-1])} >= {"straggler"}
