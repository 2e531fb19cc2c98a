"""Advice from measurements: the usual knobs, each only where a figure supports it, with the gain it may bring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ddpmon.diagnose.cases import Cases
from ddpmon.diagnose.finding import Finding
from ddpmon.diagnose.measure import Others
from ddpmon.diagnose.step_matrix import StepMatrix
from ddpmon.format import ms, pct, size
from ddpmon.machine import GpuFigures
from ddpmon.run.medians import middle
from ddpmon.run.model import Run
from ddpmon.schema import RunInfo

WINDOW = 50
_EVERY = 10
_NOTABLE = 0.10
_LARGE = 0.25
_MIB = 1 << 20
_SMALL_BUCKET = 4 * _MIB
_MANY_BUCKETS = 8
_USUAL_BUCKETS = 4
_SLOW_LINK_GB_S = 1.25  # what a 10 Gbit/s network carries
_FULL = 0.85


@dataclass(frozen=True, slots=True)
class Facts:
    """What advice rests on: medians in ms over the last fifty usable steps, sizes in bytes.

    Attributes:
        transfer: the part of the reduction that no rank could hide.
        reduction: first bucket launched to all reduced, 0 where unknown.
        buckets, gradient_bytes: of one reduction, 0 where unknown.
        workers: of the DataLoader, -1 where unknown.
        memory: the fullest GPU's used part, 0 where unknown.
    """

    info: RunInfo
    duration: float
    input: float
    backward: float
    transfer: float
    reduction: float
    buckets: int
    gradient_bytes: int
    workers: int
    hosts: int
    memory: float

    @property
    def exposed_share(self) -> float:
        """The part of a step that the transfer takes."""
        return self.transfer / self.duration

    @property
    def unhidden(self) -> str:
        """The transfer in words. On a GPU it holds the copies from the buckets to the gradients, too."""
        return f"{'at most ' if self.info.device == 'cuda' else ''}{ms(self.transfer)}"

    @property
    def busbw_gb_s(self) -> float:
        """At least so much bus bandwidth: `bytes / time * 2(n-1)/n` (nccl-tests, PERFORMANCE.md)."""
        n, longest = self.info.world_size, max(self.transfer, self.reduction)
        return self.gradient_bytes / 1e6 / longest * 2 * (n - 1) / n if longest > 0 else 0.0


class Advice:
    """Follows which advice the figures support."""

    def __init__(self) -> None:
        self.cases = Cases()
        self._judged = -1

    def update(self, run: Run, matrix: StepMatrix) -> list[Finding]:
        """Look again every ten steps, once all ranks are seen and heard."""
        steps = matrix.steps
        if len(steps) < WINDOW or min(len(matrix.who), len(run.states)) < run.rank_count:
            return []
        if int(steps[-1]) >= self._judged + _EVERY:
            self._judged = int(steps[-1])
            facts = _facts(run, matrix)
            for key, rule in enumerate(RULES):
                found = rule(facts) if facts.duration > 0 else None
                self.cases.turn(key, self._judged, high=found is not None, low=found is None)
                for case in self.cases:
                    if case.key == key and found is not None:
                        case.finding = found
        return [case.finding for case in self.cases if case.finding is not None]


def _facts(run: Run, matrix: StepMatrix) -> Facts:
    steps = matrix.steps[-WINDOW:]
    normal = Others(run, steps, matrix.who, ("input", "backward")).normal
    frames = [state.frame for state in run.ranks if state is not None]
    windows = run.rings.take("allreduce", steps, matrix.who)
    known = windows[~np.isnan(windows)]
    return Facts(
        info=run.info,
        duration=middle(matrix.job("duration")[-WINDOW:]),
        input=middle(normal["input"]),
        backward=middle(normal["backward"]),
        transfer=middle(matrix.job("transfer")[-WINDOW:]),
        reduction=float(np.median(known)) if known.size else 0.0,
        buckets=max(frame.bucket_count for frame in frames),
        gradient_bytes=run.bucket_bytes() or max(frame.gradient_bytes for frame in frames) or run.info.gradient_bytes,
        workers=max((frame.loader.workers for frame in frames if frame.loader is not None), default=-1),
        hosts=len(matrix.hosts),
        memory=max(map(_memory, run.gpus())),
    )


def _memory(gpu: GpuFigures | None) -> float:
    return gpu.memory_used / gpu.memory_total if gpu and gpu.memory_used and gpu.memory_total else 0.0


def _input(facts: Facts) -> Finding | None:
    share = facts.input / facts.duration
    if share < _NOTABLE:
        return None
    workers = {-1: "", 0: " without DataLoader workers"}.get(facts.workers, f" with {facts.workers} DataLoader workers")
    return _advise(
        f"input takes {ms(facts.input)} of a step of {ms(facts.duration)} on the typical rank{workers}",
        100 * share,
        "load batches in the background: DataLoader(num_workers=..., prefetch_factor=..., persistent_workers=True)",
        {"input_ms": facts.input, "step_ms": facts.duration, "workers": facts.workers},
    )


def _one_bucket(facts: Facts) -> Finding | None:
    if facts.exposed_share < _NOTABLE or facts.buckets != 1 or facts.gradient_bytes < 2 * _MIB:
        return None
    hidden = min(facts.transfer, facts.backward) * (1 - 1 / _USUAL_BUCKETS)
    cap = max(1, facts.gradient_bytes // _MIB // _USUAL_BUCKETS)
    return _advise(
        f"all gradients ({size(facts.gradient_bytes)}) are in one bucket, so none of its "
        f"{facts.unhidden} of transfer overlaps with backward",
        100 * hidden / facts.duration,
        f"use smaller buckets, which start while backward still runs: DistributedDataParallel(bucket_cap_mb={cap})",
        {"transfer_ms": facts.transfer, "backward_ms": facts.backward, "gradient_bytes": facts.gradient_bytes},
    )


def _many_buckets(facts: Facts) -> Finding | None:
    each = facts.gradient_bytes / max(1, facts.buckets)
    if facts.exposed_share < _NOTABLE or facts.buckets < _MANY_BUCKETS or each >= _SMALL_BUCKET:
        return None
    return _advise(
        f"the gradients are in {facts.buckets} buckets of {size(each)}, and {facts.unhidden} of transfer a step "
        f"is not hidden: many small reductions spend more time on latency than on data",
        50 * facts.exposed_share,
        "use larger buckets: DistributedDataParallel(bucket_cap_mb=25) or more",
        {"buckets": facts.buckets, "bucket_bytes": each, "transfer_ms": facts.transfer},
    )


def _accumulate(facts: Facts) -> Finding | None:
    if facts.exposed_share < _LARGE:
        return None
    return _advise(
        f"{100 * facts.exposed_share:.0f} % of a step ({facts.unhidden}) is transfer that backward does not hide",
        50 * facts.exposed_share,
        "reduce half as often: accumulate gradients over two batches under no_sync(), or use larger batches",
        {"transfer_ms": facts.transfer, "step_ms": facts.duration},
    )


def _half_precision(facts: Facts) -> Finding | None:
    settings = facts.info.settings
    large = facts.gradient_bytes >= _SMALL_BUCKET
    plain = settings.gradient_dtype == "float32" and settings.comm_hook is None
    if facts.exposed_share < _NOTABLE or not large or not plain:
        return None
    return _advise(
        f"{size(facts.gradient_bytes)} of float32 gradients take {facts.unhidden} a step outside backward",
        50 * facts.exposed_share,
        "halve the bytes: ddp_model.register_comm_hook(None, bf16_compress_hook), or train in mixed precision",
        {"transfer_ms": facts.transfer, "gradient_bytes": facts.gradient_bytes, "busbw_gb_s": facts.busbw_gb_s},
    )


def _interconnect(facts: Facts) -> Finding | None:
    on_gpus = facts.info.device == "cuda"
    if not on_gpus or facts.exposed_share < _NOTABLE:
        return None
    evidence = {"busbw_gb_s": facts.busbw_gb_s, "transfer_ms": facts.transfer, "hosts": facts.hosts}
    if facts.info.backend == "gloo":
        said, advice = "the GPUs reduce through Gloo, which copies by way of the host", 'use init_process_group("nccl")'
    elif facts.hosts > 1 and 0 < facts.busbw_gb_s < _SLOW_LINK_GB_S:
        said = f"the reduction between {facts.hosts} hosts gets at least {facts.busbw_gb_s:.2g} GB/s of bus bandwidth"
        advice = "check which network NCCL uses: NCCL_DEBUG=INFO logs it, NCCL_SOCKET_IFNAME and NCCL_IB_HCA choose it"
    else:
        return None
    return _advise(f"{said}: {facts.unhidden} a step", 100 * facts.exposed_share, advice, evidence)


def _bucket_view(facts: Facts) -> Finding | None:
    if facts.info.settings.gradient_as_bucket_view is not False or facts.memory < _FULL:
        return None
    copy = size(facts.gradient_bytes)
    return Finding(
        kind="advice",
        severity="info",
        summary=f"the memory of a GPU is {100 * facts.memory:.0f} % full, and {copy} of it is a second copy of the "
        "gradients",
        evidence={"memory_pct": 100 * facts.memory, "gradient_bytes": facts.gradient_bytes},
        advice=f"use DistributedDataParallel(gradient_as_bucket_view=True), which frees {copy}",
    )


def _advise(said: str, gain_pct: float, advice: str, evidence: dict[str, float | int]) -> Finding:
    return Finding(
        kind="advice",
        severity="info",
        summary=f"{said}. Up to {pct(gain_pct)} % of the run's time could be saved.",
        cost_pct=gain_pct,
        evidence={**evidence, "gain_pct": gain_pct},
        advice=advice,
    )


RULES: tuple[Callable[[Facts], Finding | None], ...] = (
    _input,
    _one_bucket,
    _many_buckets,
    _accumulate,
    _half_precision,
    _interconnect,
    _bucket_view,
)
