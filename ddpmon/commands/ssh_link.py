"""One login to another host by the system's ssh: it carries commands and a way to a store, and is opened again."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ddpmon.commands.console import STDERR, STDIN, complain, has_terminal
from ddpmon.commands.remote import LIMIT_S, LIMIT_WITH_A_PERSON_S, last_line, login_trouble, ssh_command
from ddpmon.store.base import StoreUnavailable, Through
from ddpmon.store.connect import Target

_PLAIN_PATH = re.compile(r"/[\w./-]{0,60}", re.ASCII)  # that ssh takes as it is, with room for a socket's name
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 8.0  # an attempt takes up to 10 s more, so a picture is back within 20 s
_ALIVE = ("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=2")  # a dead link ends it within 15 s
_BATCH = ("-o", "BatchMode=yes")
_CONTROL_S = 3.0  # an ssh that shares its connection answers within milliseconds
_REFUSED = re.compile(rb"open failed: (?:connect failed: )?(.+)")  # the far end could not connect to a store
_WHERE = re.compile(r"^(ssh: connect to host \S+ port \d+|[^\s:]+@[^\s:]+): ")  # what stands beside it anyway
ENDS_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.execvp(sys.argv[1], sys.argv[1:])"


class SshLink:
    """A connection to `host` that commands and one forwarded socket share, so that ssh logs in once.

    Where the user's own ssh shares a connection to that host that is open now, that one is used. Otherwise ssh opens a
    private one (ControlMaster), which ends with this process, however that ends. When it breaks, it is opened again
    without asking anybody, until the host refuses the login. Its sockets lie in a folder that only this user can enter.

    Args:
        host: where ssh logs in.
        attended: whether a person at the terminal may be asked for a password.

    Raises:
        TargetError: `host` or DDPMON_SSH makes no sense.
        StoreUnavailable: no temporary folder can be had.
    """

    def __init__(self, host: str, *, attended: bool = True) -> None:
        self.host = host
        self._words = ssh_command(host)
        self._is_attended = attended and has_terminal(STDIN)
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_shared = False
        self._forwarded: Target | None = None
        self._told = 0  # bytes that ssh had said before it forwarded that one
        self._reason, self._next_try, self._is_refused = "", 0.0, False  # why it is down; empty while it is up
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="ddpmon-", dir=_short(), ignore_cleanup_errors=True)
        except OSError as error:
            raise StoreUnavailable(f"no way to {host}: {error.strerror or error}") from None

    def open(self) -> None:
        """Log in, which may ask the user at the terminal for a password, and keep the connection from then on.

        Raises:
            StoreUnavailable: nobody is let in; the message is a sentence that says why.
        """
        batch = () if self._is_attended else _BATCH
        self._start(batch)
        self._wait_until_open(LIMIT_WITH_A_PERSON_S if self._is_attended else LIMIT_S)
        threading.Thread(target=self._keep, name="ddpmon-ssh", daemon=True).start()

    def command(self, remote: str) -> list[str]:
        """The command that runs a shell's command on the host, over this connection."""
        return self._ssh(*_BATCH, "-T", last=(remote,))

    def forward(self, there: Target) -> Target:
        """The same store, through a socket of this host; only the last store that was asked for is kept open.

        Raises:
            StoreUnavailable: ssh cannot forward it.
        """
        if self._forwarded is not None:
            self._control("cancel", "-L", self._forward_of(self._forwarded))
        self._forwarded = None
        self._begin_forwarding(there)
        self._forwarded = there
        return replace(there, through=Through(str(self._path("way")), self.host))

    def trouble(self) -> str:
        """Why the connection is down and what is done about it, in a sentence; empty while it is up."""
        if not self._reason and self._is_up():
            return ""
        down = f"the ssh connection to {self.host} is down"
        if self._is_refused:
            todo = "quit with q and run the command again"
            return f"{down}; ssh would ask for a password again: {todo} ({self._reason})"
        left_s = self._next_try - time.monotonic()
        after = f"trying again in {left_s:.0f} s" if left_s >= 1 else "trying again now"
        return f"{down}{f' ({self._reason})' if self._reason else ''}; {after}"

    def refusal(self) -> str:
        """Why the host could not connect to the forwarded store, in a sentence; empty where ssh has not said."""
        found = _REFUSED.findall(self._heard()[self._told :])
        if not found or self._forwarded is None:
            return ""
        where = replace(self._forwarded, through=Through("", self.host)).url
        return f"no store at {where}: {found[-1].decode('utf-8', 'replace').strip()[:200]}"

    def close(self) -> None:
        """End the connection if it is a private one, and leave nothing behind."""
        self._closing.set()
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            if self._forwarded is not None and self._is_shared:
                self._control("cancel", "-L", self._forward_of(self._forwarded))
            _end(process)
        self._folder.cleanup()

    def _start(self, batch: tuple[str, ...]) -> None:
        """Start an ssh that holds the connection, the user's shared one or one of our own."""
        if shutil.which(self._words[0]) is None:
            raise StoreUnavailable(f"{self._words[0]} cannot be run: command not found")
        self._is_shared = True  # so that the question goes to the user's own
        self._is_shared = self._is_up()
        if self._is_attended and not batch and not self._is_shared and has_terminal(STDERR):
            complain(f"ssh logs in to {self.host}; if a password is needed, it is asked for once")
        with self._lock:
            if self._closing.is_set():
                return
            self._path("cm").unlink(missing_ok=True)  # one that was killed has left its socket behind
            mine = () if self._is_shared else ("-M", "-S", str(self._path("cm")), "-o", "ControlPersist=no")
            command = [*self._words[:-1], *mine, *batch, "-N", "-T", *_ALIVE, self.host]
            with self._path("said").open("wb") as said:
                self._process = subprocess.Popen(
                    [sys.executable, "-ISc", ENDS_WITH_PARENT, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                )

    def _wait_until_open(self, limit_s: float) -> None:
        """Wait until ssh shares its connection, which it does once it has logged in.

        Raises:
            StoreUnavailable: it has ended, or the limit is reached; it then ends.
        """
        deadline, process = time.monotonic() + limit_s, self._process
        while process is not None and process.poll() is None and time.monotonic() < deadline:
            if (self._is_shared or self._path("cm").exists()) and self._is_up():
                return
            if self._closing.wait(0.05):
                break
        if process is None or process.poll() is None:
            reason = f"{self.host} did not answer within {limit_s:.0f} s"
        else:
            reason = login_trouble(self._words, self._heard())
        if process is not None:
            _end(process)
        raise StoreUnavailable(reason)

    def _keep(self) -> None:
        """Open it again whenever it has ended; nobody is asked for a password across the dashboard."""
        pause = _FIRST_PAUSE_S
        while (process := self._process) is not None:
            began = time.monotonic()
            process.wait()
            self._reason = _why_ended(self._heard())
            pause = _FIRST_PAUSE_S if time.monotonic() - began > _LONGEST_PAUSE_S else min(2 * pause, _LONGEST_PAUSE_S)
            while not self._opened_again(pause):
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                if self._closing.is_set() or self._is_refused:
                    return

    def _opened_again(self, pause_s: float) -> bool:
        """Wait, then try once; whether it is up again."""
        self._next_try = time.monotonic() + pause_s
        if self._closing.wait(pause_s):
            return False
        try:
            self._start(_BATCH)
            self._wait_until_open(LIMIT_S)
            if self._forwarded is not None:
                self._begin_forwarding(self._forwarded)
        except StoreUnavailable:
            heard = self._heard()
            self._reason = _why_ended(heard)
            self._is_refused = b"Permission denied" in heard or b"Too many authentication failures" in heard
            return False
        self._reason = ""
        return True

    def _begin_forwarding(self, there: Target) -> None:
        self._path("way").unlink(missing_ok=True)  # ssh leaves it behind
        self._told = len(self._heard())
        done = self._control("forward", "-L", self._forward_of(there))
        if done is None or done.returncode:
            why = "no answer" if done is None else last_line(done.stderr)
            raise StoreUnavailable(f"no tunnel through {self.host}: {why}")

    def _forward_of(self, there: Target) -> str:
        host = f"[{there.host}]" if ":" in there.host else there.host
        return f"{self._path('way')}:{host}:{there.port}"

    def _is_up(self) -> bool:
        """Whether an ssh shares a connection to the host: ours, or else the user's own."""
        done = self._control("check")
        return done is not None and done.returncode == 0

    def _control(self, *request: str) -> subprocess.CompletedProcess[bytes] | None:
        """What the ssh that shares its connection answers; None where nothing does."""
        with suppress(OSError, subprocess.TimeoutExpired):
            return subprocess.run(
                self._ssh("-O", *request),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_CONTROL_S,
                check=False,
            )
        return None

    def _ssh(self, *options: str, last: tuple[str, ...] = ()) -> list[str]:
        """An ssh command that goes over the connection that is shared."""
        mine = () if self._is_shared else ("-S", str(self._path("cm")))
        return [*self._words[:-1], *mine, *options, self.host, *last]

    def _path(self, name: str) -> Path:
        return Path(self._folder.name) / name

    def _heard(self) -> bytes:
        """What ssh has said since it was started."""
        with suppress(OSError), self._path("said").open("rb") as said:
            return said.read(1 << 16)
        return b""


def _why_ended(heard: bytes) -> str:
    """The last line of an ssh that is neither a warning of its beginning nor about a single channel."""
    lines = [line for line in heard.splitlines() if line.strip() and not line.startswith((b"Warning:", b"channel "))]
    return _WHERE.sub("", last_line(lines[-1])).rstrip(".") if lines else "ssh has ended"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(2.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _short() -> str:
    """A folder for temporary files in which a socket can have a name: those are short."""
    folder = tempfile.gettempdir()
    return folder if _PLAIN_PATH.fullmatch(folder) else "/tmp"
