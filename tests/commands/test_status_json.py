"""The JSON contract, field by field."""

from __future__ import annotations

import dataclasses

import msgspec

from ddpmon.machine import Disk, GpuProcess, HostFigures, HostProcess, Nic, Pressure, Process, TakenPort
from ddpmon.parts import Attempt, FailedRank
from ddpmon.snapshot import JobView, NodeView
from tests.commands.command_snapshots import (
    GPU,
    STRAGGLER,
    parsed,
    snapshot,
    two_ranks,
)

KNOWN_GPU = {
    "index": 1,
    "uuid": "GPU-bbbb",
    "name": "H200",
    "utilization_pct": 91.0,
    "memory_used": 9 << 30,
    "memory_total": 80 << 30,
    "temperature_c": 61.0,
    "power_w": 300.5,
    "power_limit_w": 700.0,
    "sm_clock_mhz": 1980.0,
}
UNKNOWN_GPU = (
    "sm_clock_max_mhz", "clock_reasons", "pcie_width", "pcie_width_max", "pcie_generation", "pcie_generation_max",
    "ecc_uncorrected", "remapped_rows", "retired_pages", "xids", "nvlinks_up", "nvlinks", "numa_node", "board",
    "processes", "process_count",
)  # fmt: skip
GPU_OBJECT = {**KNOWN_GPU, **dict.fromkeys(UNKNOWN_GPU), "unread": {}}


def test_what_was_set_aside_is_told_as_text() -> None:
    assert parsed(snapshot(notices=("2 frames dropped: \x1b[31m", "a note")))["notices"] == [
        "2 frames dropped: \x1b[31m",
        "a note",
    ]


def test_the_run_and_the_job() -> None:
    status = parsed(snapshot())
    assert list(status)[:4] == ["schema_version", "time", "link", "run"]
    assert list(status)[4:8] == ["coverage", "job", "monitor", "ranks"]
    assert list(status)[8:] == ["nodes", "findings", "pending", "notices", "recorded"]
    assert status["recorded"] is None, "it is live"
    assert status["link"] == {"state": "live", "message": ""}
    assert status["schema_version"] == 1
    assert status["time"] == "2023-11-14T22:13:20.250Z"
    assert status["run"] == {
        "id": "r1",
        "name": "gpt",
        "state": "running",
        "world_size": 2,
        "nodes": ["node0"],
        "backend": "gloo",
        "step": 1204,
        "elapsed_s": 751.5,
        "source": "tcp://127.0.0.1:29480",
        "parallel": "ddp",
        "loss_from": None,
        "samples_from": None,
        "configuration": None,
        "jobs": {},
        "launch": None,
        "restart": 0,
        "max_restarts": None,
        "attempts": [],
    }
    assert status["coverage"] == {"expected": 2, "reporting": 2, "oldest_age_s": 0.5}
    assert status["job"] == {
        "standing_still": False,
        "step_ms": 172.15,
        "throughput": 92.9,
        "throughput_unit": "samples/s",
        "throughput_ranks": None,
        "loss": 2.282,
        "sync_efficiency": 0.76,
        "lost_to_waiting_pct": 19.5,
        "allreduce_ms": 40.15,
        "exposed_ms": 33.65,
        "busbw_gb_s": 1.25,
        "tokens_per_s": None,
        "job_step": None,
        "job_total": None,
        "eta_s": None,
    }


def test_the_progress_of_a_job_and_where_its_losses_are_read() -> None:
    usual = snapshot().run
    assert usual is not None
    run = dataclasses.replace(
        usual, parallel="fsdp2", loss_from="what backward was called on", samples_from="the input"
    )
    status = parsed(snapshot(run=run, job=JobView(tokens_per_s=1234.56, job_step=30, job_total=100, eta_s=70.123)))
    told = [status["run"][name] for name in ("parallel", "loss_from", "samples_from")]
    assert told == ["fsdp2", "what backward was called on", "the input"]
    figures = [status["job"][name] for name in ("tokens_per_s", "job_step", "job_total", "eta_s")]
    assert figures == [1234.6, 30, 100, 70.123]


