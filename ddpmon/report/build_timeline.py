"""The run over its newest steps, for the view of time: what every step took, what was marked, what buckets take."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.report.base_step import of_base
from ddpmon.run.bucket_times import Transfers
from ddpmon.run.medians import row_medians
from ddpmon.run.model import Run
from ddpmon.run.step_map import NewestSteps
from ddpmon.snapshot import BucketView, Floats, Heat, Ints, MarkView, Timeline


def build_timeline(run: Run, newest: NewestSteps, heat: Heat, ranks: NDArray[np.bool_]) -> Timeline:
    """The newest steps of the run.

    Args:
        run: the run.
        newest: these steps.
        heat: the lateness of these steps, which may begin later.
        ranks: [world] those that are compared; before all of them have told of a step, nobody is its latest rank.
    """
    steps = newest.step
    told = (steps >= heat.step.min(initial=run.rings.NOTHING)) & (
        steps <= run.rings.last[ranks].min(initial=run.rings.NOTHING)
    )
    told &= ~_is_false_recovery(newest)
    late_pct = np.where(told, of_base(newest.worst_ms, newest.base_ms), np.nan)
    rank = np.where(told, newest.worst_rank, -1)
    known = np.flatnonzero(np.isfinite(newest.duration_ms))
    first = int(known[0]) if known.size else len(steps)
    reduced = run.buckets.transfers(ranks)
    return Timeline(
        step=steps[first:],
        late_pct=late_pct[first:],
        late_rank=rank[first:],
        step_ms=newest.duration_ms[first:],
        allreduce_ms=newest.allreduce_ms[first:],
        busbw_gb_s=_bandwidth(run, steps, reduced)[first:],
        loss=newest.loss[first:],
        marks=_marks(run, int(steps[first]) if first < len(steps) else 0),
        buckets=_buckets(run, reduced, ranks),
        restarts=tuple(run.restarted),
    )


def _is_false_recovery(newest: NewestSteps) -> NDArray[np.bool_]:
    """[W] the steps of which records are missing, that of the latest rank of the last whole step among them."""
    before, after = np.maximum.accumulate(newest.known), np.maximum.accumulate(newest.known[::-1])[::-1]
    at = np.arange(len(newest.step))
    is_whole = newest.known >= np.minimum(before, after)
    whole = np.maximum.accumulate(np.where(is_whole, at, 0))
    late = newest.worst_rank[whole]
    found: NDArray[np.bool_] = ~is_whole & (late >= 0) & np.isnan(newest.lateness[late, at])
    return found


def _bandwidth(run: Run, steps: Ints, reduced: Transfers) -> Floats:
    """[steps] bus bandwidth in GB/s, NaN where no bucket detail tells, and of one rank."""
    found: Floats = np.full(len(steps), np.nan)
    at = np.searchsorted(steps, reduced.step)
    inside = (at < len(steps)) & (reduced.step >= (steps[0] if len(steps) else 0))
    found[at[inside]] = reduced.bandwidth(run.info.world_size)[inside]
    return found


def _buckets(run: Run, reduced: Transfers, ranks: NDArray[np.bool_]) -> BucketView | None:
    """The buckets, medians over the newest steps; the exposed part is what lies after the last gradient was ready.

    By then all buckets have been launched, so the last ones follow each other without a gap: the exposed time is the
    end of their row.
    """
    seen = reduced.step
    if not len(seen):
        return None
    ms = np.median(reduced.ms, axis=0).astype(np.float64)
    exposed = row_medians(np.fmin.reduce(run.rings.take("exposed", seen, np.flatnonzero(ranks)), axis=0)[None, :])[0]
    after = np.cumsum(ms[::-1])[::-1] - ms  # what follows each bucket
    part = np.clip(exposed - after, 0.0, ms) if np.isfinite(exposed) else np.full(len(ms), np.nan)
    return BucketView(reduced.sizes, ms, part, int(seen[0]), int(seen[-1]))


def _marks(run: Run, first: int) -> tuple[MarkView, ...]:
    """The phases that the user named, from a step on."""
    pauses = run.marks.pauses.items()
    found = [MarkView(step, name, pause.ms) for name, steps in pauses for step, pause in steps.items() if step >= first]
    return tuple(sorted(found, key=lambda mark: mark.step))
