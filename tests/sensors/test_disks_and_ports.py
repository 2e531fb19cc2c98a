"""Folders' file systems and devices, and who holds a port, on this machine."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile

import psutil
import pytest

from ddpmon.sensors.disks import FolderSensor
from ddpmon.sensors.identities import Identities
from ddpmon.sensors.ports import PortSensor
from tests.sensors.others import program, running, until

SHM = Path("/dev/shm")


def test_a_folder_is_told_by_its_mount_point_with_its_space(tmp_path: Path) -> None:
    sensor = FolderSensor("checkpoints", str(tmp_path / "not" / "yet"))

    def free() -> int:
        return shutil.disk_usage(tmp_path).free

    before, disk, after = until(  # others write to it meanwhile
        lambda: (free(), sensor.read(), free()), lambda seen: min(seen[0], seen[2]) <= (seen[1].free or 0)
    )
    assert Path(disk.path).is_mount()
    assert str(tmp_path).startswith(disk.path)
    assert disk.uses == ["checkpoints"]
    assert disk.total == shutil.disk_usage(tmp_path).total
    assert disk.free is not None
    assert min(before, after) <= disk.free <= max(before, after)


def test_a_name_that_is_no_text_crosses_as_text(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff\x1b[31m")
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    assert FolderSensor("\udcff" * 300, str(tmp_path / "link")).read().uses == ["?" * 256]


def test_a_device_is_busy_while_something_is_written(tmp_path: Path) -> None:
    sensor = FolderSensor("checkpoints", str(tmp_path))
    first = sensor.read()
    if first.device is None:
        pytest.skip("the temporary folder is on no disk")
    assert (first.busy_pct, first.read_wait_ms, first.write_wait_ms) == (None, None, None)
    assert not (Path("/sys/class/block") / first.device / "partition").exists()
    writes = f"file = os.open({str(tmp_path / 'file')!r}, os.O_WRONLY | os.O_CREAT)"
    then = "\nwhile True: os.pwrite(file, os.urandom(1 << 20), 0); os.fsync(file)"
    with running(program("import os", writes, then=then)):
        found = until(sensor.read, lambda disk: (disk.busy_pct or 0) > 1 and disk.write_wait_ms is not None)
        assert found.busy_pct is not None
        assert found.busy_pct <= 100


@pytest.mark.skipif(not SHM.is_mount(), reason="needs a /dev/shm")
def test_shared_memory_that_is_filled_is_seen_to_fill() -> None:
    sensor, size = FolderSensor("shared memory", str(SHM)), 8 << 20

    def filled() -> int:
        """By how much the free space falls; others fill and free it meanwhile, so that one look proves nothing."""
        with NamedTemporaryFile(dir=SHM, prefix="ddpmon-test-") as file:
            before = sensor.read()
            file.write(bytes(size))
            file.flush()
            full = sensor.read()
        assert (full.path, full.device, full.total) == ("/dev/shm", None, before.total)
        assert before.free is not None
        assert full.free is not None
        return before.free - full.free

    assert until(filled, lambda fell: fell == size) == size


LISTEN = """
import socket, sys
listener = socket.socket(socket.AF_INET6 if sys.argv[1] == "::" else socket.AF_INET)
listener.bind((sys.argv[1], 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["127.0.0.1", "::"])
def address(request: pytest.FixtureRequest) -> str:
    host = str(request.param)
    try:
        socket.create_server((host, 0), family=family_of(host)).close()
    except OSError:
        pytest.skip("needs IPv6")
    return host


def family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port on which nobody listens, and nobody else can: this process has it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_the_holder_of_a_port_is_named_until_it_lets_go(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpmon.sensors.ports._LOOK_EVERY_S", 0.0)
    monkeypatch.setattr("ddpmon.sensors.ports._SHARE", 10.0)
    wanted: dict[int, str] = {}
    sensor = PortSensor(wanted, Identities())
    assert sensor.read() == []
    with running(LISTEN, address) as holder:
        (listening,) = psutil.Process(holder.pid).net_connections("tcp")
        wanted[listening.laddr.port] = "this run's store"
        (port,) = until(sensor.read, bool)
        assert (port.port, port.wanted_for) == (listening.laddr.port, "this run's store")
        assert port.process is not None
        assert (port.process.pid, port.process.parents[0]) == (holder.pid, os.getpid())
    assert until(sensor.read, lambda ports: not ports) == []
    with socket.create_server((address, port.port), family=family_of(address)):
        assert sensor.read() == [], "who takes it later has not hindered the run"


def test_who_takes_a_port_between_two_looks_is_not_named(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpmon.sensors.ports._LOOK_EVERY_S", 0.0)
    monkeypatch.setattr("ddpmon.sensors.ports._SHARE", 10.0)
    with socket.create_server((address, 0), family=family_of(address)) as first:
        port = first.getsockname()[1]
        sensor = PortSensor({port: "this run's store"}, Identities())
        assert [each.port for each in sensor.read()] == [port]
    with socket.create_server((address, port), family=family_of(address)):
        assert until(sensor.read, lambda ports: not ports) == []


def test_holders_are_not_looked_for_again_and_again(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpmon.sensors.ports.monotonic", lambda: 100.0)
    with socket.create_server(("127.0.0.1", 0)) as mine:
        port = mine.getsockname()[1]
        sensor = PortSensor({port: "x", silent_port: "nobody's"}, Identities())
        found, nobodys = sensor.read()
        assert (found.held, nobodys.held, nobodys.process) == (True, False, None)
        assert found.process is not None
        assert found.process.pid == os.getpid()
    assert sensor.read()[0].process is not None, "not looked at again so soon"


def test_who_let_go_before_the_first_look_is_told_of_for_a_while(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("ddpmon.sensors.ports.monotonic", lambda: now)
    sensor = PortSensor({silent_port: "x"}, Identities())
    for now in (100.0, 129.0):  # noqa: B007 (the sensor reads it)
        assert [(each.port, each.held, each.process) for each in sensor.read()] == [(silent_port, False, None)]
    now = 131.0
    assert sensor.read() == []
