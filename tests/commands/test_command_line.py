"""The command line as a user meets it: real processes, exit codes, one sentence and never a traceback."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from ddpmon import __version__
from ddpmon.cli import app
from ddpmon.store.discovery import Announcement, announce
from tests import ranks

Done = subprocess.CompletedProcess[str]
Ddpmon = Callable[..., Done]


@pytest.fixture
def ddpmon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ddpmon:
    """Runs a command on a host where no run is known."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def run(*arguments: str) -> Done:
        done = ranks.run("ddpmon.cli", *arguments)
        assert "Traceback" not in done.stderr + done.stdout
        return done

    return run


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port on which somebody listens and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def announced(tmp_path: Path, run_id: str, port: int, name: str = "gpt\x1b[31m") -> None:
    runtime = os.environ["XDG_RUNTIME_DIR"]
    assert runtime == str(tmp_path)
    announcement = Announcement(
        run_id=run_id,
        name=f"{name}-{run_id}",
        url=f"tcp://127.0.0.1:{port}",
        pid=os.getpid(),
        host="node0",
        world_size=4,
        started_at=1000.0,
    )
    assert announce(announcement) is not None


def test_version_and_help(ddpmon: Ddpmon) -> None:
    assert ddpmon("--version").stdout == f"ddpmon {__version__}\n"
    shown = ddpmon("--help")
    assert shown.returncode == 0
    for command in ("watch", "ls", "status", "guard", "serve", "export", "diagnose", "demo"):
        assert f"\n  {command} " in shown.stdout
        assert ddpmon(command, "--help").returncode == 0
    assert "3 no run was found" in " ".join(ddpmon("status", "--help").stdout.split())


@pytest.mark.parametrize("command", app.commands.values(), ids=app.commands.keys())
def test_every_command_has_a_help(command: click.Command) -> None:
    assert "--help" in command.get_help(click.Context(command, help_option_names=["--help"]))


@pytest.mark.parametrize(
    "arguments",
    [
        ("sing",),
        ("status", "--fail-on", "never"),
        ("status", "one", "two"),
        ("watch", "--interval", "0"),
        ("ls", "one", "two"),
        ("demo", "--nproc", "1"),
        ("demo", "--fault", "rain"),
        ("demo", "--steps", "10"),
    ],
)
def test_a_command_that_makes_no_sense_is_usage(ddpmon: Ddpmon, arguments: tuple[str, ...]) -> None:
    done = ddpmon(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("http://node0:29480", "http"),
        ("tcp://node0:port", "port"),
        ("tcp://node0", "port"),
        ("tcp://", "host"),
        (__file__, "is a file, not a run on this host"),
    ],
)
def test_a_target_that_makes_no_sense_is_usage_in_one_sentence(ddpmon: Ddpmon, target: str, names: str) -> None:
    done = ddpmon("status", target)
    assert (done.returncode, done.stdout) == (2, "")
    assert names in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["text", "json"])
def test_no_run_on_this_host_is_3(ddpmon: Ddpmon, as_json: tuple[str, ...]) -> None:
    done = ddpmon("status", *as_json)
    assert (done.returncode, done.stdout) == (3, "")
    assert "no run" in done.stderr.lower()


def test_a_store_that_refuses_is_3(ddpmon: Ddpmon) -> None:
    with socket.socket() as held:  # bound, so that nobody else takes the port
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        done = ddpmon("status", f"tcp://127.0.0.1:{port}")
    assert (done.returncode, done.stdout) == (3, "")
    assert str(port) in done.stderr


def test_a_store_that_never_answers_is_3(ddpmon: Ddpmon, deaf_port: int) -> None:
    done = ddpmon("status", "--json", f"tcp://127.0.0.1:{deaf_port}")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr


FORGED = "gpt\nddpmon: forged"


def listing_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *ids: str) -> None:
    """What `ddpmon ls --json` prints on the host that ssh reaches."""
    runs = [{"id": run_id, "name": FORGED, "url": "tcp://127.0.0.1:1", "world_size": 4} for run_id in ids]
    (tmp_path / "listing").write_text(json.dumps({"schema_version": 1, "runs": runs}))
    (tmp_path / "ssh").write_text(f"cat '{tmp_path}/listing'")
    monkeypatch.setenv("DDPMON_SSH", f"sh '{tmp_path}/ssh'")


