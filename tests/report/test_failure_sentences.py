"""What is said of ranks that failed or are lost, and of what the monitor does not see."""

from __future__ import annotations

import pytest

from ddpmon.diagnose.alert import Alert, Measures, Severity
from ddpmon.diagnose.coverage import CoverageMeasures, DuplicateRanksMeasures, Losses, Publisher, RestartedAloneMeasures
from ddpmon.diagnose.failures import (
    BrokenConnectionMeasures,
    DisappearedMeasures,
    FirstFailureMeasures,
    InterruptedMeasures,
    LeftMeasures,
    RankEnd,
    RankError,
)
from ddpmon.diagnose.kinds import KindName
from ddpmon.diagnose.lost import LostMeasures
from ddpmon.parts import NO_HOST
from ddpmon.report.failure_sentences import SENTENCES
from ddpmon.report.sentences import tell
from ddpmon.report.wording import on_host, stack_command
from ddpmon.shell_command import advice_text, of_ended_ranks, of_the_past

TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/home/me/train.py", line 12, in <module>\n    main()',
    '  File "C:\\me\\data.py", line 88, in __getitem__\n    return self.table[index]\x07',
    '  File "/venv/lib/python3.11/site-packages/numpy/core.py", line 9, in take\n    raise IndexError',
)
STACK = (
    "Traceback (most recent call last):\n"
    '  File "/home/me/train.py", line 12, in <module>\n    main()\n'
    '  File "C:\\me\\data.py", line 88, in __getitem__\n    return self.table[index] \n'
    '  File "/venv/lib/python3.11/site-packages/numpy/core.py", line 9, in take\n    raise IndexError'
)
FOREIGN = ('  File "/usr/lib/python3.11/runpy.py", line 9, in run', '  File "<string>", line 1, in <module>')
AT = "data.py:88 in __getitem__: return self.table[index]"
INDEX, KEY = RankError("IndexError", "index 7"), RankError("KeyError", "b")
INTERRUPT = RankError("KeyboardInterrupt", "")
BROKEN = RankError("RuntimeError", "Connection closed\nby peer")
READ = "read its traceback; the errors of the other ranks follow from it"
READ_LOG = "read its log: it did not report which exception ended it"
READ_OTHERS = (
    "read what the launcher printed: torchrun names the rank that ended first as Root Cause, with its signal; SIGKILL "
    "often means that memory ran out: check dmesg on its host"
)
SAME_STEPS = (
    "make all ranks run the same number of steps: look for an exit, return or continue that only some of them reach"
)
HOLES = "the monitor does not see the whole run: "
NEVER = "never reported, so a slowdown of the whole run or its network cannot be detected"
BUSY = "the store or a rank's host is too busy to take in frames; the training is not affected"
STILL_RUNS = "then check its log, the kernel's log (dmesg) and the network"
TWO_TRAININGS = "two trainings share one run, and the figures describe neither"
NO_LOSSES = Losses(0, 0, 0, 0, 0)
OWN_STORE = "give each training its own store or rendezvous, or stop the one that should not run"


def said(measures: Measures, *ranks: int, kind: KindName = "rank_failed", severity: Severity = "critical") -> Alert:
    return Alert(kind, severity, measures=measures, ranks=ranks)


def coverage(
    silent: tuple[int, ...] = (),
    unheard: tuple[int, ...] = (),
    lost: Losses = NO_LOSSES,
    window_s: float | None = 60.0,
) -> Alert:
    process = Publisher(9009, "node2") if silent else None
    measures = CoverageMeasures(10, silent, 6.0, unheard, lost, window_s, 3, max(silent, default=None), process)
    return said(measures, *sorted([*silent, *unheard]), kind="monitor_degraded", severity="info")


def duplicates(*ranks: int) -> Alert:
    measures = DuplicateRanksMeasures((Publisher(41, "node\x1b0"), Publisher(42, "node1")))
    return said(measures, *ranks, kind="monitor_degraded", severity="warning")


