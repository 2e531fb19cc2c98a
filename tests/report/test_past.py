"""Findings of a run that is over say when they held."""

from __future__ import annotations

import time
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.contention.storage import DiskLowMeasures
from ddpmon.diagnose.coverage import (
    CoverageMeasures,
    DuplicateRanksMeasures,
    Losses,
    Publisher,
    RestartedAloneMeasures,
)
from ddpmon.diagnose.failures import FirstFailureMeasures, RankEnd, RankError
from ddpmon.diagnose.judge import Judge
from ddpmon.diagnose.losses import LossJumpMeasures, NonfiniteLossMeasures
from ddpmon.diagnose.lost import LostMeasures
from ddpmon.diagnose.pauses import LongStepMeasures, NamedPauseMeasures
from ddpmon.diagnose.pending import Pending
from ddpmon.diagnose.uneven_inputs import UnevenInputsMeasures
from ddpmon.format import local_time
from ddpmon.report.finding_rows import rows
from ddpmon.report.past import When, in_past
from ddpmon.report.run_report import Event, when_words
from ddpmon.report.sentences import in_words, tell
from ddpmon.run.model import Run
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding, Link, RunState, Snapshot
from ddpmon.tui.draw.detail import identity_lines
from ddpmon.tui.draw.finding_view import list_lines
from ddpmon.tui.draw.table import TableView
from ddpmon.tui.draw.verdict_lines import verdict_lines
from ddpmon.tui.view_state import ViewState
from ddpmon.watcher.picture import Moment, take_picture
from tests.made_frames import MadeJob, healthy_phases, rank_frame, run_info
from tests.tui.made_runs import HANG
from tests.tui.test_drawing import LOOKS, text_of

ERROR = FirstFailureMeasures(RankEnd(3, RankError("ValueError", "this is wrong")))
SILENT = LostMeasures(2, "node0", 102, 20.0, 99, "forward")
NAN = NonfiniteLossMeasures("nan", 5, 5, 1, (2,), (), None, None)
# What happened -> an alert on it, and the words before its advice at the end of a run and when a run was last seen.
LEADS: dict[str, tuple[Alert, str, str]] = {
    "a failure": (Alert("rank_failed", "critical", ERROR, (2,)), "", ""),
    "a long step": (
        Alert("pause", "info", LongStepMeasures(2100.0, 2100.0, 1, 1280), (1,), phase="input", cost_pct=1.0),
        "",
        "",
    ),
    "a checkpoint": (
        Alert("pause", "warning", NamedPauseMeasures("checkpoint", 4, 900.0, 900.0, 1, 90, False), cost_pct=6.0),
        "",
        "",
    ),
    "a loss that jumped": (
        Alert("loss_jump", "warning", LossJumpMeasures(2.0, 9.0, 3.0, 50, 4), (2,), since_step=60),
        "",
        "",
    ),
    "a loss that is finite again": (
        Alert("nonfinite_loss", "warning", msgspec.structs.replace(NAN, finite_since=9), (2,)),
        "",
        "",
    ),
    "a loss that is not": (Alert("nonfinite_loss", "critical", NAN, (2,)), "", ""),
    "ended data": (
        Alert("uneven_inputs", "warning", UnevenInputsMeasures(30.0, (0, 1), 99, has_finished=False), (2,)),
        "",
        "",
    ),
    "a silent rank": (Alert("rank_lost", "critical", SILENT, (2,), ("node0",)), "", "if the run goes on, "),
    "what nobody can see": (
        Alert(
            "monitor_degraded",
            "warning",
            CoverageMeasures(2, (0, 1), 6.0, (), Losses(0, 0, 0, 0, 0), None, 0),
            (0, 1),
        ),
        "",
        "",
    ),
    "a full disk": (
        Alert("disk_low", "warning", DiskLowMeasures("/work", 1 << 30, 100 << 30, ()), (2,), ("node0",)),
        "before the next run, ",
        "if the run goes on, ",
    ),
}
LASTS = {"a loss that is not", "a silent rank", "what nobody can see", "a full disk"}


@pytest.mark.parametrize("name", LEADS)
def test_a_sentence_that_tells_its_own_moment_gets_no_other_and_what_is_broken_is_looked_into_now(name: str) -> None:
    alert, at_the_end, last_seen = LEADS[name]
    now = tell(alert)
    leads: list[tuple[When, str]] = [("at the end", at_the_end), ("when last seen", last_seen)]
    for when, lead in leads:
        then = in_past(now, when)
        assert then.summary == (f"{when}: {now.summary}" if name in LASTS else now.summary)
        assert advice_text(then.advice) == (f"{lead}{advice_text(now.advice)}" if now.advice else "")


def test_what_is_over_keeps_its_words() -> None:
    over = replace(HANG, cleared_at_step=90, summary="rank 2 was late (from step 60 to 90)")
    assert in_past(over, "at the end").summary == over.summary


