"""Which port a run's store gets, and of whom that is told when it is not the one that was wanted."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("torch")
from ddpmon.probe.uplink import Uplink
from ddpmon.store.discovery import Announcement, announce
from tests.probe.lone_uplink import lone_uplink, speak
from tests.probe.probe_ranks import private_runs


@pytest.fixture(autouse=True)
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A free port, as the one that stores want first."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    monkeypatch.setattr("ddpmon.probe.uplink.FIRST_PORT", port)
    with private_runs(tmp_path):
        yield port


def announced(url: str) -> None:
    run = Announcement(run_id=url, name="x", url=url, pid=os.getpid(), host="h", world_size=1, started_at=0.0)
    assert announce(run) is not None


def uplink() -> Uplink:
    return lone_uplink("ports")


def test_beside_another_run_the_next_free_port_is_nothing_to_tell_of() -> None:
    with closing(uplink()) as first, closing(uplink()) as second:
        assert first.connect()
        assert second.connect()
        assert (first.missed_ports, second.missed_ports) == ({}, {})


def test_a_stranger_on_the_port_is_told_of(wanted: int) -> None:
    with socket.create_server(("127.0.0.1", wanted)), closing(uplink()) as only:
        assert only.connect()
        assert only.missed_ports == {wanted: "this run's store"}


def test_another_run_that_announces_itself_later_is_no_stranger(wanted: int) -> None:
    with socket.create_server(("127.0.0.1", wanted)), closing(uplink()) as second:
        assert second.connect()
        assert second.missed_ports
        announced(f"tcp://127.0.0.1:{wanted}")
        speak(second)
        assert second.missed_ports == {}


def test_a_run_on_another_address_hides_no_stranger_on_ours(wanted: int) -> None:
    announced(f"tcp://10.0.0.7:{wanted}")
    with socket.create_server(("127.0.0.1", wanted)), closing(uplink()) as only:
        assert only.connect()
        assert only.missed_ports == {wanted: "this run's store"}
