"""The greatest CPU users among this machine's real processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from ddpmon.machine import HostFigures, HostProcess
from ddpmon.sensors.busiest import BusiestProcesses
from ddpmon.sensors.identities import Identities
from ddpmon.sensors.reading import NotYet
from tests.sensors.others import SPIN, cpu_seconds, program, running, until

PASS_S = 2.0
LAST = max(os.sched_getaffinity(0))
HOSTILE = b"\x1b[2J\nrank 0\t\xff[bold]x"
HOG = program(
    "import os",
    f"os.sched_setaffinity(0, [{LAST}])",
    "open('/proc/self/comm', 'wb').write(b') R 1 1\\n\\x1b[31m')",
    "os.nice(1)",
    then=SPIN,
)
Reader = Callable[[], list[HostProcess]]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Reader:
    """Makes a pass; by the sensor's clock it costs nothing and comes `PASS_S` after the one before."""
    now = 100.0
    monkeypatch.setattr("ddpmon.sensors.busiest.monotonic", lambda: now)
    monkeypatch.setattr("ddpmon.sensors.busiest.thread_time", lambda: 0.0)
    sensor = BusiestProcesses(Identities())
    with pytest.raises(NotYet, match="once"):
        sensor.read()

    def again() -> list[HostProcess]:
        nonlocal now
        now += PASS_S
        return sensor.read()

    return again


def named(pid: int) -> Callable[[list[HostProcess]], bool]:
    return lambda found: any(each.process.pid == pid for each in found)


def test_a_hog_is_named_with_where_it_may_run_until_it_has_gone(read: Reader) -> None:
    with running(HOG, HOSTILE) as hog:
        until(lambda: cpu_seconds(hog.pid), lambda seconds: seconds > 1)
        least, found, most = cpu_seconds(hog.pid), read(), cpu_seconds(hog.pid)
        (it,) = (each for each in found if each.process.pid == hog.pid)
        assert it.cpu_pct is not None
        assert least - 0.02 <= it.cpu_pct / 100 * PASS_S <= most + 0.02, "all that it has used since it began"
        assert (it.cpus, it.nice, it.reads) == (str(LAST), os.nice(0) + 1, 1)
        assert it.rss_bytes is not None
        assert it.rss_bytes > 4 << 20
        assert it.process.parents[0] == os.getpid()
        assert it.process.command == f"{Path(sys.executable).name} -c"
        rates = [each.cpu_pct for each in found if each.cpu_pct is not None]
        assert rates == sorted(rates, reverse=True)
        figures = HostFigures(processes=found)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(figures), type=HostFigures) == figures
        until(lambda: cpu_seconds(hog.pid), lambda seconds: seconds > most + 1)
        assert [each.reads for each in read() if each.process.pid == hog.pid] == [2]
    assert not named(hog.pid)(read())


def test_one_that_is_over_is_nobody_to_blame(read: Reader) -> None:
    with running(HOG, HOSTILE) as hog:
        until(lambda: cpu_seconds(hog.pid), lambda seconds: seconds > 1)
        hog.kill()
        os.waitid(os.P_PID, hog.pid, os.WEXITED | os.WNOWAIT)
        assert cpu_seconds(hog.pid) > 1, "what is left of it tells what it has used"
        assert not named(hog.pid)(read())


def test_one_that_was_idle_is_noticed_when_it_begins(read: Reader) -> None:
    with running(program("import sys", then="\nsys.stdin.readline()" + SPIN)) as process:
        until(psutil.Process(process.pid).status, lambda status: status == psutil.STATUS_SLEEPING)
        read()  # takes in what its start has cost
        with running(program(then=SPIN)) as busy:
            until(lambda: cpu_seconds(busy.pid), lambda seconds: seconds > 1)
            found = read()
        assert named(busy.pid)(found)
        assert not named(process.pid)(found)
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        before = cpu_seconds(process.pid)
        until(lambda: cpu_seconds(process.pid), lambda seconds: seconds > before + 1)
        assert named(process.pid)(read())
