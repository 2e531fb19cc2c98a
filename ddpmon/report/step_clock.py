"""When a step was: the time of day of steps, as they were seen to end and from how long the others have taken."""

from __future__ import annotations

import numpy as np

from ddpmon.snapshot import Series, Snapshot


def wall_of(snapshot: Snapshot, step: int) -> float | None:
    """The Unix time at which a step ended, None where it is not known.

    A step that was seen to end keeps its time. Each one before these ended as long before as the steps between take by
    the run's series. Where the series is decimated the time is right to one of its strides.
    """
    run, series = snapshot.run, snapshot.series
    if run is None or run.step is None or run.step_age_s is None or series is None or not len(series.step):
        return None
    if step < series.step[0] or step > run.step:
        return None
    seen = series.ended_step
    if len(seen) and step >= seen[0]:
        return float(np.interp(step, seen, series.ended_at))
    newest, ended_at = (seen[0], series.ended_at[0]) if len(seen) else (run.step, snapshot.taken_at - run.step_age_s)
    between_s = _seconds_between(series, step, float(newest))
    if between_s is None:
        return None
    wall, longest_s = float(ended_at - between_s), run.elapsed_s
    # Before the run began: the steps with these numbers are of ranks that have restarted alone.
    is_before = longest_s is not None and wall < snapshot.taken_at - run.step_age_s - longest_s
    return None if is_before else wall


def step_at(snapshot: Snapshot, wall: float) -> int | None:
    """The newest step of the run that had ended by a Unix time; None of a time before any was seen to end."""
    series = snapshot.series
    place = -1 if series is None else int(np.searchsorted(series.ended_at, wall, side="right")) - 1
    return int(series.ended_step[place]) if series is not None and place >= 0 else None


def _seconds_between(series: Series, step: int, newest: float) -> float | None:
    """How long the steps after `step` up to `newest` have taken; None where no step's time is known."""
    ends = np.append(series.step[1:], max(newest + 1.0, series.step[-1]))
    later = np.clip(np.minimum(ends, newest + 1.0) - np.maximum(series.step, step + 1), 0, None)  # steps of each point
    step_ms, known = series.step_ms, np.isfinite(series.step_ms)
    if not known.any():
        return None
    if not known.all():
        step_ms = np.where(known, step_ms, np.median(step_ms[known]))
    return float((later * step_ms).sum() / 1e3)


def seconds_since(snapshot: Snapshot, step: int) -> float | None:
    """How long before the picture a step ended, None where it is not known."""
    wall = wall_of(snapshot, step)
    return None if wall is None else snapshot.taken_at - wall
