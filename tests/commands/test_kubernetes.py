"""Runs in the pods of a job of Kubernetes, through a stand-in for kubectl that leads to real stores; and `--job`."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from ddpmon.commands.ls import ls
from ddpmon.commands.status import status
from ddpmon.commands.target import reached
from ddpmon.probe.job_ids import job_ids
from ddpmon.store.discovery import Announcement, announce
from ddpmon.watcher.observer import Observer
from tests.commands.served_runs import ROOT, host_with_runs
from tests.live import watch_until

Printed = pytest.CaptureFixture[str]
JOBSET, PYTORCHJOB = "jobset.sigs.k8s.io/jobset-name", "training.kubeflow.org/job-name"


@dataclass
class Cluster:
    """What the stand-in tells and leads to.

    Attributes:
        folder: where it is installed.
    """

    folder: Path
    pods: list[dict[str, Any]] = field(default_factory=list)

    def pod(self, name: str, job: str, phase: str, namespace: str = "default", label: str = JOBSET) -> Path:
        """A pod, with the folder in which its runs are announced."""
        home = self.folder / name
        home.mkdir(mode=0o700, exist_ok=True)
        metadata = {"name": name, "namespace": namespace, "labels": {label: job}, "uid": "ignored"}
        places = {"XDG_RUNTIME_DIR": str(home), "TMPDIR": str(home)}
        self.pods = [pod for pod in self.pods if pod["metadata"]["name"] != name]
        self.pods.append({"metadata": metadata, "status": {"phase": phase}, "environment": places})
        (self.folder / "pods.json").write_text(json.dumps({"items": self.pods}))
        return home


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    folder, here = tmp_path / "cluster", tmp_path / "here"
    for path in (folder, here):
        path.mkdir(mode=0o700)
    program = folder / "kubectl"
    program.write_text(f"#!{sys.executable}\n{(ROOT / 'tests/commands/kubectl_stand_in.py').read_text()}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(here))
    monkeypatch.setattr("tempfile.tempdir", str(here))
    python_path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("DDPMON_REMOTE", f"env PYTHONPATH={shlex.quote(python_path)} {sys.executable} -m ddpmon.cli")
    return Cluster(folder)


@pytest.fixture
def tunnels() -> Iterator[Any]:
    """The processes of `port-forward` that this process has started; none is left at the end."""

    def living() -> list[psutil.Process]:
        children = psutil.Process().children()
        return [each for each in children if "port-forward" in each.cmdline()]

    yield living
    deadline = time.monotonic() + 20
    while living():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def told(job: str, capsys: Printed) -> str:
    """The one line with which `status` ends, and exit code 3."""
    assert status(None, True, None, k8s=job) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    return said.err


def test_the_run_of_a_job_is_waited_for_read_and_its_end_is_told(
    cluster: Cluster, capsys: Printed, tunnels: Any
) -> None:
    cluster.pod("gpt-0", "gpt", "Pending", "team")
    home = cluster.pod("gpt-1", "gpt", "Pending", "team")
    cluster.pod("other-0", "other", "Running", "team")
    assert "job team/gpt has 2 pods: 2 Pending; its run has not started" in told("team/gpt", capsys)
    with reached(None, k8s="team/gpt", waits=True) as route, closing(Observer(route.target, route.way)) as observer:
        watch_until(observer, lambda seen: "2 Pending" in seen.link.message)
        cluster.pod("gpt-0", "gpt", "Running", "team")
        cluster.pod("gpt-1", "gpt", "Running", "team")
        watch_until(observer, lambda seen: seen.link.message.endswith("2 Running, and there is no run in them yet"))
        with host_with_runs(home, "gpt"):
            seen = watch_until(observer, lambda seen: seen.link.state == "live")
            assert seen.run is not None
            assert seen.run.name == "gpt"
            tunnels()[0].kill()
            watch_until(observer, lambda seen: "the tunnel of kubectl to pod gpt-1 is down" in seen.link.message)
            watch_until(observer, lambda seen: seen.link.state == "live")
            assert status(None, True, None, k8s="team/gpt") == 0
            assert json.loads(capsys.readouterr().out)["run"]["name"] == "gpt"
            assert ls(None, None, False, False, k8s="team/gpt") == 0
            assert "ddpmon watch --k8s team/gpt gpt-2026" in capsys.readouterr().out
            cluster.pod("gpt-0", "gpt", "Succeeded", "team")
            cluster.pod("gpt-1", "gpt", "Failed", "team")
        seen = watch_until(observer, lambda seen: seen.link.state == "gone")
        assert seen.run is not None
        assert seen.run.state == "failed"
        assert "job team/gpt has 2 pods: 1 Succeeded, 1 Failed" in seen.link.message
    assert "there is nothing to watch in its pods" in told("team/gpt", capsys)


@pytest.mark.usefixtures("tunnels")
def test_a_pod_that_cannot_be_asked_does_not_hide_the_run_of_another(cluster: Cluster, capsys: Printed) -> None:
    cluster.pod("gpt-0", "gpt", "Running")
    cluster.pods[0]["environment"]["PATH"] = "/nowhere"
    home = cluster.pod("gpt-1", "gpt", "Running")
    assert "asking pod gpt-0 for its runs failed" in told("gpt", capsys)
    with host_with_runs(home, "gpt"):
        assert ls(None, None, False, True, k8s="gpt") == 0


def test_the_pods_of_a_pytorchjob_are_found_by_its_label(cluster: Cluster, capsys: Printed) -> None:
    cluster.pod("bert-master-0", "bert", "Running", label=PYTORCHJOB)
    assert "job bert has 1 pod: 1 Running, and there is no run in them yet" in told("bert", capsys)


@pytest.mark.usefixtures("tunnels")
def test_a_store_that_the_pod_does_not_reach_is_told(cluster: Cluster, capsys: Printed) -> None:
    home = cluster.pod("gpt-0", "gpt", "Running")
    with host_with_runs(home, "gpt"):
        (file,) = (home / "ddpmon").glob("*.json")
        run = json.loads(file.read_text())
        file.write_text(json.dumps({**run, "url": "tcp://127.0.0.1:1"}))
        assert "no store on the loopback of pod gpt-0, which is where kubectl connects" in told("gpt", capsys)


@pytest.mark.parametrize(
    ("job", "code", "words"),
    [
        ("unknown", 3, "Kubernetes has no pod of a job unknown"),
        ("team/", 2, "'team/' is not a job: --k8s takes [NAMESPACE/]JOB"),
        ("/gpt", 2, "is not a job"),
        ("--help", 2, "is not a job"),
        ("Gpt", 2, "is not a job"),
    ],
)
def test_what_is_no_job_is_told_in_a_sentence(
    cluster: Cluster, job: str, code: int, words: str, capsys: Printed
) -> None:
    cluster.pod("gpt-0", "gpt", "Running")
    assert status(None, True, None, k8s=job) == code
    assert words in capsys.readouterr().err


def test_what_kubectl_refuses_is_told(cluster: Cluster, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    forbidden = 'Error from server (Forbidden): pods is forbidden: User "ann" cannot list resource "pods"'
    (cluster.folder / "refusal").write_text(forbidden)
    assert f"kubectl failed: {forbidden}" in told("gpt", capsys)
    monkeypatch.setenv("PATH", "/nowhere")
    assert "kubectl is not installed here" in told("gpt", capsys)
    assert status(None, True, None, ssh="host", k8s="gpt") == 2
    assert "--ssh, --slurm and --k8s exclude each other" in capsys.readouterr().err


def test_a_kubectl_that_says_too_much_or_nothing_is_given_up(
    cluster: Cluster, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cluster.folder / "flood").touch()
    monkeypatch.setattr("ddpmon.commands.kubernetes._MOST_BYTES", 1 << 20)
    assert "the answer of kubectl is far longer than a list of pods (more than 1 MiB)" in told("gpt", capsys)
    (cluster.folder / "flood").rename(cluster.folder / "silence")
    monkeypatch.setattr("ddpmon.commands.kubernetes._LIMIT_S", 0.5)
    assert "kubectl did not answer within 0 s" in told("gpt", capsys)


def test_what_a_tunnel_says_is_kept_in_part_and_in_no_file(cluster: Cluster, tmp_path: Path, tunnels: Any) -> None:
    home = cluster.pod("gpt-0", "gpt", "Running")
    (cluster.folder / "talk").touch()
    with (
        host_with_runs(home, "gpt"),
        reached(None, k8s="gpt", waits=True) as route,
        closing(Observer(route.target, route.way)) as observer,
    ):
        watch_until(observer, lambda seen: seen.link.state == "live")
        assert tunnels()
        assert [*(tmp_path / "here").iterdir()] == []


def test_a_job_is_known_by_what_schedulers_and_launchers_call_it() -> None:
    array = {"SLURM_JOB_ID": "4713", "SLURM_ARRAY_JOB_ID": "4711", "SLURM_ARRAY_TASK_ID": "2"}
    assert job_ids(array | {"TORCHELASTIC_RUN_ID": "none"}) == {"slurm": "4711_2"}
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAME": "gpt-0", "SKYPILOT_TASK_ID": "sky-7"}
    assert job_ids(pod | {"TORCHELASTIC_RUN_ID": "run-3"}) == {
        "torchelastic": "run-3",
        "skypilot": "sky-7",
        "pod": "gpt-0",
    }
    assert job_ids({}) == {}


@pytest.mark.usefixtures("cluster")
def test_a_run_on_this_host_is_found_by_its_job(capsys: Printed) -> None:
    for name, jobs in (("gpt", {"slurm": "4711"}), ("bert", {"slurm": "4712", "torchelastic": "night"})):
        announce(
            Announcement(
                run_id=f"{name}-20260101-000000-ab12",
                name=name,
                url="tcp://127.0.0.1:1",
                pid=os.getpid(),
                host="node0",
                world_size=2,
                started_at=time.time(),
                jobs=jobs,
            )
        )
    with reached(None, job="night") as route:
        assert route.target == "tcp://127.0.0.1:1/bert-20260101-000000-ab12"
    with reached("gpt", job="4711") as route:
        assert route.target == "tcp://127.0.0.1:1/gpt-20260101-000000-ab12"
    assert ls(None, None, True, True) == 0
    assert [run["jobs"] for run in json.loads(capsys.readouterr().out)["runs"]].count({"slurm": "4711"}) == 1
    for target, job in ((None, "4713"), ("gpt", "night")):
        assert status(target, True, None, job=job) == 3
        assert f"no run of job {job} on this host" in capsys.readouterr().err
