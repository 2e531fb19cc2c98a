"""What is told of one run: pictures in, notices out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ddpmon.diagnose.judge import Judge
from ddpmon.guard.ledger import Ledger, Notice
from ddpmon.guard.memory import RunMemory
from ddpmon.guard.policy import GuardPolicy
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from ddpmon.snapshot import Finding, Link, Snapshot
from tests.commands.command_snapshots import STRAGGLER, snapshot, two_ranks
from tests.made_frames import MadeJob, healthy_phases, rank_frame, run_info

LIVE = Link("live")
LATE = replace(STRAGGLER, id=3)
HANG = Finding("hang", "critical", "rank 1 never came", ranks=(1,))


def picture(*findings: Finding, step: int = 100, age_s: float = 0.5, link: Link = LIVE, **run: Any) -> Snapshot:
    """The run at a step."""
    made = snapshot(findings=findings, ranks=two_ranks(age_s=np.array([age_s, age_s])), link=link)
    assert made.run is not None
    return replace(made, run=replace(made.run, step=step, **run))


class Told:
    """A ledger, and a clock that the test moves."""

    def __init__(self, memory: RunMemory | None = None, **policy: Any) -> None:
        self.memory = memory or RunMemory("r1", "gpt", "tcp://127.0.0.1:29480")
        self.now = 0.0
        self.ledger = Ledger(self.memory, GuardPolicy(**policy), 0.0)

    def __call__(self, made: Snapshot, seconds: float = 2.0) -> list[tuple[str, str]]:
        self.now += seconds
        return [_words(notice) for notice in self.ledger.take(made, self.now, self.now)]


def _words(notice: Notice) -> tuple[str, str]:
    return notice.event, "" if notice.alert is None else notice.alert.kind


BEGUN, OVER = [("firing", "straggler")], [("resolved", "straggler")]


def test_a_beginning_and_an_end_are_told_once_whatever_the_words_are() -> None:
    told = Told()
    assert told(picture(LATE)) == BEGUN
    assert told(picture(replace(LATE, summary="other words", severity="critical", ranks=(1, 0)))) == []
    assert told(picture(replace(LATE, severity="info"))) == []
    open_alert = told.memory.alerts[0]
    over = replace(LATE, severity="info", summary="it was late (from step 60 to 120)", cleared_at_step=120)
    assert told(picture(over)) == OVER
    assert told(picture(over)) == []
    assert (open_alert.severity, open_alert.finding["cleared_at_step"]) == ("critical", 120)
    assert "it was late" not in open_alert.finding["summary"], "the reason says it"
    assert told(picture(replace(LATE, id=4))) == BEGUN, "another one of the same rank"


def test_what_flickers_is_not_over_and_what_stays_away_is() -> None:
    told = Told()
    assert told(picture(HANG)) == [("firing", "hang")]
    assert [told(picture(*([HANG] if number % 3 == 0 else []))) for number in range(20)] == [[]] * 20
    assert told(picture(), 29.0) == []
    assert told(picture(), 31.0) == [("resolved", "hang")]


def test_what_ended_a_run_is_told_again_only_where_another_rank_is_named() -> None:
    told = Told()
    ended = Finding("rank_failed", "critical", "rank 0 failed: no rank reported why")
    assert told(picture(ended, state="failed")) == [("firing", "rank_failed")]
    disappeared = replace(ended, summary="rank 1 disappeared", ranks=(1,))
    assert told(picture(disappeared, state="failed")) == [("firing", "rank_failed")]
    assert told(picture(replace(disappeared, ranks=(1, 3)), state="failed")) == []
    assert [alert.finding["summary"] for alert in told.memory.alerts] == ["rank 1 disappeared"]


def test_the_rank_that_ended_a_run_corrects_what_was_told_of_its_silence() -> None:
    """A run that was killed was two alerts: no word from it, and ten seconds later the rank that was lost."""
    told = Told()
    gone = Link("gone", "the run was killed or crashed")
    assert told(picture(state="killed", link=gone)) == [("firing", "no_word")]
    silence = told.memory.alerts[0].alert
    lost = Finding("rank_lost", "critical", "rank 1 disappeared", ranks=(1,))
    assert told(picture(lost, state="killed", link=gone), 10.0) == [("firing", "rank_lost")]
    assert [(alert.alert, alert.ranks) for alert in told.memory.alerts] == [(silence, (1,))]
    assert told(picture(lost, state="killed", link=gone), 500.0) == []
    assert told(picture()) == []
    assert told(picture(), 31.0) == [("resolved", "rank_lost")]
    lives = Told(silence_s=60.0)
    assert lives(picture(link=Link("silent")), 70.0) == [("firing", "no_word")]
    others_go_on = replace(lost, severity="warning")
    assert lives(picture(others_go_on), 1.0) == [("firing", "rank_lost"), ("resolved", "no_word")]


def test_an_alert_whose_rules_began_again_is_over_only_once_they_could_have_said_so() -> None:
    told = Told()
    assert told(picture(LATE, step=900)) == BEGUN
    assert told(picture(step=5), 100.0) == [], "all ranks have restarted"
    assert told(picture(replace(LATE, id=1), step=60), 100.0) == [], "it is the same trouble with another number"
    assert told(picture(step=70), 100.0) == []
    assert told(picture(step=260), 100.0) == []
    assert told(picture(step=280), 100.0) == OVER


def test_a_late_rank_that_turns_out_to_be_a_late_host_is_one_trouble() -> None:
    told = Told()
    assert told(picture(LATE)) == BEGUN
    host = Finding("slow_node", "critical", "node0 is late", ranks=(0, 1), nodes=("node0",), id=9)
    assert told(picture(host)) == []
    assert told(picture(replace(host, cleared_at_step=150))) == [("resolved", "slow_node")]


def test_a_lateness_is_told_with_its_cause_which_comes_some_seconds_later_or_not_at_all() -> None:
    unknown = replace(LATE, cause=None)
    told = Told(cause_s=5.0)
    assert told(picture(unknown)) == []
    assert told(picture(replace(unknown, summary="other words", ranks=(1, 2)))) == []
    assert told(picture(LATE)) == BEGUN
    assert told.memory.alerts[0].finding["cause"] == LATE.cause
    assert told(picture(unknown)) == []

    told = Told(cause_s=5.0)
    assert [told(picture(unknown)) for _ in range(4)] == [[], [], [], BEGUN], "2 s lie between two pictures"
    assert told(picture(unknown, HANG)) == [("firing", "hang")], "only a lateness has a cause that comes later"

    told = Told(cause_s=5.0)
    assert told(picture(unknown)) == told(picture(), 60.0) == told(picture(unknown)) == [], "it begins again"


def test_two_troubles_are_two_and_information_is_none() -> None:
    told = Told()
    first, second = replace(LATE, ranks=(0,), id=1), replace(LATE, ranks=(1,), id=2)
    assert told(picture(first, second, replace(LATE, ranks=(7,), id=7, severity="info"))) == BEGUN * 2
    assert told(picture(second, replace(first, cleared_at_step=9))) == OVER


def test_a_guard_that_is_started_again_repeats_nothing() -> None:
    told = Told()
    assert told(picture(LATE, HANG)) == [*BEGUN, ("firing", "hang")]
    again = Told(told.memory)
    assert again(picture(replace(LATE, id=1), HANG)) == []
    assert again(picture(HANG, replace(LATE, id=1, cleared_at_step=500))) == OVER


def test_the_end_of_each_loss_of_a_rank_is_told_at_once_with_its_step() -> None:
    job, run, judge, told = MadeJob(healthy_phases(4, 800)), Run(run_info(4)), Judge(), Told()
    reasons = []
    for tick in range(70):
        for rank in range(3 if 10 <= tick % 35 < 25 else 4):
            run.add_rank(rank_frame(rank, tick, job.columns(rank, 10 * tick, 10 * tick + 10)), float(tick))
        run.settle(float(tick))
        told.now += 1.0
        shown = picture(*in_words(judge(run, run.ages(float(tick)))), step=10 * tick + 9)
        reasons += [(tick, each.reason) for each in told.ledger.take(shown, told.now, told.now) if each.reason]
    assert reasons == [(25, "it is over since step 260"), (60, "it is over since step 610")]


def test_no_word_from_a_run_is_told_and_that_it_is_heard_again() -> None:
    told = Told(silence_s=60.0)
    assert told(picture()) == []
    silent = picture(LATE, link=Link("silent", "the store does not answer"))
    assert told(silent, 50.0) == [], "a silent store is asked about nothing else"
    assert told(silent, 20.0) == [("firing", "no_word")]
    assert told(silent, 600.0) == []
    assert "the store does not answer" in told.memory.alerts[0].finding["summary"]
    assert told(picture(), 1.0) == [("resolved", "no_word")]
    assert told(picture(age_s=62.0), 61.5) == [("firing", "no_word")], "the store answers, the ranks do not"


def test_a_run_that_ends_well_ends_all_and_one_that_fails_only_what_slowed_it() -> None:
    told = Told()
    told(picture(LATE))
    assert told(picture(LATE, state="finished")) == OVER
    assert told(picture(LATE, state="finished", link=Link("gone", "it has ended")), 500.0) == []
    failing, failed = Told(), Finding("rank_failed", "critical", "rank 1 failed", ranks=(1,))
    failing(picture(LATE))
    gone = picture(LATE, failed, state="failed", link=Link("gone", "the run has failed"))
    assert sorted(failing(gone)) == [("firing", "rank_failed"), *OVER]
    assert failing(gone, 500.0) == [], "no word is to be expected of it"


def test_a_run_that_its_launcher_starts_again_is_not_over_until_that_is_killed_too() -> None:
    told = Told(hold_s=30.0, silence_s=60.0)
    assert told(picture(LATE)) == BEGUN
    restarting = Link("gone", "restarting, attempt 2 of 4")
    silent = Finding("hang", "critical", "rank 1 never came", ranks=(1,))
    assert told(picture(silent, state="restarting", link=restarting)) == []
    assert told(picture(silent, state="restarting", link=restarting), 600.0) == []
    killed = picture(LATE, state="killed", link=Link("gone", "the run was killed or crashed"))
    assert sorted(told(killed)) == [("firing", "no_word"), *OVER]
    cancelled = Told()
    assert cancelled(picture(LATE)) == BEGUN
    assert cancelled(picture(LATE, state="cancelled", link=Link("gone", "it was cancelled"))) == OVER


def test_a_flood_is_kept_back_and_counted_and_critical_alerts_get_through() -> None:
    told = Told(burst=10, reserve=4, refill_s=60.0)
    flood = [replace(LATE, ranks=(rank,), id=rank + 1) for rank in range(30)]
    assert told(picture(*flood)) == BEGUN * 6
    assert told(picture(*flood, HANG)) == [("firing", "hang")]
    over = [replace(finding, cleared_at_step=200) for finding in flood]
    assert told(picture(*over, HANG)) == OVER * 6, "an end is told where the beginning was"
    assert told(picture(HANG), 240.0) == [("withheld", "")]
    assert told(picture(HANG), 240.0) == []


def test_a_warning_that_was_kept_back_is_told_when_it_becomes_critical() -> None:
    told = Told(burst=3, reserve=2, refill_s=1e9)
    first, second = replace(LATE, ranks=(0,), id=1), replace(LATE, ranks=(1,), id=2)
    assert told(picture(first, second)) == BEGUN
    worse = replace(second, severity="critical")
    assert told(picture(first, worse)) == BEGUN
    assert told(picture(first, worse)) == [], "once"
    assert told(picture(first, replace(worse, cleared_at_step=200))) == OVER


def test_the_end_of_what_was_told_is_told_also_where_there_was_no_room_for_its_correction() -> None:
    told = Told(burst=1, reserve=0, refill_s=1e9)
    ended = Finding("rank_failed", "critical", "rank 0 failed", ranks=(0,))
    assert told(picture(ended, state="failed")) == [("firing", "rank_failed")]
    assert told(picture(replace(ended, ranks=(1,)), state="failed")) == []
    assert [_words(notice) for notice in told.ledger.end("the next attempt has begun")] == [("resolved", "rank_failed")]


@pytest.mark.parametrize("state", ["waiting", "live"])
def test_without_a_run_there_is_nothing_to_tell(state: Any) -> None:
    assert Told()(Snapshot(Link(state), 0.0, 0.0), 1000.0) == []
