"""Failed ranks: whose exception came first, and whose only follows from it."""

from __future__ import annotations

from typing import Any

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.failures import (
    BrokenConnectionMeasures,
    DisappearedMeasures,
    FirstFailureMeasures,
    InterruptedMeasures,
    LeftMeasures,
    RankError,
    find_failed,
)
from ddpmon.diagnose.judge import Judge
from ddpmon.parts import Failure
from ddpmon.report.sentences import tell
from ddpmon.run.model import Run
from tests.diagnose.measured import measured, only
from tests.made_frames import columns, rank_frame, run_info, tick

SECONDARY = Failure("RuntimeError", "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:9", 121)
BROKEN = RankError(SECONDARY.kind, SECONDARY.message)
TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "/home/me/train.py", line 12, in <module>\n    main()',
    '  File "/home/me/data.py", line 88, in __getitem__\n    return self.table[index]',
    '  File "/venv/lib/python3.11/site-packages/numpy/core.py", line 9, in take\n    raise IndexError',
]


def judge(*failures: Failure | str | None, ages: dict[int, float] | None = None) -> list[Alert]:
    """The alerts on ranks that failed so; a string is the state of a rank that did not."""
    run = Run(run_info(len(failures)))
    for rank, failure in enumerate(failures):
        state = failure if isinstance(failure, str) else "failed"
        says: dict[str, Any] = {} if isinstance(failure, str) else {"failure": failure}
        frame = rank_frame(rank, 9, columns([120], {"duration": [1.0]}), state=state, **says)
        run.add_rank(frame, 100.0, (ages or {}).get(rank, 0.0))
    return find_failed(tick(run, run.ages(100.0)), ())


def test_the_cause_is_named_and_the_others_follow() -> None:
    cause = Failure("IndexError", "index 7 is out of bounds", 121, TRACEBACK)
    alert = only(judge(SECONDARY, SECONDARY, cause, SECONDARY))
    assert (alert.kind, alert.severity, alert.ranks) == ("rank_failed", "critical", (2,))
    assert alert.since_step == 122
    measures = measured(alert, FirstFailureMeasures)
    assert measures.first.error == RankError("IndexError", "index 7 is out of bounds")
    assert (measures.first.step, measures.first.traceback) == (121, tuple(TRACEBACK))
    assert (measures.other_errors, measures.followers) == ((), (0, 1, 3))


def test_of_several_causes_the_first_by_step_then_rank() -> None:
    found = judge(Failure("ValueError", "a", 130), Failure("KeyError", "b", 125), Failure("KeyError", "b", 125))
    assert only(found).ranks == (1, 2, 0)
    assert measured(only(found), FirstFailureMeasures).other_errors == (
        RankError("KeyError", "b"),
        RankError("ValueError", "a"),
    )
    alike = only(judge(*[Failure("OutOfMemoryError", "CUDA out of memory", 5)] * 2))
    assert alike.ranks == (0, 1)
    assert measured(alike, FirstFailureMeasures).other_errors == (RankError("OutOfMemoryError", "CUDA out of memory"),)


def test_only_secondary_failures_and_a_rank_that_disappeared() -> None:
    alert = only(judge(SECONDARY, "running", SECONDARY, ages={1: 6.0}))
    measures = measured(alert, DisappearedMeasures)
    assert (alert.ranks, measures.followers, measures.error) == ((1,), (0, 2), BROKEN)
    assert judge(SECONDARY, "running", SECONDARY) == [], "rank 1 may have been killed a moment ago"
    assert judge(SECONDARY, "running", "running", ages={1: 6.0}) == [], "rank 2 may have been, too"
    assert only(judge(SECONDARY, Failure("ValueError", "x", 121), "running")).ranks == (1,), "a cause needs no others"
    alert = only(judge(SECONDARY, "running", SECONDARY, ages={0: 4.5, 2: 5.0}))
    assert (alert.ranks, measured(alert, BrokenConnectionMeasures).ranks) == ((), (0, 2)), "rank 1 was heard since"


