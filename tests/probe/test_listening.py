"""Where rank 0's store listens with DDPMON_LISTEN, and what is said to whom, in a container and outside of it."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("torch")
from network import network, why_not

from ddpmon.store.base import StoreUnavailable, TargetError
from ddpmon.store.connect import connect, list_runs, parse_target
from ddpmon.store.discovery import discover, told_of_containers
from tests.probe.lone_uplink import lone_uplink
from tests.probe.probe_ranks import private_runs
from tests.ranks import ROOT

WRONG = (
    r"no store can be hosted here: .*requested address \(DDPMON_LISTEN='192.0.2.1' must name an address of this host\)"
)
CANNOT = why_not() or ("" if shutil.which("unshare") else "no unshare")
needs_containers = pytest.mark.skipif(CANNOT != "", reason=CANNOT or "-")


@pytest.fixture(autouse=True)
def _private(tmp_path: Path) -> Iterator[None]:
    with private_runs(tmp_path):
        yield


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    "text", ["0.0.0.0:", ":29480", "0.0.0.0:0", "0.0.0.0:65536", "0.0.0.0:http", "a b", "tcp://h:1", "[::1", "1:2:3:zz"]
)
def test_a_place_that_makes_no_sense_is_one_sentence(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDPMON_LISTEN", text)
    form = r"HOST\[:PORT\], with an address of this host or 0.0.0.0 for all of them, such as 0.0.0.0:29480"
    with pytest.raises(TargetError, match=f"^DDPMON_LISTEN={re.escape(repr(text))} is not {form}$"):
        lone_uplink("nonsense")


def test_only_loopback_listens_unless_more_is_asked_for(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    listens = {}
    for text in ("", f"0.0.0.0:{port}", f"127.0.0.2:{port}"):
        monkeypatch.setenv("DDPMON_LISTEN", text)
        with closing(lone_uplink("places")) as uplink:
            assert uplink.connect()
            (run,) = discover()
            at = urlsplit(run.url).port
            assert not text or at == port
            listens[text] = [reached(f"127.0.0.{last}", at) for last in (1, 2, 3)]
    assert [*listens.values()] == [[True, False, False], [True, True, True], [False, True, False]]


def reached(host: str, port: int | None) -> bool:
    try:
        connect(parse_target(f"tcp://{host}:{port}")).close()
    except StoreUnavailable:
        return False
    return True


def test_a_port_that_was_asked_for_and_an_address_of_another_host_are_said_once(
    port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DDPMON_LISTEN", f"127.0.0.1:{port}")
    with closing(lone_uplink("taken")) as uplink:
        with socket.create_server(("127.0.0.1", port)):
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match=f"port {port}, which DDPMON_LISTEN asks for, is taken"):
                    uplink.connect()
        assert uplink.connect(), "it is tried again"
    assert capsys.readouterr().err.count("; training goes on unwatched") == 1
    monkeypatch.setenv("DDPMON_LISTEN", "192.0.2.1")
    with (
        closing(lone_uplink("elsewhere")) as uplink,
        pytest.raises(StoreUnavailable, match=WRONG),
    ):
        uplink.connect()


def test_a_name_of_loopback_in_a_run_on_several_hosts_is_said_and_tried_again(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    monkeypatch.setenv("DDPMON_LISTEN", f"127.1:{port}")
    with (
        closing(lone_uplink("names")) as uplink,
        pytest.raises(StoreUnavailable, match=f"DDPMON_LISTEN='127.1:{port}' is loopback"),
    ):
        uplink.connect()


@contextmanager
def contained(enter: list[str], listen: str) -> Iterator[str]:
    """A run in a pid namespace of its own, with the folders of this host; the line that its rank 0 says."""
    command = [*enter, "unshare", "--pid", "--fork", "--mount-proc", "env", f"DDPMON_LISTEN={listen}"]
    process = subprocess.Popen(
        [*command, sys.executable, "-m", "tests.probe.contained"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        yield process.stderr.readline()
    finally:
        process.communicate()


@needs_containers
def test_a_run_in_a_container_is_watched_from_outside_as_its_line_says() -> None:
    with network(2) as net, contained(net.enter(0), "0.0.0.0:29480") as said:
        address = f"tcp://{net.address(0)}:29480"
        assert said == (
            "ddpmon: to watch this run: ddpmon watch contained (inside this container; outside of it: ddpmon watch "
            f"{address}, or the host's port that you have published for 29480)\n"
        )
        look = [*net.enter(1), sys.executable, "-m", "ddpmon.cli", "status", "--json", "--for", "0", address]
        done = subprocess.run(look, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["coverage"]["reporting"] == 1
        assert discover() == []
        assert told_of_containers() == (
            f"run contained is in a container that shares a folder with this host: ddpmon watch {address}"
        )


@needs_containers
def test_a_container_with_the_network_of_its_host_is_read_by_its_address() -> None:
    with contained([], "") as said:
        (url,) = re.findall(
            r"outside of it: ddpmon watch (tcp://127\.0\.0\.1:\d+) if it shares the host's network", said
        )
        assert "else start it with DDPMON_LISTEN=0.0.0.0:29480 and publish that port" in said
        assert told_of_containers().endswith(f": ddpmon watch {url}")
        with closing(connect(parse_target(url))) as store:
            assert len(list_runs(store)) == 1
