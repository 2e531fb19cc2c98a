"""What the simulated NVML shall say: written as the file that `nvml.c` reads, and written again to change it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

GIB = 1 << 30


@dataclass
class SimulatedProcess:
    """A process on a GPU; None is what NVML would not give. `sm_pct` is its share of the SMs' time."""

    pid: int
    memory: int | None = GIB
    sm_pct: int | None = None
    kind: Literal["compute", "graphics", "mps"] = "compute"

    def lines(self) -> list[str]:
        """Its line in a GPU's part of the file."""
        words = ("-" if value is None else str(value) for value in (self.memory, self.sm_pct))
        return [f"process {self.kind} {self.pid} {' '.join(words)}"]


@dataclass
class SimulatedDevice:
    """What boards and MIG instances have alike. A figure that is None is "not supported".

    Attributes:
        fails: names of NVML functions that return an error, and which.
        sleeps_ms: names of functions that take so long.
    """

    uuid: str | None
    name: str | None = "simulated GPU"
    memory_total: int | None = 80 * GIB
    memory_used: int | None = 0
    utilization: int | None = 0
    processes: list[SimulatedProcess] = field(default_factory=list)
    fails: dict[str, int] = field(default_factory=dict)
    sleeps_ms: dict[str, int] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Its part of the file."""
        lines: list[str] = []
        for each in fields(self):
            lines += _told(each.name, getattr(self, each.name))
        return lines + _troubles(self.fails, self.sleeps_ms)


@dataclass
class SimulatedGpu(SimulatedDevice):
    """A board, in NVML's units.

    Attributes:
        clock_reasons: the bits of nvmlClocksEventReasons.
        nvlinks: per link 1 where it is up, such as "1 1 0".
        xids: the events so far; one appended is one that happens now.
        lost: 1 where it has fallen off the bus.
    """

    temperature: int | None = 40
    power_mw: int | None = 90_000
    power_limit_mw: int | None = 700_000
    sm_clock: int | None = 1980
    sm_clock_max: int | None = 1980
    clock_reasons: int | None = 1
    pcie_width: int | None = 16
    pcie_width_max: int | None = 16
    pcie_generation: int | None = 5
    pcie_generation_max: int | None = 5
    ecc_uncorrected: int | None = 0
    remapped_rows: int | None = 0
    remap_pending: int = 0
    retired_single: int | None = None
    retired_double: int | None = None
    nvlinks: str | None = None
    bus_id: str | None = None
    xids: list[int] = field(default_factory=list)
    lost: int = 0
    instances: list[SimulatedDevice] = field(default_factory=list)


@dataclass
class Scenario:
    """All simulated GPUs of a host; `fails` and `sleeps_ms` are of functions that concern no single GPU."""

    gpus: list[SimulatedGpu] = field(default_factory=list)
    fails: dict[str, int] = field(default_factory=dict)
    sleeps_ms: dict[str, int] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Put it in the place of what `path` said; whoever reads sees the one or the other."""
        new = path.with_name(f"{path.name}.new")
        new.write_text("\n".join([*self.lines(), ""]), encoding="utf-8", errors="surrogateescape")
        os.utime(new, ns=(time.time_ns(),) * 2)  # finer than the kernel's own: no change goes unseen
        new.replace(path)

    def lines(self) -> list[str]:
        """The whole file."""
        host = [f"gpus {len(self.gpus)}", *_troubles(self.fails, self.sleeps_ms)]
        lines = [f"host {line}" for line in host]
        for index, gpu in enumerate(self.gpus):
            lines += [f"gpu {index} {line}" for line in [*gpu.lines(), *(["mig 1"] if gpu.instances else [])]]
            for number, instance in enumerate(gpu.instances):
                lines += [f"gpu {index}.{number} {line}" for line in instance.lines()]
        return lines


def _told(name: str, value: Any) -> list[str]:
    if name == "xids":
        return [f"xid {xid}" for xid in value]
    if name == "processes":
        return [line for process in value for line in process.lines()]
    return [f"{name} {value}"] if isinstance(value, int | str) else []


def _troubles(fails: dict[str, int], sleeps_ms: dict[str, int]) -> list[str]:
    failing = [f"fail {function} {error}" for function, error in fails.items()]
    return failing + [f"sleep {function} {ms}" for function, ms in sleeps_ms.items()]
