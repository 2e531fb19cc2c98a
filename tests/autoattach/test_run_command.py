"""`ddpmon run` itself: it becomes the command, and says in one sentence what keeps a command from being watched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddpmon.commands.run import environment_of, ignoring, what_prevents
from tests.ranks import ROOT
from tests.tui.test_terminal import terminal


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ddpmon.cli", "run", *arguments],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, **variables},
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


def test_it_becomes_the_command_with_its_arguments_exit_code_and_environment() -> None:
    script = 'echo "$$ $1 $DDPMON_RUN_NAME $DDPMON_RUN"; exit 7'
    shell = subprocess.Popen(
        [sys.executable, "-m", "ddpmon.cli", "run", "--name", "mine", "--", "sh", "-c", script, "sh", "--watch"],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    said, _ = shell.communicate()
    assert said.split() == [str(shell.pid), "--watch", "mine", "1"]
    assert shell.returncode == 7


def test_a_command_that_is_no_python_and_one_that_raises_are_not_touched() -> None:
    listing = run("ls", "/")
    assert (listing.returncode, listing.stderr) == (0, "")
    assert {"dev", "proc"} <= {*listing.stdout.split()}
    raising = run("--", sys.executable, "-c", "raise KeyError('mine')")
    assert (raising.returncode, raising.stderr.splitlines()[-1]) == (1, "KeyError: 'mine'")
    assert "ddpmon" not in raising.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "run needs a command: ddpmon run -- torchrun --nproc-per-node 4 train.py"),
        (("--", "no-such-command-here"), 127, "'no-such-command-here' is not a command that can be found on PATH"),
        (("--watch", "--", "true"), 2, "--watch cannot be used here: the dashboard needs a terminal"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_sentence(arguments: tuple[str, ...], code: int, said: str) -> None:
    result = run(*arguments)
    assert result.returncode == code
    (line,) = result.stderr.splitlines()
    assert said in line


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python -I train.py", "python -I ignores the environment"),
        ("python3.11 -uE train.py", "python3.11 -E ignores the environment"),
        ("python -S -m train", "python -S ignores the environment"),
        ("ssh node1 torchrun train.py", "ssh does not pass the environment on: put `ddpmon run --` behind it"),
        ("docker run image python train.py", "docker does not pass"),
        ("kubectl exec pod -- torchrun train.py", "kubectl does not pass"),
        ("sudo -u me torchrun train.py", "sudo does not pass"),
        ("env -i torchrun train.py", "env does not pass"),
        ("mpirun -n 4 python train.py", "mpirun may not pass"),
        ("deepspeed --hostfile=hosts train.py", "deepspeed passes only some variables on to other hosts"),
        ("srun --export=NONE torchrun train.py", "srun --export does not pass"),
        ("srun --export HOME,PATH torchrun train.py", "srun --export does not pass"),
    ],
)
def test_what_keeps_a_command_from_being_watched_is_said(command: str, said: str) -> None:
    assert (what_prevents(command.split(), "/nowhere") or "").startswith(said)


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nproc-per-node 4 train.py -I -E",
        "python train.py -I",
        "python -u -X dev -W ignore -m torch.distributed.run -S",
        "python -c -I",
        "accelerate launch train.py",
        "deepspeed --num_gpus 4 train.py",
        "deepspeed train.py -H 64 --hostfile hosts",
        "srun python train.py",
        "srun --export=ALL,A=1 python train.py",
        "mpirun -x PYTHONPATH -x DDPMON_RUN python train.py",
        "env A=1 torchrun train.py",
        "make train",
    ],
)
def test_other_commands_are_started_without_a_word(command: str) -> None:
    assert what_prevents(command.split(), "/nowhere") is None


def test_a_first_line_that_ignores_the_environment_is_named(tmp_path: Path) -> None:
    script = tmp_path / "torchrun"
    script.write_text("#!/opt/env/bin/python3 -I\n")
    assert "has Python's -I" in (what_prevents(["torchrun"], str(script)) or "")
    script.write_text("#!/usr/bin/env python3\n")
    assert what_prevents(["torchrun"], str(script)) is None
    script.write_bytes(b"\x7fELF\x00\xff")
    assert what_prevents(["torchrun"], str(script)) is None


def test_the_boot_folder_comes_first_and_once() -> None:
    boot = str(ROOT / "ddpmon" / "boot")
    once = environment_of({"PYTHONPATH": "/mine:/other", "HOME": "/root"}, "its name")
    assert once["PYTHONPATH"] == f"{boot}:/mine:/other"
    assert (once["DDPMON_RUN_NAME"], once["HOME"]) == ("its name", "/root")
    assert environment_of(once, None)["PYTHONPATH"] == once["PYTHONPATH"]
    assert environment_of({}, None)["PYTHONPATH"] == boot


def test_options_of_python_are_told_from_those_of_a_script() -> None:
    assert ignoring(["-u", "-I", "x.py"]) == "I"
    assert ignoring(["-Wignore", "x.py", "-I"]) is None
    assert ignoring(["-W", "-I", "-E"]) == "E"
    assert ignoring(["--version"]) is None


def test_with_watch_the_command_runs_beside_the_dashboard_and_its_exit_code_is_passed_on(tmp_path: Path) -> None:
    script = f"echo said by the command; while [ ! -e {tmp_path}/closed ]; do sleep 0.1; done; exit 5"
    command = ("-m", "ddpmon.cli", "run", "--watch", "--", "sh", "-c", script)
    with terminal(command=command) as term:
        term.until(b"sh has been started")
        term.send(b"q")
        term.until(b"sh goes on; Ctrl-C ends it")
        (tmp_path / "closed").touch()
        assert term.end() == 5
        assert "said by the command" not in term.text()
        log = Path(term.text().split("its output is in ")[1].split()[0])
        assert log.read_text() == "said by the command\n"
        log.unlink()
