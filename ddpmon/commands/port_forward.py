"""A tunnel of `kubectl port-forward` to a store in a pod, which is opened again when it breaks."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ddpmon.commands.remote import last_line
from ddpmon.commands.ssh_link import ENDS_WITH_PARENT
from ddpmon.store.base import StoreUnavailable
from ddpmon.store.connect import Target

_OPEN_S = 20.0  # the API server, the kubelet and the pod each have their part in it
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 8.0  # as with ssh
_FORWARDING = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+) ->")
_REFUSED = re.compile(rb"error forwarding port \d+ to pod [^,]*, uid : (.+)|an error occurred forwarding [^:]*: (.+)")


class PortForward:
    """Forwards a port of this host, on loopback, to a store in a pod.

    Args:
        where: kubectl's words for the pod.
        pod: its name.
        store: as the pod reaches it. kubectl connects to the pod's loopback, whatever address the store has.
    """

    def __init__(self, where: Sequence[str], pod: str, store: Target) -> None:
        self._where, self._pod, self._store = where, pod, store
        self._closing = threading.Event()
        self._folder = tempfile.TemporaryDirectory(prefix="ddpmon-", ignore_cleanup_errors=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._port, self._reason = 0, ""

    def open(self) -> Target:
        """The same store, on a port of this host.

        Raises:
            StoreUnavailable: kubectl does not open the tunnel; the message is a sentence that says why.
        """
        self._start()
        threading.Thread(target=self._keep, name="ddpmon-kubectl", daemon=True).start()
        return replace(self._store, host="127.0.0.1", port=self._port)

    def trouble(self) -> str:
        """Why the tunnel is down, in a sentence; empty while it is up."""
        return (
            f"the tunnel of kubectl to pod {self._pod} is down ({self._reason}); trying again" if self._reason else ""
        )

    def refusal(self) -> str:
        """Why the pod could not connect to the store, in a sentence; empty where kubectl has not said."""
        found = _REFUSED.findall(self._heard("err"))
        if not found:
            return ""
        why = next(filter(None, found[-1])).decode("utf-8", "replace").strip()[:200]
        other = "" if self._store.host.startswith("127.") else ": set DDPMON_LISTEN=0.0.0.0 in the job"
        return f"no store on the loopback of pod {self._pod}, which is where kubectl connects{other} ({why})"

    def close(self) -> None:
        """End it."""
        self._closing.set()
        if (process := self._process) is not None:
            process.kill()
            process.wait()
        self._folder.cleanup()

    def _start(self) -> None:
        """Start kubectl, and wait until it forwards.

        Raises:
            StoreUnavailable: it does not.
        """
        ports = f"{self._port or ''}:{self._store.port}"
        command = ["kubectl", "port-forward", "--address=127.0.0.1", *self._where, ports]
        with self._path("out").open("wb") as out, self._path("err").open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-ISc", ENDS_WITH_PARENT, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        deadline = time.monotonic() + _OPEN_S
        while self._process.poll() is None and time.monotonic() < deadline:
            if found := _FORWARDING.search(self._heard("out")):
                self._port = int(found[1])
                return
            if self._closing.wait(0.05):
                break
        self._process.kill()
        self._process.wait()
        raise StoreUnavailable(f"no tunnel to pod {self._pod}: {last_line(self._heard('err'))}")

    def _keep(self) -> None:
        """Open it again, on the same port, whenever it has ended."""
        pause_s = _FIRST_PAUSE_S
        while (process := self._process) is not None and not self._closing.is_set():
            process.wait()
            if self._closing.is_set():
                return
            self._reason = last_line(self._heard("err"))
            if self._closing.wait(pause_s):
                return
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            with suppress(StoreUnavailable, OSError):
                self._start()
                self._reason, pause_s = "", _FIRST_PAUSE_S

    def _path(self, name: str) -> Path:
        return Path(self._folder.name) / name

    def _heard(self, name: str) -> bytes:
        """What kubectl has said on one of its streams since it was started."""
        with suppress(OSError), self._path(name).open("rb") as said:
            return said.read(1 << 16)
        return b""
