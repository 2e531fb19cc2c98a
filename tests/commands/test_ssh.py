"""Runs on another host: found, listed and watched through ssh, a real one where there is an sshd."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")
from ddpmon.commands.ls import ls
from ddpmon.commands.status import status
from ddpmon.commands.tunnel import Tunnel
from ddpmon.store.base import RUNS_KEY, StoreUnavailable
from ddpmon.store.connect import connect, parse_target
from tests.commands.served_runs import ROOT, host_with_runs, remote_ddpmon
from tests.commands.sshd import STAND_IN, real_ssh

HOLD = """
import sys, time
from ddpmon.commands.tunnel import Tunnel
from ddpmon.store.connect import parse_target
tunnel = Tunnel(sys.argv[1], parse_target(sys.argv[2]))
tunnel.open()
print(tunnel.url, flush=True)
time.sleep(600)
"""


@dataclass
class Other:
    """Another host: how to log in, where its user's files are, and its runs' stores."""

    login: str
    folder: Path
    urls: list[str]


@pytest.fixture(scope="module", params=["sshd", "stand-in"])
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Other]:
    """A host with the runs gpt and bert, which a look at this host's own files does not find."""
    folder, here = tmp_path_factory.mktemp("other"), tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(here))
        patch.setattr("tempfile.tempdir", str(here))
        patch.setenv("DDPMON_REMOTE", remote_ddpmon(folder))
        if request.param == "sshd":
            with (
                real_ssh(tmp_path_factory.mktemp("ssh")) as (ssh, login),
                host_with_runs(folder, "gpt", "bert") as urls,
            ):
                patch.setenv("DDPMON_SSH", ssh)
                yield Other(login, folder, urls)
        else:
            patch.setenv("DDPMON_SSH", STAND_IN)
            with host_with_runs(folder, "gpt", "bert") as urls:
                yield Other("ada@node0", folder, urls)


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE}


def test_a_run_is_found_there_by_name_and_read_through_a_tunnel(
    other: Other, capsys: pytest.CaptureFixture[str]
) -> None:
    before = children()
    assert status("gpt", True, None, ssh=other.login) == 0
    seen = json.loads(capsys.readouterr().out)
    assert (seen["run"]["name"], seen["run"]["step"]) == ("gpt", 119)
    assert [finding["ranks"] for finding in seen["findings"] if finding["kind"] == "straggler"] == [[1]]
    assert seen["run"]["source"] not in other.urls, "another port of this host leads there"
    assert children() == before, "the tunnel ends with the command"


def test_the_runs_there_are_listed_with_how_to_watch_each(other: Other, capsys: pytest.CaptureFixture[str]) -> None:
    assert ls(None, other.login, False, True) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["name", "state", "ranks"]
    assert {row.split()[0] for row in rows} == {"gpt", "bert"}
    assert all(f"ddpmon watch --ssh {other.login} {row.split()[0]}-2026" in row for row in rows)


