"""The run over its newest steps: what is not known is a gap, and troubles stand where the run was."""

from __future__ import annotations

import re

import numpy as np

from ddpmon.report.build import build_heat
from ddpmon.report.build_timeline import build_timeline
from ddpmon.report.rank_detail import MOST_PEERS, peers_of
from ddpmon.report.verdicts import firing
from ddpmon.run.model import Run
from ddpmon.simulate.plan import Plan
from ddpmon.tui.draw.timeline_view import timeline_lines
from ddpmon.tui.theme import make_look
from ddpmon.tui.view_state import ViewState
from tests.made_frames import MadeJob, healthy_phases, rank_frame, run_info
from tests.recording.made_recordings import simulated


def test_where_the_record_of_the_late_rank_is_missing_nobody_has_recovered() -> None:
    phases = healthy_phases(4, 80)
    phases["backward"][1, 20:] += 60.0
    job, run = MadeJob(phases), Run(run_info(4))
    for rank in range(4):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 50)), 0.0)
        run.add_rank(rank_frame(rank, 2, job.columns(rank, 53 if rank == 1 else 50, 80)), 1.0)
    run.add_rank(rank_frame(2, 3, job.columns(2, 79, 80)), 1.0)
    newest = run.step_map.read()
    timeline = build_timeline(run, newest, build_heat(run, newest)[0], np.ones(4, np.bool_))
    assert np.flatnonzero(np.isnan(timeline.late_pct)).tolist() == [50, 51, 52]
    assert timeline.late_pct[20:50].min() > 40
    assert (timeline.late_rank[53:] == 1).all()


def test_of_the_newest_steps_those_that_few_ranks_have_told_of_are_not_drawn() -> None:
    """Two late ranks of one host, which told first, were compared with each other and shown as recovered."""
    phases = healthy_phases(4, 80)
    phases["backward"][2:, 20:] += 60.0
    job, run = MadeJob(phases), Run(run_info(4))
    for rank in range(4):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 80 if rank > 1 else 76)), 0.0)
    heat = build_heat(run, run.step_map.read())[0]
    assert heat.step.tolist() == list(range(76))
    assert heat.values.shape == (4, 76)
    assert len(heat.base_ms) == 76
    over = build_heat(run, run.step_map.read(), is_over=True)[0]
    assert over.step.tolist() == list(range(80)), "of a run that is over it ends with the last step"
    assert np.isfinite(over.values[:, :76]).all()
    assert np.isnan(over.values[:, 76:]).all()
    assert len(over.base_ms) == 80


def test_the_others_of_a_rank_are_not_all_the_first_ones_of_their_hosts() -> None:
    run = Run(run_info(1024))
    job = MadeJob(healthy_phases(8, 20))
    for rank in range(1024):
        run.add_rank(rank_frame(rank, 1, job.columns(rank % 8, 0, 20)), 0.0)
    others = peers_of(run, 21)
    assert len(others) == MOST_PEERS
    for parts, what in ((others % 8, "places on a host"), (others // 128, "parts of the run")):
        assert np.bincount(parts, minlength=8).min() >= MOST_PEERS // 16, what


def test_a_lost_rank_that_had_restarted_stands_where_the_run_was_then() -> None:
    with simulated(Plan(ranks=16, hosts=4, scenario="mixed")) as run:  # the last host goes away again and again
        run.go(72)
        shown = run.observer.tick()
    assert shown.ranks is not None
    (lost,) = (finding for finding in firing(shown.findings) if finding.kind == "rank_lost")
    assert int(shown.ranks.step[lost.ranks[0]]) < 0.8 * int(shown.ranks.step.max())
    lines = ["".join(part.text for part in line) for line in timeline_lines(ViewState(shown, make_look()), 160, 40)]
    marks = [line[: found.start()].rindex("▲") for line in lines for found in re.finditer("ranks 12-15 lost", line)]
    assert max(marks) > 22 + 0.7 * 138, "a warning: the run goes on without them"
    assert min(marks) < 22 + 0.5 * 138, "the loss that is over stands where it began"
    assert lost.since_step is None, "its own step is none of the run's"
