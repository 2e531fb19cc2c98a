"""Contention on CPUs, through frames alone: hogs, quotas, affinities, and what stays silent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ddpmon.diagnose.contention.process_history import ProcessHistory
from ddpmon.diagnose.judge import Judge
from ddpmon.machine import GpuFigures, HostFigures, HostProcess, Process, ProcessFigures
from ddpmon.parts import Loader
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from ddpmon.snapshot import Finding
from tests.made_frames import (
    MadeJob,
    columns,
    healthy_phases,
    node_frame,
    open_findings,
    play_hosts,
    rank_frame,
    run_info,
)

HOG = HostProcess(Process(8123, [7000, 1], "bob", "python x.py"), 95.0, "2")
Told = dict[str, Finding]


def figures(*processes: HostProcess, cpus: int = 8, **changes: Any) -> HostFigures:
    return HostFigures(cpu_count=cpus, processes=list(processes), **changes)


def quiet(rank: int, **changes: Any) -> ProcessFigures:
    """A rank with a core of its own that hardly waits for it."""
    values: dict[str, Any] = {"runqueue_pct": 1.0, "cpus": str(rank), "compute_threads": 1, "workers": 0}
    return ProcessFigures(**(values | changes))


def watched(
    process: Callable[[int, int], ProcessFigures],
    host: HostFigures | Callable[[int, int], HostFigures],
    steps: int = 130,
    late: str = "",
    **more: Any,
) -> Told:
    """Four ranks; in phase `late`, rank 2 is late from step 60 on."""
    phases = healthy_phases(4, steps)
    if late:
        phases[late][2, 60:] += 40.0
    of_tick = host if callable(host) else lambda _tick, _node: host
    said = play_hosts(MadeJob(phases), of_tick, process=process, **more)
    return {finding.kind: finding for finding in open_findings(said[-1])}


def starved(tick: int, rank: int, since: int = 4, wait: float = 30.0, **changes: Any) -> ProcessFigures:
    """Rank 2 waits for its core from tick 4 on."""
    return quiet(rank, **({"runqueue_pct": wait, **changes} if rank == 2 and tick >= since else changes))


def test_a_hog_on_a_ranks_core_is_named() -> None:
    found = watched(starved, figures(HOG))["cpu_contention"]
    assert (found.ranks, found.nodes, found.severity) == ((2,), ("node0",), "info")
    assert found.summary.startswith("pid 8123 (bob, python x.py) takes 95 % of a core on node0, where rank 2 waits")
    assert {"pid": 8123, "user": "bob", "command": "python x.py"}.items() <= found.evidence.items()
    assert found.since_step in range(40, 60)
    assert not found.since_is_bound


def test_a_hog_may_have_begun_before_the_watcher_came() -> None:
    """The first look shows a rank that is late, and not the process that holds it up."""

    def said(onset: int, reads: int) -> Finding:
        phases = healthy_phases(4, 260)
        phases["backward"][2, onset:] += 40.0
        job, run, judge = MadeJob(phases), Run(run_info(4)), Judge()
        hog = HostProcess(HOG.process, HOG.cpu_pct, HOG.cpus, reads=reads)
        for tick, first in enumerate((0, *range(150, 260, 10))):
            end = 150 if tick == 0 else first + 10
            frames = [
                rank_frame(rank, tick, job.columns(rank, first, end), process=starved(tick, rank)) for rank in range(4)
            ]
            run.add_ranks(frames, float(tick), {})
            run.add_node(node_frame(0, tick, figures=figures(hog)), float(tick))
            run.settle(float(tick))
            told = judge(run, run.ages(float(tick)))
        return next(found for found in in_words(told) if found.kind == "cpu_contention")

    assert said(60, 60).since_is_bound
    assert not said(200, 60).since_is_bound, "the rank was not late by then"
    assert not said(60, 1).since_is_bound, "the hog was not there by then"


def test_several_that_take_a_little_each() -> None:
    many = [HostProcess(Process(900 + i, [1], "ann", f"job{i}"), 15.0, "2") for i in range(4)]
    found = watched(starved, figures(*many))["cpu_contention"]
    assert "and 3 more take 60 % of a core" in found.summary
    assert found.evidence["pids"] == "900, 901, 902, 903"


@pytest.mark.parametrize(
    "processes",
    [
        [],
        [HostProcess(Process(8123, [7000], "bob", "x"), 95.0, "5")],  # on other cores
        [HostProcess(Process(8123, [7000], "bob", "x"), 95.0, "0-7")],  # it has other cores to go to
        [HostProcess(Process(8123, [102, 50], "me", "worker"), 95.0, "2")],  # the rank's own DataLoader worker
        [HostProcess(Process(8123, [7000], "bob", "python -m ddpmon.cli"), 95.0, "2")],
        [HostProcess(Process(8123, [7000], "bob", "x"), 4.0, "2")],
        [HostProcess(Process(8123, [7000], "bob", "x"), None, "2")],
        [HostProcess(Process(50, [1], "me", "torchrun"), 95.0, "2"), HostProcess(Process(102, [50, 1]), 60.0, "2")],
    ],
)
def test_who_takes_nothing_from_the_rank_is_not_named(processes: Sequence[HostProcess]) -> None:
    assert watched(starved, figures(*processes)) == {}


def test_a_hog_that_nobody_waits_for_is_none() -> None:
    assert watched(lambda _tick, rank: quiet(rank), figures(HOG)) == {}


def test_a_wait_that_is_usual_and_everybodys_is_not_the_strangers_doing() -> None:
    crowd = quiet(0, runqueue_pct=40.0, cpus="0-1")
    stranger = HostProcess(Process(8123, [7000], "bob", "x"), 30.0, "0-1")
    told = watched(lambda _tick, _rank: crowd, figures(stranger, cpus=2))
    assert set(told) == {"cpu_oversubscribed"}, "four ranks on two CPUs wait for each other"
    assert told["cpu_oversubscribed"].severity == "info"


def test_a_hog_on_everybodys_cores_shows_against_their_own_past() -> None:
    hog = HostProcess(Process(8123, [7000], "bob", "x"), 190.0, "0-1")

    def crowded(tick: int, _rank: int) -> ProcessFigures:
        return quiet(0, runqueue_pct=20.0 if tick < 12 else 60.0, cpus="0-1")

    told = watched(crowded, lambda tick, _node: figures(*([hog] if tick >= 12 else []), cpus=2), steps=180)
    assert told["cpu_contention"].ranks == (0, 1, 2, 3)


def test_a_hog_that_was_there_first_is_named_where_the_ranks_do_not_crowd_themselves() -> None:
    hogs = [HostProcess(Process(8000 + i, [7000], "bob", "x"), 95.0, str(i)) for i in range(4)]
    told = watched(lambda _tick, rank: quiet(rank, runqueue_pct=30.0), figures(*hogs))
    assert told["cpu_contention"].evidence["pid"] in range(8000, 8004)


def test_a_hog_of_long_standing_is_still_named_when_the_wait_has_become_the_ranks_past() -> None:
    def lone(tick: int, rank: int) -> ProcessFigures:
        return quiet(rank, runqueue_pct=30.0 if tick >= 12 else 1.0, cpus="0-3", compute_threads=2)

    hog = HostProcess(Process(8123, [7000], "bob", "x"), 190.0, "0-3")
    assert "cpu_contention" in watched(lone, figures(hog, cpus=4), steps=600)


def test_a_rank_that_has_waited_since_the_first_look_is_told_by_its_peers() -> None:
    told = watched(lambda tick, rank: starved(tick, rank, since=0, compute_threads=4), figures(HOG))
    assert told["cpu_contention"].ranks == (2,)


def test_it_is_over_once_the_rank_waits_no_more_whatever_the_stranger_does() -> None:
    def for_a_while(tick: int, rank: int) -> ProcessFigures:
        return quiet(rank, runqueue_pct=30.0 if rank == 2 and 3 < tick < 10 else 1.0, runqueue_all_pct=50.0)

    assert "cpu_contention" in watched(for_a_while, figures(HOG), 90)
    assert "cpu_contention" not in watched(for_a_while, figures(HOG), 220)


def test_short_daemons_are_silent() -> None:
    def bursts(tick: int, _node: int) -> HostFigures:
        return figures(HostProcess(Process(9000 + tick, [1], "root", "cron"), 90.0, "2")) if tick % 3 else figures()

    assert watched(starved, bursts) == {}


def test_ranks_of_one_thread_on_fewer_cpus_are_information() -> None:
    def process(_tick: int, _rank: int) -> ProcessFigures:
        return quiet(0, runqueue_pct=40.0, cpus="0-1", workers=2)

    found = watched(process, figures(cpus=2))
    assert set(found) == {"cpu_oversubscribed"}
    assert found["cpu_oversubscribed"].severity == "info"
    assert "4 compute threads and 8 child processes on 2 usable CPUs" in found["cpu_oversubscribed"].summary


@pytest.mark.parametrize(("loaders", "words"), [(2, "8 DataLoader workers on"), (1, "8 child processes on")])
def test_processes_are_workers_where_the_ranks_say_that_they_have_so_many(loaders: int, words: str) -> None:
    found = watched(
        lambda _tick, _rank: quiet(0, runqueue_pct=40.0, cpus="0-1", workers=2),
        figures(cpus=2),
        frame=lambda _tick, _rank: {"loader": Loader(loaders, 1, ended=False)},
    )
    assert words in found["cpu_oversubscribed"].summary


@pytest.mark.parametrize(
    ("cpus", "changes"),
    [
        (2, {"runqueue_pct": 1.0}),  # they do not wait
        (16, {}),  # there are enough
        (2, {"compute_threads": None, "workers": None}),
        (2, {"runqueue_pct": 4.0, "runqueue_all_pct": 8.0}),
    ],
)
def test_no_oversubscription_without_a_crowd_or_a_wait(cpus: int, changes: dict[str, Any]) -> None:
    values = {"runqueue_pct": 40.0, "cpus": f"0-{cpus - 1}", "compute_threads": 4, **changes}
    assert watched(lambda _tick, _rank: quiet(0, **values), figures(cpus=cpus)) == {}


def test_one_rank_of_a_crowd_that_waits_is_not_the_crowds_doing() -> None:
    def process(_tick: int, rank: int) -> ProcessFigures:
        return quiet(0, runqueue_pct=40.0 if rank == 1 else 1.0, cpus="0-1")

    assert watched(process, figures(cpus=2)) == {}


def test_a_quota_counts_as_fewer_cpus() -> None:
    def process(_tick: int, _rank: int) -> ProcessFigures:
        return quiet(0, runqueue_pct=30.0, cpus="0-63", compute_threads=8, quota_cpus=2.0)

    assert watched(process, figures(cpus=64))["cpu_oversubscribed"].evidence["usable_cpus"] == 8


@pytest.mark.parametrize(
    ("quotas", "usable"),
    [
        ([{"0:7": 3.0}] * 4, 3),
        ([{"0:7": 2.0}, {"0:7": 2.0}, {"0:8": 3.0}, {"0:8": 3.0}], 5),
        ([{f"0:{rank}": 1.0, "0:9": 3.0} for rank in range(4)], 3),
        ([{f"0:{rank}": 1.0, "0:9": 30.0} for rank in range(4)], 4),
        ([{"0:9": 3.0}, *({f"0:{rank}": 0.5, "0:9": 3.0} for rank in range(3))], 3),
        ([{f"0:{rank}": 2.0} for rank in range(4)], 8),
        ([{"0:7": 2.0}, {"0:7": 2.0}, {}, {}], None),
    ],
    ids=["one group", "two groups", "in one group", "in a wide one", "some directly", "each its own", "some free"],
)
def test_ranks_in_one_cgroup_share_its_quota(quotas: list[dict[str, float]], usable: float | None) -> None:
    def process(_tick: int, rank: int) -> ProcessFigures:
        changes = {"quotas": quotas[rank], "quota_cpus": min(quotas[rank].values(), default=None)}
        return quiet(0, runqueue_pct=30.0, cpus="0-63", compute_threads=12, **changes)

    found = watched(process, figures(cpus=64)).get("cpu_oversubscribed")
    assert (found and found.evidence["usable_cpus"]) == usable


def calls(ranks: int) -> int:
    """How many calls it takes to judge a host whose ranks all wait, beside a stranger."""
    run, judge, seen = Run(run_info(ranks)), Judge(), list[str]()
    waiting, hog = quiet(0, cpus="0-255", runqueue_pct=30.0), HostProcess(Process(8123, [7000, 1]), 95.0, "0-255")
    part = columns(range(10), {"duration": [100.0] * 10, "exposed": [5.0] * 10})
    for tick in range(3):
        for rank in range(ranks):
            run.add_rank(rank_frame(rank, tick, part, process=waiting), float(tick))
        run.add_node(node_frame(0, tick, figures=figures(hog, cpus=256)), float(tick))
        seen.clear()
        sys.setprofile(lambda _frame, event, _arg: seen.append(event))
        said = judge(run, run.ages(float(tick)))
        sys.setprofile(None)
    assert "cpu_contention" in [finding.kind for finding in said]
    return len(seen)


def test_four_times_the_ranks_of_a_host_take_less_than_four_times_the_calls() -> None:
    assert calls(128) < 4 * calls(32)


@pytest.mark.parametrize(
    ("cpus", "host", "ranks"),
    [
        (["0", "0", "1", "2"], 8, (0, 1)),
        (["0-1", "0", "1", "3"], 8, (0, 1, 2)),
        (["0", "1", "2", "3"], 8, None),
        (["0-1", "0-1", "2-3", "2-3"], 8, None),
        (["0-1"] * 4, 2, None),  # the host has no more
        ([None, None, None, None], 8, None),
        (["0", "0", "1", "2"], None, None),
    ],
)
def test_ranks_pinned_to_fewer_cpus_than_they_are(
    cpus: list[str | None], host: int | None, ranks: tuple[int, ...] | None
) -> None:
    told = watched(lambda _tick, rank: quiet(rank, cpus=cpus[rank]), HostFigures(cpu_count=host))
    assert set(told) == ({"cpu_pinned"} if ranks else set())
    assert ranks is None or told["cpu_pinned"].ranks == ranks


def test_a_quota_that_throttles() -> None:
    def process(_tick: int, rank: int) -> ProcessFigures:
        return quiet(rank, throttled_pct=40.0 if rank == 1 else 1.0, quota_cpus=0.5 if rank == 1 else 4.0)

    found = watched(process, figures())["cpu_throttled"]
    assert (found.ranks, found.severity) == ((1,), "info")
    assert "a limit of 0.5 CPUs throttles it for 40 % of the time" in found.summary


def near(*, numa_node: int | None = 1, numa: Sequence[str] = ("0-3", "4-7"), cpus: str | None = "0-1") -> Told:
    gpu = GpuFigures(0, "GPU-2", numa_node=numa_node)
    return watched(
        lambda _tick, _rank: quiet(0, cpus=cpus),
        figures(numa=list(numa)),
        gpus=lambda _tick, _node: [gpu],
        frame=lambda _tick, rank: {"gpu_uuid": "GPU-2" if rank == 2 else None},
    )


def test_a_rank_far_from_its_gpu() -> None:
    found = near()["numa_misaffinity"]
    assert (found.ranks, found.severity) == ((2,), "info")
    assert "NUMA node 1" in found.summary


@pytest.mark.parametrize(
    "where",
    [
        {"numa_node": 0},
        {"numa_node": -1},
        {"numa_node": None},
        {"numa_node": 9},
        {"cpus": "0-7"},
        {"cpus": None},
        {"numa": ["0-7"], "numa_node": 0},
        {"numa": ["0-3", ""]},
    ],
)
def test_near_or_unknown_places_are_silent(where: dict[str, Any]) -> None:
    assert "numa_misaffinity" not in near(**where)


def test_severity_follows_the_lateness_and_its_size() -> None:
    found = watched(starved, figures(HOG), 200, "forward")
    assert found["cpu_contention"].severity == found["straggler"].severity == "critical"
    little = watched(lambda tick, rank: starved(tick, rank, wait=7.0), figures(HOG), 200, "forward")
    assert little["straggler"].severity == "critical"
    assert little["cpu_contention"].severity == "info", "7 % of a step are no 40 ms"


def test_what_slows_the_whole_job_takes_its_severity() -> None:
    phases = healthy_phases(4, 260)
    for table in phases.values():
        table[:, 150:] *= 1.4
    hog = HostProcess(Process(8123, [7000], "bob", "x"), 190.0, "0-3")

    def contended(since: int) -> Told:
        def process(tick: int, _rank: int) -> ProcessFigures:
            return quiet(0, runqueue_pct=30.0 if tick >= since else 1.0, cpus="0-3")

        said = play_hosts(MadeJob(phases), lambda _tick, _node: figures(hog, cpus=4), process=process)
        return {finding.kind: finding for finding in open_findings(said[-1])}

    told = contended(15)
    assert told["job_slower"].severity == "critical"
    assert told["cpu_contention"].severity == "critical"
    assert contended(3)["cpu_contention"].severity == "info", "it began long before"


def test_what_an_earlier_process_of_a_rank_waited_is_not_the_restarted_ones() -> None:
    run, history, job = Run(run_info(2)), ProcessHistory(), MadeJob(healthy_phases(2, 300))
    for tick in range(12):
        for rank in range(2):
            waits = 90.0 if tick < 8 else 1.0
            figures, pid = ProcessFigures(runqueue_pct=waits), 100 + rank + 1000 * (tick >= 8 and rank == 1)
            part = job.columns(rank, 10 * tick, 10 * tick + 10)
            run.add_rank(rank_frame(rank, tick, part, process=figures, pid=pid), float(tick))
        history.update(run, {}, np.zeros(2, np.int64))
    first, restarted = history.mean("queue", np.arange(2), -1)
    assert (first > 50, restarted) == (True, 1.0)
