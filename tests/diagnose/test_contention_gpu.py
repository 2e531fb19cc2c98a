"""Contention on GPUs, through frames alone: who is named, and what stays silent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest

from ddpmon.machine import GpuFigures, GpuProcess, Process, ProcessFigures
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding
from tests.made_frames import MadeJob, healthy_phases, open_findings, play_hosts

GB = 1 << 30
TRAIN = "python train.py"
Gpus = Callable[[int, int], Sequence[GpuFigures]]


def ours(rank: int, **changes: Any) -> GpuProcess:
    process = Process(100 + rank, [50, 1], "me", TRAIN, 1000.0)
    return msgspec.structs.replace(GpuProcess(process, 20 * GB, 90.0), **changes)


def theirs(pid: int = 8123, memory: int | None = 8 * GB, sm_pct: float | None = 38.0, **process: Any) -> GpuProcess:
    values: dict[str, Any] = {"parents": [7000, 1], "user": "bob", "command": "python x.py", "started_at": 2000.0}
    return GpuProcess(Process(pid, **(values | process)), memory, sm_pct)


def gpu(rank: int, *more: GpuProcess, **changes: Any) -> GpuFigures:
    """The GPU of a rank at work, all well."""
    values: dict[str, Any] = {
        "index": rank, "uuid": f"GPU-{rank}", "name": "H100", "utilization_pct": 99.0, "memory_used": 21 * GB,
        "memory_total": 80 * GB, "temperature_c": 60.0, "power_w": 400.0, "power_limit_w": 700.0,
        "sm_clock_mhz": 1700.0, "sm_clock_max_mhz": 1980.0, "clock_reasons": [], "pcie_width": 16,
        "pcie_width_max": 16, "pcie_generation": 5, "pcie_generation_max": 5, "ecc_uncorrected": 0,
        "remapped_rows": 0, "retired_pages": 0, "xids": [], "numa_node": 0, "processes": [ours(rank), *more],
    }  # fmt: skip
    return GpuFigures(**(values | changes))


@dataclass(frozen=True)
class Told:
    """The job, and what is said at its end."""

    findings: list[Finding]

    def __getitem__(self, kind: str) -> Finding:
        (found,) = (finding for finding in self.findings if finding.kind == kind)
        return found

    @property
    def kinds(self) -> set[str]:
        return {finding.kind for finding in self.findings}


def watched(gpus: Gpus | list[GpuFigures], late: str = "", ranks: int = 4, **more: Any) -> Told:
    """A job on GPUs; in phase `late`, rank 2 is late from step 60 on."""
    phases = healthy_phases(ranks, 200 if late else 130)
    if late:
        phases[late][2, 60:] += 40.0
    of_tick: Gpus = gpus if callable(gpus) else lambda _tick, _node: gpus
    frame = more.pop("frame", lambda _tick, rank: {"gpu_uuid": f"GPU-{rank}"})
    said = play_hosts(MadeJob(phases), gpus=of_tick, frame=frame, **more)
    return Told(open_findings(said[-1]))


def four(at: int = 1, *more: GpuProcess, **changes: Any) -> list[GpuFigures]:
    """Four GPUs, one of them with something on it."""
    return [gpu(rank, *more, **changes) if rank == at else gpu(rank) for rank in range(4)]


def test_gpus_that_are_ours_alone_are_silent() -> None:
    assert watched(four()).kinds == set()


def test_a_stranger_on_a_gpu_is_named_with_pid_user_command_and_rank() -> None:
    found = watched(four(1, theirs()))["gpu_shared"]
    assert (found.ranks, found.nodes, found.severity) == ((1,), ("node0",), "info")
    assert found.summary == "pid 8123 (bob, python x.py) uses 38 % of the GPU of rank 1 (node0)"
    assert {"pid": 8123, "user": "bob", "command": "python x.py", "sm_pct": 38.0}.items() <= found.evidence.items()


@pytest.mark.parametrize(
    "harmless",
    [
        theirs(parents=[101, 50, 1]),  # a rank's own DataLoader worker
        theirs(pid=50, parents=[1], command="torchrun train.py"),  # what launched the ranks
        theirs(command="python ddpmon"),
        theirs(memory=10 << 20, sm_pct=0.0),
        theirs(memory=None, sm_pct=None),
        msgspec.structs.replace(theirs(memory=200 << 20, sm_pct=0.0), kind="graphics"),
    ],
)
def test_our_own_processes_and_those_that_do_nothing_are_silent(harmless: GpuProcess) -> None:
    assert watched(four(1, harmless)).kinds == set()


def test_another_training_on_the_same_gpus_is_one_finding() -> None:
    others = [theirs(900 + rank, command="python other.py") for rank in range(4)]
    found = watched([gpu(rank, others[rank]) for rank in range(4)])["gpu_shared"]
    assert found.summary.startswith("another training uses the same GPUs: pid 900")
    assert found.ranks == (0, 1, 2, 3)
    assert found.evidence["pids"] == "900, 901, 902, 903"


def test_another_training_of_two_processes_on_one_gpu_is_known_by_its_module() -> None:
    others = [theirs(pid, command="python -m other") for pid in (900, 901)]
    found = watched(four(1, *others))["gpu_shared"]
    assert found.evidence["pids"] == "900, 901"


@pytest.mark.parametrize("command", ["python3.11 -c", "python3", "worker:", None])
def test_processes_whose_command_names_no_script_are_not_taken_for_one_job(command: str | None) -> None:
    told = watched(four(1, *(theirs(pid, command=command) for pid in (900, 901))))
    assert {found.evidence["pid"] for found in told.findings} == {900, 901}
    assert not any("pids" in found.evidence for found in told.findings)


def hidden(used: int) -> list[GpuFigures]:
    return [gpu(rank, memory_used=used if rank == 1 else 21 * GB, processes=[theirs(5000 + rank)]) for rank in range(4)]


def test_where_processes_are_hidden_only_the_memory_tells() -> None:
    def process(_tick: int, _rank: int) -> ProcessFigures:
        return ProcessFigures(gpu_memory=20 * GB)

    found = watched(hidden(40 * GB), process=process)["gpu_shared"]
    assert found.ranks == (1,)
    assert "do not belong to this run: the processes are not visible from here" in found.summary
    assert "pid" not in found.evidence
    assert watched(hidden(22 * GB), process=process).kinds == set()
    assert watched(hidden(40 * GB)).kinds == set(), "torch's own share is not known"


def test_what_nccl_keeps_for_each_process_group_is_ours() -> None:
    def told(used: float, groups: int | None) -> set[str]:
        process = ProcessFigures(gpu_memory=20 * GB, nccl_groups=groups)
        return watched(hidden(int(used * GB)), process=lambda _tick, _rank: process).kinds

    assert told(26, None) == set()
    assert told(26, 1) == set()
    assert told(28, 1) == {"gpu_shared"}
    assert told(28, 3) == set()


def test_a_mig_instance_is_only_shared_with_who_is_on_it() -> None:
    board = gpu(0, theirs(), uuid="GPU-board", processes=[theirs()])
    instance = gpu(0, uuid="MIG-0", board="GPU-board")
    other = gpu(0, uuid="MIG-9", board="GPU-board", processes=[theirs()])
    told = watched([board, instance, other], frame=lambda _tick, rank: {"gpu_uuid": "MIG-0" if not rank else None})
    assert told.kinds == set()


def test_two_ranks_on_one_gpu() -> None:
    found = watched(four(), frame=lambda _tick, rank: {"gpu_uuid": f"GPU-{rank // 2 * 2}"})
    assert {each.ranks for each in found.findings if each.kind == "gpu_doubled"} >= {(0, 1), (2, 3)}


@pytest.mark.parametrize(
    "frame",
    [
        lambda _tick, rank: {"gpu_uuid": f"MIG-{rank}"},
        lambda _tick, _rank: {"gpu_uuid": "GPU-board"},  # the board of several MIG instances
    ],
)
def test_ranks_on_several_instances_of_one_board_are_not_doubled(frame: Callable[[int, int], dict[str, Any]]) -> None:
    instances = [gpu(rank, uuid=f"MIG-{rank}", board="GPU-board") for rank in range(4)]
    assert watched(instances, frame=frame).kinds == set()


def test_the_same_gpu_name_on_two_hosts_is_two_gpus() -> None:
    told = watched(four(), nodes=[0, 0, 1, 1], frame=lambda _tick, rank: {"gpu_uuid": f"GPU-{rank % 2}"})
    assert "gpu_doubled" not in told.kinds


def test_extra_contexts_on_the_first_gpu() -> None:
    extra = [ours(rank, memory=GB // 2, sm_pct=0.0) for rank in (1, 2, 3)]
    found = watched(four(0, *extra))["gpu_doubled"]
    assert found.ranks == (0, 1, 2, 3)
    assert "ranks 1, 2, 3 hold a context" in found.summary
    assert "set_device" in advice_text(found.advice)


@pytest.mark.parametrize(
    "rest",
    [
        theirs(sm_pct=0.0, parents=[1]),
        theirs(sm_pct=0.0, user="me", command=TRAIN, started_at=10.0),
    ],
)
def test_what_an_earlier_run_left_behind(rest: GpuProcess) -> None:
    found = watched(four(3, rest))["gpu_leftover"]
    assert (found.ranks, found.evidence["pid"], found.severity) == ((3,), 8123, "info")
    assert "kill 8123" in advice_text(found.advice)


def spawned(rank: int, *more: GpuProcess) -> GpuFigures:
    """The GPU of a rank that `mp.spawn` started."""
    process = Process(100 + rank, [50, 1], "me", "python3.11 -c", 1000.0)
    return gpu(rank, processes=[GpuProcess(process, 20 * GB, 90.0), *more])


def test_an_older_idle_process_is_no_leftover_for_running_a_command_line_too() -> None:
    idle = theirs(sm_pct=0.0, user="me", command="python3.11 -c", started_at=10.0)
    told = watched([spawned(rank, *([idle] if rank == 3 else [])) for rank in range(4)])
    assert told.kinds == {"gpu_shared"}
    assert "kill" not in advice_text(told["gpu_shared"].advice)
    orphan = msgspec.structs.replace(idle, process=msgspec.structs.replace(idle.process, parents=[1]))
    assert watched([spawned(rank, *([orphan] if rank == 3 else [])) for rank in range(4)]).kinds == {"gpu_leftover"}


@pytest.mark.parametrize(("pid", "host"), [(0, "node0"), (8123, ""), (8123, "-oProxyCommand=id"), (8123, "$(id)")])
def test_nothing_is_killed_that_is_no_process_of_a_known_host(pid: int, host: str) -> None:
    rest = theirs(pid, sm_pct=0.0, parents=[1])
    said = advice_text(watched(four(3, rest), name=lambda _node: host)["gpu_leftover"].advice)
    assert said == "if it is yours and no longer needed, end it"


@pytest.mark.parametrize(
    "busy",
    [
        theirs(sm_pct=5.0, parents=[1]),
        theirs(sm_pct=None, parents=[1]),
        theirs(sm_pct=0.0, user="me", command=TRAIN, started_at=3000.0),
        theirs(sm_pct=0.0, command=TRAIN, started_at=10.0),
        theirs(sm_pct=0.0),
    ],
)
def test_what_works_or_is_young_or_has_a_parent_is_no_leftover(busy: GpuProcess) -> None:
    assert watched(four(3, busy)).kinds == {"gpu_shared"}


def test_an_orphan_that_works_now_and_then_is_no_leftover() -> None:
    told = watched(lambda tick, _node: four(3, theirs(sm_pct=40.0 * (tick % 5 == 0), parents=[1])))
    assert "gpu_leftover" not in told.kinds


HOT: dict[str, Any] = {"clock_reasons": ["hardware thermal"], "temperature_c": 93.0}


@pytest.mark.parametrize("reason", ["hardware thermal", "software thermal", "hardware slowdown", "power brake"])
def test_a_gpu_that_is_held_down_below_its_peers(reason: str) -> None:
    found = watched(four(2, sm_clock_mhz=1100.0, clock_reasons=[reason]))["gpu_throttled"]
    assert (found.ranks, found.severity) == ((2,), "info")
    assert f"{reason}, 1,100 MHz where its peers run at 1,700 MHz" in found.summary


def test_a_power_cap_counts_only_with_a_low_clock() -> None:
    capped = {"clock_reasons": ["software power cap"]}
    assert watched(four(2, **capped), late="forward").kinds == {"straggler"}
    assert watched(four(2, **capped, sm_clock_mhz=1200.0)).kinds == {"gpu_throttled"}


def test_a_hot_gpu_with_clocks_like_its_peers_counts_only_if_its_rank_computes_late() -> None:
    assert watched(four(2, **HOT)).kinds == set()
    assert watched(four(2, **HOT), late="input").kinds == {"straggler"}
    assert watched(four(1, **HOT), late="forward").kinds == {"straggler"}, "another rank's GPU"
    assert watched(four(2, **HOT), late="forward").kinds == {"straggler", "gpu_throttled"}


@pytest.mark.parametrize(
    "changes",
    [
        {"clock_reasons": ["idle"]},
        {"clock_reasons": None},
        {**HOT, "utilization_pct": 5.0},
        {**HOT, "utilization_pct": None},
        {**HOT, "name": "A10"},
        {**HOT, "sm_clock_mhz": None},
    ],
)
def test_clocks_are_compared_under_load_within_one_model_with_a_reason(changes: dict[str, Any]) -> None:
    assert watched(four(2, **{"sm_clock_mhz": 900.0, **changes})).kinds == set()


@pytest.mark.parametrize(
    ("changes", "severity", "words"),
    [
        ({"xids": [79]}, "critical", "Xid 79"),
        ({"xids": [94]}, "critical", "Xid 94"),
        ({"xids": [63], "remapped_rows": 1}, "critical", "1 remapped rows"),
        ({"xids": [63]}, "warning", "Xid 63"),
        ({"xids": [31]}, "warning", "Xid 31"),
        ({"ecc_uncorrected": 2}, "warning", "2 uncorrected ECC errors"),
        ({"retired_pages": 3}, "warning", "3 retired pages"),
    ],
)
def test_errors_since_the_start_count_at_once(changes: dict[str, Any], severity: str, words: str) -> None:
    found = watched(lambda tick, _node: four(1, **(changes if tick == 12 else {})))["gpu_errors"]
    assert (found.ranks, found.severity) == ((1,), severity)
    assert words in found.summary


def test_errors_of_a_gpu_that_is_not_ours_are_not() -> None:
    assert watched([*four(), gpu(7, xids=[79], uuid="GPU-7")]).kinds == set()


def test_errors_of_a_board_are_those_of_its_instances() -> None:
    board, instance = gpu(0, uuid="GPU-board", xids=[48]), gpu(0, uuid="MIG-0", board="GPU-board")
    told = watched([board, instance], frame=lambda _tick, rank: {"gpu_uuid": None if rank else "MIG-0"})
    assert told["gpu_errors"].ranks == (0,)


def test_a_narrow_link_counts_under_load() -> None:
    found = watched(four(3, pcie_width=4))["pcie_degraded"]
    assert (found.ranks, found.severity) == ((3,), "info")
    assert "x4 instead of x16" in found.summary
    assert watched(four(3, pcie_width=4, utilization_pct=0.0)).kinds == set()
    assert watched(four(3, pcie_width=4, pcie_width_max=None)).kinds == set()


def test_a_link_of_a_lower_generation_counts_under_load_that_lasts() -> None:
    slow = {"pcie_generation": 1}
    assert "generation 1 instead of 5" in watched(four(3, **slow))["pcie_degraded"].summary
    assert watched(four(3, **slow, utilization_pct=50.0)).kinds == set()
    at_times = watched(lambda tick, _node: four(3, **slow, utilization_pct=99.0 if tick % 5 else 10.0))
    assert at_times.kinds == set()


def test_severity_follows_the_lateness_that_it_may_explain() -> None:
    stranger = four(2, theirs(sm_pct=30.0))
    found = watched(stranger, late="forward")
    assert found["gpu_shared"].severity == found["straggler"].severity == "critical"
    assert watched(stranger, late="input")["gpu_shared"].severity == "info", "a GPU does not load data"
    assert watched(four(1, theirs()), late="forward")["gpu_shared"].severity == "info", "another rank's"
    assert watched(four(2, theirs(sm_pct=3.0)), late="forward")["gpu_shared"].severity == "info", "far too little"


def test_nan_free_evidence() -> None:
    for finding in watched(four(2, theirs(), sm_clock_mhz=900.0, **HOT), late="forward").findings:
        assert all(np.isfinite(value) for value in finding.evidence.values() if isinstance(value, float))


def unread(at: int) -> list[GpuFigures]:
    """The processes of the GPU could not be read; in all, more memory is in use than the rank holds."""
    return [gpu(rank, processes=None, memory_used=40 * GB) if rank == at else gpu(rank) for rank in range(4)]


@pytest.mark.parametrize(
    "gap",
    [
        unread(2),
        four(2, theirs(sm_pct=None)),
        four(2, theirs(sm_pct=None, memory=None)),
        [gpu(rank) for rank in (0, 1, 3)],
    ],
)
def test_a_shared_gpu_and_what_it_causes_stand_while_the_sensor_tells_nothing(gap: list[GpuFigures]) -> None:
    phases = healthy_phases(4, 500)
    phases["forward"][2, 60:] += 40.0

    def gpus(tick: int, _node: int) -> Sequence[GpuFigures]:
        return four() if tick < 6 else gap if 20 <= tick < 40 else four(2, theirs())

    held, named = ProcessFigures(gpu_memory=19 * GB), [{"gpu_uuid": f"GPU-{rank}"} for rank in range(4)]
    said = play_hosts(MadeJob(phases), gpus=gpus, process=lambda *_: held, frame=lambda _tick, rank: named[rank])
    for tick in said[15:]:
        found = Told(open_findings(tick))
        assert found.kinds == {"straggler", "gpu_shared"}
        assert (found["gpu_shared"].since_step, found["straggler"].since_step) == (69, 60)
        assert found["straggler"].cause == "a shared GPU: pid 8123 (bob, python x.py) uses 38 % of its GPU (likely)"
        assert not [each for each in tick if each.cleared_at_step is not None]


def test_a_shared_gpu_of_which_nobody_tells_for_minutes_is_over() -> None:
    def gpus(tick: int, _node: int) -> Sequence[GpuFigures]:
        return four(2, theirs()) if tick < 20 else [gpu(rank) for rank in (0, 1, 3)]

    job, named = MadeJob(healthy_phases(4, 1000)), [{"gpu_uuid": f"GPU-{rank}"} for rank in range(4)]
    said = play_hosts(job, gpus=gpus, frame=lambda _tick, rank: named[rank])
    assert "gpu_shared" in Told(open_findings(said[70])).kinds
    assert "gpu_shared" not in Told(open_findings(said[-1])).kinds
