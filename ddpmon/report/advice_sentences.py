"""The sentences on settings that may make the run faster: what the figures show, the gain, and which knob to turn."""

from __future__ import annotations

from collections.abc import Mapping

from ddpmon.diagnose.advice import (
    AccumulateAdvice,
    BucketViewAdvice,
    HalfPrecisionAdvice,
    InputAdvice,
    InterconnectAdvice,
    ManyBucketsAdvice,
    OneBucketAdvice,
)
from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.format import ms, pct, size
from ddpmon.report.tense import tense
from ddpmon.report.wording import Evidence, Sentence, Words

_WORKERS = {-1: "", 0: " without DataLoader workers"}
_LOAD_BEHIND = (
    "load batches in the background: DataLoader(num_workers=..., prefetch_factor=..., persistent_workers=True)"
)
_LARGER_BUCKETS = "use larger buckets: DistributedDataParallel(bucket_cap_mb=25) or more"
_REDUCE_LESS = "reduce half as often: accumulate gradients over two batches under no_sync(), or use larger batches"
_HALVE = "halve the bytes: ddp_model.register_comm_hook(None, bf16_compress_hook), or train in mixed precision"
_NCCL = 'use init_process_group("nccl")'
_WHICH_NETWORK = "check which network NCCL uses: NCCL_DEBUG=INFO logs it, NCCL_SOCKET_IFNAME and NCCL_IB_HCA choose it"


def _input(m: InputAdvice, alert: Alert) -> Words:
    workers = _WORKERS.get(m.workers, f" with {m.workers} DataLoader workers")
    return _advise(
        alert,
        f"input {tense(alert, 'takes')} {ms(m.input_ms)} of a step of {ms(m.step_ms)} on the typical rank{workers}",
        _LOAD_BEHIND,
        {"input_ms": m.input_ms, "step_ms": m.step_ms, "workers": m.workers},
    )


def _one_bucket(m: OneBucketAdvice, alert: Alert) -> Words:
    return _advise(
        alert,
        f"all gradients ({size(m.gradient_bytes)}) {tense(alert, 'are')} in one bucket, so none of its "
        f"{_transfer(m.transfer_ms, m.at_most)} of transfer {tense(alert, 'overlaps')} with backward",
        "use smaller buckets, which start while backward still runs: "
        f"DistributedDataParallel(bucket_cap_mb={m.cap_mib})",
        {"transfer_ms": m.transfer_ms, "backward_ms": m.backward_ms, "gradient_bytes": m.gradient_bytes},
    )


def _many_buckets(m: ManyBucketsAdvice, alert: Alert) -> Words:
    return _advise(
        alert,
        f"the gradients {tense(alert, 'are')} in {m.buckets} buckets of {size(m.bucket_bytes)}, and "
        f"{_transfer(m.transfer_ms, m.at_most)} of transfer a step {tense(alert, 'is')} not hidden: many small "
        "reductions spend more time on latency than on data",
        _LARGER_BUCKETS,
        {"buckets": m.buckets, "bucket_bytes": m.bucket_bytes, "transfer_ms": m.transfer_ms},
    )


def _accumulate(m: AccumulateAdvice, alert: Alert) -> Words:
    share = f"{100 * (m.transfer_ms / m.step_ms):.0f} % of a step ({_transfer(m.transfer_ms, m.at_most)})"
    return _advise(
        alert,
        f"{share} {tense(alert, 'is')} transfer that backward {tense(alert, 'does')} not hide",
        _REDUCE_LESS,
        {"transfer_ms": m.transfer_ms, "step_ms": m.step_ms},
    )


def _half_precision(m: HalfPrecisionAdvice, alert: Alert) -> Words:
    return _advise(
        alert,
        f"{size(m.gradient_bytes)} of float32 gradients {tense(alert, 'take')} {_transfer(m.transfer_ms, m.at_most)} a "
        "step outside backward",
        _HALVE,
        {"transfer_ms": m.transfer_ms, "gradient_bytes": m.gradient_bytes, "busbw_gb_s": m.busbw_gb_s},
    )


def _interconnect(m: InterconnectAdvice, alert: Alert) -> Words:
    if m.path == "gloo":
        said = f"the GPUs {tense(alert, 'reduce')} through Gloo, which copies by way of the host"
        advice = _NCCL
    else:
        least = f"{tense(alert, 'gets')} at least {m.busbw_gb_s:.2g} GB/s of bus bandwidth"
        said = f"the reduction between {m.hosts} hosts {least}"
        advice = _WHICH_NETWORK
    return _advise(
        alert,
        f"{said}: {_transfer(m.transfer_ms, at_most=True)} a step",
        advice,
        {"busbw_gb_s": m.busbw_gb_s, "transfer_ms": m.transfer_ms, "hosts": m.hosts},
    )


def _bucket_view(m: BucketViewAdvice, alert: Alert) -> Words:
    copy, is_ = size(m.gradient_bytes), tense(alert, "is")
    return Words(
        f"the memory of a GPU {is_} {m.memory_pct:.0f} % full, and {copy} of it {is_} a second copy of the gradients",
        advice=f"use DistributedDataParallel(gradient_as_bucket_view=True), which frees {copy}",
        evidence={"memory_pct": m.memory_pct, "gradient_bytes": m.gradient_bytes},
    )


def _transfer(duration_ms: float, at_most: bool) -> str:
    """The transfer that is not hidden. On a GPU it holds the copies from the buckets to the gradients, too."""
    return f"{'at most ' if at_most else ''}{ms(duration_ms)}"


def _advise(alert: Alert, said: str, advice: str, evidence: Evidence) -> Words:
    gain = alert.cost_pct or 0.0
    rest = f"Up to {pct(gain)} % of the run's time {tense(alert, 'could be')} saved."
    return Words(said, rest=rest, advice=advice, evidence={**evidence, "gain_pct": gain})


SENTENCES: Mapping[type[Measures], Sentence] = {
    InputAdvice: _input,
    OneBucketAdvice: _one_bucket,
    ManyBucketsAdvice: _many_buckets,
    AccumulateAdvice: _accumulate,
    HalfPrecisionAdvice: _half_precision,
    InterconnectAdvice: _interconnect,
    BucketViewAdvice: _bucket_view,
}
