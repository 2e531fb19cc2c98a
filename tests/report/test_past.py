"""Findings of a run that is over say when they held."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from ddpmon.diagnose.judge import Judge
from ddpmon.report.finding_rows import rows
from ddpmon.report.past import in_past
from ddpmon.report.sentences import in_words
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


def test_what_is_of_the_past_by_itself_keeps_its_words() -> None:
    failed = replace(HANG, kind="rank_failed", summary="rank 2 failed after step 3: ValueError: this is wrong")
    over = replace(HANG, cleared_at_step=90, summary="over since step 90: rank 2 is late")
    assert [in_past(each, may_go_on=False).summary for each in (failed, over)] == [failed.summary, over.summary]


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
    return take_picture(run, moment, findings, (), None), finding


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
    assert found.summary == (f"{when}: {told.summary}" if lead else told.summary)
    costs = " cost 27 %" if lead else " costs 27 %"
    assert advice_text(found.advice).startswith(f"{lead}check ")
    picture, ranks = ViewState(shown, LOOKS["colour"]), shown.ranks
    assert ranks is not None
    head = " ".join(text_of(verdict_lines(picture, 160)))
    assert costs in head
    assert f"→ {lead}check " in head
    narrow = " ".join(text_of(verdict_lines(picture, 80)))
    assert ("→ ssh node0" in narrow) is not bool(lead), "a command alone does not say that it is for another run"
    assert f"→ {lead}" in narrow
    assert "a day" not in narrow + str(rows(found, shown)) or not lead
    assert f"─ {when} ─" in text_of(list_lines(picture, shown.findings, TableView(np.arange(1)), 80, 5))[0]
    where = "last seen in backward" if lead else "running in backward"
    assert where in text_of(identity_lines(shown, ranks, 2, 160, LOOKS["colour"]))[0]
