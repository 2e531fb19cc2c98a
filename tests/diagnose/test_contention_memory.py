"""Memory and shared memory that run out, through frames alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ddpmon.machine import Disk, HostFigures, HostProcess, Pressure, Process, ProcessFigures
from ddpmon.parts import Loader
from ddpmon.snapshot import Finding
from tests.made_frames import MadeJob, healthy_phases, open_findings, play_hosts

MB, GB = 1 << 20, 1 << 30
Told = list[Finding]


def watched(
    figures: HostFigures | Callable[[int], HostFigures],
    process: Callable[[int, int], ProcessFigures] = lambda _tick, _rank: ProcessFigures(workers=2),
    ticks: int = 8,
    **more: Any,
) -> Told:
    def of_tick(tick: int, _node: int) -> HostFigures:
        return figures(tick) if callable(figures) else figures

    job = MadeJob(healthy_phases(4, 4 * ticks))
    return open_findings(play_hosts(job, of_tick, process=process, steps_per_tick=4, **more)[-1])


@pytest.mark.parametrize(
    ("figures", "severity", "words"),
    [
        ({"memory_used": 96 * GB, "memory_total": 100 * GB}, "warning", "96 % of its memory is in use"),
        ({"memory_used": 99 * GB, "memory_total": 100 * GB}, "critical", "99 % of its memory is in use"),
        ({"pressure": Pressure(memory=30.0)}, "info", "wait for memory 30 % of the time"),
        ({"pressure": Pressure(memory_full=8.0)}, "info", "wait for memory 8 % of the time"),
        ({"swap_in_bytes_s": 5e7}, "info", "are read back from swap"),
    ],
)
def test_a_host_short_of_memory(figures: dict[str, Any], severity: str, words: str) -> None:
    (found,) = watched(HostFigures(**figures))
    assert (found.kind, found.ranks, found.severity) == ("memory_pressure", (0, 1, 2, 3), severity)
    assert words in found.summary


def test_who_holds_the_memory_is_named_unless_it_is_the_run_itself() -> None:
    own = HostProcess(Process(101, [50], "me", "train"), 90.0, rss_bytes=50 * GB)
    stranger = HostProcess(Process(8123, [1], "bob", "java"), 1.0, rss_bytes=40 * GB)
    for processes, named in (([own, stranger], True), ([own], False)):
        (found,) = watched(HostFigures(memory_used=96 * GB, memory_total=100 * GB, processes=processes))
        assert ("pid 8123 (bob, java) holds 40.0 GiB" in found.summary) == named
        assert ("pid" in found.evidence) == named


@pytest.mark.parametrize(
    "figures",
    [
        {"memory_used": 90 * GB, "memory_total": 100 * GB},
        {"memory_used": 90 * GB, "memory_total": 0},
        {"pressure": Pressure(memory=2.0, memory_full=1.0)},
        {"swap_in_bytes_s": 1e6, "swap_used": 10 * GB},
    ],
)
def test_a_full_cache_and_a_little_swap_are_no_pressure(figures: dict[str, Any]) -> None:
    assert watched(HostFigures(**figures)) == []


def test_a_cgroup_nearly_full_and_one_that_kills() -> None:
    def process(_tick: int, rank: int) -> ProcessFigures:
        return ProcessFigures(memory_limit=4 * GB, memory_used=int((3.9 if rank == 1 else 2.0) * GB))

    (found,) = watched(HostFigures(), process)
    assert (found.kind, found.ranks, found.severity) == ("memory_pressure", (1,), "warning")
    assert "that the cgroup allows" in found.summary
    (killed,) = watched(HostFigures(), lambda tick, rank: ProcessFigures(oom_kills=int(rank == 3 and tick == 7)))
    assert (killed.ranks, killed.severity) == ((3,), "warning")
    assert "1 process was killed for lack of memory" in killed.summary


def growing(
    begin: int, per_s: float, until: int = 1 << 30, limit: int | None = 4 * GB, *, cache: bool = False
) -> Callable[[int, int], ProcessFigures]:
    """Rank 2 grows from tick `begin` to `until`, all in cgroups of their own; page cache is not of the used part."""

    def process(tick: int, rank: int) -> ProcessFigures:
        grown = int(per_s * max(0, min(tick, until) - begin)) if rank == 2 else 0
        return ProcessFigures(
            rss_bytes=GB + grown, memory_limit=limit, memory_used=GB + (0 if cache else grown), workers=0
        )

    return process


def test_quick_growth_is_named_with_the_time_that_is_left() -> None:
    (found,) = watched(HostFigures(), growing(10, 60 * MB), ticks=19)
    assert (found.kind, found.ranks, found.severity) == ("memory_pressure", (2,), "critical")
    assert "rank 2 (node0) grows by 60 MiB/s, so the memory is full in 43 s" in found.summary
    (earlier,) = watched(HostFigures(), growing(10, 30 * MB), ticks=19)
    assert (earlier.ranks, earlier.severity) == ((2,), "warning")


def test_slow_growth_is_named_after_minutes() -> None:
    (found,) = watched(HostFigures(), growing(0, MB), ticks=125)
    assert (found.ranks, found.severity) == ((2,), "warning")
    assert "grows by 1.0 MiB/s" in found.summary


def test_growth_of_a_host_without_a_cgroup() -> None:
    def host(tick: int) -> HostFigures:
        return HostFigures(memory_used=60 * GB + 300 * MB * tick, memory_total=100 * GB)

    found = watched(host, growing(0, 300 * MB, limit=None), ticks=12)
    assert [each.ranks for each in found] == []
    found = watched(host, growing(0, 300 * MB, limit=None), ticks=40)
    assert [each.ranks for each in found] == [(2,)]


@pytest.mark.parametrize(
    ("process", "ticks"),
    [
        (growing(0, 100 * MB, 2), 40),  # a jump
        (growing(0, 200 * MB, 6, 64 * GB), 125),  # warm-up
        (growing(0, 60 * MB), 10),  # in the first steps
        (growing(0, 2 * MB, 60), 125),  # it has ended
        (growing(60, 100 * MB, 62), 125),  # a jump among minutes
        (growing(10, 0.9 * MB, limit=1126 * MB), 19),  # too little to tell from noise
        (growing(10, 60 * MB, cache=True), 19),  # a file read into memory
        (growing(0, MB, cache=True), 125),
        (growing(0, 0.1 * MB, limit=64 * GB), 125),  # years
        (growing(10, 60 * MB, limit=None), 19),  # towards no limit that is known
    ],
)
def test_what_ends_or_leads_nowhere_is_no_leak(process: Callable[[int, int], ProcessFigures], ticks: int) -> None:
    assert watched(HostFigures(), process, ticks) == []


@pytest.mark.parametrize("ticks", [19, 125])
@pytest.mark.parametrize("jumps", [True, False])
def test_growth_beside_somebody_elses_is_not_taken_for_it(ticks: int, jumps: bool) -> None:
    """The rank jumps while a stranger grows, or it grows a little while a stranger jumps."""
    middle = ticks - 4 if ticks < 20 else 60

    def host(tick: int) -> HostFigures:
        strangers = 40 * GB * (tick > middle) if jumps else (2000 if ticks < 20 else 200) * MB * tick
        return HostFigures(memory_used=30 * GB + strangers, memory_total=100 * GB)

    def process(tick: int, rank: int) -> ProcessFigures:
        grown = (2 * MB * tick if jumps else 200 * MB * (tick > middle)) if rank == 2 else 0
        return ProcessFigures(rss_bytes=GB + grown)

    assert watched(host, process, ticks) == []


def shm(free: int, total: int) -> HostFigures:
    return HostFigures(disks=[Disk("/dev/shm", ["shared memory"], total, free)])


@pytest.mark.parametrize(
    ("free", "total", "workers", "severity"),
    [
        (50 * MB, GB, 2, "warning"),
        (50 * MB, GB, 0, "warning"),
        (5 * MB, GB, 2, "critical"),
        (60 * MB, 64 * MB, 2, "warning"),  # as small as Docker makes it
        (60 * MB, 64 * MB, 0, None),
        (500 * MB, GB, 2, None),
        (40 * GB, 500 * GB, 2, None),  # less than a tenth, and plenty
        (0, 0, 2, None),
    ],
)
def test_shared_memory(free: int, total: int, workers: int, severity: str | None) -> None:
    found = watched(shm(free, total), lambda _tick, _rank: ProcessFigures(workers=workers))
    assert [(each.kind, each.severity) for each in found] == ([("shm_low", severity)] if severity else [])


@pytest.mark.parametrize(
    ("loaders", "words"),
    [
        ([3, 3, 3, 3], "and 12 DataLoader workers pass batches through it"),
        ([3, 3, None, None], "and 10 child processes of its ranks may pass batches through it"),
        ([0, 0, 0, 0], None),
    ],
)
def test_who_passes_batches_through_shared_memory(loaders: list[int | None], words: str | None) -> None:
    def frame(_tick: int, rank: int) -> dict[str, Any]:
        count = loaders[rank]
        return {"loader": None if count is None else Loader(count, 1, ended=False)}

    found = watched(shm(60 * MB, 64 * MB), frame=frame)
    assert [words and words in each.summary for each in found] == [True] * (words is not None)