def test_what_ls_prints_to_paste_is_a_run_whatever_it_calls_itself(
    ddpmon: Ddpmon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing_from(tmp_path, monkeypatch, "--ssh=root@evil.example", "-h", "--slurm=1;id", "gpt$(id);-1")
    head, row = ddpmon("ls", "--ssh", "node0", "--brief").stdout.splitlines()
    assert shlex.split(row[head.index("to watch it") :]) == ["ddpmon", "watch", "--ssh", "node0", "gpt$(id);-1"]


@pytest.mark.parametrize("ssh", [(), ("--ssh", "node0")], ids=["here", "ssh"])
def test_a_name_of_several_lines_makes_no_line_of_its_own(
    ddpmon: Ddpmon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ssh: tuple[str, ...]
) -> None:
    for run_id in ("a", "b"):
        announced(tmp_path, run_id, 29480, name=FORGED)
    listing_from(tmp_path, monkeypatch, "a", "b")
    done = ddpmon("status", *ssh)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 3
    assert "ddpmon: forged" not in done.stderr.splitlines()


@pytest.mark.parametrize("command", ["ls", "status", "watch"])
def test_a_folder_that_cannot_be_used_is_said(ddpmon: Ddpmon, tmp_path: Path, command: str) -> None:
    squatted = tmp_path / f"ddpmon-{os.geteuid()}"
    squatted.mkdir()
    squatted.chmod(0o777)
    done = in_a_terminal(command, keys=b"q") if command == "watch" else ddpmon(command)
    assert done.returncode == 3
    assert f"{squatted} is open to others (mode 777), so no run is announced there" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["status", "watch"])
def test_several_runs_are_listed_to_choose_from(ddpmon: Ddpmon, tmp_path: Path, command: str) -> None:
    announced(tmp_path, "a", 29480)
    announced(tmp_path, "b", 29481)
    done = ddpmon(command) if command == "status" else in_a_terminal(command)
    assert done.returncode == 2
    for words in ("tcp://127.0.0.1:29480", "tcp://127.0.0.1:29481", "-a, 4 ranks", "-b, 4 ranks"):
        assert words in done.stderr
    assert "\x1b" not in done.stderr


def test_the_dashboard_without_a_terminal_points_to_status(ddpmon: Ddpmon) -> None:
    done = ddpmon("watch")
    assert (done.returncode, done.stdout) == (2, "")
    assert "ddpmon status" in done.stderr


@pytest.mark.usefixtures("ddpmon")
def test_quitting_the_dashboard_without_having_seen_a_run_is_3(deaf_port: int) -> None:
    done = in_a_terminal("watch", f"tcp://127.0.0.1:{deaf_port}", keys=b"q")
    assert done.returncode == 3
    assert done.stderr.startswith("ddpmon: no run was seen")
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("status", "--fail-on", "worse"), ("diagnose", "-", "--fail-on", "worse"), ("demo", "--fault", "rain")],
)
def test_a_word_that_is_no_choice_is_named_once_with_the_choices(ddpmon: Ddpmon, arguments: tuple[str, ...]) -> None:
    said = ddpmon(*arguments).stderr
    assert said.count(arguments[-1]) == 1
    assert "Value error" not in said
    assert "warning" in said or "backward" in said


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("watch", "--interval", "abc"), "'abc' is not a number from 0.25 to 10."),
        (("demo", "--nproc", "2.5"), "'2.5' is not a whole number from 2 to 64."),
        (("simulate", "--ranks", "many"), "'many' is not a whole number."),
    ],
)
def test_a_wrong_number_is_named_once_with_what_is_expected(
    ddpmon: Ddpmon, arguments: tuple[str, ...], expected: str
) -> None:
    done = ddpmon(*arguments)
    assert done.returncode == 2
    assert done.stderr.rstrip().endswith(expected)
    assert done.stderr.count(arguments[-1]) == 1


@pytest.mark.parametrize(
    ("command", "takes_one"),
    [("watch", True), ("status", True), ("report", True), ("export", True), ("record", False), ("serve", False)],
)
def test_only_commands_that_take_a_recording_say_so(command: str, takes_one: bool) -> None:
    found = app.commands[command]
    said = " ".join(found.get_help(click.Context(found, help_option_names=["--help"])).split())
    target = said.partition(" TARGET The run: its name or id")[2].partition(" Options: ")[0]
    assert target
    assert ("recording" in target) == takes_one


@pytest.mark.parametrize(
    ("arguments", "named"), [((), "DDPMON_THEME: 'purple'"), (("--theme", "pink"), "'--theme': 'pink'")]
)
def test_a_wrong_value_is_told_of_the_variable_or_the_option_that_has_set_it(
    ddpmon: Ddpmon, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], named: str
) -> None:
    monkeypatch.setenv("DDPMON_THEME", "purple")
    done = ddpmon("watch", *arguments)
    assert done.returncode == 2
    assert f"Error: Invalid value for {named} is not one of auto, " in done.stderr


def test_without_a_command_the_help_is_printed(ddpmon: Ddpmon) -> None:
    done = ddpmon()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ddpmon("--help").stdout


def in_a_terminal(*arguments: str, keys: bytes = b"") -> Done:
    """Run with a terminal on stdin and stdout, on which `keys` have been pressed and that takes all that is drawn."""
    ours, theirs = os.openpty()
    os.write(ours, keys)
    command = [sys.executable, "-m", "ddpmon.cli", *arguments]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    with contextlib.suppress(OSError):  # no process has the terminal any more
        while os.read(ours, 1 << 16):
            pass
    os.close(ours)
    _, stderr = process.communicate()
    return Done(command, process.returncode, "", stderr)
