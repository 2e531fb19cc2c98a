"""A host that asks for a password: a real sshd, a real user, and a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("torch")
from tests.commands.person import person
from tests.commands.served_runs import host_with_runs, remote_ddpmon
from tests.commands.sshd import PASSWORD, Server, real_ssh

ASKS = "'s password:"


@dataclass
class Locked:
    """A host that asks: its server, how ddpmon gets there, and a folder for temporary files that is empty."""

    server: Server
    environment: dict[str, str]
    own: Path


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    """A host where the run gpt trains."""
    folder, own = tmp_path_factory.mktemp("there"), tmp_path_factory.mktemp("own")
    with real_ssh(tmp_path_factory.mktemp("ssh"), password=True) as server, host_with_runs(folder, "gpt"):
        ways = {"DDPMON_SSH": server.ssh, "DDPMON_REMOTE": remote_ddpmon(folder)}
        yield Locked(server, {**ways, "TMPDIR": str(own), "XDG_RUNTIME_DIR": str(own)}, own)


def test_a_password_is_asked_for_once_and_why_is_said(locked: Locked) -> None:
    before = locked.server.log().count("Accepted password")
    with person("status", "--ssh", locked.server.login, environment=locked.environment) as someone:
        said = someone.reads(ASKS)
        assert f"ssh logs in to {locked.server.login}; if a password is needed, it is asked for once" in said
        someone.types("something else\n")
        someone.reads(ASKS)  # again after a wrong one
        someone.types(f"{PASSWORD}\n")
        assert someone.ends() == 0
    assert "gpt   running" in someone.written
    assert someone.written.count(ASKS) == 2
    assert locked.server.log().count("Accepted password") == before + 1
    assert not list(locked.own.iterdir()), "no socket and no folder is left"


def test_who_does_not_want_to_log_in_leaves_nothing_behind(locked: Locked) -> None:
    with person("watch", "--ssh", locked.server.login, environment=locked.environment) as someone:
        someone.reads(ASKS)
        someone.types("\x03")
        assert someone.ends() != 0
    assert "Traceback" not in someone.written
    assert not list(locked.own.iterdir())


def test_a_login_that_breaks_is_told_and_nobody_is_asked_across_the_dashboard(locked: Locked) -> None:
    with person("watch", "--ssh", locked.server.login, environment=locked.environment) as someone:
        someone.reads(ASKS)
        someone.types(f"{PASSWORD}\n")
        someone.reads("RUNNING")
        locked.server.drop()
        someone.reads("SILENT")
        someone.reads("ssh would ask for a password again: quit with q and run the command again")
        assert "GONE" not in someone.written
        failed = locked.server.log().count("Failed password")
        someone.types("q")
        assert someone.ends() == 0
    last = someone.written.rpartition("gpt: ")[2]
    assert last.startswith("not seen since step 119")
    assert f"(the ssh connection to {locked.server.login} is down" in last
    assert someone.written.count(ASKS) == 1
    assert locked.server.log().count("Failed password") == failed
    assert not list(locked.own.iterdir())
