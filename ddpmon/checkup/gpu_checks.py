"""Checks of the GPUs before a run: enough of them, free, unhurt, at full speed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpmon.checkup.facts import Check, Facts, Level
from ddpmon.format import plural
from ddpmon.machine import GpuFigures
from ddpmon.report.wording import named
from ddpmon.run.limits import HELD_DOWN, gpu_faults, is_narrow

_BUSY_PCT = 5.0
_HELD_PART, _MUCH_PART = 0.02, 0.25  # of a GPU's memory; a bare context is some hundred MB
_CAPPED = 0.9
_RELEASE = re.compile(r"(\d+)\.(\d+)", re.ASCII)
_RECORDS_SINCE = (2, 8)  # releases up to about 2.7 keep 0 entries by default, 2.13 keeps 2,000


def check_gpus(facts: Facts) -> Iterator[Check]:
    """Everything about the GPUs of one host."""
    if facts.device != "cuda":
        return
    if not facts.gpus:
        yield Check("gpus", "failure", f"no GPU can be read: {facts.no_gpus_because or 'there is none'}", _NO_GPU)
        return
    whole = [gpu for gpu in facts.gpus if gpu.board is None]
    split = {gpu.board for gpu in facts.gpus}
    usable = [gpu for gpu in facts.gpus if gpu.uuid not in split]  # a GPU that is split lends its instances
    if facts.ranks is not None and facts.ranks > len(usable):
        of_gpus = plural(len(usable), "GPU")
        text = f"{facts.ranks} ranks are planned for {of_gpus}: some would share a GPU, which NCCL refuses"
        yield Check("gpus", "failure", text, f"start at most {plural(len(usable), 'rank')} on this host")
    found = [check for gpu in facts.gpus for check in (_busy(gpu), _held(gpu), _health(gpu), _slow(gpu), _link(gpu))]
    troubles = [check for check in found if check is not None]
    yield from troubles
    yield from _limits(whole)
    if not troubles:
        yield Check("gpus", "ok", f"{plural(len(usable), 'GPU')}, idle and free")
    yield from _recorder(facts)


_RECORD = (
    "set TORCH_FR_BUFFER_SIZE=2000 (torch before 2.8: TORCH_NCCL_TRACE_BUFFER_SIZE), so that in a hang ddpmon can say "
    "which collective each rank is in"
)
_NO_GPU = "run nvidia-smi; in a container, pass the GPUs in (docker run --gpus all)"


def _recorder(facts: Facts) -> Iterator[Check]:
    """Torch's flight recorder: without it a hang is told from the GPUs' marks and the ranks' steps alone."""
    release = _RELEASE.match(facts.versions.get("torch", ""))
    is_old = release is not None and (int(release[1]), int(release[2])) < _RECORDS_SINCE
    if facts.recorder_entries == 0:
        text = "torch's flight recorder is off: its buffer size is set to 0"
    elif facts.recorder_entries is None and is_old:
        text = "torch's flight recorder may be off: older releases need TORCH_FR_BUFFER_SIZE"
    else:
        return
    yield Check("flight recorder", "ok", text, _RECORD)


def _busy(gpu: GpuFigures) -> Check | None:
    if gpu.utilization_pct is None or gpu.utilization_pct < _BUSY_PCT:
        return None
    text = f"GPU {gpu.index} is {gpu.utilization_pct:.0f} % busy{_with(gpu)}"
    return Check("gpu busy", "warning", text, "end what runs there, or exclude this GPU with CUDA_VISIBLE_DEVICES")


def _held(gpu: GpuFigures) -> Check | None:
    if gpu.memory_used is None or not gpu.memory_total:
        return None
    part = gpu.memory_used / gpu.memory_total
    if part < _HELD_PART and not gpu.processes:
        return None
    level: Level = "failure" if part > 1 - _MUCH_PART else "warning"
    text = (
        f"GPU {gpu.index}: {gpu.memory_used / 2**30:.1f} of {gpu.memory_total / 2**30:.0f} GiB are in use{_with(gpu)}"
    )
    return Check(
        "gpu memory", level, text, "end these processes before you start: they may be leftovers of an earlier run"
    )


def _with(gpu: GpuFigures) -> str:
    """By whom, where it can be seen."""
    if not gpu.processes:
        return "" if gpu.processes is None else " by processes that are not visible from here"
    return f" by {', '.join(named(found.process) for found in gpu.processes[:3])}"


def _health(gpu: GpuFigures) -> Check | None:
    faults = gpu_faults(gpu.ecc_uncorrected, gpu.remapped_rows, gpu.retired_pages)
    if not faults:
        return None
    text = f"GPU {gpu.index} has {', '.join(f'{count} {name}' for name, count in faults.items())}"
    return Check("gpu health", "warning", text, f"have it reset or replaced; see nvidia-smi -q -i {gpu.index}")


def _slow(gpu: GpuFigures) -> Check | None:
    reasons = [reason for reason in gpu.clock_reasons or () if reason in HELD_DOWN]
    if not reasons:
        return None
    hot = "" if gpu.temperature_c is None else f" at {gpu.temperature_c:.0f} °C"
    text = f"GPU {gpu.index} is throttled{hot}: {', '.join(reasons)}"
    return Check("gpu clocks", "warning", text, "check its cooling and power supply")


def _link(gpu: GpuFigures) -> Check | None:
    if not is_narrow(gpu):
        return None
    text = f"GPU {gpu.index} uses x{gpu.pcie_width} of x{gpu.pcie_width_max} PCIe lanes"
    return Check("pcie", "warning", text, "reseat the GPU; some boards share lanes between slots")


def _limits(gpus: list[GpuFigures]) -> Iterator[Check]:
    """GPUs of one kind of which one may draw less power than its peers."""
    limits = [(gpu.power_limit_w, gpu) for gpu in gpus if gpu.power_limit_w]
    most = {gpu.name: max(limit for limit, other in limits if other.name == gpu.name) for _, gpu in limits}
    for limit, gpu in limits:
        if limit < _CAPPED * most[gpu.name]:
            text = f"GPU {gpu.index} may draw {limit:.0f} W, other GPUs of its kind {most[gpu.name]:.0f} W"
            yield Check(
                "gpu clocks",
                "warning",
                text,
                f"set the same limit on all: nvidia-smi -i {gpu.index} -pl {most[gpu.name]:.0f}",
            )
