"""The status that a person reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from ddpmon.commands.status_text import status_lines, verdict
from ddpmon.diagnose.pending import Pending
from ddpmon.machine import Disk, GpuProcess, HostFigures, Process
from ddpmon.parts import Failure, Flight, Stack, StackFrame, Stall
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Coverage, NodeView, Snapshot
from tests.commands.command_snapshots import FAILURE, GPU, STALL, STRAGGLER, floats, snapshot, two_ranks, unknown_ranks

OLD_FIGURES = "No step finishes. The times in the table are medians of the last 20 finished steps."


def lines(**changes: Any) -> list[str]:
    return list(status_lines(snapshot(**changes)))


def table(**changes: Any) -> list[list[str]]:
    printed = lines(**changes)
    start = printed.index("") + 1
    return [line.split() for line in printed[start : printed.index("", start)]]


def test_the_verdict_comes_before_the_figures_and_the_ranks() -> None:
    printed = lines()
    assert printed[0] == f"warning: {STRAGGLER.summary}"
    assert printed[1].strip() == advice_text(STRAGGLER.advice)
    assert printed[2] == "gpt   running   2 ranks on 1 host   gloo   12 min 31 s   tcp://127.0.0.1:29480"
    assert printed[3] == "step 1,204   last step 2.2 s ago   172.2 ms/step   92.9 samples/s   loss 2.282"
    assert "busy 76 %   waiting 20 %" in printed[4]
    assert printed[-1] == "2/2 ranks reporting, oldest 0.5 s   probe - µs/step, 0 records dropped"


def test_one_rank_is_one_rank_wherever_it_is_counted() -> None:
    shown = snapshot()
    assert shown.run is not None
    run = dataclasses.replace(shown.run, world_size=1)
    printed = lines(run=run, coverage=Coverage(1, 1, 0.5))
    assert "   1 rank on 1 host   " in printed[2]
    assert printed[-1].startswith("1/1 rank reporting, oldest 0.5 s")
    assert verdict(snapshot(findings=(), ranks=None, run=run)).endswith("1 rank expected)")


def test_progress_tokens_and_where_the_loss_is_read_have_a_line_of_their_own() -> None:
    shown = snapshot()
    assert shown.run is not None
    run = dataclasses.replace(shown.run, loss_from="what backward was called on", samples_from="the model's input")
    job = dataclasses.replace(shown.job, job_step=300, job_total=1200, eta_s=725.0, tokens_per_s=48211.4)
    assert lines(run=run, job=job)[4] == (
        "job step 300 of 1,200 (25 %), 12 min left   48,211 tokens/s   "
        "loss: what backward was called on   samples: the model's input"
    )
    assert lines(job=dataclasses.replace(job, eta_s=None, tokens_per_s=None))[4] == "job step 300 of 1,200 (25 %)"


def test_the_latest_rank_stands_first() -> None:
    heading, first, second = table()
    assert (heading[0], heading[-1]) == ("rank", "%")
    assert " ".join(first) == "1 node0 running 1,204 2.250 172.2 158.2 14.4 +41 43.2 40.2 70.2 3.2 1.4 50"
    assert second[0] == "0"


def test_lateness_is_that_of_the_other_views() -> None:
    """It printed -0.0 for a rank that works like the others."""
    calm = table(ranks=two_ranks(lateness_ms=floats(-0.001, 0.0)), findings=())
    assert [row[8] for row in calm[1:]] == ["±0", "±0"]


def test_unknown_ranks_stand_last_and_are_dashes_never_zeros() -> None:
    _, first, second = table(ranks=two_ranks(lateness_ms=floats(float("nan"), 0.0)))
    assert (first[0], second[0], second[8]) == ("1", "0", "-")
    _, row = table(ranks=unknown_ranks(1))
    assert row[0] == "0"
    assert row[2] == "unknown"
    assert {row[1], *row[3:]} == {"-"}


def test_a_large_run_shows_the_worst_and_counts_the_rest() -> None:
    printed = table(ranks=unknown_ranks(100, lateness_ms=floats(*range(100))), findings=())
    assert [row[0] for row in printed[1:-1]] == ["99", "98", "97"]
    assert printed[-1] == ["and", "97", "more", "ranks"]


def test_only_ranks_that_matter_are_printed_unless_all_are_asked_for() -> None:
    work = floats(*[100.0, 101.4] * 32)
    state = tuple("lost" if rank == 9 else "running" for rank in range(64))
    ranks = unknown_ranks(64, work_ms=work, lateness_ms=floats(*[0.0] * 64), state=state)
    shown = snapshot(ranks=ranks, findings=(dataclasses.replace(STRAGGLER, ranks=(42, 7)),))
    printed = list(status_lines(shown))
    start = printed.index("") + 1
    assert [line.split()[0] for line in printed[start + 1 : start + 4]] == ["7", "9", "42"]
    assert printed[start + 4] == "and 61 more ranks, within 1 % of the median work"
    every = list(status_lines(shown, all_ranks=True))
    assert [int(line.split()[0]) for line in every[start + 1 : start + 65]] == [7, 9, 42, *(
        rank for rank in range(64) if rank not in (7, 9, 42))]  # fmt: skip


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (range(56), "61 more ranks: 53 within 1 % of the median work; 8 cannot be compared"),
        (range(3), "61 more ranks, which cannot be compared"),
        ((), "61 more ranks, within 28 % of the median work"),
    ],
    ids=["some", "none of them", "no rank of the run"],
)
def test_ranks_that_cannot_be_compared_are_counted_for_themselves(known: Sequence[int], said: str) -> None:
    work = floats(*(130.0 if rank >= 56 else 100.0 + rank % 2 * 2 for rank in range(64)))
    lateness = floats(*(0.0 if rank in known else float("nan") for rank in range(64)))
    printed = list(status_lines(snapshot(ranks=unknown_ranks(64, work_ms=work, lateness_ms=lateness), findings=())))
    assert [line for line in printed if "more ranks" in line] == [f"and {said}"]


def test_a_calm_run_says_so_with_its_spread() -> None:
    assert verdict(snapshot(findings=(), ranks=two_ranks(work_ms=floats(100.0, 101.0)))) == (
        "healthy: 2 ranks within 1 % of their median work"
    )


def test_a_run_that_was_not_seen_is_not_called_healthy() -> None:
    expected = "waiting: no rank has reported yet (run found at tcp://127.0.0.1:29480, 2 ranks expected)"
    assert verdict(snapshot(findings=(), ranks=None)) == expected
    assert verdict(snapshot(findings=(), ranks=unknown_ranks(2))) == expected
    assert verdict(snapshot(findings=(), run=None)) == "waiting: no run has been read yet"
    heard = unknown_ranks(2, state=("running", "unknown"))
    assert verdict(snapshot(findings=(), ranks=heard)).startswith("not enough evidence")


def test_what_is_over_is_no_verdict() -> None:
    cleared = dataclasses.replace(STRAGGLER, cleared_at_step=900)
    assert verdict(snapshot(findings=(cleared,))).startswith("no single rank")
    assert not any("warning" in line for line in lines(findings=(cleared,)))


def test_what_is_pending_is_one_line_below_the_verdicts() -> None:
    pending = Pending("cpu_contention", (2, 3), ("node0\n",), 2, 3.2)
    (line,) = (line for line in status_lines(snapshot(pending=(pending,))) if "confirmed" in line)
    assert line == "not confirmed yet: cpu_contention on node0\ufffd, ranks 2, 3 (at least 4 s more)"
    (line,) = (line for line in status_lines(snapshot(pending=(pending,) * 5)) if "confirmed" in line)
    assert line.endswith("; and 2 more")
    assert not any("confirmed" in line for line in status_lines(snapshot()))


def test_missing_ranks_are_missing_in_the_coverage() -> None:
    assert lines(coverage=Coverage(64, 61, None))[-1].startswith("61/64 ranks reporting, oldest - s")
    assert lines(coverage=None)[-1].startswith("no rank has reported")


def test_a_hang_is_followed_by_its_culprits_stack() -> None:
    hang = dataclasses.replace(STRAGGLER, kind="hang", severity="critical")
    printed = lines(findings=(hang,), ranks=two_ranks(stall=(None, STALL)))
    at = printed.index(f"    {advice_text(hang.advice)}")
    assert [line.strip() for line in printed[at + 1 : at + 4]] == [
        "rank 1, most recent call last; last entered gloo:all_reduce #41, last completed #40",
        "/gpt/train.py:41 in main: loss = step(batch)",
        "/gpt/data.py:7 in read",
    ]
    assert "queue.py" not in "\n".join(printed), "other threads are for the screen"


def test_while_no_step_finishes_the_last_figures_are_not_told_as_those_of_now() -> None:
    hang = dataclasses.replace(STRAGGLER, kind="hang", severity="critical")
    printed = lines(findings=(hang,))
    assert "step 1,204   last step 2.2 s ago   - ms/step   - samples/s   loss 2.282" in printed
    counted = dataclasses.replace(snapshot().job, job_step=300, job_total=1200, eta_s=14.0)
    assert "job step 300 of 1,200 (25 %)" in lines(findings=(hang,), job=counted), "no time left is promised"
    assert "busy - %   waiting - %   all-reduce - ms   exposed - ms   bus bandwidth - GB/s" in printed
    assert OLD_FIGURES in printed
    assert not any("No step finishes" in line for line in lines())


def test_of_a_run_that_hangs_it_is_said_who_is_where_and_the_figures_only_if_all_ranks_are_asked() -> None:
    printed, whole = list(status_lines(hanging())), list(status_lines(hanging(), all_ranks=True))
    start = printed.index("") + 1
    assert [" ".join(line.split()) for line in printed[start : printed.index("", start)]] == [
        "ranks number host phase for collective at",
        "17 1 n17 input 14 s - /gpt/data.py:7 in read",
        "0-16, 18-63 63 63 hosts all-reduce 14 s gloo:all_reduce #41 /gpt/train.py:60 in main: loss.backward()",
    ]
    assert set(printed) < set(whole)
    figures = whole[whole.index(OLD_FIGURES) :]
    assert [line.split()[0] for line in figures[2:5]] == ["17", "0", "1"], "the rank that is named comes first"


def test_what_a_place_says_of_itself_keeps_its_room() -> None:
    shown = hanging()
    assert shown.ranks is not None
    stuck = msgspec.structs.replace(STALL, flights=[Flight("0", 41, 40, "x" * 300)])
    odd = tuple(stuck if rank % 2 else None for rank in range(64))
    printed = list(status_lines(dataclasses.replace(shown, ranks=dataclasses.replace(shown.ranks, stall=odd))))
    (line,) = (line for line in printed if line.lstrip().startswith("1, 3,"))
    ranges, cut, _ = line.partition(", ...")
    assert cut
    assert set(map(int, ranges.split(", "))) < set(range(1, 64, 2)), "no number is cut"
    assert "xxx" in line
    assert "x" * 33 not in line


def test_ranks_that_do_no_work_have_no_spread() -> None:
    ranks = unknown_ranks(64, state=("running",) * 64, work_ms=floats(*[0.0] * 63, 1.0))
    assert any(line == "and 61 more ranks" for line in status_lines(snapshot(findings=(), ranks=ranks)))


def test_while_no_step_finishes_the_ranks_that_only_wait_do_not_hide_the_one_that_is_named() -> None:
    printed = list(status_lines(dataclasses.replace(hanging(), ranks=unknown_ranks(64, state=("stalled",) * 64))))
    headings = next(place for place, line in enumerate(printed) if line.startswith("rank  host"))
    assert [line.split()[0] for line in printed[headings + 1 : headings + 5]] == ["17", "0", "1", "and"]


def hanging() -> Snapshot:
    """Of 64 ranks one is stuck in its input, and the others wait for it in the all-reduce."""
    stuck = Stall(14.2, STALL.stacks, [Flight("0", 40, 40, "gloo:all_reduce")])
    in_backward = StackFrame("/gpt/train.py", 60, "main", "loss.backward()")
    waits = Stall(13.1, [Stack("MainThread", [in_backward])], STALL.flights)
    ranks = unknown_ranks(
        64,
        host=tuple(f"n{rank}" for rank in range(64)),
        state=("stalled",) * 64,
        phase=tuple("input" if rank == 17 else "exposed" for rank in range(64)),
        stall=tuple(stuck if rank == 17 else waits for rank in range(64)),
    )
    hang = dataclasses.replace(STRAGGLER, kind="hang", severity="critical", ranks=(17,))
    shown = snapshot(findings=(hang,), ranks=ranks)
    assert shown.run is not None
    return dataclasses.replace(shown, run=dataclasses.replace(shown.run, state="stalled"))


def test_a_failure_is_followed_by_the_end_of_its_traceback() -> None:
    failed = dataclasses.replace(STRAGGLER, kind="rank_failed", severity="critical")
    printed = lines(findings=(failed,), ranks=two_ranks(failure=(None, FAILURE)))
    at = printed.index('        File "/gpt/data.py", line 7, in read')
    assert printed[at + 1].strip() == "raise ValueError(name)"
    assert not any("Traceback" in line for line in printed)


def test_a_finding_that_names_a_rank_from_nowhere_is_printed_without_a_stack() -> None:
    hang = dataclasses.replace(STRAGGLER, kind="hang", ranks=(7,))
    assert lines(findings=(hang,))[0] == f"warning: {hang.summary}"


def test_a_host_has_a_line_only_when_something_stands_out() -> None:
    calm = snapshot().nodes
    assert not any(line.startswith("node0:") for line in lines(nodes=calm))
    other = Process(8123, [1], "bob", "python\x1b[2J other.py")
    gpu = msgspec.structs.replace(GPU, processes=[GpuProcess(Process(4001)), GpuProcess(other, 1 << 30)], xids=[79])
    figures = HostFigures(memory_used=97, memory_total=100, disks=[Disk("/ckpt", ["checkpoints"], 100, 2)])
    nodes = (dataclasses.replace(calm[0], figures=figures, gpus=(gpu,)),)
    printed = lines(nodes=nodes, ranks=two_ranks(gpu=(None, gpu)))
    (line,) = [line for line in printed if line.startswith("node0:")]
    assert line == (
        "node0: GPU 1: Xid 79, foreign process pid 8123 (bob, python [2J other.py); memory 97 % used; /ckpt 2 % free"
    )


def test_of_many_hosts_in_trouble_only_the_first_are_printed() -> None:
    figures = HostFigures(memory_used=97, memory_total=100)
    nodes = tuple(NodeView(place, f"node{place}", (), figures=figures) for place in range(20))
    printed = lines(nodes=nodes)
    assert sum("memory 97 %" in line for line in printed) == 8
    assert "and 12 more hosts" in printed


def test_the_monitors_own_cost_is_printed() -> None:
    job = dataclasses.replace(snapshot().job, monitor_us=38.2, dropped=1204)
    assert lines(job=job)[-1].endswith("probe 38 µs/step, 1,204 records dropped")


@pytest.mark.parametrize("hostile", ["\x1b]0;owned\x07", "\x9b31m", "a\rb\nc", "\u202eabc"])
def test_hostile_words_stay_on_their_line_and_are_harmless(hostile: str) -> None:
    run = snapshot().run
    assert run is not None
    printed = lines(
        run=dataclasses.replace(run, name=hostile, source=hostile),
        ranks=two_ranks(host=(hostile, hostile), state=(hostile, hostile)),
        findings=(dataclasses.replace(STRAGGLER, summary=hostile, advice=hostile),),
        notices=(hostile,),
    )
    assert all(line.isprintable() for line in printed)
    assert len(printed) == len(lines()) + 1


@pytest.mark.parametrize("hostile", ["\x1b]0;owned\x07", "\x9b31m", "a\rb\nc", "\u202eabc"])
def test_hostile_stacks_and_tracebacks_are_harmless(hostile: str) -> None:
    stall = Stall(12.0, [Stack(hostile, [StackFrame(hostile, 1, hostile, hostile)])], [Flight(hostile, 2, 1, hostile)])
    failure = Failure(hostile, hostile, 1, [hostile])
    for kind in ("hang", "rank_failed"):
        found = (dataclasses.replace(STRAGGLER, kind=kind),)
        printed = lines(findings=found, ranks=two_ranks(stall=(None, stall), failure=(None, failure)))
        assert len(printed) > len(lines())
        assert all(line.isprintable() for line in printed)
