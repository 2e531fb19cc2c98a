"""From a Run to a Snapshot: copies and medians, so that a face never touches what the reader goes on changing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.kinds import KINDS
from ddpmon.figures import FIGURES
from ddpmon.report.verdicts import firing, lateness_of, stops_job
from ddpmon.run.medians import median
from ddpmon.run.model import Run
from ddpmon.run.recent import RECENT
from ddpmon.run.series import share_taken
from ddpmon.run.silence import fallen_silent
from ddpmon.run.step_map import NewestSteps
from ddpmon.snapshot import (
    Coverage,
    Finding,
    Floats,
    Heat,
    Ints,
    JobView,
    Metric,
    Ranks,
    RunState,
    RunView,
    Series,
)

# What the heat-map shows of the machines, and how many of the units that it is read in make one that is shown.
_RESOURCES = {
    "gpu": ("gpu_utilization_pct", 1),
    "power": ("gpu_power_w", 1),
    "clock": ("gpu_clock_mhz", 1),
    "memory": ("gpu_allocated", 1 << 30),
    "resident": ("rss_bytes", 1 << 30),
}


def build_run(run: Run, ages: Floats, lost: Ints, source: str, *, ended: RunState | None) -> RunView:
    """Which run this is and how it stands; `ended` overrides the state once the store has ended."""
    info = run.info
    newest, first = int(run.latest.step.max()), run.ranks[0]
    return RunView(
        id=info.run_id,
        name=info.name,
        state=ended or _run_state(run, lost),
        world_size=info.world_size,
        nodes=tuple(run.latest.host[ranks[0]] for ranks in run.members().values()),
        backend=info.backend,
        step=newest if newest >= 0 else None,
        elapsed_s=None if first is None else max(0.0, first.frame.sent_at - info.started_at),
        source=source,
        step_age_s=known(float(np.fmin.reduce(ages + run.latest.step_s))),
        restart=info.restart,
        max_restarts=info.max_restarts,
        launch=info.launch,
        attempts=tuple(info.attempts),
        parallel=info.parallel,
        loss_from=info.loss_from,
        samples_from=info.samples_from,
        jobs=tuple(info.jobs.items()),
        info=info,
        buckets=None if first is None else first.frame.bucket_count or None,
        bucket_sizes=() if first is None else tuple(first.frame.bucket_sizes),
        buckets_rebuilt=None if first is None else first.frame.buckets_rebuilt,
    )


def _run_state(run: Run, lost: Ints) -> RunState:
    states = run.latest.states
    if "failed" in states:
        return "failed"
    if states == {"finished"} and len(run.states) == run.info.world_size:
        return "finished"
    if lost.size and lost.size == len(run.states):
        return "lost"
    return "stalled" if "stalled" in states else "running"


def build_coverage(run: Run, ages: Floats, now: float, unread_histories: int = 0) -> Coverage:
    """Ranks that exist, ranks heard of lately, the age of the oldest word, and ranks whose past is to be read."""
    known = ages[~np.isnan(ages)]
    oldest = float(known.max()) if known.size else None
    return Coverage(run.info.world_size, int(run.reporting(now).sum()), oldest, unread_histories)


def build_job(run: Run, ranks: Ranks, alive: NDArray[np.bool_], findings: Sequence[Finding]) -> JobView:
    """Figures of the whole job over its last 20 finished steps (docs/design.md "Formulas")."""
    steps = run.finished_steps(RECENT, alive)
    recent = run.finished.job(steps, alive, run.restarts)
    counted, mean_ms = run.ranks_left(), recent.mean_ms
    share = share_taken(int(alive.sum()), counted)
    samples, tokens = recent.samples / share, recent.tokens / share
    own = {name: _first_known(run.latest.column(name)) for name in ("job_step", "job_total", "eta_s")}
    return JobView(
        step_ms=known(recent.step_ms),
        throughput=known((1.0 if math.isnan(recent.samples) else samples) / mean_ms * 1e3) if mean_ms > 0 else None,
        throughput_unit="steps/s" if math.isnan(recent.samples) else "samples/s",
        throughput_ranks=_throughput_ranks(run, counted),
        loss=known(recent.loss),
        sync_efficiency=known(recent.efficiency),
        lost_to_waiting_pct=known(100 * recent.waiting),
        waiting_for=_waited_for(findings),
        allreduce_ms=known(median(ranks.allreduce_ms)),
        exposed_ms=known(median(ranks.exposed_ms)),
        busbw_gb_s=known(_busbw(run, alive)),
        monitor_us=known(median(run.latest.cost_us)),
        dropped=int((run.latest.dropped_steps + run.latest.dropped_frames).sum()),
        tokens_per_s=known(tokens / mean_ms * 1e3) if mean_ms > 0 else None,
        job_step=None if own["job_step"] is None else int(own["job_step"]),
        job_total=None if own["job_total"] is None else int(own["job_total"]),
        eta_s=own["eta_s"] if run.latest.running.any() and not run.latest.stalled.any() else None,
    )


def _first_known(values: Floats) -> float | None:
    """The value of the first rank that knows it."""
    given = values[~np.isnan(values)]
    return float(given[0]) if given.size else None


def _waited_for(findings: Sequence[Finding]) -> tuple[int, ...]:
    """The ranks that the others wait for, worst first; while the job stands still only those that hold it up."""
    naming = [finding for finding in firing(findings) if KINDS[finding.kind].waited_for and finding.ranks]
    holding_up = [finding for finding in naming if stops_job(finding)]
    return tuple(dict.fromkeys(rank for finding in holding_up or naming for rank in finding.ranks))


def _throughput_ranks(run: Run, left: int) -> int | None:
    """How many ranks the throughput is of, where others are at other steps; once nobody is `left`, those that were."""
    away = run.out_of_step()
    if not away.any():
        return None
    return left if left > 0 else int((~away).sum())


def _busbw(run: Run, ranks: NDArray[np.bool_]) -> float:
    """Bus bandwidth in GB/s, the median step's; NaN without bucket detail, and of one rank."""
    found = run.buckets.transfers(ranks).bandwidth(run.info.world_size)
    return median(found)


