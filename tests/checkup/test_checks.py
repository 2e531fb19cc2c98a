"""What a check says of a host, from its figures alone."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ddpmon.checkup.facts import Facts, Interface
from ddpmon.checkup.host_checks import RENDEZVOUS, STORE
from ddpmon.checkup.report import as_lines, as_object, examine, worst
from ddpmon.diagnose.contention.cpu import count, mask_of
from ddpmon.format import json_line
from ddpmon.machine import (
    Disk,
    GpuFigures,
    GpuProcess,
    HostFigures,
    HostProcess,
    Pressure,
    Process,
    ProcessFigures,
    TakenPort,
)
from tests.checkup.made_facts import GIB, facts, found, gpu, host

STRANGER = Process(8123, [1], "bob", "python train.py")


def told(check_of: Facts) -> tuple[str, str, str]:
    """The one thing that is wrong with this host."""
    (check,) = found(check_of)
    return check.name, check.level, check.text


def test_a_host_in_order_has_nothing_to_say_but_that() -> None:
    assert found(facts()) == []
    assert worst(examine([facts()])) == 0
    assert found(facts(device="cpu", gpus=[], ranks=4, threads=None)) == []


@pytest.mark.parametrize(
    ("changes", "name", "level", "words"),
    [
        ({"utilization_pct": 38.0, "processes": [GpuProcess(STRANGER, GIB)]}, "gpu busy", "warning", "pid 8123 (bob"),
        ({"memory_used": 60 * GIB, "processes": [GpuProcess(STRANGER, 60 * GIB)]}, "gpu memory", "warning", "60.0 of"),
        ({"memory_used": 60 * GIB}, "gpu memory", "warning", "not visible from here"),
        ({"memory_used": 60 * GIB, "processes": None}, "gpu memory", "warning", "60.0 of 140 GiB are in use"),
        ({"memory_used": 139 * GIB}, "gpu memory", "failure", "139.0 of 140 GiB"),
        ({"ecc_uncorrected": 2, "remapped_rows": 1}, "gpu health", "warning", "2 uncorrected ECC errors, 1 remapped"),
        ({"clock_reasons": ["hardware thermal"], "temperature_c": 92.0}, "gpu clocks", "warning", "at 92 °C: hardware"),
        ({"power_limit_w": 300.0}, "gpu clocks", "warning", "GPU 3 may draw 300 W, other GPUs of its kind 700 W"),
        ({"pcie_width": 4}, "pcie", "warning", "x4 of x16"),
    ],
)
def test_a_gpu_that_would_hurt_is_named(changes: dict[str, Any], name: str, level: str, words: str) -> None:
    gpus = [gpu(index, **(changes if index == 3 else {})) for index in range(8)]
    checks = [check for check in found(facts(gpus=gpus)) if check.name == name]
    assert [(check.level, "GPU 3" in check.text, words in check.text) for check in checks] == [(level, True, True)]


def loaded(
    cpu_pct: float | None, stalled: float | None, ranks: int | None = 8, cpus: int = 64, load: float | None = None
) -> Facts:
    pressure = None if stalled is None else Pressure(cpu=stalled)
    return facts(ranks=ranks, figures=host(cpu_count=cpus, cpu_pct=cpu_pct, pressure=pressure, load_1m=load))


@pytest.mark.parametrize(
    ("here", "words"),
    [
        (loaded(100.0, 99.0), "64.0 of 64 CPUs are in use, and tasks wait for a CPU 99 % of the time: 8 ranks"),
        (loaded(95.0, None), "60.8 of 64 CPUs are in use: 8 ranks would have to share"),
        (loaded(98.0, 60.0, None, 2), "2.0 of 2 CPUs"),
        (loaded(60.0, 40.0), None),
        (loaded(100.0, 4.0), None),
        (loaded(None, 99.0), None),
        (loaded(5.0, 0.0), None),
        (loaded(15.0, None, 4, 4, load=0.6), None),
        (loaded(15.0, None, 4, 4), None),
        (loaded(50.0, None, 4, 4), "2.0 of 4 CPUs are in use: 4 ranks would have to share"),
        (loaded(45.0, None, 4, 4, load=5.0), "1.8 of 4 CPUs"),
    ],
    ids=[
        *("full", "full, without pressure", "no ranks planned", "room left", "nobody waits", "unknown", "idle"),
        *("little, without pressure", "little, and no load known", "half, without pressure", "many in the queue"),
    ],
)
def test_a_host_whose_cpus_are_in_use_already_is_warned_of(here: Facts, words: str | None) -> None:
    said = [check.text for check in found(here) if check.name == "cpu load"]
    assert len(said) == (words is not None)
    assert words is None or said[0].startswith(words)


def test_an_idle_gpu_saves_power_and_that_is_no_trouble() -> None:
    assert found(facts(gpus=[gpu(clock_reasons=["idle", "software power cap"], pcie_generation=1)], ranks=1)) == []


def test_what_could_not_be_read_is_neither_good_nor_bad() -> None:
    mute = GpuFigures(index=0, uuid="GPU-0")
    assert found(facts(gpus=[mute], figures=HostFigures(), process=ProcessFigures(), open_files=None, ranks=1)) == []


def test_a_gpu_that_is_split_lends_its_instances_alone() -> None:
    split = [gpu(0), *(gpu(0, board="GPU-0") for _ in range(2))]
    parts = [split[0], *(replace(part, uuid=f"MIG-{place}") for place, part in enumerate(split[1:]))]
    assert found(facts(gpus=parts, ranks=2)) == []
    assert "3 ranks are planned for 2 GPUs" in told(facts(gpus=parts, ranks=3))[2]


def test_too_few_gpus_and_none() -> None:
    (check,) = [check for check in examine([facts(gpus=[gpu()], ranks=2)]) if check.level == "failure"]
    assert check.name == "gpus"
    assert check.text.startswith("2 ranks are planned for 1 GPU: ")
    assert check.advice == "start at most 1 rank on this host"
    assert "no NVML" in told(facts(gpus=[], no_gpus_because="no NVML"))[2]


@pytest.mark.parametrize(
    ("process", "ranks", "threads", "words"),
    [
        (ProcessFigures(cpus="0-3"), 8, 1, "4 CPUs are usable here for 8 ranks"),
        (ProcessFigures(cpus="0"), 1, 2, "1 CPU is usable here for 1 rank of 2 threads"),
        (ProcessFigures(cpus="0-63", quota_cpus=6.0), 8, 1, "6 CPUs are usable here (quota of the cgroup)"),
        (ProcessFigures(cpus="0-63"), 8, 16, "8 ranks of 16 threads"),
    ],
)
def test_cpus_are_held_against_the_plan(process: ProcessFigures, ranks: int, threads: int, words: str) -> None:
    name, level, text = told(facts(process=process, ranks=ranks, threads=threads, gpus=[gpu(n) for n in range(8)]))
    assert (name, level) == ("cpus", "warning")
    assert words in text


def test_ranks_kept_away_from_the_node_of_their_gpu() -> None:
    process = ProcessFigures(cpus="32-63")
    assert told(facts(process=process, ranks=1, gpus=[gpu(0)]))[0] == "numa"
    assert found(facts(process=process, ranks=1, gpus=[gpu(0, numa_node=1)])) == []
    assert found(facts(process=process, ranks=1, gpus=[gpu(0, numa_node=-1)])) == []


def test_memory_shared_memory_and_disks() -> None:
    def disk(path: str, total: int, free: int) -> HostFigures:
        return host(disks=[Disk(path, ["checkpoints"], total, free)])

    assert told(facts(figures=disk("/dev/shm", 64 << 20, 64 << 20)))[0] == "shared memory"
    assert told(facts(figures=disk("/dev/shm", 64 * GIB, 3 * GIB)))[0] == "shared memory"
    assert told(facts(figures=disk("/ckpt", 100 * GIB, GIB)))[0] == "disk"
    assert found(facts(figures=disk("/ckpt", 10000 * GIB, 90 * GIB))) == []
    assert told(facts(figures=host(memory_used=500 * GIB)))[0] == "memory"
    tight = ProcessFigures(cpus="0-63", memory_limit=32 * GIB, memory_used=31 * GIB)
    assert "of 32 GiB" in told(facts(process=tight))[2]


def test_a_hog_a_taken_port_and_few_files() -> None:
    assert (
        "pid 8123 (bob, python train.py) takes 1.9 of 64 cores"
        in told(facts(figures=host(processes=[HostProcess(STRANGER, 190.0)])))[2]
    )
    assert told(facts(figures=host(ports=[TakenPort(29500, RENDEZVOUS, STRANGER)])))[1:] == (
        "failure",
        "port 29500, wanted for the rendezvous, is held by pid 8123 (bob, python train.py)",
    )
    assert found(facts(figures=host(ports=[TakenPort(29480, STORE, STRANGER)]))) == []
    assert told(facts(open_files=256))[0] == "open files"


def test_the_interface_that_was_chosen_must_be_there() -> None:
    assert told(facts(chosen={"NCCL_SOCKET_IFNAME": "eth1"}))[:2] == ("interface", "failure")
    for right in ("ib", "=ib0", "^docker0,lo", "ib0,ib"):
        assert found(facts(chosen={"NCCL_SOCKET_IFNAME": right})) == []


def test_a_host_that_calls_itself_loopback_cannot_be_met() -> None:
    alone = facts(own_address="127.0.1.1")
    assert found(alone) == []
    many = facts(own_address="127.0.1.1", hosts=2)
    assert "GLOO_SOCKET_IFNAME=ib0" in found(many)[0].advice
    assert found(facts(own_address="127.0.1.1", hosts=2, chosen={"GLOO_SOCKET_IFNAME": "ib0"})) == []


def test_versions_that_differ_are_told_by_host() -> None:
    def of(name: str, **versions: str) -> Facts:
        return facts(host=name, hosts=3, interfaces=[Interface("ib0", ["10.0.0.5"])], versions=versions)

    hosts = [of("a", torch="2.11"), of("b", torch="2.11"), of("c", torch="2.10")]
    (check,) = found(*hosts)
    assert (check.name, check.level) == ("versions", "failure")
    assert "c has 2.10" in check.text
    (check,) = found(of("a", driver="580"), of("b", driver="580"), of("c"))
    assert (check.level, "c has none" in check.text) == ("warning", True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"recorder_entries": 0}, "flight recorder is off: its buffer size is set to 0"),
        ({"recorder_entries": 0, "versions": {"torch": "2.6.0+cu124"}}, "is off: its buffer size is set to 0"),
        ({"versions": {"torch": "2.7.1"}}, "may be off"),
        ({"recorder_entries": 2000, "versions": {"torch": "2.7.1"}}, None),
        ({"versions": {"torch": "2.13.0"}}, None),
        ({"versions": {"torch": "nightly"}}, None),
        ({"versions": {}}, None),
        ({"recorder_entries": 0, "device": "cpu", "gpus": []}, None),
    ],
)
def test_a_flight_recorder_that_is_off_is_told_of_and_no_warning(changes: dict[str, Any], words: str | None) -> None:
    checks = [check for check in examine([facts(**changes)]) if check.name == "flight recorder"]
    assert [check.level for check in checks] == ["ok"] * (words is not None)
    assert all((words or "") in check.text for check in checks)
    assert all("TORCH_FR_BUFFER_SIZE=2000" in check.advice for check in checks)
    assert found(facts(**changes)) == []


def test_a_host_that_has_not_answered_fails_the_check() -> None:
    checks = examine([facts(hosts=2)], missing=[1])
    assert worst(checks) == 2
    assert "host number 1 has not answered" in "\n".join(as_lines([facts()], checks))


def test_table_and_object_say_the_same() -> None:
    hosts = [facts(figures=host(ports=[TakenPort(29500, RENDEZVOUS)]))]
    checks = examine(hosts)
    said = as_object(hosts, checks)
    assert said["verdict"] == "failure"
    assert {check["level"] for check in said["checks"]} == {"ok", "failure"}
    assert json_line(said).isascii()
    text = "\n".join(as_lines(hosts, checks))
    assert "x fail  port" in text
    assert text.splitlines()[-1].startswith("the run will fail: ")


@pytest.mark.parametrize(("listed", "cpus"), [("0-3,8", 5), ("7", 1), ("", 0), ("0-x", 0), ("a", 0), ("3-1", 0)])
def test_cpu_lists(listed: str, cpus: int) -> None:
    assert count(mask_of(listed)) == cpus
