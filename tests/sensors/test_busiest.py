"""The greatest CPU users among this machine's real processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ddpmon.machine import HostFigures, HostProcess
from ddpmon.sensors.busiest import BusiestProcesses
from ddpmon.sensors.identity import Identities
from ddpmon.sensors.reading import NotYet
from tests.sensors.others import SPIN, program, running, until

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
def read() -> Reader:
    sensor = BusiestProcesses(Identities())
    with pytest.raises(NotYet, match="once"):
        sensor.read()

    def again() -> list[HostProcess]:
        try:
            return sensor.read()
        except NotYet:
            return []

    return again


def named(pid: int) -> Callable[[list[HostProcess]], bool]:
    return lambda found: any(each.process.pid == pid for each in found)


def test_a_hog_is_named_with_where_it_may_run_until_it_has_gone(read: Reader) -> None:
    with running(HOG, HOSTILE) as hog:
        found = until(read, named(hog.pid))
        (it,) = (each for each in found if each.process.pid == hog.pid)
        assert it.cpu_pct is not None
        assert 5 <= it.cpu_pct < 130
        assert (it.cpus, it.nice) == (str(LAST), os.nice(0) + 1)
        assert it.rss_bytes is not None
        assert it.rss_bytes > 4 << 20
        assert it.process.parents[0] == os.getpid()
        assert it.process.command == f"{Path(sys.executable).name} -c"
        rates = [each.cpu_pct for each in found if each.cpu_pct is not None]
        assert rates == sorted(rates, reverse=True)
        figures = HostFigures(processes=found)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(figures), type=HostFigures) == figures
    until(read, lambda found: not named(hog.pid)(found))


def test_one_that_was_idle_is_noticed_when_it_begins(read: Reader) -> None:
    with running(program("import sys", then="\nsys.stdin.readline()" + SPIN)) as process:
        with running(program(then=SPIN)) as busy:
            assert not named(process.pid)(until(read, named(busy.pid)))
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        until(read, named(process.pid))
