"""Disks, interfaces and ports, through frames alone."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest

from ddpmon.diagnose.judge import Judge
from ddpmon.machine import Disk, HostFigures, Nic, Pressure, Process, TakenPort
from ddpmon.parts import Loader
from ddpmon.run.model import Run
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding
from tests.made_frames import MadeJob, healthy_phases, node_frame, open_findings, play_hosts, rank_frame, run_info

GB = 1 << 30
Of = Callable[[int, int], HostFigures]
Told = dict[str, Finding]


def watched(figures: Of | HostFigures, late: str = "", steps: int = 130, **more: Any) -> Told:
    """Four ranks; in phase `late`, rank 2 is late from step 100 on."""
    phases = healthy_phases(4, 260 if late else steps)
    if late:
        phases[late][2, 100:] += 40.0
    of_tick = figures if callable(figures) else lambda _tick, _node: figures
    said = play_hosts(MadeJob(phases), of_tick, **more)
    return {finding.kind: finding for finding in open_findings(said[-1])}


def disk(**changes: Any) -> HostFigures:
    values: dict[str, Any] = {"path": "/work", "uses": ["checkpoints"], "total": 1000 * GB, "free": 500 * GB}
    return HostFigures(disks=[Disk(**(values | changes))])


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({"free": 5 * GB}, "warning"),
        ({"free": 100 << 20}, "critical"),
        ({"free": 5 * GB, "total": 50 * GB}, None),
        ({"free": 20 * GB}, None),
        ({"free": 0, "total": 0}, None),
        ({"free": 0, "uses": ["data"]}, None),  # what is only read may be full
    ],
)
def test_a_disk_that_fills_up(changes: dict[str, Any], severity: str | None) -> None:
    told = watched(disk(**changes))
    assert {kind: found.severity for kind, found in told.items()} == ({"disk_low": severity} if severity else {})


def slow(tick: int, wait: float = 400.0, busy: float = 99.0, before: float = 5.0) -> HostFigures:
    """A disk that becomes slow when rank 2 becomes late."""
    bad = tick >= 10
    return disk(busy_pct=busy if bad else 20.0, read_wait_ms=wait if bad else before, uses=["data"])


def test_a_slow_disk_counts_where_the_input_is_late() -> None:
    told = watched(lambda tick, _node: slow(tick), "input")
    assert told["disk_slow"].severity == told["straggler"].severity
    assert "/work" in told["disk_slow"].summary
    assert "disk_slow" not in watched(lambda tick, _node: slow(tick), "forward")
    assert "disk_slow" not in watched(lambda tick, _node: slow(tick))


@pytest.mark.parametrize("changes", [{"wait": 10.0}, {"busy": 30.0}, {"before": 300.0}])
def test_a_disk_as_busy_and_slow_as_ever_is_not(changes: dict[str, float]) -> None:
    assert "disk_slow" not in watched(lambda tick, _node: slow(tick, **changes), "input")


def test_a_wait_for_disks_in_general_counts_too() -> None:
    def stalled(tick: int, _node: int) -> HostFigures:
        figures = slow(tick, busy=0.0)
        return HostFigures(disks=figures.disks, pressure=Pressure(io=60.0))

    assert "tasks wait for disks 60 % of the time" in watched(stalled, "input")["disk_slow"].summary


@pytest.mark.parametrize("again", [False, True])
def test_the_first_reading_of_the_data_is_not_judged_without_a_past(again: bool) -> None:
    def frame(tick: int, _rank: int) -> dict[str, Any]:
        return {"loader": Loader(2, tick % 5 if again else tick, ended=False)}

    def unknown_before(tick: int, _node: int) -> HostFigures:
        return slow(tick) if tick >= 12 else disk(uses=["data"])

    assert ("disk_slow" in watched(unknown_before, "input", frame=frame)) == again


def nic(name: str = "eth0", errors: int | None = 0, drops: int | None = 0) -> HostFigures:
    return HostFigures(nics=[Nic(name, errors=errors, drops=drops)])


def test_errors_that_grow() -> None:
    found = watched(lambda tick, _node: nic(errors=5 * tick))["nic_errors"]
    assert (found.ranks, found.severity) == ((0, 1, 2, 3), "info")
    assert "eth0 of node0 had 45 errors" in found.summary
    assert "nic_errors" in watched(lambda tick, _node: nic(drops=500 * tick))


def test_the_counters_of_an_interface_are_shown_by_a_command() -> None:
    found = watched(lambda tick, _node: nic("bond0.7:1", errors=5 * tick))["nic_errors"]
    assert advice_text(found.advice).endswith(": `ssh node0 ethtool -S bond0.7:1`")


@pytest.mark.parametrize("name", ["$(id)", "eth0;id", "'", "eth0\nid", "--help", "eth 0", "eth0`id`", ""])
def test_an_interface_whose_name_a_shell_would_read_is_in_no_command(name: str) -> None:
    found = watched(lambda tick, _node: nic(name, errors=5 * tick))["nic_errors"]
    assert advice_text(found.advice) == "check the cable, the switch port, duplex, speed and firmware"


@pytest.mark.parametrize(
    "figures",
    [
        lambda _tick, _node: nic(errors=10_000, drops=10_000),  # long ago
        lambda tick, _node: nic(errors=0 if tick < 6 else 500),  # one burst
        lambda tick, _node: nic(drops=tick),  # a few
        lambda tick, _node: nic("lo", errors=50 * tick),
        lambda tick, _node: nic(errors=None if tick % 2 else 900, drops=None),
        lambda tick, _node: nic(errors=5000 - 100 * tick),  # another rank counts from zero
    ],
)
def test_counters_that_do_not_grow_are_silent(figures: Of) -> None:
    assert watched(figures) == {}


def again(*rates: float | None) -> Of:
    return lambda _tick, node: HostFigures(retransmits_per_1000=rates[node])


def test_segments_sent_again_far_more_often_than_elsewhere() -> None:
    found = watched(again(1.0, 40.0), nodes=[0, 0, 1, 1])["nic_errors"]
    assert (found.ranks, found.nodes) == ((2, 3), ("node1",))
    assert "retransmits 4.0 % of its TCP segments, the other hosts 0.1 %" in found.summary


@pytest.mark.parametrize("rates", [(1.0, 8.0), (20.0, 30.0), (None, 40.0)])
def test_segments_sent_again_rarely_everywhere_or_beside_nobody(rates: tuple[float | None, float]) -> None:
    assert watched(again(*rates), nodes=[0, 0, 1, 1]) == {}


def test_a_taken_port_is_told_at_once() -> None:
    port = TakenPort(29500, "the rendezvous", Process(8123, [1], "bob", "python x.py"))
    found = watched(lambda tick, _node: HostFigures(ports=[port] if tick == 12 else []))["port_clash"]
    assert (found.ranks, found.severity, found.evidence["pid"]) == ((0,), "info", 8123)
    assert found.summary == "port 29500 on node0, wanted for the rendezvous, is held by pid 8123 (bob, python x.py)"
    unseen = watched(HostFigures(ports=[TakenPort(29500, "the store")]))["port_clash"]
    assert "held by a process that is not visible from here" in unseen.summary


def test_data_is_written_to_a_disk_that_fills_up() -> None:
    def filling(tick: int, _node: int) -> HostFigures:
        return disk(free=(9 << 30) - (tick << 27), uses=["data"])

    assert "disk_low" in watched(filling)


def kept_by(root: object) -> Iterator[object]:
    """Everything that an object keeps alive, but for the code."""
    seen, ahead = {id(root)}, [root]
    while ahead:
        yield (each := ahead.pop())
        for other in gc.get_referents(each):
            if id(other) not in seen and not isinstance(other, type | ModuleType | FunctionType):
                seen.add(id(other))
                ahead.append(other)


def test_names_that_come_and_go_are_not_remembered_for_ever() -> None:
    def figures(tick: int, _node: int) -> HostFigures:
        mounted = Disk(f"/mnt/{tick}", ["checkpoints"], 1000 * GB, 500 * GB, read_wait_ms=5.0)
        return HostFigures(disks=[mounted], nics=[Nic("eth0", errors=5 * tick), Nic(f"veth{tick}", errors=0)])

    counts = []
    for ticks in (100, 600):
        run, judge, part = Run(run_info(1)), Judge(), MadeJob(healthy_phases(1, 10)).columns(0, 0, 10)
        for tick in range(ticks):
            run.add_rank(rank_frame(0, tick, part), float(tick))
            run.add_node(node_frame(0, tick, figures=figures(tick, 0)), float(tick))
            said = judge(run, run.ages(float(tick)))
        assert [found.kind for found in said] == ["nic_errors"], "what stays is followed all the while"
        counts.append(sum(isinstance(each, deque) for each in kept_by(judge)))
    assert counts[1] < counts[0] + 200


def test_a_port_that_was_let_go_of_is_told_in_the_past_and_ends() -> None:
    def figures(tick: int, _node: int) -> HostFigures:
        return HostFigures(ports=[TakenPort(29500, "the store", held=False)] if tick < 5 else [])

    assert "was held by a process that has released it" in watched(figures, steps=60)["port_clash"].summary
    assert watched(figures, steps=200) == {}


def test_a_port_that_our_own_process_holds_is_not_taken() -> None:
    assert watched(HostFigures(ports=[TakenPort(29500, "the store", Process(100, [50]))])) == {}
