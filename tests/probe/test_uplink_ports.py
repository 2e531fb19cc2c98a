"""Which port a run's store gets, and of whom that is told when it is not the one that was wanted."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch

from ddpmon.probe.identity import Identity
from ddpmon.probe.uplink import Uplink
from tests.made_frames import run_info
from tests.probe.probe_ranks import private_runs


@pytest.fixture(autouse=True)
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A free port, as the one that stores want first."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    monkeypatch.setattr("ddpmon.probe.uplink.FIRST_PORT", port)
    with private_runs(tmp_path):
        yield port


def uplink() -> Uplink:
    me = Identity(0, 1, 0, 0, (0,), "here", os.getpid(), torch.device("cpu"), None, "gloo")
    return Uplink(me, "ports", None, "address", lambda run: run_info(1, run_id=run, name="ports"))


def test_beside_another_run_the_next_free_port_is_nothing_to_tell_of() -> None:
    with closing(uplink()) as first, closing(uplink()) as second:
        assert first.connect()
        assert second.connect()
        assert (first.missed_ports, second.missed_ports) == ({}, {})


def test_a_stranger_on_the_port_is_told_of(wanted: int) -> None:
    with socket.create_server(("127.0.0.1", wanted)), closing(uplink()) as only:
        assert only.connect()
        assert only.missed_ports == {wanted: "this run's store"}
