"""A run on a host whose cable is pulled: a real sshd and a real ssh in network namespaces."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from network import Network, network, why_not

pytest.importorskip("torch")
from ddpmon.commands.status import status
from ddpmon.commands.target import reached
from ddpmon.watcher.observer import Observer
from tests.commands.served_runs import ROOT, remote_ddpmon
from tests.commands.sshd import Server, real_ssh
from tests.live import watch_until

SERVER, CLIENT = 0, 1
IMPATIENT = "-o ServerAliveInterval=1 -o ServerAliveCountMax=2 -o ConnectTimeout=3"  # the same as without, but sooner

why = why_not()
pytestmark = pytest.mark.skipif(bool(why), reason=why)


@dataclass
class Cabled:
    """A host with a run on it, and the network that it hangs on."""

    net: Network
    server: Server


@pytest.fixture(scope="module")
def cabled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cabled]:
    there, here = tmp_path_factory.mktemp("there"), tmp_path_factory.mktemp("here")
    there.chmod(0o700)
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        net = stack.enter_context(network(2))
        inside, client = net.enter(SERVER), net.enter(CLIENT)
        folder = tmp_path_factory.mktemp("ssh")
        server = stack.enter_context(real_ssh(folder, address=net.address(SERVER), inside=inside, client_inside=client))
        stack.enter_context(served(inside, there))
        patch.setenv("XDG_RUNTIME_DIR", str(here))
        patch.setattr("tempfile.tempdir", str(here))
        patch.setenv("DDPMON_SSH", f"{server.ssh} {IMPATIENT}")
        patch.setenv("DDPMON_REMOTE", remote_ddpmon(there))
        yield Cabled(net, server)


@contextlib.contextmanager
def served(inside: list[str], folder: Path) -> Iterator[None]:
    """The run gpt, on loopback of that host."""
    places = {"XDG_RUNTIME_DIR": str(folder), "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    command = [*inside, sys.executable, "-m", "tests.commands.served_runs", "gpt"]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **places}, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline().startswith(b"tcp://127.0.0.1:")
        try:
            yield
        finally:
            run.kill()


def test_a_link_that_is_down_for_a_while_is_told_and_the_picture_comes_back(cabled: Cabled) -> None:
    with (
        reached(None, ssh=cabled.server.login, waits=True) as route,
        closing(Observer(route.target, route.way)) as observer,
    ):
        watch_until(observer, lambda seen: seen.link.state == "live")
        cabled.net.cut(SERVER)
        try:
            watch_until(observer, lambda seen: seen.link.state == "silent")
            seen = watch_until(observer, lambda seen: "trying again" in seen.link.message)
            assert seen.link.state == "silent"
            assert f"the ssh connection to {cabled.server.login} is down (" in seen.link.message
            assert seen.run is not None
            assert seen.run.state == "running", "nobody knows better"
        finally:
            cabled.net.restore(SERVER)
        watch_until(observer, lambda seen: seen.link.state == "live")


def test_a_host_that_swallows_what_is_sent_is_told(cabled: Cabled, capsys: pytest.CaptureFixture[str]) -> None:
    cabled.net.cut(SERVER)
    try:
        assert status(None, True, None, ssh=cabled.server.login) == 3
    finally:
        cabled.net.restore(SERVER)
    said = capsys.readouterr().err
    assert f"could not log in to {cabled.server.login}: ssh: connect to host" in said
    assert "timed out" in said or "No route to host" in said
