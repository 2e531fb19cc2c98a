"""Every sentence on contention for CPUs."""

from __future__ import annotations

import pytest

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.contention.cpu import (
    CpuOversubscribedMeasures,
    CpuPinnedMeasures,
    CpuThrottledMeasures,
    NumaMeasures,
)
from ddpmon.diagnose.contention.foreign_processes import CpuContentionMeasures
from ddpmon.diagnose.contention.symptom import Culprit
from ddpmon.report.cpu_sentences import SENTENCES
from ddpmon.report.sentences import tell
from ddpmon.shell_command import advice_text, of_the_past
from tests.report.contention_alerts import Row, assert_all_in_tables, assert_said, contention

HOG = Culprit(8123, "bob", "python x.py")
JOBS = tuple(Culprit(900 + place, "ann", f"job{place}") for place in range(20))
STOP = (
    "stop or move the process that `ssh node0 ps -fp {}` shows, "
    "or give the ranks their own cores (taskset, numactl, cpuset)"
)
OWN_CORES = (
    "give every rank its own cores with the launcher (torchrun --numa-binding, srun --cpu-bind), numactl, taskset or "
    "the container's cpuset"
)
RAISE = "raise the CPU limit of the container or cgroup, or use fewer threads and DataLoader workers"
FEWER_THREADS, FEWER_WORKERS = (
    "use fewer threads a rank (OMP_NUM_THREADS, torch.set_num_threads)",
    "fewer DataLoader workers",
)
BIND = "bind every rank to the NUMA node of its GPU: torchrun --numa-binding, or numactl --cpunodebind"
NUMA = "NUMA misplacement: its CPUs are on another NUMA node than its GPU"
PLACED = [
    (
        "two on one CPU",
        contention("cpu_pinned", CpuPinnedMeasures("3", 1, 8), (2, 3)),
        "ranks 2, 3 share CPU 3, although node0 has 8",
        OWN_CORES,
        "shared CPU cores: ranks 2, 3 share CPU 3, although node0 has 8",
    ),
    (
        "three on two CPUs",
        contention("cpu_pinned", CpuPinnedMeasures("0-1", 2, 64), (0, 1, 2)),
        "ranks 0, 1, 2 share 2 CPUs, although node0 has 64",
        OWN_CORES,
        "shared CPU cores: ranks 0, 1, 2 share 2 CPUs, although node0 has 64",
    ),
    (
        "far from its GPU",
        contention("numa_misaffinity", NumaMeasures(1, "0-3,8")),
        "rank 2 (node0) may only run on CPUs 0-3,8, but its GPU is on NUMA node 1",
        BIND,
        NUMA,
    ),
    (
        "several far from theirs",
        contention("numa_misaffinity", NumaMeasures(0, "4-7"), (2, 3)),
        "ranks 2, 3 (node0) may only run on CPUs 4-7, but their GPUs are on NUMA node 0",
        BIND,
        NUMA,
    ),
]
LIMITED = [
    (
        "quota",
        contention("cpu_throttled", CpuThrottledMeasures(40.0, 0.5)),
        "rank 2 (node0): a limit of 0.5 CPUs throttles it for 40 % of the time",
        RAISE,
        "a CPU quota: a limit of 0.5 CPUs throttles it for 40 % of the time",
    ),
    (
        "unknown quota of several ranks",
        contention("cpu_throttled", CpuThrottledMeasures(150.0, None), (1, 2)),
        "ranks 1, 2 (node0): the limit of its cgroup throttles them for 100 % of the time",
        RAISE,
        "a CPU quota: the limit of its cgroup throttles them for 100 % of the time",
    ),
    (
        "DataLoader workers",
        contention("cpu_oversubscribed", CpuOversubscribedMeasures(4, 8, 2, are_loaders=True), (0, 1)),
        "ranks 0, 1 (node0) together run 4 compute threads and 8 DataLoader workers on 2 usable CPUs",
        f"{FEWER_THREADS} or {FEWER_WORKERS}",
        "CPU oversubscription: 4 compute threads and 8 DataLoader workers on 2 usable CPUs",
    ),
    (
        "other child processes",
        contention("cpu_oversubscribed", CpuOversubscribedMeasures(2, 8, 2, are_loaders=False), (0, 1)),
        "ranks 0, 1 (node0) together run 2 compute threads and 8 child processes on 2 usable CPUs",
        "use fewer child processes",
        "CPU oversubscription: 2 compute threads and 8 child processes on 2 usable CPUs",
    ),
    (
        "one of each",
        contention("cpu_oversubscribed", CpuOversubscribedMeasures(1, 1, 0.5, are_loaders=False)),
        "rank 2 (node0) runs 1 compute thread and 1 child process on 0.5 usable CPUs",
        "use fewer child processes",
        "CPU oversubscription: 1 compute thread and 1 child process on 0.5 usable CPUs",
    ),
    (
        "no child processes",
        contention("cpu_oversubscribed", CpuOversubscribedMeasures(32, 0, 2.25, are_loaders=False)),
        "rank 2 (node0) runs 32 compute threads on 2.25 usable CPUs",
        FEWER_THREADS,
        "CPU oversubscription: 32 compute threads on 2.25 usable CPUs",
    ),
    (
        "DataLoader workers of ranks with one thread each",
        contention("cpu_oversubscribed", CpuOversubscribedMeasures(2, 8, 2, are_loaders=True), (0, 1)),
        "ranks 0, 1 (node0) together run 2 compute threads and 8 DataLoader workers on 2 usable CPUs",
        f"use {FEWER_WORKERS}",
        "CPU oversubscription: 2 compute threads and 8 DataLoader workers on 2 usable CPUs",
    ),
    (
        "ranks with one thread each and no workers",
        contention("cpu_oversubscribed", CpuOversubscribedMeasures(2, 0, 1, are_loaders=True), (0, 1)),
        "ranks 0, 1 (node0) together run 2 compute threads on 1 usable CPU",
        "run fewer ranks on this host, or give them more CPUs",
        "CPU oversubscription: 2 compute threads on 1 usable CPU",
    ),
]
FOREIGN = [
    (
        "one process",
        contention("cpu_contention", CpuContentionMeasures((HOG,), 95.0, 95.0, 30.0, 1)),
        "pid 8123 (bob, python x.py) takes 95 % of a core on node0, where rank 2 waits for a CPU 30 % of the time",
        STOP.format(8123),
        "CPU contention: pid 8123 (bob, python x.py) takes 95 % of a core",
    ),
    (
        "a little each",
        contention("cpu_contention", CpuContentionMeasures(JOBS[:4], 60.0, 15.0, 30.4, 1), (3, 2)),
        "pid 900 (ann, job0) and 3 more take 60 % of a core on node0, where ranks 2, 3 wait for a CPU 30 % of the time",
        STOP.format(900),
        "CPU contention: pid 900 (ann, job0) and 3 more take 60 % of a core",
    ),
    (
        "nearly all by the first",
        contention("cpu_contention", CpuContentionMeasures((HOG, JOBS[0]), 230.0, 190.0, 30.0, 4)),
        "pid 8123 (bob, python x.py) takes 1.9 of 4 cores on node0, where rank 2 waits for a CPU 30 % of the time",
        STOP.format(8123),
        "CPU contention: pid 8123 (bob, python x.py) takes 1.9 of 4 cores",
    ),
    (
        "hostile names",
        contention(
            "cpu_contention",
            CpuContentionMeasures((Culprit(8123, None, "\x1b[2Jx\n"),), 95.0, 95.0, 30.0, 1),
            host="\x1b[2Jevil\n",
        ),
        "pid 8123 ([2Jx) takes 95 % of a core on [2Jevil, where rank 2 waits for a CPU 30 % of the time",
        STOP.format(8123).replace("ssh node0 ", ""),
        "CPU contention: pid 8123 ([2Jx) takes 95 % of a core",
    ),
]
ROWS: list[Row] = [*PLACED, *LIMITED, *FOREIGN]
EVIDENCE: list[tuple[Measures, list[tuple[str, float | int | str]]]] = [
    (
        CpuContentionMeasures((HOG,), 95.0, 95.0, 30.0, 1),
        [("pid", 8123), ("user", "bob"), ("command", "python x.py"), ("taken_pct", 95.0), ("runqueue_pct", 30.0)],
    ),
    (
        CpuContentionMeasures((Culprit(8123), *JOBS), 200.0, 15.0, 30.0, 8),
        [
            ("pid", 8123),
            ("pids", "8123, 900, 901, 902, 903, 904, 905, 906, 907, 908, 909, 910, 911, 912, 913, 914"),
            ("taken_pct", 200.0),
            ("runqueue_pct", 30.0),
        ],
    ),
    (CpuPinnedMeasures("3", 1, 8), [("cpus", 1), ("host_cpus", 8)]),
    (CpuThrottledMeasures(40.0, 0.5), [("throttled_pct", 40.0), ("quota_cpus", 0.5)]),
    (CpuThrottledMeasures(40.0, None), [("throttled_pct", 40.0)]),
    (
        CpuOversubscribedMeasures(4, 8, 2, are_loaders=True),
        [("threads", 4), ("workers", 8), ("usable_cpus", 2)],
    ),
    (NumaMeasures(1, "0-3\t,8"), [("numa_node", 1), ("cpus", "0-3 ,8")]),
]


@pytest.mark.parametrize(
    ("alert", "summary", "advice", "noun"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_sentence(alert: Alert, summary: str, advice: str, noun: str) -> None:
    assert_said(alert, summary, advice, noun)


@pytest.mark.parametrize(("measures", "evidence"), EVIDENCE, ids=lambda each: type(each).__name__)
def test_evidence(measures: Measures, evidence: list[tuple[str, float | int | str]]) -> None:
    assert [*tell(contention("cpu_contention", measures)).evidence.items()] == evidence


def test_every_class_is_in_the_tables() -> None:
    assert_all_in_tables(ROWS, EVIDENCE, SENTENCES)


@pytest.mark.parametrize(("culprits", "them"), [((HOG,), "process"), (JOBS, "processes")])
def test_the_advice_of_the_past_names_no_process(culprits: tuple[Culprit, ...], them: str) -> None:
    """Another process may have its number by now."""
    alert = contention("cpu_contention", CpuContentionMeasures(culprits, 100.0, 100.0, 60.0, 4))
    told = advice_text(of_the_past(tell(alert).advice))
    assert told == f"stop or move the foreign {them}, or give the ranks their own cores (taskset, numactl, cpuset)"
