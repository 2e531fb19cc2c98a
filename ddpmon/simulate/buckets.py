"""What each gradient bucket of a simulated step takes, as a probe with bucket detail would time it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.schema import BucketColumns
from ddpmon.simulate.plan import BACKWARD_OVERLAP, GRADIENT_BYTES, SHARES, WORK_SHARE, Plan
from ddpmon.simulate.scenarios import F32, I64

F64 = NDArray[np.float64]
_FIRST_BYTES, _CAP_BYTES = 1 << 20, 25 << 20  # DDP's: kDefaultFirstBucketBytes, and bucket_cap_mb=25


def _sizes() -> list[int]:
    """Bytes of each bucket, in the order of the reductions: from the last layers to the first."""
    full, rest = divmod(GRADIENT_BYTES - _FIRST_BYTES, _CAP_BYTES)
    return [_FIRST_BYTES, *[_CAP_BYTES] * full, rest]


SIZES = _sizes()


def bucket_ms(plan: Plan, work: F32, backward: F32, duration: F32, own: I64) -> F32:
    """[own, steps, buckets] `done_b - max(launch_b, done_{b-1})` in ms.

    A bucket's all-reduce begins once all ranks have launched it and the one before it is done, and takes time by its
    size. The bandwidth of a step is the one with which its last bucket is done as the step ends.

    Args:
        plan: the run.
        work: [ranks, steps] ms of each rank before it waits; it ends with backward.
        backward: [ranks, steps] ms of its backward.
        duration: [steps] ms of each step.
        own: the ranks whose times are returned; those of the others delay them.
    """
    sizes = np.array(SIZES, np.float64)
    before, left = np.cumsum(sizes) - sizes, np.cumsum(sizes[::-1])[::-1]
    launch = _launches(plan, work, backward, sizes)
    ready = launch.max(axis=0)
    ms_a_byte = ((duration[:, None] - ready) / left).min(axis=1, keepdims=True)
    done = ms_a_byte * (before + sizes) + np.maximum.accumulate(ready - ms_a_byte * before, axis=1)
    earlier = np.concatenate([np.full_like(done[:, :1], -np.inf), done[:, :-1]], axis=1)
    found: F32 = (done - np.maximum(launch[own], earlier)).astype(np.float32)
    return found


def _launches(plan: Plan, work: F32, backward: F32, sizes: F64) -> F64:
    """[ranks, steps, buckets] ms from the step's beginning to each bucket's launch.

    The gradients of the buckets behind the first one come evenly, at the run's usual pace, until backward ends. What
    delays a rank in backward delays it before them.
    """
    first = work - BACKWARD_OVERLAP * backward
    usual_ms = BACKWARD_OVERLAP * plan.step_ms * WORK_SHARE * SHARES["backward"]
    to_come = usual_ms * (1 - (np.cumsum(sizes) - sizes[0]) / (sizes.sum() - sizes[0]))
    launch: F64 = np.maximum(first[:, :, None], work[:, :, None] - to_come)
    launch[:, :, 0] = first
    return launch


def bucket_columns(steps: I64, ms: F32) -> BucketColumns:
    """The bucket detail of a rank's frame: `ms` [steps, buckets]."""
    return BucketColumns(step=steps.astype("<i8").tobytes(), sizes=SIZES, ms=ms.astype("<f4").tobytes())