def test_the_attempts_before_this_one() -> None:
    killed = Attempt(run_id="r0", ended_at=1_700_000_000.5, step=256, vanished=[1], vanished_count=1)
    failed = Attempt(run_id="r1", restart=1, failed=[FailedRank(0, "KeyError: 'x'"), FailedRank(1)], failed_count=2)
    view = snapshot().run
    assert view is not None
    told = parsed(
        snapshot(run=dataclasses.replace(view, restart=2, max_restarts=3, launch="job", attempts=(killed, failed)))
    )["run"]
    assert (told["restart"], told["max_restarts"], told["launch"]) == (2, 3, "job")
    first, second = told["attempts"]
    assert (first["run_id"], first["restart"], first["step"]) == ("r0", 0, 256)
    assert first["ended_at"] == "2023-11-14T22:13:20.500Z"
    assert (first["failed"], first["failed_count"], first["vanished"], first["vanished_count"]) == ([], 0, [1], 1)
    assert first["summary"] == "rank 1 disappeared without a message"
    assert (second["ended_at"], second["step"]) == (None, None)
    assert second["failed"] == [{"rank": 0, "reason": "KeyError: 'x'"}, {"rank": 1, "reason": None}]


PROCESS_OBJECT: dict[str, object] = {
    "cpu_pct": 50.25,
    "rss_bytes": None,
    "threads": None,
    "runqueue_pct": 38.25,
    "runqueue_all_pct": None,
    "switches_per_s": None,
    "cpus": "0-1",
    "compute_threads": 2,
    "workers": 4,
    "workers_cpu_pct": None,
    "workers_rss_bytes": None,
    "quota_cpus": 1.5,
    "quotas": {},
    "throttled_pct": 12.5,
    "memory_limit": None,
    "memory_used": None,
    "oom_kills": None,
    "read_bytes_s": None,
    "write_bytes_s": None,
    "gpu_memory": None,
    "gpu_allocated": None,
    "gpu_peak": None,
    "alloc_retries": None,
    "gpu_growth": None,
    "nccl_groups": None,
    "cpu_mhz": None,
    "unread": {},
}


def test_ranks() -> None:
    early, late = parsed(snapshot())["ranks"]
    assert late == {
        "rank": 1,
        "host": "node0",
        "local_rank": 1,
        "pid": 4001,
        "state": "running",
        "step": 1204,
        "age_s": 0.5,
        "loss": 2.25,
        "step_ms": 172.2,
        "work_ms": 158.2,
        "exposed_ms": 13.2,
        "allreduce_ms": 20.2,
        "barrier_ms": 1.2,
        "lateness_ms": 40.8,
        "phases_ms": {"input": 43.2, "forward": 40.2, "backward": 70.2, "optimizer": 3.2, "other": 1.4},
        "gpu": GPU_OBJECT,
        "process": PROCESS_OBJECT,
        "cpu_pct": 50.25,
        "rss_bytes": 400_000_000,
        "stall": None,
        "failure": None,
    }
    assert (early["rank"], early["gpu"], early["lateness_ms"]) == (0, None, 0.0)
    assert early["loss"] == 2.3140001296997070, "a loss is not rounded"


