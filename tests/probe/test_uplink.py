"""What rank 0 says of its run is said again, where it has been lost: in its own store, and on this host."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch

from ddpmon.probe.identity import Identity
from ddpmon.probe.uplink import Uplink
from ddpmon.schema import HistoryFrame, RunInfo, StepColumns, decode
from ddpmon.store.base import RUNS_KEY, run_key
from ddpmon.store.connect import list_runs
from ddpmon.store.discovery import discover
from ddpmon.store.tcp import TcpStore
from tests.made_frames import run_info


@pytest.fixture
def uplink(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Uplink]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    for name in ("DDPMON_STORE", "DDPMON_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    me = Identity(0, 1, 0, 0, (0,), "here", os.getpid(), torch.device("cpu"), None, "gloo")
    made = Uplink(me, "again", None, "address", lambda run_id: run_info(1, run_id=run_id, name="again"))
    yield made
    made.close()


def speak(uplink: Uplink) -> None:
    uplink.put_history(HistoryFrame(run_id=uplink.run, rank=0, recent=StepColumns(), older=StepColumns()))


def test_a_run_that_was_overwritten_can_be_found_again(uplink: Uplink) -> None:
    assert uplink.connect()
    assert uplink._address is not None
    with closing(TcpStore(*uplink._address)) as other:
        other.put(RUNS_KEY, b"another")
        other.put(run_key(uplink.run), b"noise")
        assert list_runs(other) == ["another"]
        speak(uplink)
        while list_runs(other) == ["another"]:  # until it has arrived; the test's own deadline ends this
            pass
        assert list_runs(other) == [uplink.run]
        (info,) = other.get_many([run_key(uplink.run)])
        assert decode("run", info or b"", RunInfo).run_id == uplink.run


def test_a_run_that_could_not_be_announced_is_announced_later(
    uplink: Uplink, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert uplink.connect(), "a disk that takes no file holds nobody up"
    assert discover() == []
    assert "ddpmon watch tcp://" in capsys.readouterr().err
    for folder in ("runtime", "temporary"):
        (tmp_path / folder).mkdir()
    speak(uplink)
    assert [found.run_id for found in discover()] == [uplink.run]
    assert capsys.readouterr().err == "", "the line is said once"
    uplink.close()
    assert discover() == []