def lost(*ranks: int, host: str = "node0", step: int = 1200, again: bool = False, others_go_on: bool = False) -> Alert:
    measures = LostMeasures(ranks[-1], host, 103, 12.4, step, "forward", again, others_go_on)
    return said(measures, *ranks, kind="rank_lost")


ROWS = [
    (
        "first failure",
        said(FirstFailureMeasures(RankEnd(1121, INDEX, TRACEBACK), (), (0, 1, 3)), 2),
        f"rank 2 failed after step 1,121 at {AT}: IndexError: index 7; ranks 0, 1, 3 follow from it",
        READ,
    ),
    (
        "alike, without a traceback",
        said(FirstFailureMeasures(RankEnd(-1, KEY), (KEY,), (3,)), 2, 0, 1),
        "rank 2 failed before its first step: KeyError: b; ranks 0, 1 in the same way; rank 3 follows from it",
        READ,
    ),
    (
        "other errors, in foreign code",
        said(FirstFailureMeasures(RankEnd(5, KEY, FOREIGN), (KEY, INDEX)), 2, 0, 1),
        "rank 2 failed after step 5 at <string>:1 in <module>: KeyError: b; ranks 0, 1 with other errors",
        READ,
    ),
    (
        "unknown",
        said(FirstFailureMeasures(RankEnd(5), (None,)), 0, 1),
        "rank 0 failed after step 5: an error that it did not report; rank 1 in the same way",
        READ_LOG,
    ),
    (
        "interrupted",
        said(InterruptedMeasures(1121, INTERRUPT, (0, 1), True, 2), severity="info"),
        "the run was interrupted after step 1,121 (KeyboardInterrupt on all ranks)",
        "",
    ),
    (
        "interrupted in part",
        said(InterruptedMeasures(-1, INTERRUPT, (1,), False, 2), 1, severity="warning"),
        "the run was interrupted after step 0 (KeyboardInterrupt on rank 1)",
        "",
    ),
    (
        "disappeared",
        said(DisappearedMeasures(RankEnd(120), (0, 2), BROKEN), 1),
        "rank 1 disappeared without a message; ranks 0, 2 then failed with RuntimeError: Connection closed by peer",
        READ_OTHERS,
    ),
    (
        "left",
        said(LeftMeasures(RankEnd(120), (0, 2), BROKEN), 1),
        "rank 1 ended after step 120 (its program exited, or its data ended), and ranks 0, 2 failed waiting for it: "
        "RuntimeError: Connection closed by peer",
        SAME_STEPS,
    ),
    (
        "several left",
        said(LeftMeasures(RankEnd(-1), (0,), BROKEN), 1, 2),
        "ranks 1, 2 ended before its first step (their program exited, or their data ended), and rank 0 failed waiting "
        "for them: RuntimeError: Connection closed by peer",
        SAME_STEPS,
    ),
    (
        "broken connection",
        said(BrokenConnectionMeasures(RankEnd(121, BROKEN, TRACEBACK), (0, 2))),
        "ranks 0, 2 failed after step 121 with RuntimeError: Connection closed by peer: no rank reported why the "
        "connection broke",
        READ_OTHERS,
    ),
    (
        "one silent",
        coverage(silent=(9,)),
        f"{HOLES}rank 9 has been silent for 6.0 s",
        "see whether it still runs: `ssh node2 ps -p 9009`; then check whether that host reaches the store",
    ),
    (
        "several silent",
        coverage(silent=(8, 9)),
        f"{HOLES}ranks 8, 9 have been silent for 6.0 s",
        "see whether rank 9 still runs: `ssh node2 ps -p 9009`; then check whether that host reaches the store",
    ),
    (
        "one unheard",
        coverage(unheard=(9,)),
        f"{HOLES}rank 9 has {NEVER}",
        "check that rank 9 attaches the monitor, and that its host reaches the store",
    ),
    (
        "all silent",
        coverage(silent=tuple(range(10))),
        "every rank has been silent for 6.0 s, though the store answers: they have ended, are stopped, or cannot reach "
        "the store",
        "wait: ddpmon says what has become of them as soon as it knows",
    ),
    (
        "most unheard",
        coverage(silent=(1,), unheard=(6, 7, 8, 9, 0)),
        f"{HOLES}rank 1 has been silent for 6.0 s; ranks 0, 6, 7, 8, 9 have {NEVER}; only 4 of 10 ranks report now: "
        "the others cannot be judged",
        "see whether rank 1 still runs: `ssh node2 ps -p 9009`; then check whether that host reaches the store; check "
        "that ranks 0, 6, 7, 8, 9 attach the monitor",
    ),
    (
        "out of step",
        said(RestartedAloneMeasures(), 2, kind="monitor_degraded", severity="info"),
        "rank 2 has restarted on its own and cannot be compared with the others, which are at other steps",
        "restart the whole run, so that all ranks continue from the same step",
    ),
    (
        "several out of step",
        said(RestartedAloneMeasures(), 2, 3, kind="monitor_degraded", severity="info"),
        "ranks 2, 3 have restarted on their own and cannot be compared with the others, which are at other steps",
        "restart the whole run, so that all ranks continue from the same step",
    ),
    (
        "all kinds of losses",
        coverage(lost=Losses(1000, 1, 2, 3, 4)),
        f"{HOLES}1,000 steps dropped within the last minute; 1 frame dropped within the last minute; 2 frames rejected "
        "within the last minute; 3 frames refused within the last minute; 4 step records set aside within the last "
        "minute",
        BUSY,
    ),
    (
        "dropped frames",
        coverage(lost=Losses(0, 2, 0, 0, 0)),
        f"{HOLES}2 frames dropped within the last minute",
        BUSY,
    ),
    (
        "refused",
        coverage(lost=Losses(0, 0, 1, 1, 0), window_s=None),
        f"{HOLES}1 frame rejected so far; 1 frame refused so far",
        "set the same DDPMON_TOKEN for every rank and every dashboard; the notices say what was wrong",
    ),
    (
        "rejected",
        coverage(lost=Losses(0, 0, 1, 0, 0)),
        f"{HOLES}1 frame rejected within the last minute",
        "use the same ddpmon release in the training and here; the notices name the keys",
    ),
    (
        "set aside",
        coverage(lost=Losses(0, 0, 0, 0, 1)),
        f"{HOLES}1 step record set aside within the last minute",
        "check the clocks of the hosts: these steps have impossible durations",
    ),
    (
        "duplicate rank",
        duplicates(3),
        f"two processes publish as rank 3 (pid 41 on node 0 and pid 42 on node1): {TWO_TRAININGS}",
        OWN_STORE,
    ),
    (
        "duplicate ranks",
        duplicates(3, 4),
        f"two processes publish as ranks 3, 4 (rank 3: pid 41 on node 0 and pid 42 on node1): {TWO_TRAININGS}",
        OWN_STORE,
    ),
    (
        "lost",
        lost(3),
        "rank 3 (node0) has been silent for 12 s, last seen in forward at step 1,200: killed, stopped or disconnected",
        f"see whether it still runs: `ssh node0 ps -p 103`; {STILL_RUNS}",
    ),
    (
        "lost again",
        lost(3, step=36, again=True),
        "rank 3 (node0) has been silent for 12 s, last seen in forward at step 36, counted from its restart: killed, "
        "stopped or disconnected",
        f"see whether it still runs: `ssh node0 ps -p 103`; {STILL_RUNS}",
    ),
    (
        "several lost",
        lost(2, 3, host=NO_HOST, step=-1),
        "ranks 2, 3 (host unknown) have been silent for 12 s; rank 3 was last seen in forward at step 0: killed, "
        "stopped or disconnected",
        f"see whether rank 3 still runs: `ps -p 103`; {STILL_RUNS.replace('its log', 'the logs')}",
    ),
]
ERROR = "RuntimeError: Connection closed by peer"
EVIDENCE: dict[str, dict[str, float | int | str]] = {
    "first failure": {"step": 1121, "exception": "IndexError: index 7", "stack": STACK, "where": AT},
    "unknown": {"step": 5, "exception": "an error that it did not report"},
    "interrupted": {"failed": 2, "exception": "KeyboardInterrupt"},
    "disappeared": {"step": 120, "exception": ERROR},
    "left": {"step": 120, "exception": ERROR},
    "broken connection": {"step": 121, "exception": ERROR, "stack": STACK},
    "all kinds of losses": {
        "not_reporting": 0,
        "never_heard_of": 0,
        "dropped_steps": 1000,
        "dropped_frames": 1,
        "rejected_frames": 2,
        "refused_frames": 3,
        "set_aside": 4,
        "thinned_ranks": 3,
    },
    "duplicate ranks": {"ranks_written_twice": 2},
    "out of step": {"restarted_alone": 1},
    "lost": {"silent_s": 12.4},
}