def test_nodes_and_findings() -> None:
    status = parsed(snapshot())
    assert status["nodes"] == [
        {
            "node": 0,
            "host": "node0",
            "ranks": [0, 1],
            "age_s": 0.6,
            "cpu_pct": 75.5,
            "cpu_count": 2,
            "load_1m": 3.5,
            "memory_used": 1 << 30,
            "memory_total": 4 << 30,
            **dict.fromkeys(("steal_pct", "swap_used", "swap_in_bytes_s", "pressure", "retransmits_per_1000")),
            "processes": [],
            "disks": [],
            "nics": [],
            "ports": [],
            "numa": [],
            "unread": {},
            "gpus": [GPU_OBJECT],
            "cost_pct": None,
            "notes": ["no NVML"],
        }
    ]
    assert status["findings"] == [
        {
            "kind": "straggler",
            "severity": "warning",
            "ranks": [1],
            "nodes": ["node0"],
            "phase": "input",
            "cause": "run-queue wait",
            "since_step": 812,
            "cost_pct": 19.25,
            "summary": STRAGGLER.summary,
            "advice": "Look at the DataLoader of rank 1.",
            "since_is_bound": False,
            "evidence": {},
        }
    ]


def test_a_machines_processes_say_whose_they_are() -> None:
    mine, worker = Process(4001, [3999, 1], "ada", "python train.py"), Process(6001, [4001, 1], "ada", "pt_data_worker")
    launcher, watch = Process(3999, [1], None, "torchrun train.py"), Process(9001, [1], None, "ddpmon watch")
    theirs = Process(8123, [1], "bob", "python other.py", 5.0)
    gpu = msgspec.structs.replace(
        GPU, processes=[GpuProcess(theirs, 12, 38.123456), GpuProcess(mine)], unread={"power_w": "no permission"}
    )
    figures = HostFigures(
        pressure=Pressure(cpu=float("inf"), io=3.0),
        processes=[HostProcess(theirs, 780.0, "0-1", 7, 5), *(HostProcess(each) for each in (worker, launcher, watch))],
        disks=[Disk("/ckpt", ["checkpoints"], 100, 3)],
        nics=[Nic("eth0", errors=2)],
        ports=[TakenPort(29500, "the store", theirs), TakenPort(29501, "nothing")],
    )
    node = NodeView(0, "node0", (0, 1), figures=figures, gpus=(gpu,), cost_pct=0.25)
    status = parsed(snapshot(nodes=(node,), ranks=two_ranks(gpu=(None, gpu))))
    (host,) = status["nodes"]
    bob = {"pid": 8123, "user": "bob", "command": "python other.py", "rank": None, "role": None}
    on_gpu = [
        {**bob, "memory": 12, "sm_pct": 38.123, "kind": "compute"},
        {"pid": 4001, "user": "ada", "command": "python train.py", "rank": 1, "role": "rank", "memory": None,
         "sm_pct": None, "kind": "compute"},
    ]  # fmt: skip
    assert host["gpus"][0]["processes"] == status["ranks"][1]["gpu"]["processes"] == on_gpu
    assert host["gpus"][0]["unread"] == {"power_w": "no permission"}
    assert host["processes"] == [
        {**bob, "cpu_pct": 780.0, "cpus": "0-1", "rss_bytes": 7, "nice": 5},
        {"pid": 6001, "user": "ada", "command": "pt_data_worker", "rank": 1, "role": "worker",
         **dict.fromkeys(("cpu_pct", "cpus", "rss_bytes", "nice"))},
        *({**who, "user": None, "rank": None, **dict.fromkeys(("cpu_pct", "cpus", "rss_bytes", "nice"))} for who in (
            {"pid": 3999, "command": "torchrun train.py", "role": "launcher"},
            {"pid": 9001, "command": "ddpmon watch", "role": "monitor"},
        )),
    ]  # fmt: skip
    assert host["pressure"] == {"cpu": None, "memory": None, "memory_full": None, "io": 3.0, "io_full": None}
    assert (host["disks"][0]["path"], host["disks"][0]["free"], host["disks"][0]["busy_pct"]) == ("/ckpt", 3, None)
    assert (host["nics"][0]["name"], host["nics"][0]["errors"]) == ("eth0", 2)
    assert host["ports"] == [
        {"port": 29500, "wanted_for": "the store", "process": bob, "held": True},
        {"port": 29501, "wanted_for": "nothing", "process": None, "held": True},
    ]
    assert host["cost_pct"] == 0.25
