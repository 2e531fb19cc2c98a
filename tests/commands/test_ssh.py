"""Runs on another host: found, listed and watched through a real sshd on loopback."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")
from ddpmon.commands.ls import ls
from ddpmon.commands.ssh_link import SshLink
from ddpmon.commands.status import status
from ddpmon.store.base import RUNS_KEY, StoreUnavailable
from ddpmon.store.connect import Target, connect, parse_target
from tests.commands.served_runs import ROOT, host_with_runs, remote_ddpmon
from tests.commands.sshd import Server, real_ssh

HOLD = """
import sys, time
from ddpmon.commands.ssh_link import SshLink
from ddpmon.store.connect import parse_target
link = SshLink(sys.argv[1])
link.open()
print(link.forward(parse_target(sys.argv[2])).through.path, flush=True)
time.sleep(600)
"""


@dataclass
class Other:
    """Another host: how to log in, where its user's files are, and its runs' stores."""

    login: str
    folder: Path
    urls: list[str]
    server: Server


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Other]:
    """A host with the runs gpt and bert, which a look at this host's own files does not find."""
    folder, here = tmp_path_factory.mktemp("other"), tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(here))
        patch.setattr("tempfile.tempdir", str(here))
        patch.setenv("DDPMON_REMOTE", remote_ddpmon(folder))
        with real_ssh(tmp_path_factory.mktemp("ssh")) as server, host_with_runs(folder, "gpt", "bert") as urls:
            patch.setenv("DDPMON_SSH", server.ssh)
            yield Other(server.login, folder, urls, server)


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
    assert seen["run"]["source"] == f"{other.urls[0]} on {other.login}", "what was found, not this end of the tunnel"
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
    monkeypatch.setenv("DDPMON_REMOTE", "~/no-such-venv/bin/ddpmon")
    assert status(None, True, None, ssh=other.login) == 3
    said = capsys.readouterr().err
    assert f"DDPMON_REMOTE='~/no-such-venv/bin/ddpmon' cannot be run on {other.login}: " in said
    assert "no-such-venv/bin/ddpmon: not found" in said.lower().replace("no such file or directory", "not found")
    assert status(other.urls[1], True, None, ssh=other.login) == 0
    assert json.loads(capsys.readouterr().out)["run"]["name"] == "bert"
    monkeypatch.setenv("DDPMON_SSH", f"{other.server.ssh} -o SetEnv=PATH=/bin")
    monkeypatch.setenv("DDPMON_REMOTE", "")
    assert status(None, True, None, ssh=other.login) == 3
    assert f"ddpmon is not on the PATH of {other.login}: set DDPMON_REMOTE" in capsys.readouterr().err


