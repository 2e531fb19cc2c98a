"""Failed ranks: whose exception came first, and whose is an echo."""

from __future__ import annotations

from typing import Any

from ddpmon.diagnose.failures import find_failed
from ddpmon.diagnose.judge import Judge
from ddpmon.parts import Failure
from ddpmon.run.model import Run
from ddpmon.snapshot import Finding
from tests.made_frames import columns, rank_frame, run_info

ECHO = Failure("RuntimeError", "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:9", 121)
TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "/home/me/train.py", line 12, in <module>\n    main()',
    '  File "/home/me/data.py", line 88, in __getitem__\n    return self.table[index]',
    '  File "/venv/lib/python3.11/site-packages/numpy/core.py", line 9, in take\n    raise IndexError',
]


def judge(*failures: Failure | str | None, ages: dict[int, float] | None = None) -> list[Finding]:
    """The findings on ranks that failed so; a string is the state of a rank that did not."""
    run = Run(run_info(len(failures)))
    for rank, failure in enumerate(failures):
        state = failure if isinstance(failure, str) else "failed"
        says: dict[str, Any] = {} if isinstance(failure, str) else {"failure": failure}
        frame = rank_frame(rank, 9, columns([120], {"duration": [1.0]}), state=state, **says)
        run.add_rank(frame, 100.0, (ages or {}).get(rank, 0.0))
    return find_failed(run, run.ages(100.0))


def only(found: list[Finding]) -> Finding:
    (finding,) = found
    return finding


def test_the_cause_is_named_and_the_echoes_follow() -> None:
    cause = Failure("IndexError", "index 7 is out of bounds", 121, TRACEBACK)
    finding = only(judge(ECHO, ECHO, cause, ECHO))
    assert (finding.kind, finding.severity, finding.ranks) == ("rank_failed", "critical", (2,))
    assert finding.since_step == 122
    assert "IndexError: index 7 is out of bounds" in finding.summary
    assert "data.py:88 in __getitem__: return self.table[index]" in finding.summary
    assert "ranks 0, 1, 3 follow from it" in finding.summary
    assert "site-packages" in str(finding.evidence["stack"])


def test_of_several_causes_the_first_by_step_then_rank() -> None:
    found = judge(Failure("ValueError", "a", 130), Failure("KeyError", "b", 125), Failure("KeyError", "b", 125))
    assert only(found).ranks == (1, 2, 0)
    assert "with other errors" in only(found).summary
    alike = judge(*[Failure("OutOfMemoryError", "CUDA out of memory", 5)] * 2)
    assert (only(alike).ranks, "in the same way" in only(alike).summary) == ((0, 1), True)


def test_only_echoes_and_a_rank_that_vanished() -> None:
    finding = only(judge(ECHO, "running", ECHO, ages={1: 6.0}))
    assert finding.ranks == (1,)
    assert "rank 1 disappeared without a message; ranks 0, 2 then failed with RuntimeError" in finding.summary
    assert only(judge(ECHO, "running", ECHO)).ranks == ()


def test_a_rank_that_left_without_an_exception_is_what_the_echoes_waited_for() -> None:
    finding = only(judge(ECHO, "finished", ECHO))
    assert (finding.kind, finding.severity, finding.ranks, finding.since_step) == ("rank_failed", "critical", (1,), 121)
    assert finding.summary.startswith("rank 1 ended after step 120 (its program exited, or its data ended), and ")
    assert "ranks 0, 2 failed waiting for it: RuntimeError" in finding.summary
    for step in (60, 125):  # one that left long before, and one that got further
        run = Run(run_info(2))
        run.add_rank(rank_frame(0, 9, columns([120], {"duration": [1.0]}), state="failed", failure=ECHO), 100.0)
        run.add_rank(rank_frame(1, 9, columns([step], {"duration": [1.0]}), state="finished"), 100.0)
        assert only(find_failed(run, run.ages(100.0))).ranks == ()
    cause = Failure("ValueError", "x", 120)
    assert only(judge(cause, "finished", ECHO)).ranks == (0,)


def test_an_error_of_the_backend_s_kind_is_an_echo_whatever_it_says() -> None:
    cause = Failure("ZeroDivisionError", "division by zero", 200)
    for kind in ("DistBackendError", "torch.distributed.DistNetworkError", "ConnectionResetError"):
        assert only(judge(Failure(kind, "Connection reset by peer", 3), cause)).ranks == (1,)
    mentions = Failure("ValueError", "gloo is no good name for a model", 3)
    assert only(judge(mentions, cause)).ranks == (0, 1)


def test_an_interruption_is_no_failure() -> None:
    key = Failure("KeyboardInterrupt", "", 121)
    finding = only(judge(key, key))
    assert (finding.severity, finding.ranks) == ("info", ())
    assert "the run was interrupted after step 121 (KeyboardInterrupt on all ranks)" in finding.summary
    assert only(judge(key, "running")).severity == "warning"
    assert only(judge(key, ECHO)).severity == "info"
    assert only(judge(Failure("ValueError", "x", 1), Failure("SIGTERM", "", 1))).ranks == (0,)


def test_a_rank_that_does_not_say_why() -> None:
    finding = only(judge(None, "finished"))
    assert (finding.ranks, finding.severity) == ((0,), "critical")
    assert "did not report" in finding.summary


def test_nobody_failed() -> None:
    assert judge("running", "finished", "stalled") == []


def test_foreign_text_comes_in_harmless() -> None:
    bad = Failure("Evil\x1b[2J", "a\nb\x07" + "z" * 900, 1, ['File "\x1b[1mx", line 3, in \x1bf'])
    finding = only(judge(bad))
    assert finding.summary.isprintable()
    assert len(finding.summary) < 500
    assert not any("\x1b" in str(value) for value in finding.evidence.values())


def test_a_rank_that_vanished_is_told_of_once() -> None:
    run = Run(run_info(3))
    steps = columns([120], {"duration": [1.0]})
    for rank, seq in ((0, 9), (1, 9), (2, 9)):
        says: dict[str, Any] = {"state": "failed", "failure": ECHO} if rank else {}
        run.add_rank(rank_frame(rank, seq, steps, **says), 100.0, 0.0 if rank else 30.0)
    assert [finding.kind for finding in Judge()(run, run.ages(100.0))] == ["rank_failed"]
