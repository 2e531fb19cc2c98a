"""Every sentence on the GPUs of the ranks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.contention.gpu_health import GpuErrorMeasures, GpuThrottledMeasures, PcieMeasures
from ddpmon.diagnose.contention.gpu_sharing import (
    GpuContextMeasures,
    GpuDoubledMeasures,
    GpuHiddenMeasures,
    GpuLeftoverMeasures,
    GpuSharedMeasures,
)
from ddpmon.diagnose.contention.symptom import Culprit
from ddpmon.diagnose.torch_memory import GpuMemoryGrowthMeasures, GpuMemoryUnevenMeasures
from ddpmon.report.gpu_sentences import SENTENCES
from ddpmon.report.sentences import tell
from tests.report.contention_alerts import Row, assert_all_in_tables, assert_said, contention

GB = 1 << 30
BOB = Culprit(8123, "bob", "python x.py")
JOB = tuple(Culprit(900 + place, "ann", "python other.py") for place in range(3))
ASK = "ask its owner to move to another GPU, or request exclusive GPUs from the scheduler"
LEAVE = "if it is yours and no longer needed, end it"
OWN_GPU = "give every rank its own GPU: call torch.cuda.set_device(local_rank) before anything else"
SET_DEVICE = "call torch.cuda.set_device(local_rank) before the first use of CUDA, and pass map_location to torch.load"
COOL = "check its cooling, power limit and power supply: `ssh node0 nvidia-smi -q -i 2 -d CLOCK,POWER,PERFORMANCE`"
REPEATS = "if it repeats, have the GPU checked: `ssh node0 nvidia-smi -q -i 2 -d ECC,ROW_REMAPPER`"
RESEAT = (
    "reseat the GPU or its riser, check the slot's settings and the kernel's log for PCIe errors: `ssh node0 dmesg`"
)
HOT = GpuThrottledMeasures(2, ("hardware thermal",), True, 1100.0, 1700.0, 93.0, 400.0, 700.0, 99.0)
LATE = replace(HOT, reasons=("hardware thermal", "power brake"), is_below_peers=False, peers_clock_mhz=None)
ERRORS = GpuErrorMeasures(2, "GPU-2", (31,), 0, 0, 0, ends_a_process=False)
NARROW = PcieMeasures("width", 4, 16, 5, 5)
GROWTH = GpuMemoryGrowthMeasures(2, "node0", 300 << 20, 300.0, 20 * GB, 60 * 1024.0)
KEEPS = (
    "find out what the script keeps from step to step: losses without .item() or .detach(), lists of outputs, caches; "
    "torch.cuda.memory._record_memory_history shows who allocated it"
)
UNEVEN = GpuMemoryUnevenMeasures(2, "node0", 27 * GB, 21 * GB, 0)
FULLEST = (
    "the fullest rank limits the batch: see whether it alone gets longer inputs, evaluates or gathers results, or "
    "loads a checkpoint onto its GPU (torch.load without map_location)"
)
SHARED = [
    (
        "busy process",
        contention("gpu_shared", GpuSharedMeasures((BOB,), 8 * GB, 1, 38.0)),
        "pid 8123 (bob, python x.py) uses 38 % of the GPU of rank 2 (node0)",
        ASK,
        "a shared GPU: pid 8123 (bob, python x.py) uses 38 % of its GPU",
    ),
    (
        "idle process",
        contention("gpu_shared", GpuSharedMeasures((BOB,), 9 * GB, 1, 0.5)),
        "pid 8123 (bob, python x.py) holds 9.0 GiB on the GPU of rank 2 (node0)",
        ASK,
        "a shared GPU: pid 8123 (bob, python x.py) holds 9.0 GiB on its GPU",
    ),
    (
        "unknown use by several",
        contention("gpu_shared", GpuSharedMeasures(JOB, 9 * GB, 1, None)),
        "pid 900 (ann, python other.py) and 2 more hold 9.0 GiB on the GPU of rank 2 (node0)",
        ASK,
        "a shared GPU: pid 900 (ann, python other.py) and 2 more hold 9.0 GiB on its GPU",
    ),
    (
        "another training",
        contention("gpu_shared", GpuSharedMeasures(JOB, 9 * GB, 3, 60.0), (1, 2, 3)),
        "another training uses the same GPUs: pid 900 (ann, python other.py) and 2 more use 60 % of the GPUs of "
        "ranks 1, 2, 3 (node0)",
        ASK,
        "a shared GPU: pid 900 (ann, python other.py) and 2 more use 60 % of its GPU",
    ),
    (
        "hidden processes",
        contention("gpu_shared", GpuHiddenMeasures(2, 20 * GB, 40 * GB)),
        "20.0 GiB on the GPU of rank 2 (node0) do not belong to this run: the processes are not visible from here "
        "(a container?), only their memory is",
        "see whose processes these are, outside the container: `ssh node0 nvidia-smi -i 2`",
        "a shared GPU: 20.0 GiB on its GPU belong to processes that are not visible from here",
    ),
    (
        "hidden processes of an odd host",
        contention("gpu_shared", GpuHiddenMeasures(2, 20 * GB, 40 * GB), host="$(id)"),
        "20.0 GiB on the GPU of rank 2 ($(id)) do not belong to this run: the processes are not visible from here "
        "(a container?), only their memory is",
        "see whose processes these are, outside the container: `nvidia-smi -i 2`",
        "a shared GPU: 20.0 GiB on its GPU belong to processes that are not visible from here",
    ),
]
LEFT = "8.0 GiB on the GPU of rank 2 ({}) are held by {}, idle and probably a leftover of an earlier run"
LEFTOVERS = [
    (
        "leftover",
        contention("gpu_leftover", GpuLeftoverMeasures((BOB,), 8 * GB, 1)),
        LEFT.format("node0", "pid 8123 (bob, python x.py)"),
        f"{LEAVE}: `ssh node0 kill 8123`",
        "GPU memory held by pid 8123 (bob, python x.py)",
    ),
    (
        "leftovers on an odd host",
        contention("gpu_leftover", GpuLeftoverMeasures(JOB[:2], 8 * GB, 1), host="-oProxyCommand=id"),
        LEFT.format("-oProxyCommand=id", "pid 900 (ann, python other.py) and 1 more"),
        LEAVE,
        "GPU memory held by pid 900 (ann, python other.py) and 1 more",
    ),
    (
        "leftover that is no process",
        contention("gpu_leftover", GpuLeftoverMeasures((Culprit(0),), 8 * GB, 1)),
        LEFT.format("node0", "pid 0"),
        LEAVE,
        "GPU memory held by pid 0",
    ),
]
DOUBLED = [
    (
        "two ranks on one",
        contention("gpu_doubled", GpuDoubledMeasures(2), (0, 1)),
        "ranks 0, 1 share one GPU (node0)",
        OWN_GPU,
        "a GPU with several ranks: ranks 0, 1 share one GPU",
    ),
    (
        "contexts of others",
        contention("gpu_doubled", GpuContextMeasures((1, 2), (0,), GB), (0, 1, 2)),
        "ranks 1, 2 hold a context (1.0 GiB) on the GPU of rank 0 (node0)",
        SET_DEVICE,
        "a GPU with several ranks: ranks 1, 2 hold a context (1.0 GiB) on the GPU of rank 0",
    ),
    (
        "context of another",
        contention("gpu_doubled", GpuContextMeasures((1,), (0, 2), GB // 2), (0, 2, 1)),
        "rank 1 holds a context (512 MiB) on the GPU of ranks 0, 2 (node0)",
        SET_DEVICE,
        "a GPU with several ranks: rank 1 holds a context (512 MiB) on the GPU of ranks 0, 2",
    ),
]
THROTTLED = [
    (
        "below its peers",
        contention("gpu_throttled", HOT),
        "the GPU of rank 2 (node0) is throttled: hardware thermal, 1,100 MHz where its peers run at 1,700 MHz "
        "(93 °C, 400 W of 700)",
        COOL,
        "a throttled GPU: hardware thermal, 1,100 MHz where its peers run at 1,700 MHz",
    ),
    (
        "late rank",
        contention("gpu_throttled", LATE),
        "the GPU of rank 2 (node0) is throttled: hardware thermal, power brake, while its rank is late "
        "(93 °C, 400 W of 700)",
        COOL,
        "a throttled GPU: hardware thermal, power brake, while its rank is late",
    ),
    (
        "only its power known",
        contention("gpu_throttled", replace(HOT, temperature_c=None, power_limit_w=None)),
        "the GPU of rank 2 (node0) is throttled: hardware thermal, 1,100 MHz where its peers run at 1,700 MHz (400 W)",
        COOL,
        "a throttled GPU: hardware thermal, 1,100 MHz where its peers run at 1,700 MHz",
    ),
    (
        "neither heat nor power known",
        contention("gpu_throttled", replace(HOT, temperature_c=None, power_w=None)),
        "the GPU of rank 2 (node0) is throttled: hardware thermal, 1,100 MHz where its peers run at 1,700 MHz",
        COOL,
        "a throttled GPU: hardware thermal, 1,100 MHz where its peers run at 1,700 MHz",
    ),
]
BROKEN = [
    (
        "an error",
        contention("gpu_errors", ERRORS),
        "the GPU of rank 2 (node0) has reported errors: Xid 31",
        REPEATS,
        "GPU errors: Xid 31",
    ),
    (
        "errors that end a process",
        contention("gpu_errors", replace(ERRORS, xids=(63, 79), remapped_rows=1, ends_a_process=True)),
        "the GPU of rank 2 (node0) has reported errors: Xid 63, 79, 1 remapped rows",
        "take GPU 2 (GPU-2) out of service and have it reset or replaced",
        "GPU errors: Xid 63, 79, 1 remapped rows",
    ),
    (
        "broken memory",
        contention("gpu_errors", replace(ERRORS, xids=(), ecc_uncorrected=1200, retired_pages=3)),
        "the GPU of rank 2 (node0) has reported errors: 1,200 uncorrected ECC errors, 3 retired pages",
        REPEATS,
        "GPU errors: 1,200 uncorrected ECC errors, 3 retired pages",
    ),
    (
        "narrow link",
        contention("pcie_degraded", NARROW),
        "the GPU of rank 2 (node0) is connected by PCIe x4 instead of x16",
        RESEAT,
        "a degraded PCIe link: its GPU is connected by x4 instead of x16",
    ),
    (
        "link of a lower generation",
        contention("pcie_degraded", PcieMeasures("generation", None, None, 1, 5)),
        "the GPU of rank 2 (node0) is connected by PCIe generation 1 instead of 5",
        RESEAT,
        "a degraded PCIe link: its GPU is connected by generation 1 instead of 5",
    ),
]
MEMORY = [
    (
        "growth",
        contention("gpu_memory_growth", GROWTH, (2, 5)),
        "the tensors of rank 2 (node0) have grown by 300 MiB in 5 min, so its GPU is full within 17 h; so do those of "
        "rank 5",
        KEEPS,
        "",
    ),
    (
        "growth below a peak",
        contention("gpu_memory_growth", replace(GROWTH, peak_bytes=32 * GB), (2, 5)),
        "the tensors of rank 2 (node0) have grown by 300 MiB in 5 min, so its GPU is full within 17 h, or within 14 h "
        "if its peak of 32.0 GiB comes again; so do those of rank 5",
        KEEPS,
        "",
    ),
    (
        "growth above a peak",
        contention("gpu_memory_growth", replace(GROWTH, peak_bytes=20 * GB)),
        "the tensors of rank 2 (node0) have grown by 300 MiB in 5 min, so its GPU is full within 17 h",
        KEEPS,
        "",
    ),
    (
        "growth on a GPU of unknown size",
        contention("gpu_memory_growth", replace(GROWTH, allocated_bytes=None, left_s=None)),
        "the tensors of rank 2 (node0) have grown by 300 MiB in 5 min",
        KEEPS,
        "",
    ),
    (
        "uneven",
        contention("gpu_memory_uneven", UNEVEN),
        "the tensors of rank 2 (node0) took 27.0 GiB at most, those of the others 21.0 GiB",
        FULLEST,
        "",
    ),
    (
        "uneven with retries",
        contention("gpu_memory_uneven", replace(UNEVEN, retries=5), (2, 3)),
        "the tensors of rank 2 (node0) took 27.0 GiB at most, those of the others 21.0 GiB, and 5 allocations had to "
        "be tried again; rank 3 needs more than the others, too",
        FULLEST,
        "",
    ),
]
ROWS: list[Row] = [*SHARED, *LEFTOVERS, *DOUBLED, *THROTTLED, *BROKEN, *MEMORY]
WHO: list[tuple[str, float | int | str]] = [("pid", 8123), ("user", "bob"), ("command", "python x.py")]
EVIDENCE: list[tuple[Measures, list[tuple[str, float | int | str]]]] = [
    (GpuSharedMeasures((BOB,), 8 * GB, 1, 38.0), [*WHO, ("memory_bytes", 8 * GB), ("gpus", 1), ("sm_pct", 38.0)]),
    (GpuSharedMeasures((Culprit(9),), 0, 1, None), [("pid", 9), ("memory_bytes", 0), ("gpus", 1)]),
    (
        GpuLeftoverMeasures((BOB, Culprit(9)), 8 * GB, 2),
        [*WHO, ("pids", "8123, 9"), ("memory_bytes", 8 * GB), ("gpus", 2)],
    ),
    (
        GpuHiddenMeasures(2, 15 * GB, 40 * GB),
        [("memory_bytes", 15 * GB), ("memory_used", 40 * GB), ("ours_bytes", 25 * GB)],
    ),
    (GpuDoubledMeasures(2), [("ranks_on_it", 2)]),
    (GpuContextMeasures((1, 2), (0,), GB), [("contexts", 2), ("memory_bytes", GB)]),
    (
        HOT,
        [
            ("reasons", "hardware thermal"),
            ("sm_clock_mhz", 1100.0),
            ("peers_clock_mhz", 1700.0),
            ("temperature_c", 93.0),
            ("power_w", 400.0),
            ("power_limit_w", 700.0),
            ("utilization_pct", 99.0),
        ],
    ),
    (
        replace(LATE, sm_clock_mhz=None, temperature_c=None, power_limit_w=None, utilization_pct=None),
        [("reasons", "hardware thermal, power brake"), ("power_w", 400.0)],
    ),
    (
        replace(ERRORS, xids=(63, 79), ecc_uncorrected=2, remapped_rows=1, retired_pages=3),
        [("xids", "63, 79"), ("uncorrected_ecc_errors", 2), ("remapped_rows", 1), ("retired_pages", 3)],
    ),
    (replace(ERRORS, xids=(), retired_pages=3), [("retired_pages", 3)]),
    (NARROW, [("width", 4), ("width_max", 16), ("generation", 5), ("generation_max", 5)]),
    (PcieMeasures("generation", None, None, 1, 5), [("generation", 1), ("generation_max", 5)]),
    (GROWTH, [("growth_bytes", 300 << 20), ("over_s", 300.0), ("allocated_bytes", 20 * GB), ("left_s", 61440.0)]),
    (
        replace(GROWTH, peak_bytes=32 * GB, allocated_bytes=None, left_s=None),
        [("growth_bytes", 300 << 20), ("over_s", 300.0), ("peak_bytes", 32 * GB)],
    ),
    (UNEVEN, [("peak_bytes", 27 * GB), ("others_bytes", 21 * GB), ("retries", 0)]),
]


@pytest.mark.parametrize(
    ("alert", "summary", "advice", "noun"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_sentence(alert: Alert, summary: str, advice: str, noun: str) -> None:
    assert_said(alert, summary, advice, noun)


@pytest.mark.parametrize(("measures", "evidence"), EVIDENCE, ids=lambda each: type(each).__name__)
def test_evidence(measures: Measures, evidence: list[tuple[str, float | int | str]]) -> None:
    assert [*tell(contention("gpu_shared", measures)).evidence.items()] == evidence


def test_every_class_is_in_the_tables() -> None:
    assert_all_in_tables(ROWS, EVIDENCE, SENTENCES)
