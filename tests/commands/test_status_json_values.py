"""What the JSON says of what is unknown, stuck, over, no finite number or hostile."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from ddpmon.diagnose.pending import Pending
from ddpmon.format import json_line
from ddpmon.parts import Stall
from ddpmon.report.status_json import status_object
from ddpmon.snapshot import JobView, Link, RunView, Snapshot
from tests.commands.command_snapshots import (
    FAILURE,
    NAN,
    STALL,
    STRAGGLER,
    floats,
    parsed,
    snapshot,
    two_ranks,
    unknown_ranks,
)


def test_evidence_is_finite_numbers_null_or_text() -> None:
    evidence: dict[str, float | int | str] = {
        "work_ms": 158.123456,
        "samples_ratio": NAN,
        "window_steps": 20,
        "stack": "a.py:1 in f\nb.py:2 in g",
    }
    (finding,) = parsed(snapshot(findings=(dataclasses.replace(STRAGGLER, evidence=evidence),)))["findings"]
    assert finding["evidence"] == {**evidence, "work_ms": 158.12, "samples_ratio": None}


def test_what_is_pending_says_what_its_confirmation_takes() -> None:
    pending = (
        Pending("cpu_contention", (2, 3), ("node0",), 2, 4.0),
        Pending("rank_lost", (7,), (), None, 5.123456),
    )
    assert parsed(snapshot(pending=pending))["pending"] == [
        {"kind": "cpu_contention", "ranks": [2, 3], "nodes": ["node0"], "confirmations": 2, "missing_s": 4.0},
        {"kind": "rank_lost", "ranks": [7], "nodes": [], "confirmations": None, "missing_s": 5.1235},
    ]


def test_the_monitor_tells_its_own_cost_and_its_drops() -> None:
    assert parsed(snapshot(job=JobView(monitor_us=38.25, dropped=3)))["monitor"] == {
        "cost_us_per_step": 38.25,
        "dropped": 3,
    }


def test_a_rank_that_is_stuck_and_one_that_has_failed() -> None:
    stuck, failed = parsed(snapshot(ranks=two_ranks(stall=(STALL, None), failure=(None, FAILURE))))["ranks"]
    assert stuck["stall"] == {
        "seconds": 14.2,
        "moves": False,
        "write_bytes_s": 0.0,
        "stack": ["/gpt/train.py:41 in main: loss = step(batch)", "/gpt/data.py:7 in read"],
        "collective": "last entered gloo:all_reduce #41, last completed #40",
        "device_phase": None,
        "device_error": None,
        "graph_replay_s": None,
    }
    assert stuck["failure"] is failed["stall"] is None
    assert failed["failure"] == {
        "kind": "ValueError",
        "message": "no such shard",
        "step": 12,
        "traceback": list(FAILURE.traceback),
    }


def test_while_no_step_finishes_what_steps_take_is_unknown() -> None:
    hang = dataclasses.replace(STRAGGLER, kind="hang", severity="critical")
    job = parsed(snapshot(findings=(hang,)))["job"]
    assert job["standing_still"] is True
    assert {name for name, value in job.items() if value is not None} == {"standing_still", "throughput_unit", "loss"}
    assert parsed(snapshot())["job"]["standing_still"] is False


def test_a_stall_of_which_nothing_could_be_read() -> None:
    status = parsed(snapshot(ranks=two_ranks(stall=(Stall(11.0), None))))
    assert status["ranks"][0]["stall"] == {
        "seconds": 11.0,
        "moves": False,
        "write_bytes_s": 0.0,
        "stack": [],
        "collective": None,
        "device_phase": None,
        "device_error": None,
        "graph_replay_s": None,
    }


def test_what_the_gpu_of_a_rank_that_is_stuck_has_reached() -> None:
    on_gpu = Stall(11.0, device_phase="forward", device_error="719 (a kernel failed)", graph_replay_s=2.5)
    stalled = parsed(snapshot(ranks=two_ranks(stall=(on_gpu, None))))["ranks"][0]["stall"]
    assert (stalled["device_phase"], stalled["device_error"]) == ("forward", "719 (a kernel failed)")
    assert stalled["graph_replay_s"] == 2.5


def test_unknown_is_null_in_every_rank_field() -> None:
    (rank,) = parsed(snapshot(ranks=unknown_ranks(1)))["ranks"]
    assert rank.pop("rank") == 0
    assert set(rank.pop("phases_ms").values()) == {None}
    assert len(rank) == 19
    assert set(rank.values()) == {None}


def test_an_unknown_run_job_and_coverage_are_null() -> None:
    waiting = Snapshot(link=Link("waiting", "no run yet"), taken_at=0.0, taken_monotonic=0.0)
    assert parsed(waiting) == {
        "schema_version": 1,
        "time": "1970-01-01T00:00:00.000Z",
        "link": {"state": "waiting", "message": "no run yet"},
        "run": None,
        "coverage": None,
        "job": {
            "standing_still": False,
            "step_ms": None,
            "throughput": None,
            "throughput_unit": "steps/s",
            "throughput_ranks": None,
            "loss": None,
            "sync_efficiency": None,
            "lost_to_waiting_pct": None,
            "allreduce_ms": None,
            "exposed_ms": None,
            "busbw_gb_s": None,
            "tokens_per_s": None,
            "job_step": None,
            "job_total": None,
            "eta_s": None,
        },
        "monitor": {"cost_us_per_step": None, "dropped": 0},
        "ranks": [],
        "nodes": [],
        "findings": [],
        "pending": [],
        "notices": [],
        "recorded": None,
    }


@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf])
def test_what_json_cannot_say_is_null(value: float) -> None:
    status = parsed(snapshot(job=JobView(step_ms=value, loss=value), ranks=two_ranks(loss=floats(value, 1.0))))
    assert (status["job"]["step_ms"], status["job"]["loss"]) == (None, None)
    assert [rank["loss"] for rank in status["ranks"]] == [None, 1.0]


def test_zero_is_zero() -> None:
    assert parsed(snapshot(job=JobView(exposed_ms=0.0)))["job"]["exposed_ms"] == 0.0


def test_what_is_over_is_not_a_finding() -> None:
    cleared = dataclasses.replace(STRAGGLER, cleared_at_step=900)
    assert parsed(snapshot(findings=(cleared,)))["findings"] == []


def test_figures_are_rounded_to_what_they_are_worth() -> None:
    status = parsed(snapshot(job=JobView(step_ms=172.15123456)))
    assert status["job"]["step_ms"] == 172.15


@pytest.mark.parametrize("hostile", ["\x1b]0;owned\x07", "\x9b31m", "a\x7fb\x00", "\u202eabc", "line\nbreak\u2028"])
def test_what_a_run_calls_itself_reaches_the_terminal_as_printable_ascii_only(hostile: str) -> None:
    run = snapshot().run
    assert isinstance(run, RunView)
    taken = snapshot(run=dataclasses.replace(run, name=hostile), ranks=two_ranks(host=(hostile, hostile)))
    line = json_line(status_object(taken))
    assert all(" " <= letter <= "~" for letter in line)
    assert json.loads(line)["run"]["name"] == hostile
    assert json.loads(line)["ranks"][1]["host"] == hostile
