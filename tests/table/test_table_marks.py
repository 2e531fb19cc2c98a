"""`ddpmon diagnose --marks`: tables of marks from simulated devices, whole, broken and odd."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pytest
from device_job import Fault, Job, Trace

from ddpmon.diagnose.alert import at_or_above
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding
from ddpmon.table.csv_lines import TableError
from ddpmon.table.verdict import TableVerdict, judge_table
from tests.table.marks import Edit, rows_of, trace_of

HOUR = 3_600_000.0
STEPS, ONSET = 160, 60


def job(fault: Fault | None = None, **changes: float) -> Trace:
    return trace_of(Job(steps=STEPS, fault=fault or Fault(), **changes))  # type: ignore[arg-type]


def judged(rows: Sequence[str]) -> TableVerdict:
    return judge_table(io.BufferedReader(io.BytesIO("\n".join(rows).encode())), "m.csv", of_marks=True)


def warnings(verdict: TableVerdict) -> list[Finding]:
    return [finding for finding in verdict.findings if at_or_above(finding.severity, "warning")]


def gain(trace: Trace) -> float:
    """What mending the fault saves, in percent of the job's time."""
    mended = trace_of(trace.job.mended()).step_ms(ONSET)
    return float(100 * (1 - mended[0] / trace.step_ms(ONSET)[0]))


@pytest.mark.parametrize("item_every", [0, 1, 10, 50])
@pytest.mark.parametrize(
    ("fault", "kernel_us", "phase"),
    [
        (Fault((2,), extra_ms=3, phase="backward", onset=ONSET), 2.5, "backward"),
        (Fault((2,), extra_ms=3, phase="forward", onset=ONSET), 4.5, "forward"),
        (Fault((2,), host=1.3, onset=ONSET), 2.5, "work"),
        (Fault((2,), device=2.5, onset=ONSET), 2.5, "work"),
        (Fault((2,), device=1.3, onset=ONSET), 20.0, "work"),
    ],
)
def test_the_slow_rank_is_named_with_what_mending_it_saves(
    fault: Fault, kernel_us: float, phase: str, item_every: int
) -> None:
    trace = job(fault, kernel_us=kernel_us, item_every=item_every)
    (found,) = warnings(judged(rows_of(trace)))
    assert (found.kind, found.ranks, found.phase) == ("straggler", (2,), phase)
    assert found.since_step is not None
    assert abs(found.since_step - ONSET) <= 5
    least, most = found.cost_pct or 0.0, float(found.evidence["cost_most_pct"])
    assert least - 3 <= gain(trace) <= max(least, most) + 3


@pytest.mark.parametrize("item_every", [0, 1, 10])
@pytest.mark.parametrize("kernel_us", [2.5, 4.5, 20.0])
@pytest.mark.parametrize("host", [1.0, 1.02])
def test_a_host_slower_by_a_hair_is_no_warning(host: float, kernel_us: float, item_every: int) -> None:
    trace = job(Fault((2,), host=host, onset=0), kernel_us=kernel_us, item_every=item_every)
    assert not warnings(judged(rows_of(trace)))
    assert not warnings(judged(rows_of(trace, first=40)))


def test_a_rank_that_its_host_paces_says_so() -> None:
    trace = job(Fault((2,), extra_ms=3, phase="backward", onset=ONSET), item_every=10)
    (found,) = warnings(judged(rows_of(trace)))
    assert "in backward" in found.summary
    assert "its kernels are launched slowly: its GPU waits" in found.summary
    assert "check the CPUs of this rank, not the GPU" in advice_text(found.advice)


def test_without_device_times_the_hosts_tell() -> None:
    rows = ["step,rank,mark,host_ms,device_ms"]
    for step in range(100):
        for rank in range(3):
            at, late = 100.0 * step, 30.0 * (rank == 1)
            times = {"input": 5, "forward": 6, "forwarded": 26, "ready": 56 + late, "synced": 95}
            times |= {"optimizer": 96, "optimized": 98}
            rows += [f"{step},{rank},{mark},{at + time}," for mark, time in times.items()]
    (found,) = warnings(judged(rows))
    assert (found.ranks, found.phase) == ((1,), "backward")
    assert found.cost_pct == pytest.approx(30, abs=1)


def test_ranks_without_device_times_among_others_are_left_out() -> None:
    trace = job(Fault((2,), extra_ms=3, onset=ONSET), item_every=10)
    verdict = judged(rows_of(trace, timed=(0, 2, 3)))
    assert any("left out: rank 1, without device times" in note for note in verdict.notes)
    assert [finding.ranks for finding in warnings(verdict)] == [(2,)]


def leap(device: float, host: float = 0.0) -> Edit:
    """The clocks of rank 1 are set by so many ms at step 90."""
    return lambda s, r, _m, h, d: (h + host * (r == 1 and s >= 90), d + device * (r == 1 and s >= 90))


ODD: dict[str, Edit] = {
    "device clock leaps": leap(HOUR),
    "device clock goes back": leap(-HOUR),
    "host sleeps": leap(0, HOUR),
    "host clock goes back": leap(0, -HOUR),
    "a lead of an hour": lambda s, r, _m, h, d: (h, d + HOUR * (r == 1 and s == 90)),
    "clocks drift": lambda _s, r, _m, h, d: (h, d * (1 + 1e-4 * r)),
    "never passed": lambda s, _r, m, h, d: (h, np.nan if s > 120 and m != "forward" else d),
    "some never passed": lambda s, r, _m, h, d: (h, np.nan if r == 1 and s % 7 == 3 else d),
    "one host tells nothing": lambda _s, r, _m, h, d: (np.nan if r == 1 else h, d),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("item_every", [0, 1, 10])
def test_what_cannot_be_known_is_no_verdict(odd: str, item_every: int) -> None:
    rows = [row.replace("nan", "") for row in rows_of(job(item_every=item_every), edit=ODD[odd])]
    assert not warnings(judged(rows))


def test_rows_that_cannot_be_read_are_named_by_line() -> None:
    rows = rows_of(job())
    count = len(rows)
    bad = ("5,1,forwrd,2,3", "5,1,ready,soon,3", "5,x,ready,1,1", "5,1,ready,inf,1", "5,1,,1,1")
    verdict = judged([*rows, *bad])
    assert verdict.refused == len(bad)
    assert [complaint.split(":")[1] for complaint in verdict.complaints] == [str(count + 1 + at) for at in range(5)]
    assert "expected one of input, forward" in verdict.complaints[0]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["step,rank,duration_ms", "1,1,1"], "no column mark"),
        (["a,b", "1,2"], "not a table of marks"),
        (["step,rank,mark,host_ms", "1,0,ready,5", "2,0,ready,6"], "forward, ready and synced"),
    ],
)
def test_what_cannot_be_judged_is_said_in_one_sentence(rows: list[str], words: str) -> None:
    with pytest.raises(TableError, match=words):
        judged(rows)