def test_several_runs_there_are_named_to_choose_from(other: Other, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(None, False, None, ssh=other.login) == 2
    said = capsys.readouterr().err
    assert f"--ssh {other.login} gpt-2026" in said
    assert f"--ssh {other.login} bert-2026" in said


def test_a_run_that_is_not_there_is_3_and_the_others_are_named(
    other: Other, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status("llama", True, None, ssh=other.login) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "no run called 'llama'" in said.err
    assert "gpt-2026" in said.err


def test_a_host_without_ddpmon_is_told_in_a_sentence_and_an_address_needs_none_there(
    other: Other, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDPMON_REMOTE", "no-such-command")
    assert status(None, True, None, ssh=other.login) == 3
    assert "DDPMON_REMOTE" in capsys.readouterr().err
    assert status(other.urls[1], True, None, ssh=other.login) == 0
    assert json.loads(capsys.readouterr().out)["run"]["name"] == "bert"


def test_a_host_without_a_run_is_3(other: Other, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDPMON_REMOTE", remote_ddpmon(tmp_path))
    assert ls(None, other.login, True, True) == 3
    assert status(None, True, None, ssh=other.login) == 3


def test_what_is_no_listing_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDPMON_SSH", STAND_IN)
    for said in ('{"runs": 3}', '{"schema_version": 2, "runs": []}', '{"runs": [{"id": "a"}]}', "{" * 3000):
        monkeypatch.setenv("DDPMON_REMOTE", f"echo '{said}' #")
        assert status(None, True, None, ssh="node0") == 3
        assert "cannot be read here" in capsys.readouterr().err


def test_a_host_that_says_too_much_is_not_listened_to(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDPMON_SSH", STAND_IN)
    monkeypatch.setenv("DDPMON_REMOTE", "yes | head -c 50000000 #")
    assert status(None, True, None, ssh="node0") == 3
    assert "the answer of node0 is far longer than a list of runs" in capsys.readouterr().err
    monkeypatch.setenv("DDPMON_REMOTE", "yes | head -c 30000000 >&2; echo the reason >&2; exit 255 #")
    assert status(None, True, None, ssh="node0") == 3
    assert "could not log in to node0: the reason" in capsys.readouterr().err


def test_a_tunnel_that_breaks_is_taken_up_again_and_leaves_nothing_open(other: Other) -> None:
    files = open_files()
    tunnel = Tunnel(other.login, parse_target(other.urls[0]))
    with closing(tunnel):
        before = children()
        tunnel.open()
        (ssh,) = children() - before
        with closing(connect(parse_target(tunnel.url))) as store:
            assert store.get_many([RUNS_KEY]) != [None]
        psutil.Process(ssh).kill()
        until(lambda: ssh not in children())
        assert not can_be_taken(tunnel.url), "nobody else may answer in its place"
        until(lambda: children() - before - {ssh})
        until(lambda: answers(tunnel.url))
    assert children() == before
    assert can_be_taken(tunnel.url)
    until(lambda: open_files() <= files)


def test_nobody_else_gets_the_port_while_ssh_logs_in(
    other: Other, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDPMON_SSH", STAND_IN)
    monkeypatch.setenv("DDPMON_TEST_GATE", str(tmp_path / "gate"))
    with closing(Tunnel("node0", parse_target(other.urls[0]))) as tunnel:
        opening = threading.Thread(target=tunnel.open)
        opening.start()
        until(lambda: not tunnel.url.endswith(":0"))
        assert not can_be_taken(tunnel.url)
        assert opening.is_alive()
        (tmp_path / "gate").touch()
        opening.join()
        until(lambda: answers(tunnel.url))


def can_be_taken(url: str) -> bool:
    """Whether somebody could listen on this port of loopback."""
    try:
        socket.create_server(("127.0.0.1", parse_target(url).port)).close()
    except OSError:
        return False
    return True


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def answers(url: str) -> bool:
    try:
        with closing(connect(parse_target(url))) as store:
            return store.get_many([RUNS_KEY]) != [None]
    except StoreUnavailable:
        return False


def test_the_tunnel_ends_with_a_watcher_that_is_killed(other: Other) -> None:
    command = [sys.executable, "-c", HOLD, other.login, other.urls[0]]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None
        assert watcher.stdout.readline().startswith("tcp://127.0.0.1:")
        family = psutil.Process(watcher.pid).children(recursive=True)
        assert family
        os.kill(watcher.pid, signal.SIGKILL)
        watcher.wait()
    _, left = psutil.wait_procs(family, timeout=60)
    assert left == []


@pytest.mark.parametrize("host", ["", "-oProxyCommand=true", "two words", "a\nb", "\x1b[2J"])
def test_what_is_no_host_is_usage_and_never_reaches_ssh(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(None, True, None, ssh=host) == 2
    said = capsys.readouterr().err
    assert "is not a host" in said
    assert "\x1b" not in said


def test_a_login_that_fails_and_an_ssh_that_is_not_there_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDPMON_SSH", STAND_IN)
    assert status(None, True, None, ssh="locked.example") == 3
    assert "could not log in to locked.example: locked.example: Permission denied" in capsys.readouterr().err
    assert status("tcp://127.0.0.1:1", True, None, ssh="locked.example") == 3
    assert "no tunnel through locked.example" in capsys.readouterr().err
    monkeypatch.setenv("DDPMON_SSH", "no-such-ssh")
    for target in (None, "tcp://127.0.0.1:1"):
        assert status(target, True, None, ssh="node0") == 3
        assert "no-such-ssh cannot be run" in capsys.readouterr().err


def test_ssh_and_slurm_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(None, True, None, ssh="node0", slurm="1") == 2
    assert "exclude each other" in capsys.readouterr().err
