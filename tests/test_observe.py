"""The watcher on real runs: what it names, what it keeps quiet about, and what it says when things die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ddpmon.commands.run import environment_of
from ddpmon.report.verdicts import firing
from ddpmon.snapshot import Finding, Snapshot
from ddpmon.store.base import TargetError
from ddpmon.store.discovery import discover
from ddpmon.watcher.observer import Observer
from tests.live import TINY, live_run, step_of, watch_until

ONSET = 50
ROOT = Path(__file__).parents[1]


def verdict(snapshot: Snapshot, rank: int, phase: str) -> Finding | None:
    """The lasting warning that names this rank and phase."""
    for finding in snapshot.findings:
        if finding.severity != "info" and (finding.kind, finding.ranks, finding.phase) == ("straggler", (rank,), phase):
            return finding
    return None


@pytest.mark.parametrize(("ranks", "phase"), [(2, "forward"), (4, "backward")])
def test_a_slow_rank_is_named_with_phase_and_onset(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ranks: int, phase: str
) -> None:
    # All ranks sleep in every step: a rank that a busy machine lets wait for some ms is not many times as slow then.
    usual = [f"--fault={phase}:rank={rank},ms=50" for rank in range(ranks)]
    fault = f"--fault={phase}:rank=1,ms=200,from={ONSET}"
    with live_run(monkeypatch, tmp_path, ranks, "--steps=2000", *usual, fault, *TINY) as (run, observer):
        snapshot = watch_until(observer, lambda s: verdict(s, 1, phase), log=run.log)
    finding = verdict(snapshot, 1, phase)
    assert finding is not None
    assert snapshot.findings[0] is finding, "it is the first thing a reader sees"
    assert finding.since_step is not None
    assert abs(finding.since_step - ONSET) <= 20
    assert snapshot.job.waiting_for[0] == 1
    assert snapshot.ranks is not None
    waits = snapshot.ranks.wait_ms.tolist()
    assert min(range(ranks), key=waits.__getitem__) == 1, "the straggler is the rank that waits least"


def is_called(name: str, snapshot: Snapshot) -> bool:
    return snapshot.run is not None and snapshot.run.name == name


def reporting(snapshot: Snapshot) -> int:
    return 0 if snapshot.coverage is None else snapshot.coverage.reporting


def test_a_killed_rank_0_is_told_from_a_clean_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with live_run(monkeypatch, tmp_path, 2, "--steps=5000", *TINY) as (run, observer):
        snapshot = watch_until(observer, lambda s: step_of(s) > 20, log=run.log)
        assert snapshot.ranks is not None
        os.kill(int(snapshot.ranks.pid[0]), signal.SIGKILL)
        watch_until(observer, lambda s: s.run is not None and s.run.state in ("lost", "failed", "killed"), log=run.log)
        os.kill(discover()[0].store_pid, signal.SIGTERM)  # instead of a minute
        last = watch_until(observer, lambda s: s.link.state == "gone", log=run.log)
    assert last.run is not None
    assert last.run.state in ("lost", "failed", "killed")
    assert step_of(last) > 20, "the last picture is kept"


def test_a_clean_end_is_finished(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with live_run(monkeypatch, tmp_path, 2, "--steps=60", *TINY) as (run, observer):
        watch_until(observer, lambda s: step_of(s) >= 0, log=run.log)
        last = watch_until(observer, lambda s: s.link.state == "gone", log=run.log)
        assert run.group.wait(timeout=60) == 0, run.log.read_text()
    assert last.run is not None
    assert last.run.state == "finished"
    assert [f for f in last.findings if f.kind == "rank_lost"] == []


def test_a_stopped_rank_is_lost_and_found_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with live_run(monkeypatch, tmp_path, 2, "--steps=20000", *TINY) as (run, observer):
        snapshot = watch_until(observer, lambda s: step_of(s) > 20, log=run.log)
        assert snapshot.ranks is not None
        pid = int(snapshot.ranks.pid[1])
        os.kill(pid, signal.SIGSTOP)
        try:
            lost = watch_until(observer, lambda s: any(f.kind == "rank_lost" for f in s.findings), log=run.log)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert next(f for f in lost.findings if f.kind == "rank_lost").ranks == (1,)
        watch_until(
            observer,
            lambda s: step_of(s) > step_of(lost) + 5 and not any(f.kind == "rank_lost" for f in firing(s.findings)),
            log=run.log,
        )


def test_a_stopped_store_is_silent_and_nobody_is_blamed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with live_run(monkeypatch, tmp_path, 2, "--steps=20000", *TINY) as (run, observer):
        snapshot = watch_until(observer, lambda s: step_of(s) > 20, log=run.log)
        assert snapshot.ranks is not None
        pid = discover()[0].store_pid
        os.kill(pid, signal.SIGSTOP)
        try:
            silent = watch_until(observer, lambda s: s.link.state == "silent", log=run.log)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert silent.run is not None
        assert silent.run.state != "lost"
        assert "does not answer" in silent.link.message
        watch_until(observer, lambda s: s.link.state == "live" and reporting(s) == 2, log=run.log)


def test_a_watcher_that_comes_late_sees_the_whole_run_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow = "--fault=backward:rank=0,ms=30,from=0"  # so that ranks send every step, however fast this machine is
    with live_run(monkeypatch, tmp_path, 2, "--steps=20000", slow, *TINY) as (run, observer):
        watch_until(observer, lambda s: step_of(s) > 350, log=run.log)
        late = Observer(None)
        snapshot = late.tick()
        at_once = snapshot.series
        assert at_once is not None
        news = int(at_once.step[-1]) + 20  # what was there at once may be all remembered
        later = watch_until(late, lambda s: s.series is not None and s.series.step[-1] > news, log=run.log).series
        late.close()
    assert later is not None
    assert at_once.step[0] == later.step[0] == 0
    assert at_once.step[-1] > 300
    gaps = np.diff(later.step.astype(int))  # of a long run every second old step is kept, or fourth
    assert gaps[-1] == 1
    assert not np.any(gaps & (gaps - 1))
    assert np.all(np.diff(gaps) <= 0), "no step is left out between what is remembered and what is news"
    assert snapshot.coverage is not None
    assert snapshot.coverage.reporting == 2


def test_the_observer_follows_a_restart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with live_run(monkeypatch, tmp_path, 2, "--steps=5000", "--name=first", *TINY) as (run, observer):
        watch_until(observer, lambda s: step_of(s) > 20, log=run.log)
        run.end()  # its store goes on for a minute
        with live_run(monkeypatch, tmp_path, 2, "--steps=5000", "--name=second", *TINY) as (again, _):
            snapshot = watch_until(observer, lambda s: is_called("second", s) and step_of(s) > 0, log=again.log)
    assert snapshot.run is not None
    assert snapshot.run.name == "second"
    assert snapshot.link.message.startswith("another run has started here: second")


def test_nobody_there_is_waiting_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    snapshot = Observer("tcp://127.0.0.1:1").tick()
    assert (snapshot.link.state, snapshot.run) == ("waiting", None)
    assert "127.0.0.1:1" in snapshot.link.message


@pytest.mark.parametrize("target", ["http://a:1", "tcp://", "tcp://host", "tcp://host:port", "nonsense", __file__])
def test_a_target_that_makes_no_sense_is_refused_in_words(target: str) -> None:
    with pytest.raises(TargetError, match="TARGET is"):
        Observer(target)


def test_a_store_that_is_not_ours_is_said_to_hold_no_run() -> None:
    source = (
        "import sys, time; from tests.store.served import serve; s, p = serve('127.0.0.1', 29600);"
        "s.put('foreign', b'x'); print(p, flush=True); time.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout is not None
        try:
            snapshot = Observer(f"tcp://127.0.0.1:{int(server.stdout.readline())}").tick()
        finally:
            server.kill()
    assert snapshot.link.state == "waiting"
    assert "holds no ddpmon run" in snapshot.link.message


def test_the_name_of_the_command_line_comes_before_that_of_the_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in environment_of({"DDPMON_NAME": "a default"}, "mine").items():
        if name.startswith("DDPMON_") and name.endswith("NAME"):  # a trainer that attaches by itself needs no more
            monkeypatch.setenv(name, value)
    with live_run(monkeypatch, tmp_path, 1, "--steps=5000", "--name=the-script-s", *TINY) as (run, observer):
        snapshot = watch_until(observer, lambda s: s.run is not None, log=run.log)
    assert is_called("mine", snapshot)
