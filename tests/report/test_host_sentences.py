"""Every sentence on the memory, the disks, the network and the ports of a host."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.contention.memory import (
    CgroupMemoryMeasures,
    HostMemoryMeasures,
    MemoryGrowthMeasures,
    SharedMemoryMeasures,
)
from ddpmon.diagnose.contention.network import NicErrorMeasures, RetransmitMeasures, TakenPortMeasures
from ddpmon.diagnose.contention.storage import DiskLowMeasures, DiskSlowMeasures
from ddpmon.diagnose.contention.symptom import Culprit
from ddpmon.report.host_sentences import SENTENCES
from ddpmon.report.sentences import tell
from tests.report.contention_alerts import Row, assert_all_in_tables, assert_said, contention

MB, GB = 1 << 20, 1 << 30
ALL = (0, 1, 2, 3)
JAVA = Culprit(8123, "bob", "java")
LESS = "use fewer DataLoader workers, smaller caches or a larger limit; then find out what grows"
KEEPS = "find out what this rank keeps: losses with their graphs, caches, copies in DataLoader workers"
ENLARGE = (
    "enlarge it (docker run --shm-size, a Kubernetes emptyDir in memory), use fewer workers, or remove the files of "
    "dead processes: the run ends with a bus error when it is full"
)
FREE = "free some space or keep fewer checkpoints: a checkpoint that does not fit ends the run"
IOTOP = "see what else uses it: `ssh node0 iotop`; copy the data to a local disk, cache it, or prefetch more"
CABLE = "check the cable, the switch port, duplex, speed and firmware"
NOTHING = "change nothing unless a firewall only allows this port: the run uses the next free one"
FULL = HostMemoryMeasures((), 0, 96 * GB, 100 * GB, None, None)
PRESSED = HostMemoryMeasures((), 0, None, None, 30.0, None)
CGROUP = CgroupMemoryMeasures(int(3.9 * GB), 4 * GB, 0, is_nearly_full=True)
LEAK = MemoryGrowthMeasures((Culprit(102),), 60.0 * MB, 43.0, 2 * GB)
LOW = DiskLowMeasures("/work", 5 * GB, 1000 * GB, ("checkpoints", "data"))
BUSY = DiskSlowMeasures("/work", 400.0, 120.0, 0.0, is_busy=True)
NIC = NicErrorMeasures("eth0", 45, 1500, 10)
PORT = TakenPortMeasures((JAVA,), 29500, "the rendezvous", is_held=True)
MEMORY = [
    (
        "full host",
        contention("memory_pressure", FULL, ALL),
        "node0 is short of memory: 96 % of its memory is in use",
        LESS,
        "memory pressure: 96 % of its memory is in use",
    ),
    (
        "tasks wait",
        contention("memory_pressure", PRESSED, ALL),
        "node0 is short of memory: tasks wait for memory 30 % of the time",
        LESS,
        "memory pressure: tasks wait for memory 30 % of the time",
    ),
    (
        "all of it, beside a large process",
        contention(
            "memory_pressure",
            replace(FULL, culprits=(JAVA,), held_bytes=40 * GB, pressure_pct=30.0, swap_in_bytes_s=50.0 * MB),
            ALL,
        ),
        "node0 is short of memory: 96 % of its memory is in use and tasks wait for memory 30 % of the time and "
        "50 MiB/s are read back from swap; pid 8123 (bob, java) holds 40.0 GiB",
        LESS,
        "memory pressure: 96 % of its memory is in use and tasks wait for memory 30 % of the time and "
        "50 MiB/s are read back from swap; pid 8123 (bob, java) holds 40.0 GiB",
    ),
    (
        "full cgroup",
        contention("memory_pressure", CGROUP),
        "rank 2 (node0): 3.9 GiB of the 4.0 GiB that the cgroup allows are in use",
        LESS,
        "memory pressure: 3.9 GiB of the 4.0 GiB that the cgroup allows are in use",
    ),
    (
        "killed process",
        contention("memory_pressure", CgroupMemoryMeasures(0, 0, 1, is_nearly_full=False), (2, 3)),
        "ranks 2, 3 (node0): 1 process was killed for lack of memory",
        LESS,
        "memory pressure: 1 process was killed for lack of memory",
    ),
    (
        "full cgroup that has killed several",
        contention("memory_pressure", replace(CGROUP, oom_kills=1200)),
        "rank 2 (node0): 3.9 GiB of the 4.0 GiB that the cgroup allows are in use and 1,200 processes were killed for "
        "lack of memory",
        LESS,
        "memory pressure: 3.9 GiB of the 4.0 GiB that the cgroup allows are in use and 1,200 processes were killed for "
        "lack of memory",
    ),
    (
        "growth",
        contention("memory_pressure", LEAK),
        "rank 2 (node0) grows by 60 MiB/s, so the memory is full in 43 s",
        KEEPS,
        "memory pressure: it grows by 60 MiB/s, so the memory is full in 43 s",
    ),
    (
        "shared memory",
        contention("shm_low", SharedMemoryMeasures(50 * MB, GB, 0, are_loaders=True), ALL),
        "50 MiB of 1.0 GiB are free in /dev/shm on node0",
        ENLARGE,
        "low shared memory: 50 MiB of 1.0 GiB are free in /dev/shm",
    ),
    (
        "shared memory of loaders",
        contention("shm_low", SharedMemoryMeasures(50 * MB, GB, 12, are_loaders=True), ALL),
        "50 MiB of 1.0 GiB are free in /dev/shm on node0, and 12 DataLoader workers pass batches through it",
        ENLARGE,
        "low shared memory: 50 MiB of 1.0 GiB are free in /dev/shm",
    ),
    (
        "shared memory of other processes",
        contention("shm_low", SharedMemoryMeasures(50 * MB, GB, 10, are_loaders=False), ALL),
        "50 MiB of 1.0 GiB are free in /dev/shm on node0, and 10 child processes of its ranks may pass batches through "
        "it",
        ENLARGE,
        "low shared memory: 50 MiB of 1.0 GiB are free in /dev/shm",
    ),
]
DISKS = [
    (
        "low",
        contention("disk_low", LOW, ALL),
        "5.0 GiB of 1,000.0 GiB are free on /work on node0 (checkpoints, data)",
        FREE,
        "a nearly full disk: 5.0 GiB of 1,000.0 GiB are free on /work",
    ),
    (
        "low, of unknown use",
        contention("disk_low", replace(LOW, path="/wo\x1brk\n", uses=()), ALL),
        "5.0 GiB of 1,000.0 GiB are free on /wo rk on node0",
        FREE,
        "a nearly full disk: 5.0 GiB of 1,000.0 GiB are free on /wo rk",
    ),
    (
        "busy",
        contention("disk_slow", BUSY, ALL),
        "node0: requests to /work wait 400 ms, and its disk is 100 % busy",
        IOTOP,
        "a slow disk: requests to /work wait 400 ms, and its disk is 100 % busy",
    ),
    (
        "only the tasks tell",
        contention("disk_slow", DiskSlowMeasures("/work", 400.0, 0, 60.0, is_busy=False), ALL),
        "node0: tasks wait for disks 60 % of the time",
        IOTOP,
        "a slow disk: tasks wait for disks 60 % of the time",
    ),
]
NETWORK = [
    (
        "errors",
        contention("nic_errors", NIC, ALL),
        "eth0 of node0 had 45 errors and 1,500 drops within its last 10 frames",
        f"{CABLE}: `ssh node0 ethtool -S eth0`",
        "network errors: eth0 of node0 had 45 errors and 1,500 drops within its last 10 frames",
    ),
    (
        "odd names",
        contention("nic_errors", replace(NIC, name="$(id)", errors=-3), ALL, "a b"),
        "$(id) of a b had 0 errors and 1,500 drops within its last 10 frames",
        CABLE,
        "network errors: $(id) of a b had 0 errors and 1,500 drops within its last 10 frames",
    ),
    (
        "retransmits",
        contention("nic_errors", RetransmitMeasures(40.0, 1.0), ALL),
        "node0 retransmits 4.0 % of its TCP segments, the other hosts 0.1 %",
        CABLE,
        "network errors: node0 retransmits 4.0 % of its TCP segments, the other hosts 0.1 %",
    ),
    (
        "held port",
        contention("port_clash", PORT, (0,)),
        "port 29500 on node0, wanted for the rendezvous, is held by pid 8123 (bob, java)",
        NOTHING,
        "a taken port: 29500 is held by pid 8123 (bob, java)",
    ),
    (
        "port of an invisible process",
        contention("port_clash", replace(PORT, culprits=()), (0,)),
        "port 29500 on node0, wanted for the rendezvous, is held by a process that is not visible from here",
        NOTHING,
        "a taken port: 29500 is held by a process that is not visible from here",
    ),
    (
        "released port",
        contention("port_clash", replace(PORT, is_held=False), (0,)),
        "port 29500 on node0, wanted for the rendezvous, was held by a process that has released it since",
        NOTHING,
        "a taken port: 29500 was held by a process that has released it since",
    ),
]
ROWS: list[Row] = [*MEMORY, *DISKS, *NETWORK]
WHO: list[tuple[str, float | int | str]] = [("pid", 8123), ("user", "bob"), ("command", "java")]
EVIDENCE: list[tuple[Measures, list[tuple[str, float | int | str]]]] = [
    (
        replace(FULL, culprits=(JAVA,), held_bytes=GB, pressure_pct=30.0, swap_in_bytes_s=5e7),
        [
            ("memory_used", 96 * GB),
            ("memory_total", 100 * GB),
            ("pressure_pct", 30.0),
            ("swap_in_bytes_s", 5e7),
            *WHO,
        ],
    ),
    (PRESSED, [("pressure_pct", 30.0)]),
    (CGROUP, [("memory_used", int(3.9 * GB)), ("memory_limit", 4 * GB), ("oom_kills", 0)]),
    (LEAK, [("growth_bytes_s", 60.0 * MB), ("left_s", 43.0), ("rss_bytes", 2 * GB), ("pid", 102)]),
    (SharedMemoryMeasures(MB, GB, 2, are_loaders=True), [("free", MB), ("total", GB), ("workers", 2)]),
    (LOW, [("path", "/work"), ("free", 5 * GB), ("total", 1000 * GB)]),
    (BUSY, [("path", "/work"), ("wait_ms", 400.0), ("busy_pct", 120.0), ("io_pressure_pct", 0.0)]),
    (replace(NIC, errors=-3), [("errors", -3), ("drops", 1500)]),
    (RetransmitMeasures(40.0, 1.0), [("retransmits_per_1000", 40.0), ("others_per_1000", 1.0)]),
    (PORT, [("port", 29500), ("wanted_for", "the rendezvous"), *WHO]),
    (replace(PORT, culprits=(), wanted_for="x\n"), [("port", 29500), ("wanted_for", "x")]),
]


@pytest.mark.parametrize(
    ("alert", "summary", "advice", "noun"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_sentence(alert: Alert, summary: str, advice: str, noun: str) -> None:
    assert_said(alert, summary, advice, noun)


@pytest.mark.parametrize(("measures", "evidence"), EVIDENCE, ids=lambda each: type(each).__name__)
def test_evidence(measures: Measures, evidence: list[tuple[str, float | int | str]]) -> None:
    assert [*tell(contention("memory_pressure", measures)).evidence.items()] == evidence


def test_every_class_is_in_the_tables() -> None:
    assert_all_in_tables(ROWS, EVIDENCE, SENTENCES)
