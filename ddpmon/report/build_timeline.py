"""The run over its newest steps, for the view of time: what every step took, what was marked, what buckets take."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.report.base_step import of_base
from ddpmon.run.medians import row_medians
from ddpmon.run.model import Run
from ddpmon.run.recent import STEPS
from ddpmon.snapshot import BucketView, Floats, Heat, Ints, MarkView, Timeline

# So many ranks, evenly spaced, stand for the typical one: their median is that of all within the spread of healthy
# ranks, and a tick at 4,096 ranks sorts a sixteenth. Chosen, not measured.
MOST_RANKS = 256


def build_timeline(run: Run, heat: Heat, ranks: NDArray[np.bool_]) -> Timeline:
    """The newest steps of the run.

    Args:
        run: the run.
        heat: the lateness of these steps, which may begin later.
        ranks: [world] those that are compared; before all of them have told of a step, nobody is its latest rank.
    """
    newest = int(run.rings.last.max(initial=-1))
    steps = np.arange(max(0, newest + 1 - min(STEPS, run.rings.capacity)), newest + 1)
    some = np.flatnonzero(run.rings.last >= 0)
    some = some if len(some) <= MOST_RANKS else some[np.arange(MOST_RANKS) * len(some) // MOST_RANKS]
    tables = run.rings.takes(("duration", "allreduce", "loss"), steps, some)
    duration, allreduce, loss = (row_medians(table.T) for table in tables)
    late_pct, rank = _worst(heat, len(steps))
    untold = steps > run.rings.last[ranks].min(initial=newest)
    late_pct[untold], rank[untold] = np.nan, -1
    known = np.flatnonzero(np.isfinite(duration))
    first = int(known[0]) if known.size else len(steps)
    seen, transfers = run.buckets.transfers()
    return Timeline(
        step=steps[first:],
        late_pct=late_pct[first:],
        late_rank=rank[first:],
        step_ms=duration[first:],
        allreduce_ms=allreduce[first:],
        busbw_gb_s=_bandwidth(run, steps, seen, transfers)[first:],
        loss=loss[first:],
        marks=_marks(run, int(steps[first]) if first < len(steps) else 0),
        buckets=_buckets(run, seen, transfers),
    )


def _worst(heat: Heat, steps: int) -> tuple[Floats, Ints]:
    """[steps] the lateness of the latest rank in percent of the base step, and which rank that is; -1 for none."""
    late_pct, rank = np.full(steps, np.nan), np.full(steps, -1, np.int64)
    seen = slice(steps - len(heat.step), None)
    if heat.values.size:
        most = np.fmax.reduce(heat.values, axis=0)
        late_pct[seen] = of_base(most, heat.base_ms)
        rank[seen] = np.where(np.isfinite(most), (heat.values == most).argmax(axis=0), -1)
    return late_pct, rank


def _bandwidth(run: Run, steps: Ints, seen: Ints, transfers: NDArray[np.float32]) -> Floats:
    """[steps] bus bandwidth in GB/s, NaN where no bucket detail tells."""
    found: Floats = np.full(len(steps), np.nan)
    at = np.searchsorted(steps, seen)
    inside = (at < len(steps)) & (seen >= (steps[0] if len(steps) else 0))
    seconds = transfers.sum(axis=1)[inside] / 1e3
    with np.errstate(divide="ignore"):
        n = run.info.world_size
        found[at[inside]] = np.where(seconds > 0, sum(run.buckets.sizes) / seconds * 2 * (n - 1) / n / 1e9, np.nan)
    return found


def _buckets(run: Run, seen: Ints, transfers: NDArray[np.float32]) -> BucketView | None:
    """The buckets, medians over the newest steps; the exposed part is what lies after the last gradient was ready.

    By then all buckets have been launched, so the last ones follow each other without a gap: the exposed time is the
    end of their row.
    """
    if not len(seen):
        return None
    ms = np.median(transfers, axis=0).astype(np.float64)
    exposed = row_medians(np.fmin.reduce(run.rings.take("exposed", seen), axis=0)[None, :])[0]
    after = np.cumsum(ms[::-1])[::-1] - ms  # what follows each bucket
    part = np.clip(exposed - after, 0.0, ms) if np.isfinite(exposed) else np.full(len(ms), np.nan)
    return BucketView(run.buckets.sizes, ms, part, int(seen[0]), int(seen[-1]))


def _marks(run: Run, first: int) -> tuple[MarkView, ...]:
    """The phases that the user named, from a step on."""
    pauses = run.marks.pauses.items()
    found = [MarkView(step, name, pause.ms) for name, steps in pauses for step, pause in steps.items() if step >= first]
    return tuple(sorted(found, key=lambda mark: mark.step))
