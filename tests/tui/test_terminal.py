"""The dashboard in a real terminal: a pty, a process, bytes in and bytes out."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from ddpmon.recording.travel import Replay
from ddpmon.report.summary_line import summary_line
from ddpmon.simulate.plan import Plan
from ddpmon.tui.terminal import is_remote
from tests.recording.made_recordings import record

ROOT = Path(__file__).resolve().parents[2]
PLAY = ("-m", "tests.tui.play", "--straggler", "5", "--interval", "0.25")
LEAVE_ALTERNATE = b"\x1b[?1049l"
ESCAPES = re.compile(rb"\x1b(\[[0-9;?>=]*[a-zA-Z]|\][^\x07\x1b]*(\x07|\x1b\\))")
MOUSE_OFF = b"\x1b[?1003l"


class Terminal:
    """A pty with a dashboard at the other end: one that plays a made run, or what another command shows."""

    def __init__(
        self,
        *options: str,
        size: tuple[int, int] = (120, 34),
        stdout: int | None = None,
        command: Sequence[str] = PLAY,
        kind: str = "xterm-256color",
    ) -> None:
        self.screen, self.far = pty.openpty()
        self.resize(size)
        self.before = termios.tcgetattr(self.far)
        self.seen = self.everything = b""
        self.process = subprocess.Popen(
            [sys.executable, *command, *options],
            stdin=self.far, stdout=self.far if stdout is None else stdout, stderr=self.far,
            start_new_session=True, cwd=ROOT,
            env={**os.environ, "TERM": kind, "COLORTERM": "truecolor"},
        )  # fmt: skip

    def resize(self, size: tuple[int, int]) -> None:
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

    def read(self) -> bool:
        """Take in what has been written; False when nothing more will come."""
        running = self.process.poll() is None  # asked before: what it writes last is still to be read
        if not select.select([self.screen], [], [], 0.1)[0]:
            return running
        try:
            chunk = os.read(self.screen, 1 << 16)
        except OSError:
            return False
        self.seen += chunk
        self.everything += chunk
        return bool(chunk)

    def until(self, text: bytes) -> None:
        """Read until `text` has been written since the last call; the suite's timeout ends a wait in vain."""
        while text not in self.seen:
            assert self.read(), f"ended without {text!r}: {self.text()[-2000:]}"
        self.seen = self.seen.split(text, 1)[1]

    def send(self, data: bytes) -> None:
        os.write(self.screen, data)

    def end(self) -> int:
        """Read the rest and return the exit code."""
        while self.read():
            pass
        return self.process.wait(30)

    def text(self) -> str:
        return re.sub(rb"\x1b(\[[0-9;?>=]*[a-zA-Z]|\][^\x07\x1b]*(\x07|\x1b\\))", b"", self.seen).decode(
            errors="replace"
        )


@contextmanager
def terminal(
    *options: str,
    size: tuple[int, int] = (120, 34),
    stdout: int | None = None,
    command: Sequence[str] = PLAY,
    kind: str = "xterm-256color",
) -> Iterator[Terminal]:
    made = Terminal(*options, size=size, stdout=stdout, command=command, kind=kind)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
            made.process.wait(30)
        os.close(made.screen)
        os.close(made.far)


def test_it_starts_paints_and_quits_with_q_leaving_one_line() -> None:
    with terminal() as term:
        term.until(b"+41 ms")
        term.send(b"q")
        term.until(LEAVE_ALTERNATE)
        assert term.end() == 0
        line = term.text().strip()
        assert "gpt-stdlib: running, step 1," in line
        assert "rank 5 (node1) is late by 41 ms" in line
        assert len(line.splitlines()) == 1
        assert termios.tcgetattr(term.far) == term.before


def test_it_survives_a_resize_and_draws_for_the_new_size() -> None:
    with terminal(size=(120, 34)) as term:
        term.until(b"+41 ms")
        term.resize((30, 8))
        os.kill(term.process.pid, signal.SIGWINCH)
        term.until(b"needs 40x12")
        term.resize((100, 30))
        os.kill(term.process.pid, signal.SIGWINCH)
        term.until(b"+41 ms")
        term.send(b"q")
        assert term.end() == 0


def test_it_survives_mouse_bytes_that_are_not_utf8() -> None:
    with terminal() as term:
        term.until(b"+41 ms")
        term.send(b"\x1b[MC\x900")
        term.until(b"\x1b[?1006h")  # the mouse is asked for in SGR reports again
        term.send(b"5")
        term.until(b"Measured")
        term.send(b"q")
        assert term.end() == 0


