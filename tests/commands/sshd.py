"""Ways to another host for tests: a real sshd on loopback with keys of its own, or a stand-in for the ssh command."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

STAND_IN = shlex.join([sys.executable, str(Path(__file__).with_name("ssh_stand_in.py"))])
CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey "{folder}/host_key"
AuthorizedKeysFile "{folder}/key.pub"
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
"""


@contextlib.contextmanager
def real_ssh(folder: Path) -> Iterator[tuple[str, str]]:
    """The ssh command with its options, and user@host, of a server that ends with the block; skips without one."""
    sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if sshd is None or shutil.which("ssh") is None:
        pytest.skip("needs sshd and ssh (openssh-server, openssh-client)")
    for name in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "config").write_text(CONFIG.format(port=port, folder=folder))
    options = ["-F", "/dev/null", "-p", str(port), "-i", f"{folder}/key", "-o", f'UserKnownHostsFile="{folder}/known"']
    ssh, login = ["ssh", *options, "-o", "StrictHostKeyChecking=accept-new"], f"{psutil.Process().username()}@127.0.0.1"
    _make_privilege_folder()
    with (folder / "sshd.log").open("wb") as log:
        server = subprocess.Popen([sshd, "-D", "-e", "-f", str(folder / "config")], stdout=log, stderr=log)
        try:
            _wait_until_it_answers(server, port, folder)
            tried = subprocess.run([*ssh, "-o", "BatchMode=yes", login, "true"], capture_output=True, check=False)
            if tried.returncode:
                pytest.skip(f"this sshd lets nobody in: {tried.stderr.decode().strip()}")
            yield shlex.join(ssh), login
        finally:
            server.terminate()
            server.wait()


def _wait_until_it_answers(server: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(0.05)
    pytest.skip(f"sshd does not run here: {(folder / 'sshd.log').read_text(errors='replace')[-300:]}")


def _make_privilege_folder() -> None:
    """Debian's sshd wants this folder where it is started as root, and nobody has made it where it is no service.

    It stays: another server may have been started meanwhile, which needs it as well.
    """
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
