"""The machine's figures in the machine-readable status, under the names that they have in `ddpmon.machine`."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ddpmon.machine import GpuFigures, GpuProcess, HostFigures, HostProcess, Process, ProcessFigures, TakenPort
from ddpmon.run.ours import Ours, owner_of

Object = dict[str, Any]
COUNTS_OF_READINGS = {"reads", "slow_reads", "readings"}  # they tell the verdicts what is new


def gpu_object(gpu: GpuFigures, ours: Ours) -> Object:
    """One GPU; each of its processes says which rank it belongs to and what it is to the run, null for a stranger's."""
    processes = None if gpu.processes is None else [_on_gpu(on, ours) for on in gpu.processes]
    return {**figures(gpu), "uuid": gpu.uuid or None, "processes": processes}


def _on_gpu(on: GpuProcess, ours: Ours) -> Object:
    return {**_who(on.process, ours), "memory": on.memory, "sm_pct": rounded(on.sm_pct), "kind": on.kind}


def _who(process: Process, ours: Ours) -> Object:
    return {
        "pid": process.pid,
        "user": process.user,
        "command": process.command,
        "rank": owner_of(process, ours.pids),
        "role": ours.role(process),
    }


def host_object(host: HostFigures, ours: Ours) -> Object:
    """One host, without its GPUs."""
    processes = [_on_host(used, ours) for used in host.processes]
    ports = [_port(port, ours) for port in host.ports]
    return {**figures(host), "processes": processes, "ports": ports}


def _on_host(used: HostProcess, ours: Ours) -> Object:
    return {**_who(used.process, ours), **{name: value for name, value in figures(used).items() if name != "process"}}


def _port(port: TakenPort, ours: Ours) -> Object:
    holder = None if port.process is None else _who(port.process, ours)
    return {"port": port.port, "wanted_for": port.wanted_for, "process": holder, "held": port.held}


def process_object(process: ProcessFigures | None) -> Object | None:
    """A rank's own process."""
    return None if process is None else figures(process)


def figures(struct: msgspec.Struct) -> Object:
    """All of a structure's fields; figures to five digits, what is not finite as null."""
    fields = msgspec.to_builtins(struct).items()
    return {name: _plain(value) for name, value in fields if name not in COUNTS_OF_READINGS}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if name not in COUNTS_OF_READINGS}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def rounded(value: Any) -> float | None:
    """Five significant digits; None for what is not a finite number."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
