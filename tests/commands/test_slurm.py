"""Runs of a Slurm job, found with stand-ins for Slurm's commands that behave as release 22.05 was seen to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
from ddpmon.commands.status import status
from tests.commands.served_runs import host_with_runs, remote_ddpmon
from tests.commands.sshd import STAND_IN

Printed = pytest.CaptureFixture[str]
SQUEUE = """
case "$*" in
*--jobs=4711\\ *) echo "RUNNING 4711 4711 node[7-8]" ;;
*--jobs=4712\\ *) echo "PENDING 4712 4712 " ;;
*--jobs=4713\\ *) echo "RUNNING 4714 4713_1 node7"; echo "RUNNING 4715 4713_2 node8" ;;
*--jobs=4716\\ *) echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1 ;;
*) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1 ;;
esac
"""
SCONTROL = '[ "$*" = "show hostnames node[7-8]" ] && printf "node7\\nnode8\\n"'
SRUN = """
echo "$*" >> "{log}"
for word; do shift; case "$word" in sh) break ;; --nodelist=*) nodes=${{word#--nodelist=}} ;; esac; done
[ "$nodes" = "{holds}" ] || exec sh -c 'echo "{{\\"schema_version\\": 1, \\"runs\\": []}}"; exit 3'
exec sh "$@"
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of commands: job 4711 runs on node7 and node8, where the run gpt is."""
    folder, here, commands = (tmp_path_factory.mktemp(name) for name in ("nodes", "here", "commands"))
    with pytest.MonkeyPatch.context() as patch, host_with_runs(folder, "gpt"):
        patch.setenv("XDG_RUNTIME_DIR", str(here))
        patch.setattr("tempfile.tempdir", str(here))
        patch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
        patch.setenv("DDPMON_SSH", STAND_IN)
        patch.setenv("DDPMON_REMOTE", remote_ddpmon(folder))
        write(commands, "squeue", SQUEUE)
        write(commands, "scontrol", SCONTROL)
        yield commands


@pytest.fixture(params=["node7", "node7,node8"])
def holder(job: Path, request: pytest.FixtureRequest) -> Path:
    """What srun was told, where the first node answers for the run, or only all together do."""
    log = job / "srun.log"
    log.unlink(missing_ok=True)
    write(job, "srun", SRUN.format(log=log, holds=request.param))
    return log


def write(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script.strip()}\n")
    (folder / name).chmod(0o755)


def test_the_run_of_a_job_is_found_on_its_nodes_and_read_through_a_tunnel(holder: Path, capsys: Printed) -> None:
    assert status(None, True, None, slurm="4711") == 0
    assert json.loads(capsys.readouterr().out)["run"]["name"] == "gpt"
    asked = holder.read_text().splitlines()
    assert all("--jobid=4711 --overlap" in line for line in asked)
    assert "--nodes=1 " in asked[0]
    assert "--nodelist=node7 " in asked[0]


def test_a_host_whose_name_a_shell_would_read_is_quoted_in_the_way_that_is_left(
    job: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {"id": "gpt", "url": "tcp://127.0.0.1:9", "host": "$(id)"}
    listing = json.dumps({"schema_version": 1, "runs": [run]})
    write(job, "srun", f"cat <<'END'\n{listing}\nEND")
    monkeypatch.setenv("DDPMON_SSH", "sh -c 'exit 255'")
    assert status(None, True, None, slurm="4711") == 3
    assert " -w '$(id)' --pty ddpmon watch" in capsys.readouterr().err


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        ("4712", 3, "job 4712 is PENDING"),
        ("4713", 2, "4713_1, 4713_2"),
        ("4716", 3, "Unable to contact slurm controller"),
        ("9", 3, "Slurm does not know job 9"),
        ("gpt", 2, "is not a Slurm job"),
        ("--help", 2, "is not a Slurm job"),
    ],
)
def test_a_job_that_cannot_be_watched_is_told_in_a_sentence(
    number: str, code: int, words: str, capsys: Printed
) -> None:
    assert status(None, True, None, slurm=number) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert len(said.err.splitlines()) == 1


def test_a_node_that_ssh_cannot_reach_is_told_with_the_way_that_is_left(
    job: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(job, "srun", SRUN.format(log=job / "srun.log", holds="node7"))
    monkeypatch.setenv("DDPMON_SSH", "sh -c 'echo Access denied: pam_slurm >&2; exit 255'")
    assert status(None, True, None, slurm="4711") == 3
    said = capsys.readouterr().err
    assert "Access denied: pam_slurm" in said
    assert "srun --jobid=4711 --overlap" in said


def test_a_host_without_slurm_is_told_in_a_sentence(
    tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert status(None, True, None, slurm="4711") == 3
    assert "squeue is not installed here" in capsys.readouterr().err
