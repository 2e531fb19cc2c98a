"""What is said of the attempts of an elastic run."""

from __future__ import annotations

import time

import pytest

from ddpmon.parts import Attempt, FailedRank
from ddpmon.report.attempt_sentences import how, may_restart, of_run
from tests.made_frames import run_info

ENDED = 1_700_000_000.0
AT = time.strftime("%H:%M:%S", time.localtime(ENDED))
KILLED = Attempt(run_id="a-0", world_size=2, ended_at=ENDED, step=1256, vanished=[1], vanished_count=1)
ERROR = [FailedRank(0, "RuntimeError: Connection\nclosed")]
BOTH = Attempt(run_id="a-1", restart=1, failed=ERROR, failed_count=1, vanished=[1], vanished_count=1)
FOLLOWED = Attempt(run_id="a", failed=[FailedRank(0, "RuntimeError: Connection closed"), FailedRank(1)], failed_count=2)
BROKEN = Attempt(run_id="a", failed=[ERROR[0], FailedRank(1)], failed_count=2)
CAUSED = Attempt(run_id="a", failed=[FailedRank(1, "IndexError: 7"), ERROR[0]], failed_count=2)
MANY = Attempt(run_id="a-2", restart=2, step=0, vanished=[*range(8)], vanished_count=100)
BEGIN = "begun by its launcher: steps, loss and throughput begin again"


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (KILLED, "rank 1 disappeared without a message"),
        (BOTH, "rank 1 disappeared without a message, rank 0 ended with an error (RuntimeError: Connection closed)"),
        (BROKEN, "ranks 0, 1 ended with an error (rank 0: RuntimeError: Connection closed)"),
        (CAUSED, "ranks 0, 1 ended with an error (first rank 1, IndexError: 7)"),
        (FOLLOWED, "ranks 0, 1 ended with an error (rank 0: RuntimeError: Connection closed)"),
        (MANY, "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 92 more disappeared without a message"),
        (Attempt(run_id="a"), "no rank said why"),
    ],
)
def test_how_an_attempt_ended(attempt: Attempt, words: str) -> None:
    assert how(attempt) == words


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, []),
        ({"max_restarts": 3}, []),
        (
            {"max_restarts": 3, "restart": 3},
            [f"attempt 4 of 4, {BEGIN}; how the attempt before it ended is not known here"],
        ),
        (
            {"max_restarts": 3, "restart": 1, "attempts": [KILLED]},
            [
                f"attempt 2 of 4, {BEGIN}",
                f"attempt 1 of 4 ended at step 1,256, {AT}: rank 1 disappeared without a message",
            ],
        ),
    ],
)
def test_what_is_noticed(told: dict[str, object], said: list[str]) -> None:
    assert of_run(run_info(2, **told)) == said


def test_an_attempt_whose_end_is_hardly_known() -> None:
    (_, first, *others) = of_run(run_info(2, restart=4, attempts=[KILLED, BOTH, MANY, KILLED]))
    assert first.startswith("attempt 2 ended before its first step: rank 1 disappeared"), "the newest three"
    assert len(others) == 2


def test_whether_another_attempt_may_follow() -> None:
    assert may_restart(run_info(2, max_restarts=3)) == "its launcher may restart it (attempt 2 of 4)"
    assert may_restart(run_info(2, max_restarts=3, restart=3)) == ""
    assert may_restart(run_info(2, restart=4)) == "", "nobody says that it may"
