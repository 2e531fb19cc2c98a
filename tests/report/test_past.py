"""Findings of a run that is over are told as things of the past."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from ddpmon.diagnose.judge import Judge
from ddpmon.report.finding_rows import rows
from ddpmon.report.past import in_past, past_tense
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


@pytest.mark.parametrize(
    ("said", "past"),
    [
        ("rank 1 (node0) is late by 41 ms a step, mostly in input (since step 812). Costs 19 % of the run's time.",
         "rank 1 (node0) was late by 41 ms a step, mostly in input (since step 812). Cost 19 % of the run's time."),
        ("rank 2 works 40 ms longer a step, but the other ranks do not wait for it: the cost is unattributed",
         "rank 2 worked 40 ms longer a step, but the other ranks did not wait for it: the cost was unattributed"),
        ("pid 7 (bob, python -m has is.py) takes 95 % of a core on node0, where ranks 2, 3 wait for a CPU 30 % of the "
         "time", "pid 7 (bob, python -m has is.py) took 95 % of a core on node0, where ranks 2, 3 waited for a CPU 30 "
         "% of the time"),
        ("rank 2 grows by 60 MiB/s, so the memory is full in 43 s",
         "rank 2 grew by 60 MiB/s, so the memory would have been full in 43 s"),
        ("Fixing it alone saves 12 % of the run's time, because rank 5 is late too.",
         "Fixing it alone would have saved 12 % of the run's time, because rank 5 was late too."),
        ("the loss jumped from 2 to 12 at step 1,200", "the loss jumped from 2 to 12 at step 1,200"),
    ],
)  # fmt: skip
def test_the_verbs_are_in_the_past_and_foreign_words_stay(said: str, past: str) -> None:
    assert past_tense(said) == past
    assert past_tense(past) == past


def test_a_sentence_with_code_keeps_its_words() -> None:
    code = replace(HANG, summary="rank 2 is stuck at a.py:1 in f: x is y", brief="rank 2 is stuck at a.py:1")
    told = in_past(code, may_go_on=False)
    assert (told.summary, told.brief) == (
        "at the end of what was seen: rank 2 is stuck at a.py:1 in f: x is y",
        "at the end of what was seen: rank 2 is stuck at a.py:1",
    )
    failed = replace(HANG, kind="rank_failed", summary="rank 2 failed after step 3: ValueError: this is wrong")
    assert in_past(failed, may_go_on=False).summary == failed.summary


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
    is_late, costs = ("was late", " cost 27 %") if lead else ("is late", " costs 27 %")
    assert is_late in found.summary
    assert found.summary.replace("was", "is").replace("Cost 2", "Costs 2") == told.summary
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
