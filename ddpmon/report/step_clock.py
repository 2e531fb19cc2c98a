"""When a step was: the time of day of steps, from how long the steps since then have taken."""

from __future__ import annotations

import numpy as np

from ddpmon.snapshot import Snapshot


def wall_of(snapshot: Snapshot, step: int) -> float | None:
    """The Unix time at which a step ended, None where it is not known.

    The newest step ended `step_age_s` before the picture was taken, and each earlier one as long before as the steps
    between take by the run's series. Where the series is decimated the time is right to one of its strides.
    """
    ago = seconds_since(snapshot, step)
    return None if ago is None else snapshot.taken_at - ago


def seconds_since(snapshot: Snapshot, step: int) -> float | None:
    """How long before the picture a step ended, None where it is not known."""
    run, series = snapshot.run, snapshot.series
    if run is None or run.step is None or run.step_age_s is None or series is None or not len(series.step):
        return None
    if step < series.step[0] or step > run.step:
        return None
    ends = np.append(series.step[1:], run.step + 1.0)
    later = np.clip(ends - np.maximum(series.step, step + 1), 0, None)  # steps of each point that came after it
    known = series.step_ms[np.isfinite(series.step_ms)]
    if not known.size:
        return None
    step_ms = np.where(np.isfinite(series.step_ms), series.step_ms, np.median(known))
    return float(run.step_age_s + (later * step_ms).sum() / 1e3)
