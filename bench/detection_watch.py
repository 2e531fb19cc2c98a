"""A 1 Hz watcher over a real run: what it said, and when each step ended on its clock."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from detection_launch import Training
from detection_truth import Tick
from numpy.typing import NDArray

from ddpmon.snapshot import Heat, Series, Snapshot
from ddpmon.watcher.observer import Observer

_PERIOD_S = 1.0
_PATIENCE_S = 120.0  # without a new step


@dataclass
class Watched:
    """What was seen of a run, over its steps.

    `step_ms` is [steps], `work_ms` [ranks, steps] with NaN where it was not seen, `ended` [steps] in seconds of the
    watcher's clock.
    """

    ticks: list[Tick]
    step_ms: NDArray[np.float64]
    work_ms: NDArray[np.float64]
    ended: NDArray[np.float64]
    error: str


def watch_run(run: Training, folder: Path, attach_at: int, on_tick: Callable[[Tick], None]) -> Watched:
    """Watch until the run has ended; `attach_at` is the step at which the watcher comes, 0 for at once."""
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    ticks: list[Tick] = []
    last: Snapshot | None = None
    error, heard = "", time.monotonic()
    while attach_at and run.step < attach_at and not run.ended and time.monotonic() < heard + _PATIENCE_S:
        time.sleep(0.2)
    while (announced := _announced(folder)) is None:
        if run.ended or time.monotonic() > heard + _PATIENCE_S:
            return _watched(ticks, last, run.failure or "the run was never announced")
        time.sleep(0.2)
    observer, heard = Observer(announced[0]), time.monotonic()
    observer.metric = "work"
    try:
        while not run.ended and not error:
            began = time.monotonic()
            snapshot = observer.tick()
            ours = snapshot.run is not None and snapshot.run.id == announced[1]  # not the port's next run
            if ours and snapshot.ranks is not None and snapshot.link.state == "live":
                tick = Tick(time.monotonic(), int(snapshot.ranks.step.min(initial=1 << 40)), snapshot.findings)
                heard = heard if ticks and tick.step == ticks[-1].step else tick.seconds
                ticks, last = [*ticks, tick], snapshot
                on_tick(tick)
            if time.monotonic() > heard + _PATIENCE_S:
                error = f"no new step for {_PATIENCE_S:g} s"
            time.sleep(max(0.0, began + _PERIOD_S - time.monotonic()))
    finally:
        observer.close()
    return _watched(ticks, last, error or (run.failure if run.ended else ""))


def _announced(folder: Path) -> tuple[str, str] | None:
    """URL and id of the run in this folder: other runs on this machine are none of our business."""
    for path in (folder / "ddpmon").glob("*.json"):
        said = json.loads(path.read_text())
        return str(said["url"]), str(said["run_id"])
    return None


def _watched(ticks: list[Tick], last: Snapshot | None, error: str) -> Watched:
    if last is None or last.series is None or last.chosen_heat is None or not len(last.series.step):
        return Watched(ticks, np.ones(1), np.full((1, 1), np.nan), np.zeros(1), error or "the watcher never saw a step")
    step_ms = _durations(last.series)
    ended = step_ms.cumsum() / 1e3
    # The news that came fastest tells how the run's time and the watcher's clock lie.
    offset = min(tick.seconds - float(ended[min(tick.step, len(ended) - 1)]) for tick in ticks if tick.step >= 0)
    return Watched(ticks, step_ms, _work(last.chosen_heat, len(step_ms)), ended + offset, error)


def _work(heat: Heat, steps: int) -> NDArray[np.float64]:
    """[ranks, steps] each rank's work in ms, NaN where it was not seen or is no longer kept."""
    work_ms = np.full((len(heat.values), steps), np.nan)
    kept = heat.step < steps
    work_ms[:, heat.step[kept]] = heat.values[:, kept]
    return work_ms


def _durations(series: Series) -> NDArray[np.float64]:
    """[steps] each step's duration in ms; where it was not seen, the median of those that were."""
    known = ~np.isnan(series.step_ms)
    steps = series.step[known].astype(np.int64)
    step_ms = np.full(int(series.step[-1]) + 1, float(np.median(series.step_ms[known])))
    step_ms[steps] = series.step_ms[known]
    return step_ms
