"""The numeric figures of a rank, declared once: the columns of host frames, of the watcher and of what faces draw.

A host frame carries one row of them for each of its ranks, as float64, so that every figure is kept as it is.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

State = Literal["running", "stalled", "finished", "failed"]
STATES: tuple[State, ...] = ("running", "stalled", "finished", "failed")
NAN = float("nan")
_LARGEST, _LARGEST_COUNT, _LARGEST_STEP = 1e15, float(1 << 53), float(1 << 48)  # of counts those that a float64 holds


class Figure(Struct, frozen=True):
    """One figure of a rank.

    Attributes:
        name: of its column.
        of: where in a rank frame it is: the frame itself, its process or its DataLoader.
        meaning: what it is, with its unit.
        before: what a watcher has before the rank's first frame.
        counts: whether it is a whole number, from `least` on.
        optional: whether it may be unknown: NaN in a column, None in a frame.
        field: its name there, where that is another.
    """

    name: str
    of: Literal["frame", "process", "loader"]
    meaning: str
    before: float = NAN
    counts: bool = False
    optional: bool = False
    least: float = -_LARGEST
    most: float = _LARGEST
    field: str = ""


def _frame(name: str, meaning: str, before: float = NAN, *, optional: bool = False) -> Figure:
    return Figure(name, "frame", meaning, before, optional=optional)


def _count(name: str, meaning: str, before: float = 0.0, least: float = 0.0, most: float = _LARGEST_COUNT) -> Figure:
    return Figure(name, "frame", meaning, before, counts=True, least=least, most=most)


def _tally_of_job(name: str, meaning: str) -> Figure:
    return Figure(name, "frame", meaning, counts=True, optional=True, least=0.0, most=_LARGEST_COUNT)


def _number(name: str, meaning: str) -> Figure:
    return Figure(name, "process", meaning, optional=True)


def _tally(name: str, meaning: str) -> Figure:
    return Figure(name, "process", meaning, counts=True, optional=True, least=0.0, most=_LARGEST_COUNT)


def _loader(name: str, meaning: str, most: float = _LARGEST_COUNT) -> Figure:
    field = name.removeprefix("loader_")
    return Figure(name, "loader", meaning, counts=True, optional=True, least=0.0, most=most, field=field)


FIGURES = (
    _count("seq", "number of the frame", -1.0),
    _frame("sent_at", "Unix time at which it was sent, s"),
    _count("whole", "number of the whole frame that the figures belong to", -1.0),
    _count("pid", "process number", -1.0),
    _count("state", "place in STATES", -1.0, most=len(STATES) - 1.0),
    _count("phase", "place in the host frame's list of phases"),
    _count("step", "last finished synchronising step, -1 before the first", -1.0, least=-1.0, most=_LARGEST_STEP),
    _frame("phase_s", "time since the phase began, s", 0.0),
    _frame("step_s", "time since the step finished, s", optional=True),
    _count("thinned", "steps of the frame's time span that were left out"),
    _count("dropped_steps", "steps that could not be recorded, since the start"),
    _count("dropped_frames", "frames that could not be put, since the start"),
    _frame("cost_us", "the probe's own time on the training thread, µs a step", optional=True),
    _tally_of_job("job_step", "last step that the job itself has finished, by its own count"),
    _tally_of_job("job_total", "steps that the job will make"),
    _frame("eta_s", "time until then at the pace of the last ten minutes, s", optional=True),
    _frame("stall_s", "time without a finished step, of a rank that tells where it is stuck, s", optional=True),
    _number("cpu_pct", "CPU time of the process, percent of a core"),
    _tally("rss_bytes", "resident memory, bytes"),
    _tally("threads", "threads of the process"),
    _number("runqueue_pct", "time that the training thread waited for a CPU, percent"),
    _number("runqueue_all_pct", "the same of all threads together, percent"),
    _number("switches_per_s", "involuntary context switches of the training thread a second"),
    _tally("compute_threads", "threads that torch computes with"),
    _tally("workers", "processes at work below this one"),
    _number("workers_cpu_pct", "CPU time of all processes below it, percent of a core"),
    _tally("workers_rss_bytes", "resident memory of all processes below it, bytes"),
    _number("quota_cpus", "CPUs' worth of time that its tightest cgroup allows"),
    _number("throttled_pct", "time that such a cgroup was throttled, percent"),
    _tally("memory_limit", "memory that its tightest cgroup allows, bytes"),
    _tally("memory_used", "memory used in that cgroup, bytes"),
    _tally("oom_kills", "processes killed for memory in that cgroup"),
    _number("read_bytes_s", "read from disks, bytes a second"),
    _number("write_bytes_s", "written to disks, bytes a second"),
    _tally("gpu_memory", "device memory that torch holds, bytes"),
    _tally("gpu_allocated", "device memory that tensors occupy, bytes"),
    _tally("gpu_peak", "the most that this has been, bytes"),
    _tally("alloc_retries", "allocations tried again after torch had freed its cache"),
    _tally("gpu_growth", "growth of the device memory that tensors occupy in five minutes, bytes"),
    _tally("nccl_groups", "process groups that reduce with NCCL"),
    _number("cpu_mhz", "clock of the CPU on which the training thread ran last, MHz"),
    _loader("loader_workers", "workers of the DataLoader read last"),
    _loader("loader_batches", "batches of its pass so far"),
    _loader("loader_ended", "1 if the pass has ended, else 0", most=1.0),
)
PLACE = {figure.name: place for place, figure in enumerate(FIGURES)}
PROCESS = tuple(figure.name for figure in FIGURES if figure.of == "process")
