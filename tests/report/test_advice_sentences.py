"""What is said of settings that may make the run faster."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

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
from ddpmon.report.advice_sentences import SENTENCES
from ddpmon.report.sentences import tell
from ddpmon.shell_command import advice_text

MB = 10**6
INPUT = InputAdvice(30.0, 127.0, -1)
ONE_BUCKET = OneBucketAdvice(20.0, False, 60.0, 40 * MB, 9)
MANY_BUCKETS = ManyBucketsAdvice(20.0, False, 40, 5e5)
ACCUMULATE = AccumulateAdvice(50.0, False, 150.0)
HALF = HalfPrecisionAdvice(20.0, False, 100 * MB, 7.5)
LINK = InterconnectAdvice("network", 20.0, 2, 0.6)
VIEW = BucketViewAdvice(93.75, 4000 * MB)

LOAD_BEHIND = (
    "load batches in the background: DataLoader(num_workers=..., prefetch_factor=..., persistent_workers=True)"
)
SMALLER = "use smaller buckets, which start while backward still runs: DistributedDataParallel(bucket_cap_mb=9)"
LARGER = "use larger buckets: DistributedDataParallel(bucket_cap_mb=25) or more"
LESS_OFTEN = "reduce half as often: accumulate gradients over two batches under no_sync(), or use larger batches"
HALVE = "halve the bytes: ddp_model.register_comm_hook(None, bf16_compress_hook), or train in mixed precision"


def alert(measures: Measures, gain_pct: float | None = 12.5) -> Alert:
    return Alert("advice", "info", cost_pct=gain_pct, measures=measures)


ROWS = [
    (
        "input",
        alert(INPUT, 23.6),
        "input takes 30 ms of a step of 127 ms on the typical rank. Up to 24 % of the run's time could be saved.",
        LOAD_BEHIND,
    ),
    (
        "input without workers",
        alert(replace(INPUT, workers=0), 23.6),
        "input takes 30 ms of a step of 127 ms on the typical rank without DataLoader workers. Up to 24 % of the run's "
        "time could be saved.",
        LOAD_BEHIND,
    ),
    (
        "input with workers",
        alert(replace(INPUT, workers=2), 23.6),
        "input takes 30 ms of a step of 127 ms on the typical rank with 2 DataLoader workers. Up to 24 % of the run's "
        "time could be saved.",
        LOAD_BEHIND,
    ),
    (
        "one bucket",
        alert(ONE_BUCKET),
        "all gradients (38 MiB) are in one bucket, so none of its 20 ms of transfer overlaps with backward. Up to 12 % "
        "of the run's time could be saved.",
        SMALLER,
    ),
    (
        "one bucket on a GPU",
        alert(replace(ONE_BUCKET, at_most=True)),
        "all gradients (38 MiB) are in one bucket, so none of its at most 20 ms of transfer overlaps with backward. "
        "Up to 12 % of the run's time could be saved.",
        SMALLER,
    ),
    (
        "many buckets",
        alert(MANY_BUCKETS, 8.3),
        "the gradients are in 40 buckets of 0.5 MiB, and 20 ms of transfer a step is not hidden: many small reductions "
        "spend more time on latency than on data. Up to 8.3 % of the run's time could be saved.",
        LARGER,
    ),
    (
        "many buckets on a GPU",
        alert(replace(MANY_BUCKETS, at_most=True), 8.3),
        "the gradients are in 40 buckets of 0.5 MiB, and at most 20 ms of transfer a step is not hidden: many small "
        "reductions spend more time on latency than on data. Up to 8.3 % of the run's time could be saved.",
        LARGER,
    ),
    (
        "transfer",
        alert(ACCUMULATE, 16.7),
        "33 % of a step (50 ms) is transfer that backward does not hide. Up to 17 % of the run's time could be saved.",
        LESS_OFTEN,
    ),
    (
        "transfer on a GPU",
        alert(replace(ACCUMULATE, at_most=True), 16.7),
        "33 % of a step (at most 50 ms) is transfer that backward does not hide. Up to 17 % of the run's time could be "
        "saved.",
        LESS_OFTEN,
    ),
    (
        "float32",
        alert(HALF, 8.3),
        "95 MiB of float32 gradients take 20 ms a step outside backward. Up to 8.3 % of the run's time could be saved.",
        HALVE,
    ),
    (
        "float32 on a GPU",
        alert(replace(HALF, at_most=True), 8.3),
        "95 MiB of float32 gradients take at most 20 ms a step outside backward. Up to 8.3 % of the run's time could "
        "be saved.",
        HALVE,
    ),
    (
        "gloo",
        alert(replace(LINK, path="gloo"), 16.7),
        "the GPUs reduce through Gloo, which copies by way of the host: at most 20 ms a step. Up to 17 % of the run's "
        "time could be saved.",
        'use init_process_group("nccl")',
    ),
    (
        "slow link",
        alert(LINK, 16.7),
        "the reduction between 2 hosts gets at least 0.6 GB/s of bus bandwidth: at most 20 ms a step. Up to 17 % of "
        "the run's time could be saved.",
        "check which network NCCL uses: NCCL_DEBUG=INFO logs it, NCCL_SOCKET_IFNAME and NCCL_IB_HCA choose it",
    ),
    (
        "gradients twice",
        alert(VIEW, None),
        "the memory of a GPU is 94 % full, and 3.7 GiB of it is a second copy of the gradients",
        "use DistributedDataParallel(gradient_as_bucket_view=True), which frees 3.7 GiB",
    ),
]

EVIDENCE = [
    (alert(INPUT), {"input_ms": 30.0, "step_ms": 127.0, "workers": -1, "gain_pct": 12.5}),
    (alert(ONE_BUCKET), {"transfer_ms": 20.0, "backward_ms": 60.0, "gradient_bytes": 40 * MB, "gain_pct": 12.5}),
    (alert(MANY_BUCKETS), {"buckets": 40, "bucket_bytes": 5e5, "transfer_ms": 20.0, "gain_pct": 12.5}),
    (alert(ACCUMULATE), {"transfer_ms": 50.0, "step_ms": 150.0, "gain_pct": 12.5}),
    (alert(HALF), {"transfer_ms": 20.0, "gradient_bytes": 100 * MB, "busbw_gb_s": 7.5, "gain_pct": 12.5}),
    (alert(LINK), {"busbw_gb_s": 0.6, "transfer_ms": 20.0, "hosts": 2, "gain_pct": 12.5}),
    (alert(VIEW, None), {"memory_pct": 93.75, "gradient_bytes": 4000 * MB}),
]


@pytest.mark.parametrize(("found", "summary", "advice"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_what_is_said(found: Alert, summary: str, advice: str) -> None:
    told = tell(found)
    assert (told.summary, advice_text(told.advice), told.cause) == (summary, advice, None)


@pytest.mark.parametrize(("found", "evidence"), EVIDENCE)
def test_the_evidence_and_its_order(found: Alert, evidence: dict[str, float | int | str]) -> None:
    assert list(tell(found).evidence.items()) == list(evidence.items())


def test_all_measures_are_in_both_tables() -> None:
    assert {type(row[1].measures) for row in ROWS} == {type(found.measures) for found, _ in EVIDENCE} == {*SENTENCES}
