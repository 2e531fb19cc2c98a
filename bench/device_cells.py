"""The cells of the simulated devices: what kind of job, what is wrong with it, and when it synchronises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from device_job import Fault, Job
from device_play import HOST_SIZE

KINDS = {"host": 2.5, "half": 4.5, "device": 20.0}  # us of a kernel, each launched every 5 us
SYNCS = {"never": 0, "sync1": 1, "sync10": 10, "sync50": 50}
NOISES = (0.01, 0.03, 0.10)
WORLDS = (2, 4, 8, 64)
FAULTS = {
    **{f"host-{factor}": Fault(host=factor) for factor in (1.02, 1.1, 1.3, 2.0)},
    **{
        f"{name}+3ms": Fault(extra_ms=3.0, phase=name)
        for name in ("input", "forward", "backward", "optimizer", "other")
    },
    **{f"device-{factor}": Fault(device=factor) for factor in (1.15, 1.3, 2.5)},
    "host-2.0-fifth": Fault(host=2.0, every=5),
    "device-2.5-fifth": Fault(device=2.5, every=5),
}
QUIET = {
    "alike": Job(),
    "spread": Job(spread=0.002),
    "wander": Job(wander=0.01),
    "evaluation": Job(pause_every=50),
    "checkpoint": Job(pause_every=40, pause_ms=800.0),
    "recompiles": Job(compiles=(90, 180)),
    "copies": Job(copies=300),
    "all-host-1.3": Job(fault=Fault(host=1.3)),
}


@dataclass(frozen=True)
class Cell:
    """One row: `guilty` are the ranks that a verdict may name; empty where nobody is to blame."""

    name: str
    job: Job
    guilty: tuple[int, ...] = ()
    phase: str = "work"


def all_cells() -> Iterator[Cell]:
    """Every cell, named like n4-3%-host-never-host-1.3."""
    for ranks in WORLDS:
        for noise in NOISES:
            for kind, kernel_us in KINDS.items():
                for sync, every in SYNCS.items():
                    pause = 50 if not every else 0  # who never synchronises evaluates now and then
                    base = Job(ranks=ranks, noise=noise, kernel_us=kernel_us, item_every=every, pause_every=pause)
                    yield from _cells(f"n{ranks}-{100 * noise:.0f}%-{kind}-{sync}", base)


def _cells(name: str, base: Job) -> Iterator[Cell]:
    late = (base.ranks - 1) // 2
    for fault_name, fault in FAULTS.items():
        phase = fault.phase if fault.extra_ms else "work"
        yield Cell(f"{name}-{fault_name}", replace(base, fault=replace(fault, ranks=(late,))), (late,), phase)
    if base.ranks > HOST_SIZE:
        ranks = tuple(range(HOST_SIZE))
        yield Cell(f"{name}-node-1.3", replace(base, fault=Fault(ranks, host=1.3)), ranks)
    for quiet_name, quiet in QUIET.items():
        changes = {key: value for key, value in vars(quiet).items() if value != getattr(Job(), key)}
        if "fault" in changes:
            changes["fault"] = replace(quiet.fault, ranks=tuple(range(base.ranks)))
        yield Cell(f"{name}-{quiet_name}", replace(base, **changes))