def test_a_host_without_a_run_is_3(
    other: Other, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDPMON_REMOTE", remote_ddpmon(tmp_path))
    assert ls(None, other.login, True, True) == 3
    assert status(None, True, None, ssh=other.login) == 3
    assert f"there is no run on {other.login} yet" in capsys.readouterr().err


def test_an_address_where_nobody_listens_is_told_as_it_was_asked(
    other: Other, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    assert status(f"tcp://127.0.0.1:{port}", True, None, ssh=other.login) == 3
    said = capsys.readouterr().err
    assert f"no store at tcp://127.0.0.1:{port} on {other.login}: Connection refused" in said
    assert said.count("tcp://") == 1, "and no port of this end of the tunnel"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_what_is_no_listing_is_refused(
    other: Other, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for said in ('{"runs": 3}', '{"schema_version": 2, "runs": []}', '{"runs": [{"id": "a"}]}', "{" * 3000):
        monkeypatch.setenv("DDPMON_REMOTE", f"echo '{said}' #")
        assert status(None, True, None, ssh=other.login) == 3
        assert "cannot be read here" in capsys.readouterr().err


def test_a_greeting_that_begins_with_a_brace_is_no_listing(
    other: Other, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDPMON_REMOTE", f"echo '{{ welcome }}'; {remote_ddpmon(other.folder)}")
    assert status("gpt", True, None, ssh=other.login) == 0
    assert json.loads(capsys.readouterr().out)["run"]["name"] == "gpt"


def test_a_host_that_says_too_much_is_not_listened_to(
    other: Other, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDPMON_REMOTE", "yes | head -c 50000000 #")
    assert status(None, True, None, ssh=other.login) == 3
    assert f"the answer of {other.login} is far longer than a list of runs" in capsys.readouterr().err
    monkeypatch.setenv("DDPMON_REMOTE", "yes | head -c 30000000 >&2; echo the reason >&2; exit 9 #")
    assert status(None, True, None, ssh=other.login) == 3
    assert "(exit code 9): the reason" in capsys.readouterr().err


def test_a_connection_that_breaks_is_opened_again_and_leaves_nothing_open(other: Other) -> None:
    files = open_files()
    link = SshLink(other.login)
    with closing(link):
        before = children()
        link.open()
        (ssh,) = children() - before
        there = link.forward(parse_target(other.urls[0]))
        with closing(connect(there)) as store:
            assert store.get_many([RUNS_KEY]) != [None]
        assert link.trouble() == ""
        psutil.Process(ssh).kill()
        until(link.trouble)
        assert f"the ssh connection to {other.login} is down" in link.trouble()
        until(lambda: not link.trouble())
        until(lambda: answers(there))
        folder = Path(there.through.path).parent if there.through else Path()
        assert folder.stat().st_mode & 0o077 == 0, "nobody else may use this user's login"
    assert children() == before
    assert not folder.exists()
    until(lambda: open_files() <= files)


def test_one_login_serves_a_whole_command(other: Other, capsys: pytest.CaptureFixture[str]) -> None:
    before = other.server.log().count("Accepted publickey")
    assert status("gpt", True, None, ssh=other.login) == 0
    assert capsys.readouterr().out
    assert other.server.log().count("Accepted publickey") == before + 1


def test_a_connection_that_the_user_shares_is_used_and_stays(
    other: Other, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        shared = shlex.join([*shlex.split(other.server.ssh), "-o", f"ControlPath={folder}/mine"])
        with subprocess.Popen([*shlex.split(shared), "-M", "-N", other.login], stdin=subprocess.DEVNULL) as mine:
            try:
                until(lambda: Path(folder, "mine").exists())
                before = other.server.log().count("Accepted publickey")
                monkeypatch.setenv("DDPMON_SSH", shared)
                assert status("gpt", True, None, ssh=other.login) == 0
                assert capsys.readouterr().out
                assert other.server.log().count("Accepted publickey") == before
                assert mine.poll() is None
                assert [each.name for each in Path(folder).iterdir()] == ["mine"]
            finally:
                mine.terminate()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def answers(there: Target) -> bool:
    try:
        with closing(connect(there)) as store:
            return store.get_many([RUNS_KEY]) != [None]
    except StoreUnavailable:
        return False


def test_the_connection_ends_with_a_watcher_that_is_killed(other: Other) -> None:
    command = [sys.executable, "-c", HOLD, other.login, other.urls[0]]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None
        assert watcher.stdout.readline().startswith("/")
        family = psutil.Process(watcher.pid).children(recursive=True)
        assert family
        os.kill(watcher.pid, signal.SIGKILL)
        watcher.wait()
    _, left = psutil.wait_procs(family, timeout=60)
    assert left == []


def test_a_command_that_is_terminated_leaves_nothing_behind(other: Other) -> None:
    command = [sys.executable, "-m", "ddpmon", "status", "--watch", "--ssh", other.login, "gpt"]
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a long path has no room for a socket's name
        environment = {**os.environ, "TMPDIR": folder}
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as watcher:
            assert watcher.stdout is not None
            assert b"link: live" in watcher.stdout.readline()
            assert list(Path(folder).iterdir()), "its connection has a folder"
            watcher.terminate()
            assert watcher.wait() == -signal.SIGTERM
        assert not list(Path(folder).iterdir())


@pytest.mark.parametrize("host", ["", "-oProxyCommand=true", "two words", "a\nb", "\x1b[2J"])
def test_what_is_no_host_is_usage_and_never_reaches_ssh(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(None, True, None, ssh=host) == 2
    said = capsys.readouterr().err
    assert "is not a host" in said
    assert "\x1b" not in said


def test_a_login_that_fails_and_an_ssh_that_is_not_there_are_told(
    other: Other, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDPMON_SSH", other.server.ssh.replace("/key", "/host_key"))
    for target in (None, "tcp://127.0.0.1:1"):
        assert status(target, True, None, ssh=other.login) == 3
        assert f"ssh could not log in to {other.login}: " in (said := capsys.readouterr().err)
        assert "Permission denied (publickey)" in said
    monkeypatch.setenv("DDPMON_SSH", "no-such-ssh")
    for target in (None, "tcp://127.0.0.1:1"):
        assert status(target, True, None, ssh="node0") == 3
        assert "no-such-ssh cannot be run" in capsys.readouterr().err


def test_a_host_key_that_has_changed_is_told_with_what_to_do(
    other: Other, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = tmp_path / "known"
    key = (other.server.folder / "key.pub").read_text().split()
    port = shlex.split(other.server.ssh)[4]
    known.write_text(f"[127.0.0.1]:{port} {key[0]} {key[1]}\n")
    monkeypatch.setenv("DDPMON_SSH", f"ssh -F /dev/null -p {port} -o UserKnownHostsFile={known}")
    assert status(None, True, None, ssh=other.login) == 3
    said = capsys.readouterr().err
    assert "Host key verification failed" in said
    assert f"(the key known so far is in {known}:1)" in said
    assert f"log in once by hand, which says more: ssh -F /dev/null -p {port}" in said


def test_ssh_and_slurm_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(None, True, None, ssh="node0", slurm="1") == 2
    assert "exclude each other" in capsys.readouterr().err