def pictures(ended: RunState | None, link: Link) -> tuple[Snapshot, Finding]:
    """A run with a straggler, as it is drawn; and the finding as it was told."""
    phases = healthy_phases(4, 200)
    phases["forward"][2, 60:] += 40.0
    job, run, judge = MadeJob(phases), Run(run_info(4)), Judge()
    for tick in range(20):
        for rank in range(4):
            part = job.columns(rank, 10 * tick, 10 * tick + 10)
            run.add_rank(rank_frame(rank, tick, part, phase="backward", step_s=0.1), float(tick))
        run.settle(float(tick))
        findings = in_words(judge(run, run.ages(float(tick))))
    moment = Moment(20.0, 19.0, time.time(), link, ended, "a store")
    (finding,) = findings
    return take_picture(run, moment, findings, (Pending("rank_lost", (1,), (), 1, 6.0),), None), finding


@pytest.mark.parametrize(
    ("ended", "state", "lead", "when"),
    [
        (None, "live", "", "now"),
        ("finished", "gone", "before the next run, ", "at the end"),
        ("killed", "gone", "before the next run, ", "at the end"),
        ("lost", "gone", "if the run goes on, ", "when last seen"),
    ],
)
def test_a_run_that_is_over_is_told_in_the_past_in_all_views(
    ended: RunState | None, state: str, lead: str, when: str
) -> None:
    shown, told = pictures(ended, Link("live" if state == "live" else "gone", "no store"))
    (found,) = shown.findings
    assert bool(shown.pending) is (ended is None), "nothing more will confirm it"
    assert found.summary == (f"{when}: {told.summary}" if lead else told.summary)
    costs = " cost 27 %" if lead else " costs 27 %"
    assert advice_text(found.advice).startswith(f"{lead}check ")
    picture, ranks = ViewState(shown, LOOKS["colour"]), shown.ranks
    assert ranks is not None
    head = " ".join(text_of(verdict_lines(picture, 160)))
    assert costs in head
    assert (" ago" in head) is not bool(lead), "how long it has been going on is of interest while it does"
    assert f"→ {lead}check " in head
    narrow = " ".join(text_of(verdict_lines(picture, 80)))
    assert ("→ ssh node0" in narrow) is not bool(lead), "a command alone does not say that it is for another run"
    assert f"→ {lead}" in narrow
    assert ("step 60 (" in narrow) is not bool(lead)
    assert "a day" not in narrow + str(rows(found, shown)) or not lead
    assert f"─ {when} ─" in text_of(list_lines(picture, shown.findings, TableView(np.arange(1)), 80, 5))[0]
    where = "last seen in backward" if lead else "running in backward"
    assert where in text_of(identity_lines(shown, ranks, 2, 160, LOOKS["colour"]))[0]


def holes(silent: tuple[int, ...] = (), unheard: tuple[int, ...] = (), dropped: int = 0) -> Finding:
    """What the monitor does not see of a run of four ranks."""
    measures = CoverageMeasures(4, silent, 6.0, unheard, Losses(dropped, 0, 0, 0, 0), 60.0, 0)
    return tell(Alert("monitor_degraded", "warning", measures, (*silent, *unheard)))


TWICE = DuplicateRanksMeasures((Publisher(7, "node0"), Publisher(8, "node0")))
UNSEEN: dict[str, tuple[Finding, bool]] = {  # what was not seen, and whether a known end of the run explains it
    "ranks fell silent": (holes(silent=(1, 2)), True),
    "every rank fell silent": (holes(silent=(0, 1, 2, 3)), True),
    "ranks never reported": (holes(unheard=(1, 2)), False),
    "one fell silent, one never reported": (holes(silent=(1,), unheard=(2,)), False),
    "steps were dropped": (holes(dropped=3), False),
    "one fell silent, and steps were dropped": (holes(silent=(1,), dropped=3), False),
    "two processes publish as one rank": (tell(Alert("monitor_degraded", "warning", TWICE, (3,))), False),
    "ranks restarted alone": (tell(Alert("monitor_degraded", "info", RestartedAloneMeasures(), (1,))), False),
}


@pytest.mark.parametrize("ended", [None, "finished", "failed", "killed", "cancelled", "restarting", "lost"])
@pytest.mark.parametrize("name", UNSEEN)
def test_the_end_of_a_run_explains_why_ranks_are_silent_and_nothing_else(name: str, ended: RunState | None) -> None:
    """Duplicate ranks and ranks that never reported were left out, and all of it where nobody knew the end."""
    found, is_explained = UNSEEN[name]
    run = Run(run_info(4))
    moment = Moment(20.0, 19.0, time.time(), Link("live" if ended is None else "gone", "no store"), ended, "a store")
    shown = take_picture(run, moment, (found,), (), None)
    is_left_out = is_explained and ended not in (None, "lost")
    assert [each.ranks for each in shown.findings] == ([] if is_left_out else [found.ranks])


def test_a_report_says_when_a_trouble_began_as_far_as_that_is_known_and_when_it_was_seen() -> None:
    at = 1_790_000_000.0
    event = Event("straggler", "warning", "rank 5 is late", since_step=1204, first_at=at, last_at=at + 60, lasts=False)
    assert when_words(event) == f"seen {local_time(at)} to {local_time(at + 60)[11:]}"
    assert when_words(replace(event, lasts=True)).endswith(" to the end")
    assert when_words(replace(event, began_at=at - 9)).startswith(f"began {local_time(at - 9)}; seen ")
