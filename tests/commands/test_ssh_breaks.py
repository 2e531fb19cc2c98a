"""A run behind ssh that is not there yet, ends, is killed, or is out of reach: each is told as what it is."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")
from ddpmon.commands.target import reached
from ddpmon.report.summary_line import summary_line
from ddpmon.snapshot import Snapshot
from ddpmon.watcher.observer import Observer
from tests.commands.served_runs import remote_ddpmon, serve_runs
from tests.commands.sshd import Server, real_ssh
from tests.live import watch_until


@dataclass
class Host:
    """A host behind ssh, and where its runs are announced."""

    server: Server
    there: Path


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    there, here = tmp_path_factory.mktemp("there"), tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patch, real_ssh(tmp_path_factory.mktemp("ssh")) as server:
        patch.setenv("XDG_RUNTIME_DIR", str(here))
        patch.setattr("tempfile.tempdir", str(here))
        patch.setenv("DDPMON_SSH", server.ssh)
        patch.setenv("DDPMON_REMOTE", remote_ddpmon(there))
        yield Host(server, there)


@contextmanager
def watching(host: Host, target: str | None = None) -> Iterator[Observer]:
    """What `ddpmon watch --ssh` reads from."""
    with (
        reached(target, ssh=host.server.login, waits=True) as route,
        closing(Observer(route.target, route.way)) as observer,
    ):
        yield observer


def state_of(seen: Snapshot) -> str:
    return "" if seen.run is None else seen.run.state


def test_a_run_is_waited_for_and_the_next_one_is_followed_when_it_was_killed(host: Host) -> None:
    with watching(host) as observer:
        seen = watch_until(observer, lambda seen: seen.link.state == "waiting")
        assert f"there is no run on {host.server.login} yet" in seen.link.message
        run, _ = serve_runs(host.there, "gpt")
        watch_until(observer, lambda seen: seen.link.state == "live")
        run.end()
        seen = watch_until(observer, lambda seen: seen.link.state == "gone")
        assert state_of(seen) == "killed"
        assert "the run was killed or crashed: rank 0" in seen.link.message
        again, _ = serve_runs(host.there, "bert")
        seen = watch_until(observer, lambda seen: seen.link.state == "live")
        assert seen.run is not None
        assert seen.run.name == "bert"
        assert "another run has started here: bert" in seen.link.message
        again.send_signal(signal.SIGTERM)
        seen = watch_until(observer, lambda seen: seen.link.state == "gone")
        assert state_of(seen) == "finished"
        assert seen.link.message == "the run has ended; this is its last state"
        again.end()


def test_a_connection_that_breaks_is_no_end_of_the_run(host: Host) -> None:
    run, _ = serve_runs(host.there, "gpt")
    try:
        with watching(host, "gpt") as observer:
            watch_until(observer, lambda seen: seen.link.state == "live")
            kill_ssh()
            seen = watch_until(observer, lambda seen: seen.link.state == "silent")
            assert f"the ssh connection to {host.server.login} is down" in seen.link.message
            assert state_of(seen) == "running"
            watch_until(observer, lambda seen: seen.link.state == "live")
            host.server.stop()
            seen = watch_until(observer, lambda seen: "Connection refused" in seen.link.message)
            assert seen.link.state == "silent"
            assert "is down (Connection refused); trying again" in seen.link.message
            assert "not seen since step 119" in summary_line(seen)
            assert "Connection refused" in summary_line(seen)
            host.server.start()
            seen = watch_until(observer, lambda seen: seen.link.state == "live")
            assert state_of(seen) == "running"
    finally:
        if host.server.process is None:
            host.server.start()
        run.end()


def kill_ssh() -> None:
    """Kill the ssh that holds the connection."""
    for child in psutil.Process().children():
        if child.name() == "ssh":
            child.kill()


def test_an_address_without_a_ddpmon_there_says_no_more_than_is_known(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, (url,) = serve_runs(host.there, "gpt")
    monkeypatch.setenv("DDPMON_REMOTE", "no-such-command")
    with watching(host, url) as observer:
        watch_until(observer, lambda seen: seen.link.state == "live")
        run.end()
        seen = watch_until(observer, lambda seen: seen.link.state == "gone")
        assert f"no store at {url} on {host.server.login}: Connection refused" in seen.link.message
        assert "; the run may go on" in seen.link.message
        assert "not seen since step 119" in summary_line(seen)