@pytest.mark.parametrize(("alert", "summary", "advice"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_sentences(alert: Alert, summary: str, advice: str) -> None:
    finding = tell(alert)
    assert (finding.summary, advice_text(finding.advice)) == (summary, advice)
    assert (finding.cause, finding.ranks, finding.severity) == (None, alert.ranks, alert.severity)


@pytest.mark.parametrize("name", EVIDENCE)
def test_evidence(name: str) -> None:
    (alert,) = (alert for row, alert, _, _ in ROWS if row == name)
    assert [*tell(alert).evidence.items()] == [*EVIDENCE[name].items()]


def test_the_silent_and_the_unheard_are_counted() -> None:
    evidence = tell(coverage(silent=(1,), unheard=(8, 9))).evidence
    assert (evidence["not_reporting"], evidence["never_heard_of"]) == (1, 2)


def test_every_class_of_measures_has_a_row_and_evidence() -> None:
    rows = {name: type(alert.measures) for name, alert, _, _ in ROWS}
    assert {*rows.values()} == {rows[name] for name in EVIDENCE} == {*SENTENCES}


def test_how_much_of_a_long_message_and_traceback_is_shown() -> None:
    long = RankEnd(1, RankError("ValueError", "m" * 900), tuple("x" * 900 for _ in range(30)))
    finding = tell(said(FirstFailureMeasures(long), 0))
    assert finding.summary == f"rank 0 failed after step 1: ValueError: {'m' * 159}…"
    assert finding.evidence["exception"] == f"ValueError: {'m' * 399}…"
    assert finding.evidence["stack"] == "\n".join(["x" * 200] * 24)
    interrupted = tell(said(InterruptedMeasures(1, RankError("SIGTERM", "m" * 900), (0,), True, 1)))
    assert interrupted.summary == f"the run was interrupted after step 1 (SIGTERM: {'m' * 59}… on all ranks)"


def test_advice_names_no_process_of_a_run_that_has_ended() -> None:
    """The number may be another process's by now; one that was foreign to the run may still be there."""
    alive, kill = on_host("node0", "ps -p 103", "rank", lead=": "), on_host("node1", "kill 4242", "foreign", lead=": ")
    advice = ("see whether it still runs", alive, "; see where it is: ", stack_command("node0", 7), "; end it", kill)
    again = "py-spy dump on its process when it happens again"
    ended = f"see whether it still runs; see where it is: {again}; end it"
    assert advice_text(of_ended_ranks(advice)) == f"{ended}: `ssh node1 kill 4242`"
    assert advice_text(of_ended_ranks(advice), here="node1") == f"{ended}: `kill 4242`"
    assert advice_text(of_the_past(advice)) == ended


@pytest.mark.parametrize(
    ("alert", "told"),
    [
        (lost(3), "check its log, the kernel's log (dmesg) and the network"),
        (
            lost(3, others_go_on=True),
            "check whether that host reaches the store, and what ddpmon has printed into the log",
        ),
        (coverage(silent=(9,)), "check whether that host reaches the store"),
    ],
    ids=["lost", "unreported", "silent"],
)
def test_nobody_is_sent_to_see_whether_a_rank_of_a_run_that_has_ended_still_runs(alert: Alert, told: str) -> None:
    advice = tell(alert).advice
    assert advice_text(advice).startswith("see whether it still runs: `")
    assert advice_text(of_ended_ranks(advice)) == told
