"""A real sshd on loopback for tests, with keys and a configuration of its own."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

CONFIG = """
ListenAddress {address}
Port {port}
HostKey "{folder}/host_key"
AuthorizedKeysFile "{folder}/key.pub"
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication {password}
PubkeyAuthentication {key}
KbdInteractiveAuthentication no
PermitRootLogin yes
MaxStartups 100
LogLevel VERBOSE
"""
USER, PASSWORD = "ddpmon-test", "watch me"
HASH = "$6$ddpmontest$fg9t2mQtNdkQfh7PfoHlpeaBgPbBEA2qKivXNFvJ1fInyEIjyk2iszj09/C54pt7nBhucaIdgJPll3U3rjfo51"
WITH_USERS = 'mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/shadow" /etc/shadow && exec "$@"'


@dataclass
class Server:
    """A server that logs in its tests' user.

    Attributes:
        ssh: the ssh command with its options, as DDPMON_SSH takes it.
        login: user@host.
        folder: its keys and its log.
    """

    ssh: str
    login: str
    folder: Path
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    def start(self) -> None:
        """Serve until `stop`; the test is skipped where that is not possible."""
        with (self.folder / "sshd.log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            if self.log().count("Server listening") > self.starts:
                self.starts += 1
                return
            time.sleep(0.05)
        pytest.skip(f"sshd does not run here: {self.log()[-300:]}")

    def stop(self) -> None:
        """End the server and every session."""
        self.drop()
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def drop(self) -> None:
        """End every session, as when the connection is cut."""
        if self.process is not None and self.process.poll() is None:
            for session in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if session.name() == "sshd":
                        session.send_signal(signal.SIGKILL)

    def log(self) -> str:
        """What it has said."""
        return (self.folder / "sshd.log").read_text(errors="replace")


@contextlib.contextmanager
def real_ssh(
    folder: Path,
    *,
    password: bool = False,
    address: str = "127.0.0.1",
    inside: Sequence[str] = (),
    client_inside: Sequence[str] = (),
) -> Iterator[Server]:
    """A server that ends with the block; skips without one.

    Args:
        folder: for its keys and its log.
        password: whether it asks for a password instead of a key.
        address: where it listens.
        inside: the command before `sshd` that runs it in another network namespace.
        client_inside: the same for `ssh`.

    With a key it lets in this test's own user. With a password it lets in a second name of root, which only this server
    knows: its lists of users are bound over those of the machine in a mount namespace.
    """
    server = _prepared(folder, password, address, inside, client_inside)
    server.start()
    try:
        if not password:
            tried = subprocess.run(
                [*shlex.split(server.ssh), "-o", "BatchMode=yes", server.login, "true"],
                capture_output=True,
                check=False,
            )
            if tried.returncode:
                pytest.skip(f"this sshd lets nobody in: {tried.stderr.decode().strip()}")
        yield server
    finally:
        server.stop()


def _prepared(
    folder: Path, password: bool, address: str, inside: Sequence[str], client_inside: Sequence[str]
) -> Server:
    sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if sshd is None or shutil.which("ssh") is None:
        pytest.skip("needs sshd and ssh (openssh-server, openssh-client)")
    for name in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ways = ("yes", "no") if password else ("no", "yes")
    (folder / "config").write_text(
        CONFIG.format(address=address, port=port, folder=folder, password=ways[0], key=ways[1])
    )
    options = ["-F", "/dev/null", "-p", str(port), "-i", f"{folder}/key", "-o", f'UserKnownHostsFile="{folder}/known"']
    ssh = shlex.join([*client_inside, "ssh", *options, "-o", "StrictHostKeyChecking=accept-new"])
    user = USER if password else psutil.Process().username()
    command = [sshd, "-D", "-e", "-f", str(folder / "config")]
    _make_privilege_folder()
    around = [*inside, *(_with_user(folder) if password else [])]
    return Server(ssh, f"{user}@{address}", folder, [*around, *command])


def _with_user(folder: Path) -> list[str]:
    """The command before one that then knows the test's user."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a login with a password needs root and unshare (util-linux)")
    for name, line in (("passwd", f"{USER}:x:0:0::/root:/bin/sh"), ("shadow", f"{USER}:{HASH}:19000:0:99999:7:::")):
        (folder / name).write_text(f"{Path('/etc', name).read_text()}{line}\n")
    return ["unshare", "--mount", "sh", "-c", WITH_USERS, str(folder)]


def _make_privilege_folder() -> None:
    """Debian's sshd wants this folder where it is started as root, and nobody has made it where it is no service.

    It stays: another server may have been started meanwhile, which needs it as well.
    """
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
