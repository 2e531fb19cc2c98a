"""Runs of a Slurm job: a real cluster of two hosts, whose hosts a real sshd on loopback answers for."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("torch")
from ddpmon.commands.ls import ls
from ddpmon.commands.status import status
from ddpmon.commands.target import reached
from ddpmon.watcher.observer import Observer
from tests.commands.served_runs import ROOT, remote_ddpmon
from tests.commands.slurm_cluster import Cluster, slurm
from tests.commands.sshd import real_ssh
from tests.live import watch_until

Printed = pytest.CaptureFixture[str]


@dataclass
class Site:
    """A cluster, and how a job of it serves a run that nobody outside of the job finds."""

    cluster: Cluster
    there: Path
    ssh: str

    def serve(self, name: str, *options: str, before: str = "") -> str:
        """The number of a job in which the run `name` trains once the shell's command `before` has ended."""
        places = f"XDG_RUNTIME_DIR={self.there} TMPDIR={self.there} PYTHONPATH={ROOT}"
        script = (
            f"cd {ROOT}; {before or 'true'}; exec env {places} {sys.executable} -m tests.commands.served_runs {name}"
        )
        return self.cluster.submit(script, *options)

    def output(self, number: str) -> str:
        """What a job has printed."""
        file = self.cluster.folder / f"{number}.out"
        return file.read_text() if file.exists() else ""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    there, here = tmp_path_factory.mktemp("there"), tmp_path_factory.mktemp("here")
    there.chmod(0o700)
    with (
        pytest.MonkeyPatch.context() as patch,
        real_ssh(tmp_path_factory.mktemp("ssh")) as server,
        slurm(tmp_path_factory.mktemp("slurm")) as cluster,
    ):
        patch.setenv("XDG_RUNTIME_DIR", str(here))
        patch.setattr("tempfile.tempdir", str(here))
        patch.setenv("DDPMON_SSH", f"{server.ssh} -o HostName=127.0.0.1")
        patch.setenv("DDPMON_REMOTE", f"true greeting && {remote_ddpmon(there)}")  # a shell's command, not a program
        patch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
        yield Site(cluster, there, server.ssh)


@pytest.fixture(autouse=True)
def idle(site: Site) -> Iterator[None]:
    """Every test has the hosts for itself."""
    yield
    site.cluster.clear()


def told(number: str, capsys: Printed) -> str:
    """The one line with which `status` ends, and exit code 3."""
    assert status(None, True, None, slurm=number) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    return said.err


def test_the_run_of_a_job_is_waited_for_read_and_its_end_is_told(site: Site, capsys: Printed, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    blocker = site.cluster.submit("sleep 600", "--nodes=2")
    site.cluster.until_state(blocker, "RUNNING")
    number = site.serve(
        "gpt", "--nodelist=node8", before=f"while [ ! -e {shlex.quote(str(gate))} ]; do sleep 0.1; done"
    )
    assert f"job {number} is PENDING" in (said := told(number, capsys))
    assert "; its run has not started" in said
    with reached(None, slurm=number, waits=True) as route, closing(Observer(route.target, route.way)) as observer:
        watch_until(observer, lambda seen: seen.link.message.startswith(f"job {number} is PENDING"))
        site.cluster.cancel(blocker)
        watch_until(observer, lambda seen: seen.link.message.startswith(f"job {number} has been running for "))
        assert "there is no run on its hosts yet" in told(number, capsys)
        gate.touch()
        seen = watch_until(observer, lambda seen: seen.link.state == "live")
        assert seen.run is not None
        assert seen.run.name == "gpt"
        is_found(number, capsys)
        site.cluster.cancel(number)
        seen = watch_until(observer, lambda seen: seen.link.state == "gone")
        assert seen.run is not None
        assert seen.run.state == "cancelled"
        assert seen.link.message == f"the run has ended: job {number} is CANCELLED; this is its last state"
    assert f"job {number} is CANCELLED; there is nothing to watch on its hosts" in told(number, capsys)


def is_found(number: str, capsys: Printed) -> None:
    """`status` and `ls` show the run of the job."""
    assert status(None, True, None, slurm=number) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert run["name"] == "gpt"
    assert run["source"].endswith(" on node0"), "that is what the run calls its host"
    assert ls(None, None, False, False, number) == 0
    row = capsys.readouterr().out.splitlines()[1]
    assert f"ddpmon watch --slurm {number} gpt-2026" in row


def test_a_run_on_any_host_of_a_job_is_found(site: Site, capsys: Printed) -> None:
    number = site.cluster.submit("sleep 600", "--nodes=2")
    site.cluster.until_state(number, "RUNNING")
    assert "there is no run on its hosts yet" in told(number, capsys)


def test_a_run_of_another_job_on_the_same_host_is_not_shown(site: Site, capsys: Printed) -> None:
    other = site.serve("gpt", "--nodelist=node7")
    while "tcp://" not in site.output(other):
        time.sleep(0.1)
    number = site.cluster.submit("sleep 600", "--nodelist=node8")
    site.cluster.until_state(number, "RUNNING")
    assert "there is no run on its hosts yet" in told(number, capsys), "node7 and node8 are one machine"
    is_found(other, capsys)


def test_the_only_task_of_an_array_is_found_by_the_number_of_the_array(site: Site, capsys: Printed) -> None:
    number = site.serve("gpt", "--array=3", f"--output={site.cluster.folder}/%A.out")
    while "tcp://" not in site.output(number):
        time.sleep(0.1)
    is_found(number, capsys)


def test_a_job_of_several_names_them(site: Site, capsys: Printed) -> None:
    number = site.cluster.submit("sleep 600", "--array=1-2")
    site.cluster.until_state(f"{number}_1", "RUNNING")
    site.cluster.until_state(f"{number}_2", "RUNNING")
    assert status(None, True, None, slurm=number) == 2
    said = capsys.readouterr().err
    assert f"{number}_1" in said
    assert f"{number}_2" in said
    assert f"job {number}_2 has been running for" in told(f"{number}_2", capsys)


def test_another_users_job_is_told_as_such(site: Site, capsys: Printed) -> None:
    number = site.cluster.submit("true", "--uid=nobody", "--hold", "--chdir=/tmp")
    assert status(None, True, None, slurm=number) == 2
    assert f"job {number} is nobody's: Slurm lets nobody else look at its hosts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        ("999999", 3, "Slurm does not know job 999999"),
        ("gpt", 2, "is not a Slurm job"),
        ("--help", 2, "is not a Slurm job"),
    ],
)
@pytest.mark.usefixtures("site")
def test_what_is_no_job_is_told_in_a_sentence(number: str, code: int, words: str, capsys: Printed) -> None:
    assert status(None, True, None, slurm=number) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert len(said.err.splitlines()) == 1


def test_a_host_that_ssh_cannot_reach_is_told_with_the_way_that_is_left(
    site: Site, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = site.serve("bert", "--nodelist=node7")
    monkeypatch.setenv("DDPMON_SSH", f"{site.ssh.replace('/key', '/host_key')} -o HostName=127.0.0.1")
    while "tcp://" not in site.output(number):
        time.sleep(0.1)
    said = told(number, capsys)
    assert "Permission denied (publickey)" in said
    assert f"srun --jobid={number} --overlap -N1 -n1 -w node0 --pty ddpmon watch" in said