def _lateness(late_ms: Floats, silent: NDArray[np.bool_], goes_on: NDArray[np.bool_]) -> Floats:
    """[world] the lateness; unknown of ranks that are silent while others go on."""
    return np.where(silent, np.nan, late_ms) if (goes_on & ~silent).any() else late_ms.copy()


def build_ranks(run: Run, ages: Floats, lost: Ints, late: NDArray[np.bool_] | None = None) -> Ranks:
    """Per-rank columns; durations are medians of the rank's own last 20 steps.

    The work of ranks that are compared is that of the last 20 steps that all of them have finished, as lateness is. A
    rank that is silent or lost while others go on has no lateness, also where it has told of some of these steps.

    `late` [world] are the ranks that findings call late, with which no other rank is compared; None for nobody.
    """
    latest, places = run.latest, run.latest.places
    figures = latest.figures.copy("K")
    state = [*latest.state]
    silent = fallen_silent(ages, latest.ended)
    silent[lost] = True
    for rank in lost.tolist():
        state[rank] = "lost"
    recent = run.recent.figures()
    compared = run.finished_steps(RECENT, run.keeping_up(run.taking_part()))
    late = np.zeros(len(latest.step), np.bool_) if late is None else late
    work = run.finished.compared(compared, run.restarts, run.out_of_step(), late)
    work_ms, alone = work.work_ms.copy(), np.flatnonzero(np.isnan(work.work_ms))
    if alone.size:
        work_ms[alone] = run.recent.work(alone)
    return Ranks(
        host=places.host,
        state=tuple(state),
        phase=tuple(latest.phase),
        gpu=run.gpus(),
        process=latest.processes(figures),
        stall=tuple(latest.stall),
        failure=tuple(latest.failure),
        node=places.node,
        local_rank=places.local_rank,
        pid=places.pid,
        step=latest.step,
        out_of_step=run.out_of_step(),
        age_s=ages,
        loss=recent["loss"],
        step_ms=recent["duration"],
        work_ms=work_ms,
        exposed_ms=recent["exposed"],
        barrier_ms=recent["barrier"],
        wait_ms=recent["wait"],
        allreduce_ms=recent["allreduce"],
        lateness_ms=_lateness(work.late_ms, silent, ~latest.ended),
        input_ms=recent["input"],
        forward_ms=recent["forward"],
        backward_ms=recent["backward"],
        optimizer_ms=recent["optimizer"],
        other_ms=recent["other"],
        figures={figure.name: figures[:, place] for place, figure in enumerate(FIGURES)},
    )


