"""The machine under the ranks, as it crosses the store: GPUs, hosts, and the processes on them.

None is what could not be read; `unread` says why, figure by figure. Rates and shares are means since the reading
before; what counts events (errors, kills) counts them since the sampler began, which is when the run did.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ddpmon.parts import Count, Number, Text

Reasons = Annotated[dict[Text, Text], Meta(max_length=64)]
Pid = Annotated[int, Meta(ge=0, le=1 << 32)]
Cpus = Text  # as the kernel lists them: "0-3,8"


class Process(Struct, frozen=True, gc=False):
    """Somebody's process, as far as it is visible. `parents` are its ancestors' numbers, the nearest first."""

    pid: Pid
    parents: Annotated[list[Pid], Meta(max_length=32)] = []
    user: Text | None = None
    command: Text | None = None
    started_at: Number | None = None


class GpuProcess(Struct, frozen=True, gc=False):
    """A process on a GPU: the device memory that it holds in bytes, and its share of the SMs' time."""

    process: Process
    memory: Count | None = None
    sm_pct: Number | None = None
    kind: Literal["compute", "graphics", "mps"] = "compute"


class GpuFigures(Struct, frozen=True, gc=False):
    """One GPU (or MIG instance) as NVML sees it.

    Attributes:
        clock_reasons: names of what holds the clocks down now, of `CLOCK_REASONS`.
        processes: those on it, the largest first; of very many only the first.
        process_count: how many there are.
        xids: critical Xid errors seen.
        board: the UUID of the GPU that a MIG instance is part of.
        reads, slow_reads: how often it has been read, and what is read every tenth time (PCIe, NVLink, errors): a
            figure of the same reading is no new evidence.
    """

    index: int
    uuid: Text
    name: Text | None = None
    utilization_pct: Number | None = None
    memory_used: Count | None = None
    memory_total: Count | None = None
    temperature_c: Number | None = None
    power_w: Number | None = None
    power_limit_w: Number | None = None
    sm_clock_mhz: Number | None = None
    sm_clock_max_mhz: Number | None = None
    clock_reasons: Annotated[list[Text], Meta(max_length=16)] | None = None
    pcie_width: Count | None = None
    pcie_width_max: Count | None = None
    pcie_generation: Count | None = None
    pcie_generation_max: Count | None = None
    ecc_uncorrected: Count | None = None
    remapped_rows: Count | None = None  # uncorrectable, and those pending
    retired_pages: Count | None = None
    xids: Annotated[list[Count], Meta(max_length=16)] | None = None
    nvlinks_up: Count | None = None
    nvlinks: Count | None = None
    numa_node: int | None = None
    board: Text | None = None
    processes: Annotated[list[GpuProcess], Meta(max_length=32)] | None = None
    process_count: Count | None = None
    reads: Count | None = None
    slow_reads: Count | None = None
    unread: Reasons = {}


CLOCK_REASONS = (
    "idle",
    "application clocks",
    "software power cap",
    "hardware slowdown",
    "sync boost",
    "software thermal",
    "hardware thermal",
    "power brake",
    "display clocks",
)  # bits 0 to 8 of nvmlClocksEventReasons (nvml.h)


class ProcessFigures(Struct, frozen=True, gc=False, omit_defaults=True):
    """One rank's own process. What is unknown does not cross the store.

    Attributes:
        cpu_pct: percent of one core, all threads together; its DataLoader workers are in `workers_cpu_pct`.
        runqueue_pct: share of the wall time that its training thread was ready to run but had no CPU, or one of the
            autograd engine's threads, which launch the backward of a GPU, if that is more.
        runqueue_all_pct: that of all its threads together, so it may exceed 100.
        switches_per_s: involuntary context switches of the training thread.
        cpus: those that the training thread may run on.
        compute_threads: how many threads torch computes with in this process.
        workers: its DataLoader workers, and other processes below it that are at work.
        workers_cpu_pct, workers_rss_bytes: of all processes below it.
        quota_cpus: CPUs' worth of time that the tightest cgroup above it allows; None without a limit.
        quotas: each cgroup above it that has a limit -> the CPUs' worth of time that it allows. Processes of one host
            that name the same cgroup share what it allows.
        throttled_pct: share of the wall time that such a cgroup was throttled.
        memory_limit, memory_used: bytes, of the tightest cgroup above it; used is without reclaimable page cache.
        oom_kills: processes killed for memory in that cgroup.
        gpu_memory: device bytes that torch holds in this process (reserved by its caching allocator).
        gpu_allocated, gpu_peak: bytes of tensors that live on the device, and the most that these have been.
        alloc_retries: how often an allocation failed, and was tried again after torch had freed its cache.
        gpu_growth: bytes by which `gpu_allocated` grows in five minutes, by the least value at the sync points of each
            of eleven half minutes; 0 unless each of these is above the one before, None before there are so many.
        nccl_groups: the process groups that this rank reduces in with NCCL.
        cpu_mhz: the clock of the CPU on which the training thread ran last, as `scaling_cur_freq` has it; None where
            the kernel does not scale it, as in most virtual machines.
    """

    cpu_pct: Number | None = None
    rss_bytes: Count | None = None
    threads: Count | None = None
    runqueue_pct: Number | None = None
    runqueue_all_pct: Number | None = None
    switches_per_s: Number | None = None
    cpus: Cpus | None = None
    compute_threads: Count | None = None
    workers: Count | None = None
    workers_cpu_pct: Number | None = None
    workers_rss_bytes: Count | None = None
    quota_cpus: Number | None = None
    quotas: Annotated[dict[Text, Number], Meta(max_length=16)] = {}
    throttled_pct: Number | None = None
    memory_limit: Count | None = None
    memory_used: Count | None = None
    oom_kills: Count | None = None
    read_bytes_s: Number | None = None
    write_bytes_s: Number | None = None
    gpu_memory: Count | None = None
    gpu_allocated: Count | None = None
    gpu_peak: Count | None = None
    alloc_retries: Count | None = None
    gpu_growth: Count | None = None
    nccl_groups: Count | None = None
    cpu_mhz: Number | None = None
    unread: Reasons = {}


