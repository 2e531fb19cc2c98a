"""Which port a run's store gets, and of whom that is told when it is not the one that was wanted."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("torch")
from ddpmon.probe.uplink import Uplink
from tests.probe.lone_uplink import lone_uplink
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
    return lone_uplink("ports")


def test_beside_another_run_the_next_free_port_is_nothing_to_tell_of() -> None:
    with closing(uplink()) as first, closing(uplink()) as second:
        assert first.connect()
        assert second.connect()
        assert (first.missed_ports, second.missed_ports) == ({}, {})


def test_a_port_that_somebody_else_has_is_passed_over_in_silence(wanted: int) -> None:
    with socket.create_server(("127.0.0.1", wanted)), closing(uplink()) as only:
        assert only.connect()
        assert only.missed_ports == {}


def test_where_no_port_of_the_range_is_free_who_holds_the_first_is_told_of(
    wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddpmon.probe.uplink.PORTS_TO_TRY", 0)  # the range is passed over like any that is full
    with socket.create_server(("127.0.0.1", wanted)), closing(uplink()) as only:
        assert only.connect()
        assert only.missed_ports == {wanted: "this run's store"}
