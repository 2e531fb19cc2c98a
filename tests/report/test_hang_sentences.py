"""What is said of hangs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert, Measures, Severity
from ddpmon.diagnose.hang import (
    Hang,
    MismatchMeasures,
    SilentMeasures,
    StuckMeasures,
    UnattributedMeasures,
    Waiters,
)
from ddpmon.diagnose.kinds import KindName
from ddpmon.diagnose.rank_position import RankPosition
from ddpmon.diagnose.stall_state import Collective, CollectiveMismatch
from ddpmon.parts import NO_ANSWER, NO_HOST, StackFrame
from ddpmon.report.sentences import tell
from ddpmon.shell_command import advice_text

MAIN = StackFrame("/home/me/train.py", 40, "main", "for batch in loader:")
ITEM = StackFrame("C:\\me\\data.py", 88, "__getitem__", "time.sleep(1e9)")
WAIT = StackFrame("/usr/lib/python3.11/random.py", 5, "wait", own=False)
AT = "data.py:88 in __getitem__: time.sleep(1e9)"
STACK = f"train.py:40 in main: for batch in loader:\n{AT}\nrandom.py:5 in wait"
REDUCE, BARRIER = Collective("gloo:all_reduce [1000]", "exposed"), Collective("gloo:barrier")
UNKNOWN, REDUCTION = Collective(), Collective(phase="exposed")
HERE = RankPosition("node1", 2001, "input", (MAIN, ITEM, WAIT))
BARE = RankPosition("node1", 2001, "forward")
DEVICE = RankPosition("node1", 2001, "barrier", (), "stuck", "forward")
PY_SPY = "`ssh node1 py-spy dump --pid 2001`"
LOOK = f"see what that line waits for: {PY_SPY}"
SEE = f"see where it is: {PY_SPY}"
SEE_GPU = f"look at this GPU: `ssh node1 nvidia-smi`, and for Xid errors `ssh node1 sudo dmesg`; then {PY_SPY}"
NETWORK = "check the network and the log of gloo; the rank detail shows every stack"
COMPARE = "if this is an evaluation or a checkpoint, wrap it in `with monitor.phase(name)`; else compare the stacks"


def said(measures: Measures, *ranks: int, kind: KindName = "hang", severity: Severity = "critical") -> Alert:
    return Alert(kind, severity, measures=measures, ranks=ranks)


def hang(shown: RankPosition = HERE, *waiting: int, by: Collective = REDUCE, first: bool = False) -> Hang:
    return Hang(15.0, Waiters(waiting, by) if waiting else None, shown, first, "gloo")


def mismatch(
    ranks: tuple[int, ...], others: tuple[int, ...], by: Collective = REDUCE, theirs: Collective = BARRIER, **says: bool
) -> CollectiveMismatch:
    values = {"absent": False, "certain": True, "proven": True} | says
    return CollectiveMismatch(ranks, others, collective=by, theirs=theirs, **values)


def unattributed(known: Hang, *ranks: int, **changes: Any) -> UnattributedMeasures:
    values: dict[str, Any] = {"absent": 0, "phases": (("forward", len(ranks)),), "device_phases": (), "line": None}
    return UnattributedMeasures(known, ranks, **(values | changes))


ABSENT = mismatch((2,), (0, 1), absent=True)
GONE = MismatchMeasures(hang(HERE, 0, 1), ABSENT, ITEM, None)
ALL = (0, 1, 2, 3)
ROWS = [
    (
        "one silent",
        said(SilentMeasures(hang(BARE, 0, 1)), 2),
        "rank 2 has fallen silent in forward; no step has finished for 15 s; ranks 0, 1 wait in gloo:all_reduce [1000]",
        SEE,
    ),
    (
        "some silent, nobody waits",
        said(SilentMeasures(hang(BARE)), 2, 3),
        "ranks 2, 3 have fallen silent in forward; no step has finished for 15 s",
        SEE,
    ),
    (
        "silent in the all-reduce",
        said(SilentMeasures(hang(replace(BARE, phase="exposed"))), 2),
        "rank 2 has fallen silent in the all-reduce; no step has finished for 15 s",
        SEE,
    ),
    (
        "stuck between phases",
        said(StuckMeasures(hang(replace(BARE, phase="other"), 0), None), 1),
        "rank 1 has been stuck between phases for 15 s; rank 0 waits in gloo:all_reduce [1000]",
        SEE,
    ),
    (
        "never came",
        said(GONE, 2),
        f"rank 2 has been stuck in input for 15 s, at {AT}; ranks 0, 1 wait for it in gloo:all_reduce [1000]",
        LOOK,
    ),
    (
        "several never came, to what is unknown",
        said(MismatchMeasures(hang(BARE), mismatch((2, 3), (0,), UNKNOWN, absent=True), None, None), 2, 3),
        "ranks 2, 3 have been stuck in forward for 15 s; rank 0 waits for them in a collective",
        SEE,
    ),
    (
        "another path",
        said(MismatchMeasures(hang(HERE, *ALL), mismatch((2,), (0, 1, 3)), ITEM, MAIN), 2),
        f"for 15 s, rank 2 is in gloo:barrier at {AT}, but ranks 0, 1, 3 are in gloo:all_reduce [1000] at train.py:40 "
        "in main: for batch in loader:: rank 2 took another path",
        SEE,
    ),
    (
        "two sides disagree",
        said(MismatchMeasures(hang(BARE, 0, 1), mismatch((1,), (0,), REDUCTION, UNKNOWN, certain=False), None, None)),
        "for 15 s, rank 1 is in a collective, but rank 0 is in the gradient reduction: the groups disagree, and which "
        "is wrong is unknown",
        NETWORK,
    ),
    (
        "stuck",
        said(StuckMeasures(hang(HERE, 0, 2, 3, by=REDUCTION), ITEM), 1),
        f"rank 1 has been stuck in input for 15 s, at {AT}; ranks 0, 2, 3 wait in the gradient reduction",
        LOOK,
    ),
    (
        "first step",
        said(StuckMeasures(hang(BARE, 0, by=UNKNOWN, first=True), None), 1, severity="info"),
        "no rank has finished its first step (still compiling?): rank 1 has been stuck in forward for 15 s; rank 0 "
        "waits in a collective",
        SEE,
    ),
    (
        "stuck GPU",
        said(StuckMeasures(hang(DEVICE, 0), MAIN), 1),
        "the GPU of rank 1 has been stuck in forward for 15 s (the CPU is in barrier at train.py:40 in main: for batch "
        "in loader:); rank 0 waits in gloo:all_reduce [1000]",
        SEE_GPU,
    ),
    (
        "stuck GPUs",
        said(StuckMeasures(hang(DEVICE, 0), None), 1, 2),
        "the GPUs of ranks 1, 2 have been stuck in forward for 15 s (the CPU is in barrier); rank 0 waits in "
        "gloo:all_reduce [1000]",
        SEE_GPU,
    ),
    (
        "GPU that never came",
        said(MismatchMeasures(hang(DEVICE, 0, 1), ABSENT, None, None), 2),
        "the GPU of rank 2 has been stuck in forward for 15 s (the CPU is in barrier); ranks 0, 1 wait for it in "
        "gloo:all_reduce [1000]",
        SEE_GPU,
    ),
    (
        "broken GPU",
        said(StuckMeasures(hang(replace(DEVICE, device="broken", device_error="700 (illegal\n access)")), None), 3),
        "the GPU of rank 3 cannot go on: error 700 (illegal access) (the CPU is in barrier)",
        SEE_GPU,
    ),
    (
        "GPU that does not answer",
        said(StuckMeasures(hang(replace(DEVICE, device="no_answer", device_error=NO_ANSWER), 0), MAIN), 3),
        "the GPU of rank 3 has not answered, and no step has finished for 15 s; rank 0 waits in gloo:all_reduce [1000]",
        SEE_GPU,
    ),
    (
        "GPUs that do not answer",
        said(StuckMeasures(hang(replace(DEVICE, device="no_answer", device_error=NO_ANSWER)), None), 3, 4),
        "the GPUs of ranks 3, 4 have not answered, and no step has finished for 15 s",
        SEE_GPU,
    ),
    (
        "single stuck GPU that its own rank waits for",
        said(StuckMeasures(hang(DEVICE, 0), None, is_alone=True), 0),
        "the GPU of rank 0 has been stuck in forward for 15 s (the CPU is in barrier)",
        SEE_GPU,
    ),
    (
        "all wait",
        said(unattributed(hang(BARE, *ALL), *ALL)),
        "all 4 ranks have waited in gloo:all_reduce [1000] for 15 s: no single rank is to blame",
        NETWORK,
    ),
    (
        "all that have reported wait in what is unknown, on stuck GPUs",
        said(
            unattributed(
                hang(BARE, 0, 1, by=REDUCTION),
                0,
                1,
                absent=2,
                phases=(("other", 1), ("exposed", 1)),
                device_phases=(("forward", 1), ("backward", 1)),
            )
        ),
        "ranks 0, 1 (2 others are silent) have waited in other and the gradient reduction for 15 s: no single rank "
        "is to blame; the GPUs are in forward (1), backward (1)",
        NETWORK,
    ),
    (
        "one rank waits",
        said(unattributed(hang(BARE, 0, by=UNKNOWN), 0, phases=(("barrier", 1),)), 0),
        "rank 0 has waited in a collective for 15 s: no single rank is to blame",
        SEE,
    ),
    (
        "all are at work",
        said(unattributed(hang(BARE), *ALL, line=MAIN)),
        "no step has finished for 15 s: all 4 ranks in forward at train.py:40 in main: for batch in loader:: no rank "
        "waits for another",
        COMPARE,
    ),
    (
        "all are at work in several phases",
        said(unattributed(hang(BARE), *ALL, phases=(("forward", 3), ("a\x1bb", 1)), device_phases=(("other", 4),))),
        "no step has finished for 15 s: all 4 ranks in forward (3), a b (1): no rank waits for another; the GPUs are "
        "in other (4)",
        COMPARE,
    ),
    (
        "one rank is at work",
        said(unattributed(hang(BARE, first=True), 0), 0, severity="info"),
        "no rank has finished its first step (still compiling?): no step has finished for 15 s: rank 0 in forward",
        SEE,
    ),
]
EVIDENCE: dict[str, dict[str, float | int | str]] = {
    "some silent, nobody waits": {"seconds": 15.0, "waiting": 0},
    "never came": {"seconds": 15.0, "waiting": 2, "stack": STACK, "operation": "gloo:all_reduce [1000]"},
    "two sides disagree": {"seconds": 15.0, "waiting": 2, "operation": "the gradient reduction"},
    "stuck GPU": {
        "seconds": 15.0,
        "waiting": 1,
        "operation": "gloo:all_reduce [1000]",
        "device_phase": "forward",
    },
    "broken GPU": {
        "seconds": 15.0,
        "waiting": 0,
        "device_phase": "forward",
        "device_error": "700 (illegal access)",
    },
    "one rank waits": {"seconds": 15.0, "waiting": 1},
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


def test_every_class_of_measures_has_a_row_and_evidence() -> None:
    rows = {name: type(alert.measures) for name, alert, _, _ in ROWS}
    expected = {SilentMeasures, MismatchMeasures, StuckMeasures, UnattributedMeasures}
    assert {*rows.values()} == {rows[name] for name in EVIDENCE} == expected


@pytest.mark.parametrize("host", ["node0", "gpu-7.cluster", "10.0.0.7"])
def test_the_command_to_paste_goes_to_the_host_of_the_rank(host: str) -> None:
    alert = said(StuckMeasures(hang(replace(BARE, host=host)), None), 1)
    assert advice_text(tell(alert).advice) == f"see where it is: `ssh {host} py-spy dump --pid 2001`"


@pytest.mark.parametrize("host", ["", NO_HOST, "-oProxyCommand=touch${IFS}/tmp/x", "$(id)", "a;id", "a`id`", "a\nid"])
def test_a_host_that_ssh_or_a_shell_would_misread_is_in_no_command(host: str) -> None:
    alert = said(StuckMeasures(hang(replace(BARE, host=host)), None), 1)
    assert advice_text(tell(alert).advice) == "see where it is: `py-spy dump --pid 2001`"


def test_a_stack_is_told_from_its_innermost_lines() -> None:
    stack = tuple(StackFrame("a.py", number, "f") for number in range(40))
    told = str(tell(said(StuckMeasures(hang(replace(BARE, stack=stack)), None), 1)).evidence["stack"]).split("\n")
    assert (len(told), told[0], told[-1]) == (16, "a.py:24 in f", "a.py:39 in f")


def test_the_brief_form_drops_the_code_of_the_lines_that_it_names_and_nothing_else() -> None:
    code = StackFrame("/home/me/a.py", 3, "f", "foo(x); bar(y): baz(z)")
    sides = MismatchMeasures(hang(BARE, 0, 1), mismatch((1,), (0,), certain=False), code, MAIN)
    for alert in (
        said(sides),
        said(StuckMeasures(hang(DEVICE, 0), code), 1),
        said(unattributed(hang(BARE), *ALL, line=code)),
    ):
        found = tell(alert)
        assert found.brief == found.summary.replace(" in f: foo(x); bar(y): baz(z)", "").replace(
            " in main: for batch in loader:", ""
        )
        assert found.brief != found.summary
    assert tell(said(sides)).brief == (
        "for 15 s, rank 1 is in gloo:barrier at a.py:3, but rank 0 is in gloo:all_reduce [1000] at train.py:40: "
        "the groups disagree, and which is wrong is unknown"
    )
