"""A real training that hangs or breaks, and a watcher that has to say which rank, where, and why."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from troubles import CASES, FROM, RANKS, is_right

pytest.importorskip("torch")
from ddpmon.snapshot import Finding, Snapshot
from tests.live import TINY, live_run, step_of, watch_until

TROUBLES = {case.fault: case for case in CASES}


def lasting(snapshot: Snapshot, kind: str) -> Finding | None:
    """The finding of this kind, if it lasts."""
    found = (finding for finding in snapshot.findings if finding.cleared_at_step is None)
    return next((finding for finding in found if finding.kind == kind), None)


def told_of(
    monkeypatch: pytest.MonkeyPatch, folder: Path, fault: str, rank: int, seconds: float = 0.0
) -> tuple[Finding, Snapshot]:
    """Train with the fault until the watcher tells of it, of a hang with its stack and after so many seconds of it."""
    case = TROUBLES[fault]
    arguments = [*TINY, "--steps=100000", f"--fault={fault}:rank={rank},from={FROM}"]
    with live_run(monkeypatch, folder, RANKS, *arguments) as (run, observer):

        def told(snapshot: Snapshot) -> bool:
            finding = lasting(snapshot, case.kind)
            if finding is None or not seconds:
                return finding is not None
            return "stack" in finding.evidence and float(finding.evidence["seconds"]) >= seconds

        snapshot = watch_until(observer, told, log=run.log)
    finding = lasting(snapshot, case.kind)
    assert finding is not None
    assert is_right(finding, case, rank), finding
    return finding, snapshot


@pytest.mark.parametrize(("fault", "phase"), [("hang_input", "input"), ("hang_forward", "forward")])
def test_a_hang_names_the_rank_and_its_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str, phase: str
) -> None:
    finding, snapshot = told_of(monkeypatch, tmp_path, fault, 2, 14.0)
    assert (finding.severity, finding.phase, finding.since_step) == ("critical", phase, FROM)
    line = TROUBLES[fault].shows
    assert line in finding.summary
    assert "ranks 0, 1, 3 wait for it in gloo:all_reduce" in finding.summary
    assert line in str(finding.evidence["stack"])
    assert snapshot.job.waiting_for == (2,)
    assert snapshot.job.monitor_us is not None, "what it cost while steps were made is still true"


def test_a_skipped_collective_names_the_rank_that_took_another_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    finding, _ = told_of(monkeypatch, tmp_path, "skip", 3)
    assert finding.severity == "critical"
    assert "dist.barrier()" in finding.summary


def test_a_rank_that_fails_is_named_with_its_exception_and_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    finding, _ = told_of(monkeypatch, tmp_path, "raise", 2)
    assert "RuntimeError: an injected fault" in finding.summary


@pytest.mark.parametrize("rank", [0, 1])  # 0 has the store
def test_data_that_ends_early_on_one_rank_is_no_hang(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rank: int
) -> None:
    finding, snapshot = told_of(monkeypatch, tmp_path, "end", rank)
    assert finding.severity == "critical"
    assert lasting(snapshot, "hang") is None


def test_the_first_loss_that_is_not_finite_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    finding, _ = told_of(monkeypatch, tmp_path, "nan", 2)
    assert (finding.severity, finding.since_step) == ("critical", FROM)


def test_of_ranks_whose_connections_broke_the_one_that_was_killed_is_named_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with live_run(monkeypatch, tmp_path, 3, *TINY, "--steps=100000", together=False) as (run, observer):
        snapshot = watch_until(observer, lambda s: step_of(s) > 20, log=run.log)
        assert snapshot.ranks is not None
        os.kill(int(snapshot.ranks.pid[1]), signal.SIGKILL)
        first = watch_until(observer, lambda s: lasting(s, "rank_failed"), log=run.log)
    finding = lasting(first, "rank_failed")
    assert finding is not None
    assert (finding.ranks, finding.severity) == ((1,), "critical"), finding.summary
    assert "then failed with" in finding.summary