class HostProcess(Struct, frozen=True, gc=False):
    """A process that uses much CPU: percent of one core, where it may run, resident bytes.

    `reads` counts the readings in a row, the newest included, in which it did.
    """

    process: Process
    cpu_pct: Number | None = None
    cpus: Cpus | None = None
    rss_bytes: Count | None = None
    nice: int | None = None
    reads: Count | None = None


class Pressure(Struct, frozen=True, gc=False):
    """Pressure stall information: percent of the time that some, or all, tasks waited for a resource."""

    cpu: Number | None = None
    memory: Number | None = None
    memory_full: Number | None = None
    io: Number | None = None
    io_full: Number | None = None


class Disk(Struct, frozen=True, gc=False):
    """A file system that matters to the run. `uses` tells for what, such as "checkpoints"; `wait_ms` is a request's.

    `reads` counts its readings.
    """

    path: Text
    uses: Annotated[list[Text], Meta(max_length=8)]
    total: Count | None = None
    free: Count | None = None
    device: Text | None = None
    busy_pct: Number | None = None
    read_wait_ms: Number | None = None
    write_wait_ms: Number | None = None
    reads: Count | None = None


class Nic(Struct, frozen=True, gc=False):
    """A network interface that is up; errors and drops count both ways since the sampler began."""

    name: Text
    speed_mbit: Number | None = None
    received_bytes_s: Number | None = None
    sent_bytes_s: Number | None = None
    errors: Count | None = None
    drops: Count | None = None


class TakenPort(Struct, frozen=True, gc=False):
    """A port that the run wanted and somebody else held: what for, and by whom.

    `held` tells whether somebody listens there still; who came and went before anybody could look is nobody known.
    """

    port: Annotated[int, Meta(ge=0, le=65535)]
    wanted_for: Text
    process: Process | None = None
    held: bool = True


class HostFigures(Struct, frozen=True, gc=False):
    """One host.

    Attributes:
        cpu_pct: of all cores together. steal_pct: taken by the hypervisor, of all cores together.
        memory_used: without what could be reclaimed.
        processes: the greatest users of CPU, the run's own among them, the greatest first.
        numa: per NUMA node, its CPUs.
        readings: how often the host's own figures ("host") and its processes ("processes") have been read.
        retransmits_per_1000: TCP segments sent again, of a thousand sent; None when hardly any were sent.
    """

    cpu_pct: Number | None = None
    cpu_count: Count | None = None
    load_1m: Number | None = None
    steal_pct: Number | None = None
    memory_used: Count | None = None
    memory_total: Count | None = None
    swap_used: Count | None = None
    swap_in_bytes_s: Number | None = None
    pressure: Pressure | None = None
    processes: Annotated[list[HostProcess], Meta(max_length=32)] = []
    disks: Annotated[list[Disk], Meta(max_length=16)] = []
    nics: Annotated[list[Nic], Meta(max_length=32)] = []
    retransmits_per_1000: Number | None = None
    ports: Annotated[list[TakenPort], Meta(max_length=8)] = []
    numa: Annotated[list[Cpus], Meta(max_length=64)] = []
    readings: Annotated[dict[Text, Count], Meta(max_length=16)] = {}
    unread: Reasons = {}