def test_a_rank_that_left_without_an_exception_is_what_the_others_waited_for() -> None:
    alert = only(judge(SECONDARY, "finished", SECONDARY))
    assert (alert.kind, alert.severity, alert.ranks, alert.since_step) == ("rank_failed", "critical", (1,), 121)
    measures = measured(alert, LeftMeasures)
    assert (measures.first.step, measures.followers, measures.error) == (120, (0, 2), BROKEN)
    for step in (60, 125):  # one that left long before, and one that got further
        run = Run(run_info(2))
        run.add_rank(rank_frame(0, 9, columns([120], {"duration": [1.0]}), state="failed", failure=SECONDARY), 100.0)
        run.add_rank(rank_frame(1, 9, columns([step], {"duration": [1.0]}), state="finished"), 100.0)
        assert only(find_failed(tick(run, run.ages(100.0)), ())).ranks == ()
    cause = Failure("ValueError", "x", 120)
    assert only(judge(cause, "finished", SECONDARY)).ranks == (0,)


def test_an_error_of_the_backend_s_kind_is_secondary_whatever_it_says() -> None:
    cause = Failure("ZeroDivisionError", "division by zero", 200)
    for kind in ("DistBackendError", "torch.distributed.DistNetworkError", "ConnectionResetError"):
        assert only(judge(Failure(kind, "Connection reset by peer", 3), cause)).ranks == (1,)
    mentions = Failure("ValueError", "gloo is no good name for a model", 3)
    assert only(judge(mentions, cause)).ranks == (0, 1)


def test_an_interruption_is_no_failure() -> None:
    key = Failure("KeyboardInterrupt", "", 121)
    alert = only(judge(key, key))
    assert (alert.severity, alert.ranks) == ("info", ())
    assert alert.measures == InterruptedMeasures(121, RankError("KeyboardInterrupt", ""), (0, 1), True, 2)
    assert only(judge(key, "running")).severity == "warning"
    assert only(judge(key, SECONDARY)).severity == "info"
    assert only(judge(Failure("ValueError", "x", 1), Failure("SIGTERM", "", 1))).ranks == (0,)


def test_a_launcher_that_ends_the_rest_once_one_was_killed_has_not_interrupted_the_run() -> None:
    terminated = Failure("KeyboardInterrupt", "SIGTERM", 121)
    assert judge(terminated, "running", SECONDARY) == []
    alert = only(judge(terminated, "running", SECONDARY, ages={1: 6.0}))
    assert (alert.ranks, measured(alert, DisappearedMeasures).followers) == ((1,), (2,))
    assert measured(only(judge(terminated, "running", ages={1: 6.0})), InterruptedMeasures).ranks == (0,)
    key = Failure("KeyboardInterrupt", "", 121)
    assert measured(only(judge(key, "running", SECONDARY, ages={1: 6.0})), InterruptedMeasures).ranks == (0,)


def test_a_rank_that_does_not_say_why() -> None:
    alert = only(judge(None, "finished"))
    assert (alert.ranks, alert.severity) == ((0,), "critical")
    assert measured(alert, FirstFailureMeasures).first.error is None


def test_nobody_failed() -> None:
    assert judge("running", "finished", "stalled") == []


def test_foreign_text_comes_in_harmless() -> None:
    bad = Failure("Evil\x1b[2J", "a\nb\x07" + "z" * 900, 1, ['File "\x1b[1mx", line 3, in \x1bf'])
    alert = tell(only(judge(bad)))
    assert alert.summary.isprintable()
    assert len(alert.summary) < 500
    assert not any("\x1b" in str(value) for value in alert.evidence.values())


def test_a_rank_that_disappeared_is_told_of_once() -> None:
    run = Run(run_info(3))
    steps = columns([120], {"duration": [1.0]})
    for rank, seq in ((0, 9), (1, 9), (2, 9)):
        says: dict[str, Any] = {"state": "failed", "failure": SECONDARY} if rank else {}
        run.add_rank(rank_frame(rank, seq, steps, **says), 100.0, 0.0 if rank else 30.0)
    assert [alert.kind for alert in Judge()(run, run.ages(100.0))] == ["rank_failed"]