def test_without_a_mouse_its_bytes_do_nothing() -> None:
    """A terminal may report the mouse although the dashboard has not asked for it: a click opened what was under it."""
    with terminal("--no-mouse") as term:
        term.until(b"+41 ms")
        assert b"\x1b[?1006h" not in term.everything
        term.send(b"\x1b[<0;20;2M\x1b[<0;20;2m")  # on the headline, which opens it in the list of findings
        term.send(b"4")
        term.until(b"store and watching")
        assert b"Measured" not in term.everything
        term.send(b"q")
        assert term.end() == 0


def test_what_the_terminal_tells_of_itself_presses_no_keys() -> None:
    with terminal() as term:
        term.until(b"+41 ms")
        term.send(b"\x1b[?1;2q")  # `q` is a key, too
        term.send(b"5")
        term.until(b"Measured")
        term.send(b"q")
        assert term.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_restores_the_terminal(number: signal.Signals) -> None:
    with terminal() as term:
        term.until(b"+41 ms")
        term.process.send_signal(number)
        term.until(MOUSE_OFF)
        term.until(LEAVE_ALTERNATE)
        term.end()
        assert termios.tcgetattr(term.far) == term.before
        assert "Traceback" not in term.text()


def test_what_native_code_writes_to_stderr_does_not_reach_the_screen() -> None:
    with terminal("--noise") as term:
        term.until(b"+41 ms")
        term.send(b"5")
        term.until(b"Measured")
        term.send(b"q")
        assert term.end() == 0
        assert b"native noise" not in term.seen


def test_the_summary_can_be_sent_elsewhere(tmp_path: Path) -> None:
    with (tmp_path / "said").open("wb") as file, terminal(size=(90, 30), stdout=file.fileno()) as term:
        term.until(b"+41 ms")
        term.send(b"q")
        assert term.end() == 0
    assert (tmp_path / "said").read_text().startswith("gpt-stdlib: running")


def test_the_summary_is_broken_at_words(tmp_path: Path) -> None:
    path = tmp_path / "run.ddpmon"
    record(Plan(ranks=4, hosts=2, scenario="straggler"), 70, path).close()
    with terminal(str(path), size=(44, 20), command=("-m", "ddpmon.cli", "watch")) as term:
        term.until(b"REPLAY")
        term.send(b"q")
        term.until(LEAVE_ALTERNATE)
        assert term.end() == 0
        lines = [line.rstrip() for line in term.text().strip().splitlines()]
    assert len(lines) > 1
    assert max(map(len, lines)) <= 44
    source = Replay(path)
    assert " ".join(lines) == summary_line(source.tick()), "no word is broken"
    source.close()


@pytest.mark.parametrize(
    ("command", "lead"), [(("watch",), ""), (("run", "--watch", "--", "true"), "--watch cannot be used here: ")]
)
def test_a_dumb_terminal_is_told_what_to_use_instead(command: tuple[str, ...], lead: str) -> None:
    with terminal(command=("-m", "ddpmon.cli", *command), kind="dumb") as term:
        assert term.end() == 2
        said = f"{lead}this terminal cannot show the dashboard, because TERM is dumb; use `ddpmon status --watch`"
        assert term.text().split() == ["ddpmon:", *said.split()]
        assert b"\x1b" not in term.everything


def test_a_terminal_that_vanishes_ends_the_dashboard() -> None:
    term = Terminal()
    term.until(b"+41 ms")
    os.close(term.screen)
    os.close(term.far)
    assert term.process.wait(30) is not None


@pytest.mark.parametrize(
    ("environ", "remote"), [({}, False), ({"SSH_CONNECTION": "1 2 3 4"}, True), ({"SSH_TTY": "/dev/pts/1"}, True)]
)
def test_a_far_terminal_is_recognised(environ: dict[str, str], remote: bool) -> None:
    assert is_remote(environ) is remote


IN_A_DELETED_FOLDER = """
import os, sys, tempfile
sys.path.insert(0, os.getcwd())
from ddpmon.cli import main
os.chdir(folder := tempfile.mkdtemp())
os.rmdir(folder)
main()
"""


def test_the_dashboard_opens_and_closes_in_a_folder_that_has_been_deleted() -> None:
    with terminal("watch", "tcp://127.0.0.1:1", command=("-c", IN_A_DELETED_FOLDER)) as term:
        term.until(b"no store at 127.0.0.1:1")
        term.send(b"q")
        assert term.end() == 3
    assert b"Traceback" not in term.everything
