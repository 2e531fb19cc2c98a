"""`ddpmon status --watch`: what it says when something changes, and when it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ddpmon.commands.run_end import LOST_S, RunEnd
from ddpmon.commands.status_watch import Changes
from ddpmon.parts import Attempt
from ddpmon.snapshot import Finding, Link, LinkState, RunState, Snapshot
from tests.commands.command_snapshots import STRAGGLER, snapshot
from tests.made_frames import run_info
from tests.made_store import MadeStore

ROOT = Path(__file__).parents[2]
HANG = Finding("hang", "critical", "rank 1 never came", ranks=(1,))


def test_a_change_is_told_once() -> None:
    changes, late = Changes(), replace(STRAGGLER, id=4)

    def events(*findings: Finding, link: str = "live") -> list[str]:
        made = snapshot(findings=findings, link=Link(link))  # type: ignore[arg-type]
        return [change["event"] for change in changes.take(made)]

    assert (events(), changes.has_stepped) == (["link", "run"], True)
    assert (events(), changes.has_stepped) == ([], False)
    assert events(late) == ["firing"]
    assert events(replace(late, summary="other words", ranks=(1, 0))) == []
    assert events(replace(late, severity="critical"), HANG) == ["firing", "firing"]
    assert events(replace(late, severity="critical", cleared_at_step=9), HANG) == ["resolved"]
    assert events(HANG, link="silent") == ["link"]
    ended = Finding("rank_failed", "critical", "rank 0 failed: no rank reported why")
    assert events(ended, link="silent") == ["firing", "resolved"]
    disappeared = replace(ended, summary="rank 1 disappeared", ranks=(1,))
    assert events(disappeared, link="silent") == ["firing"], "a correction"
    assert events(replace(disappeared, summary="other words"), link="silent") == []


def test_what_is_over_is_told_as_over() -> None:
    changes, late = Changes(), replace(STRAGGLER, id=4)
    changes.take(snapshot(findings=(late,)))
    over = replace(late, summary="rank 1 was late", cleared_at_step=900)
    another = replace(over, summary="rank 1 was late before", id=3, cleared_at_step=820)
    of_another_rank = replace(over, summary="rank 7 was late", ranks=(7,), cleared_at_step=950)
    (resolved,) = changes.take(snapshot(findings=(another, of_another_rank, over)))
    assert resolved["finding"]["summary"] == "rank 1 was late"
    changes.take(snapshot(findings=(HANG,)))
    (resolved,) = changes.take(snapshot(findings=()))
    assert resolved["finding"]["summary"] == "rank 1 never came", "nobody tells of it as over"


def test_a_new_attempt_says_how_the_one_before_it_ended() -> None:
    changes, made = Changes(), snapshot(findings=())
    attempt = Attempt(run_id="r0", step=41, vanished=[1], vanished_count=1)
    assert made.run is not None
    info = run_info(2, restart=1, max_restarts=3, attempts=[attempt])
    run = replace(made.run, restart=1, max_restarts=3, info=info)
    link, began = changes.take(replace(made, run=run))
    assert (link["event"], began["event"]) == ("link", "run")
    assert began["message"].startswith("attempt 2 of 4, begun by its launcher")
    assert began["message"].endswith("attempt 1 of 4 ended at step 41: rank 1 disappeared without a message")
    (failed,) = changes.take(replace(made, run=replace(run, state="failed")))
    assert failed["message"] == "its launcher may restart it (attempt 3 of 4)"


def test_a_run_is_over_once_its_end_is_known_and_never_while_it_starts_again() -> None:
    now = [0.0]
    end = RunEnd(lambda: now[0])

    def is_over(state: RunState, link: LinkState = "gone", seconds: float = 1.0) -> bool:
        made = snapshot(link=Link(link))
        assert made.run is not None
        now[0] += seconds
        return end.is_reached(replace(made, run=replace(made.run, state=state)))

    assert not is_over("running", "live")
    assert not is_over("restarting", seconds=600.0)
    assert not is_over("lost")
    assert not is_over("lost", seconds=LOST_S / 2)
    assert not is_over("running", "live")
    assert not is_over("lost")
    assert is_over("lost", seconds=LOST_S + 1.0)
    for state in ("finished", "failed", "killed", "cancelled"):
        assert is_over(state)
    assert not RunEnd().is_reached(Snapshot(Link("waiting"), 0.0, 0.0))


@pytest.fixture
def store() -> Iterator[MadeStore]:
    made = MadeStore()
    made.begin()
    yield made
    made.close()


def lines_of(store: MadeStore, *options: str) -> Iterator[str]:
    """The lines of the command, which has to end well."""
    command = [sys.executable, "-m", "ddpmon.cli", "status", store.url, "--watch", *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield from process.stdout
    assert process.returncode == 0


def test_json_has_a_line_for_each_new_step_and_ends_with_the_run(store: MadeStore) -> None:
    said, seq = [], 1
    for line in lines_of(store, "--json"):
        said.append(json.loads(line))
        seq += 1
        store.speak(seq, state="running" if seq < 4 else "finished")
    assert said[0]["changes"][0] == {"event": "link", "state": "live", "message": ""}
    steps = [each["run"]["step"] for each in said]
    assert steps == sorted(steps)
    assert len({*steps}) >= 3
    assert [change["state"] for change in said[-1]["changes"] if change["event"] == "run"] == ["finished"]


def test_a_person_reads_a_line_a_change(store: MadeStore) -> None:
    said = []
    for line in lines_of(store):
        said.append(line.rstrip())
        store.speak(len(said) + 1, state="running" if len(said) < 2 else "finished")
    assert any(line.endswith("link: live") for line in said), said
    assert said[-1].endswith("run: finished")
