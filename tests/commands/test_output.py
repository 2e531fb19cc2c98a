"""Commands whose stdout or stderr cannot be written: exit codes of their own, one sentence, never a traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ranks import ROOT
from tests.table.tables import rows_of, slow, text_of

NOT_WRITTEN, READER_GONE, BROKEN = 4, 141, 70
FULL, CLOSED = "No space left on device", "it is closed"


@pytest.fixture(autouse=True)
def empty_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def ddpmon(redirection: str, *arguments: str, stdout: int = subprocess.PIPE) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command whose streams a shell has redirected."""
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "ddpmon.cli", *arguments]
    done = subprocess.run(
        shell, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout or "", done.stderr


@pytest.fixture
def finding(tmp_path: Path) -> tuple[str, ...]:
    """A command that finds something and would end with 1."""
    (tmp_path / "steps.csv").write_text(text_of(rows_of(slow())))
    return "diagnose", str(tmp_path / "steps.csv"), "--fail-on=info"


@pytest.mark.parametrize(("redirection", "why"), [(">/dev/full", FULL), (">&-", CLOSED)])
def test_a_command_without_its_output_says_so_and_does_not_end_like_a_finding(
    finding: tuple[str, ...], redirection: str, why: str
) -> None:
    assert ddpmon("", *finding)[0] == 1
    for command in (finding, ("ls", "--json"), ("--help",), ("doctor", "--json")):
        said = f"ddpmon: standard output cannot be written: {why}\n"
        assert ddpmon(redirection, *command) == (NOT_WRITTEN, "", said)


def test_a_reader_that_has_gone_is_no_news(finding: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    for command in (finding, ("ls", "--json"), ("--help",)):
        assert ddpmon("", *command, stdout=writer) == (READER_GONE, "", "")
    os.close(writer)


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_a_command_that_cannot_complain_ends_as_it_would(finding: tuple[str, ...], redirection: str) -> None:
    assert ddpmon(redirection, *finding)[0] == 1
    for command, code in ((("diagnose", "/nonexistent"), 2), (("sing",), 2), (("ls",), 3)):
        assert ddpmon(redirection, *command) == (code, "", "")


def test_a_command_with_neither_ends_with_the_same_code() -> None:
    for redirection in (">/dev/full 2>/dev/full", "<&- >&- 2>&-"):
        assert ddpmon(redirection, "ls", "--json") == (NOT_WRITTEN, "", "")
    assert ddpmon("<&-", "watch")[0] == 2


def test_an_error_of_our_own_is_no_finding() -> None:
    broken = "from ddpmon import cli\ndef app(**_): raise ValueError('ours')\ncli.app = app\ncli.main()"
    done = subprocess.run([sys.executable, "-c", broken], capture_output=True, text=True, check=False)
    assert done.returncode == BROKEN
    assert done.stderr.endswith("ValueError: ours\n")


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
def test_a_shell_that_is_not_known_changes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    code, said, complaint = ddpmon("", option, "zsh-nonsense")
    assert (code, said) == (2, "")
    assert all(shell in complaint for shell in ("zsh-nonsense", "bash", "zsh", "fish"))
    assert list(home.iterdir()) == []


def test_completion_is_installed_once_for_the_shell_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".zshrc").write_text("mine")
    for _ in range(2):
        assert ddpmon("", "--install-completion", "zsh")[0] == 0
    lines = (tmp_path / ".zshrc").read_text().split()
    assert (lines[0], lines.count("compinit")) == ("mine", 1)
    assert not (tmp_path / ".bashrc").exists()


def test_completion_that_cannot_be_installed_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".zfunc").write_text("a file where a folder is needed")
    code, said, complaint = ddpmon("", "--install-completion", "zsh")
    assert (code, said) == (NOT_WRITTEN, "")
    assert f"{tmp_path}/.zfunc" in complaint


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "completed"), [("st", "status"), ("status --fail", "--fail-on"), ("--install", "--install-completion")]
)
def test_bash_completes_what_is_typed(tmp_path: Path, words: str, completed: str) -> None:
    command, script = tmp_path / "ddpmon", tmp_path / "completion"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m ddpmon.cli "$@"\n')
    command.chmod(0o700)
    script.write_text(ddpmon("", "--show-completion", "bash")[1])
    typed = f"source {script}; COMP_WORDS=(ddpmon {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))"
    shell = ["bash", "-c", f"{typed}; _ddpmon_completion {command}; echo ${{COMPREPLY[@]}}"]
    assert subprocess.run(shell, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split() == [completed]
