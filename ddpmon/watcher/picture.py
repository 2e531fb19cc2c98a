"""From a run as it is known at one moment to the `Snapshot` that every face draws."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddpmon.diagnose.pending import Pending
from ddpmon.diagnose.step_matrix import lost_ranks
from ddpmon.report import attempt_sentences, build
from ddpmon.report.build_timeline import build_timeline
from ddpmon.report.hosts import build_nodes
from ddpmon.report.past import with_when
from ddpmon.report.rank_detail import build_detail
from ddpmon.report.silence import is_explained_by_end
from ddpmon.report.verdicts import late_ranks, marked_ranks
from ddpmon.run.model import Run
from ddpmon.shell_command import of_ended_ranks
from ddpmon.snapshot import Finding, Link, Metric, RunState, Snapshot


@dataclass(frozen=True, slots=True)
class Moment:
    """When a picture is taken, and how the watcher stands with the store then.

    Attributes:
        now: the moment, in seconds on the clock that the run's frames were read by.
        read_at: when the store last answered, on the same clock.
        wall: the moment as Unix time.
        link: the store. ended: the run's state once its end is known. source: the URL of what is read.
        notices: what was set aside by others than the run.
        unread_histories: ranks whose past is to be read.
        own_host: the run's name for the host on which the picture is read; "" if it is read elsewhere.
    """

    now: float
    read_at: float
    wall: float
    link: Link
    ended: RunState | None
    source: str
    notices: Sequence[str] = ()
    unread_histories: int = 0
    own_host: str = ""


def take_picture(
    run: Run,
    moment: Moment,
    findings: tuple[Finding, ...],
    pending: tuple[Pending, ...],
    focus: int | None,
    metric: Metric = "lateness",
) -> Snapshot:
    """A snapshot of the run; `focus` is the rank whose detail it carries, `metric` what its heat-map shows."""
    if moment.ended is not None:
        findings = tuple(each for each in findings if not is_explained_by_end(each.kind, each.evidence, moment.ended))
        pending = tuple(each for each in pending if each.kind == "rank_failed")  # it needs no further frames, only time
    if moment.ended not in (None, "lost"):
        findings = tuple(replace(each, advice=of_ended_ranks(each.advice)) for each in findings)
    ages = run.ages(moment.now)
    lost = lost_ranks(run, run.silences(moment.read_at))  # while the store is silent, the ranks are not to blame
    heard_by = moment.read_at if moment.link.state == "live" else moment.now  # an answer may take seconds
    told = ages * np.nan if moment.link.state == "silent" else run.ages(heard_by)  # steps may end that nobody tells
    view = build.build_run(run, told, lost, moment.source, ended=moment.ended)
    late = np.isin(np.arange(run.info.world_size), late_ranks(findings))
    ranks = build.build_ranks(run, ages, lost, late)
    ranks = replace(ranks, lateness_ms=build.lateness_as_found(ranks.lateness_ms, findings, view.state))
    alive = run.taking_part()
    alive[lost] = False
    if not alive.any():  # then the last picture is of all
        alive = run.taking_part()
    newest = run.step_map.read(build.column_of(metric), run.out_of_step(), late)
    heat, chosen_heat = build.build_heat(run, newest, metric, is_over=moment.ended is not None)
    alive = run.keeping_up(alive)
    taken = Snapshot(
        link=moment.link,
        taken_at=moment.wall,
        taken_monotonic=time.monotonic(),
        run=view,
        coverage=build.build_coverage(run, ages, heard_by, moment.unread_histories),
        job=build.build_job(run, ranks, alive, findings),
        ranks=ranks,
        heat=heat,
        chosen_heat=chosen_heat,
        series=build.build_series(run, moment.wall - moment.now),
        timeline=build_timeline(run, newest, heat, alive),
        nodes=build_nodes(run, moment.now),
        findings=findings,
        pending=pending,
        notices=(*attempt_sentences.of_run(run.info), *moment.notices, *_notices(run)),
        detail=None if focus is None else build_detail(run, focus, late_ranks(findings), marked_ranks(findings)),
        own_host=moment.own_host,
    )
    return with_when(taken)


def _notices(run: Run) -> list[str]:
    """What was set aside, and why."""
    said = [
        f"{'once' if count == 1 else f'{count:,} times'}: {reason}" for reason, count in run.rejected.most_common(5)
    ]
    noted = np.flatnonzero(run.latest.noted)[:5].tolist()
    said += [f"rank {rank}: {run.states[rank].frame.notes[-1]}" for rank in noted]
    if run.latest.thinned.any():
        said.append("steps are faster than they can be sent: only every second, fourth, ... step is kept")
    if run.rings.set_aside:
        said.append(f"{run.rings.set_aside} step records were set aside: their durations are impossible")
    return said
