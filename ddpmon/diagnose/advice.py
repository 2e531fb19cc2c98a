"""Advice from measurements: the usual knobs, each only where a figure supports it, with the gain it may bring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.alert_book import AlertBook
from ddpmon.diagnose.job_policy import ADVICE
from ddpmon.diagnose.late_policy import LATENESS
from ddpmon.diagnose.step_matrix import StepMatrix
from ddpmon.diagnose.tick import Tick
from ddpmon.machine import GpuFigures
from ddpmon.run.bucket_times import bus_bandwidth
from ddpmon.run.medians import middle, some_of
from ddpmon.run.model import Run
from ddpmon.run.rings import I64
from ddpmon.schema import RunInfo

_MIB = 1 << 20  # bytes


class InputAdvice(Measures, frozen=True):
    """Input takes a notable part of a step on the typical rank.

    Attributes:
        input_ms: that part, a step.
        step_ms: the duration of a step.
        workers: of the DataLoader, -1 where unknown.
    """

    input_ms: float
    step_ms: float
    workers: int


class OneBucketAdvice(Measures, frozen=True):
    """All gradients are in one bucket, whose transfer cannot overlap with backward.

    Attributes:
        transfer_ms: the part of the transfer that no rank could hide, a step.
        at_most: it holds copies on the GPU, too, and is an upper bound.
        backward_ms: what the typical rank spends in backward, a step.
        gradient_bytes: of one reduction.
        cap_mib: the size of a bucket, in MiB, that would make the usual number of them.
    """

    transfer_ms: float
    at_most: bool
    backward_ms: float
    gradient_bytes: int
    cap_mib: int


class ManyBucketsAdvice(Measures, frozen=True):
    """The gradients are in many small buckets.

    Attributes:
        transfer_ms, at_most: as in `OneBucketAdvice`.
        buckets: of one reduction.
        bucket_bytes: the mean size of one.
    """

    transfer_ms: float
    at_most: bool
    buckets: int
    bucket_bytes: float


class AccumulateAdvice(Measures, frozen=True):
    """The transfer takes a large part of a step.

    Attributes:
        transfer_ms, at_most: as in `OneBucketAdvice`.
        step_ms: the duration of a step.
    """

    transfer_ms: float
    at_most: bool
    step_ms: float


class HalfPrecisionAdvice(Measures, frozen=True):
    """The gradients are transferred as float32.

    Attributes:
        transfer_ms, at_most: as in `OneBucketAdvice`.
        gradient_bytes: of one reduction.
        busbw_gb_s: the bus bandwidth that it gets at least, in GB/s; 0 where unknown.
    """

    transfer_ms: float
    at_most: bool
    gradient_bytes: int
    busbw_gb_s: float


class InterconnectAdvice(Measures, frozen=True):
    """The GPUs reduce over a slow path.

    Attributes:
        path: through Gloo, which copies by way of the host, or over a slow network between hosts.
        transfer_ms: the most that the transfer takes beside backward, a step.
        hosts: how many the ranks are on.
        busbw_gb_s: the bus bandwidth that the reduction gets at least, in GB/s; 0 where unknown.
    """

    path: Literal["gloo", "network"]
    transfer_ms: float
    hosts: int
    busbw_gb_s: float


class BucketViewAdvice(Measures, frozen=True):
    """The memory of a GPU is nearly full, and the gradients are in it twice.

    Attributes:
        memory_pct: the used part of the fullest GPU's memory, in percent.
        gradient_bytes: the size of the second copy.
    """

    memory_pct: float
    gradient_bytes: int


class Facts(Struct, frozen=True):
    """What advice rests on: medians in ms over the last fifty usable steps, sizes in bytes.

    Attributes:
        transfer_ms: the part of the reduction that no rank could hide.
        reduction_ms: first bucket launched to all reduced, 0 where unknown.
        buckets, gradient_bytes: of one reduction, 0 where unknown.
        workers: of the DataLoader, -1 where unknown.
        memory_share: the fullest GPU's used part, 0 where unknown.
    """

    info: RunInfo
    duration_ms: float
    input_ms: float
    backward_ms: float
    transfer_ms: float
    reduction_ms: float
    buckets: int
    gradient_bytes: int
    workers: int
    hosts: int
    memory_share: float

    @property
    def exposed_share(self) -> float:
        """The part of a step that the transfer takes."""
        return self.transfer_ms / self.duration_ms

    @property
    def on_gpus(self) -> bool:
        """Whether the ranks compute on GPUs: the transfer then holds copies, too, and is an upper bound."""
        return self.info.device == "cuda"

    @property
    def busbw_gb_s(self) -> float:
        """At least so much bus bandwidth, 0 where unknown: the transfer took no longer than these times."""
        longest = np.array(max(self.transfer_ms, self.reduction_ms))
        return float(np.nan_to_num(bus_bandwidth(self.gradient_bytes, longest, self.info.world_size)))


class Advice:
    """Follows which advice the figures support."""

    def __init__(self, book: AlertBook) -> None:
        self.lives = book.group("advice")
        self._judged = -1

    def __call__(self, tick: Tick, _said: Sequence[Alert]) -> list[Alert]:
        """Judge again every ten steps, once all ranks are seen and heard."""
        run, matrix, steps = tick.run, tick.steps, tick.steps.steps
        if len(steps) < ADVICE.window_steps or min(len(matrix.ranks), len(run.states)) < run.rank_count:
            return []
        for end in self._ends(steps):
            self._judged = int(steps[end - 1])
            self._judge(_facts(run, matrix, end))
        return self.lives.firing

    def _ends(self, steps: I64) -> list[int]:
        """The places behind the windows to judge: of a past that is seen for the first time, as many as confirm."""
        if int(steps[-1]) < self._judged + ADVICE.every_steps:
            return []
        if self._judged >= 0:
            return [len(steps)]
        ends = [len(steps) - ADVICE.every_steps * back for back in reversed(range(self.lives.confirmations))]
        return [end for end in ends if end >= ADVICE.window_steps]

    def _judge(self, facts: Facts) -> None:
        for key, rule in enumerate(RULES):
            found = rule(facts) if facts.duration_ms > 0 else None
            self.lives.observe(key, self._judged, high=found is not None, low=found is None)
            for life in self.lives:
                if life.key == key and found is not None:
                    life.describe(found)


def _facts(run: Run, matrix: StepMatrix, end: int) -> Facts:
    window = slice(end - ADVICE.window_steps, end)
    steps = matrix.steps[window]
    frames = [frame for frame in run.latest.whole if frame is not None]  # what is asked here is in no host frame
    windows = run.rings.take("allreduce", steps, matrix.ranks)
    known = windows[~np.isnan(windows)]
    return Facts(
        info=run.info,
        duration_ms=middle(matrix.job("duration")[window]),
        input_ms=_typical(run, "input", steps, matrix.ranks),
        backward_ms=_typical(run, "backward", steps, matrix.ranks),
        transfer_ms=middle(matrix.job("transfer")[window]),
        reduction_ms=float(np.median(known)) if known.size else 0.0,
        buckets=max(frame.bucket_count for frame in frames),
        gradient_bytes=run.bucket_bytes() or max(frame.gradient_bytes for frame in frames) or run.info.gradient_bytes,
        workers=int(np.fmax.reduce(run.latest.column("loader_workers"), initial=-1)),
        hosts=len(matrix.hosts),
        memory_share=max(map(_memory, run.gpus())),
    )


def _typical(run: Run, name: str, steps: I64, ranks: I64) -> float:
    """What the typical rank spends a step: the lower median, so that of two ranks a late one is not half of it."""
    asked = some_of(ranks, LATENESS.sampled_ranks)
    place = (len(asked) - 1) // 2
    return middle(np.partition(np.nan_to_num(run.rings.take(name, steps, asked)), place, axis=0)[place])


def _memory(gpu: GpuFigures | None) -> float:
    return gpu.memory_used / gpu.memory_total if gpu and gpu.memory_used and gpu.memory_total else 0.0


def _input(facts: Facts) -> Alert | None:
    share = facts.input_ms / facts.duration_ms
    if share < ADVICE.notable_share:
        return None
    return _advise(100 * share, InputAdvice(facts.input_ms, facts.duration_ms, facts.workers))


def _one_bucket(facts: Facts) -> Alert | None:
    if (
        facts.exposed_share < ADVICE.notable_share
        or facts.buckets != 1
        or facts.gradient_bytes < ADVICE.splittable_bytes
    ):
        return None
    hidden = min(facts.transfer_ms, facts.backward_ms) * (1 - 1 / ADVICE.usual_buckets)
    cap = max(1, facts.gradient_bytes // _MIB // ADVICE.usual_buckets)
    return _advise(
        100 * hidden / facts.duration_ms,
        OneBucketAdvice(facts.transfer_ms, facts.on_gpus, facts.backward_ms, facts.gradient_bytes, cap),
    )


def _many_buckets(facts: Facts) -> Alert | None:
    each = facts.gradient_bytes / max(1, facts.buckets)
    if (
        facts.exposed_share < ADVICE.notable_share
        or facts.buckets < ADVICE.many_buckets
        or each >= ADVICE.small_bucket_bytes
    ):
        return None
    return _advise(50 * facts.exposed_share, ManyBucketsAdvice(facts.transfer_ms, facts.on_gpus, facts.buckets, each))


def _accumulate(facts: Facts) -> Alert | None:
    if facts.exposed_share < ADVICE.large_share:
        return None
    return _advise(50 * facts.exposed_share, AccumulateAdvice(facts.transfer_ms, facts.on_gpus, facts.duration_ms))


def _half_precision(facts: Facts) -> Alert | None:
    settings = facts.info.settings
    large = facts.gradient_bytes >= ADVICE.compressible_bytes
    plain = settings.gradient_dtype == "float32" and settings.comm_hook is None
    if facts.exposed_share < ADVICE.notable_share or not large or not plain:
        return None
    return _advise(
        50 * facts.exposed_share,
        HalfPrecisionAdvice(facts.transfer_ms, facts.on_gpus, facts.gradient_bytes, facts.busbw_gb_s),
    )


def _interconnect(facts: Facts) -> Alert | None:
    if not facts.on_gpus or facts.exposed_share < ADVICE.notable_share:
        return None
    path: Literal["gloo", "network"]
    if facts.info.backend == "gloo":
        path = "gloo"
    elif facts.hosts > 1 and 0 < facts.busbw_gb_s < ADVICE.slow_link_gb_s:
        path = "network"
    else:
        return None
    return _advise(
        100 * facts.exposed_share, InterconnectAdvice(path, facts.transfer_ms, facts.hosts, facts.busbw_gb_s)
    )


def _bucket_view(facts: Facts) -> Alert | None:
    if facts.info.settings.gradient_as_bucket_view is not False or facts.memory_share < ADVICE.full_memory_share:
        return None
    return _advise(None, BucketViewAdvice(100 * facts.memory_share, facts.gradient_bytes))


def _advise(gain_pct: float | None, measures: Measures) -> Alert:
    return Alert(kind="advice", severity="info", cost_pct=gain_pct, measures=measures)


RULES: tuple[Callable[[Facts], Alert | None], ...] = (
    _input,
    _one_bucket,
    _many_buckets,
    _accumulate,
    _half_precision,
    _interconnect,
    _bucket_view,
)