def lateness_as_found(lateness: Floats, findings: Sequence[Finding], state: RunState) -> Floats:
    """[world] the same, as the lasting findings say it: one number in column and sentence; NaN while no step finishes.

    Of two ranks the other one is as far below 0.

    Args:
        lateness: [world] in ms.
        findings: what was found.
        state: of the run.
    """
    lasting = firing(findings)
    if state != "finished" and any(map(stops_job, lasting)):
        return np.full_like(lateness, np.nan)
    shown, known = lateness.copy(), np.flatnonzero(~np.isnan(lateness))
    for finding in reversed(lasting):  # of two on one rank the first, which the headline has
        measured = lateness_of(finding)
        if measured is not None and finding.ranks[0] in known:
            if len(known) == 2:
                shown[known] = -measured
            shown[finding.ranks[0]] = measured
    return shown


def column_of(metric: Metric) -> str:
    """The column of the steps that the heat-map needs for a metric besides lateness; empty if none."""
    return "" if metric == "lateness" or metric in _RESOURCES else metric


def build_heat(
    run: Run, newest: NewestSteps, metric: Metric = "lateness", *, is_over: bool = False
) -> tuple[Heat, Heat | None]:
    """Lateness by rank and step over the newest steps, and another metric where one is asked for.

    It ends with the newest step that most ranks have told of. Of a run that `is_over` it ends with the run's last step,
    unknown where few ranks have told of it: nobody tells of it any more.
    """
    # Before this watcher's time few ranks or none are known; of the newest steps those that have told are no reference.
    known = np.flatnonzero(newest.known > newest.known.max(initial=0.0) / 2)
    first, end = (int(known[0]), int(known[-1]) + 1) if known.size else (0, len(newest.step))
    last = end + np.count_nonzero(np.isfinite(newest.duration_ms[end:])) if is_over else end
    steps, base = newest.step[first:last], newest.base_ms[first:last]
    lateness = Heat(steps, _known_until(end - first, newest.lateness[:, first:last]), base)
    if metric == "lateness":
        return lateness, None
    shown = (newest.lateness if newest.column is None else newest.column)[:, first:last]
    if metric in _RESOURCES:
        name, unit = _RESOURCES[metric]
        shown = run.resources.over(name, steps) / np.float32(unit)
        shown[run.out_of_step()] = np.nan
    return lateness, Heat(steps, _known_until(end - first, shown), base, metric)


def _known_until(end: int, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """[world, W] the same, unknown from the place `end` on."""
    if end >= values.shape[1]:
        return values
    shown = values.copy()
    shown[:, end:] = np.nan
    return shown


def build_series(run: Run, wall: float) -> Series:
    """The run over all its steps; `wall` is the Unix time at second 0 of the clock that it is read by.

    Its samples are those of the same ranks in all steps: of the ones that are counted now.
    """
    points, (step, at) = run.series.points, run.step_times.known()
    series = Series(*(points[:, column] for column in range(6)))
    throughput = run.series.throughput(run.share_counted())
    return replace(series, throughput=throughput, ended_step=step, ended_at=at + wall)


def known(value: float) -> float | None:
    """None for what is not a finite number."""
    return float(value) if math.isfinite(value) else None
