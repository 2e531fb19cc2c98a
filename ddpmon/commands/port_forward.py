"""A tunnel of `kubectl port-forward` to a store in a pod, which is opened again when it breaks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import IO

from ddpmon.commands.remote import last_line
from ddpmon.commands.ssh_link import ENDS_WITH_PARENT
from ddpmon.store.base import StoreUnavailable
from ddpmon.store.connect import Target

_OPEN_S = 20.0  # the API server, the kubelet and the pod each have their part in it
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 8.0  # as with ssh
_SAID = 1 << 16  # bytes that are kept of what kubectl says on a stream: it writes a line for each connection
_SAYS_S = 1.0  # chosen: the words come within milliseconds, and a busy machine takes longer
_LAST_WORDS_S = 1.0  # until what an ended kubectl has said is read
_FORWARDING = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+) ->")
_REFUSED = re.compile(rb"error forwarding port \d+ to pod [^,]*, uid : (.+)|an error occurred forwarding [^:]*: (.+)")


class _Stream:
    """The end of what a process says on a stream, which a thread reads until the stream is closed."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.said = b""
        self._stream = stream
        self._thread = threading.Thread(target=self._read, name="ddpmon-kubectl-said", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream:
            while piece := os.read(self._stream.fileno(), _SAID):
                self.said = (self.said + piece)[-_SAID:]

    def all(self) -> bytes:
        """What it has said, after the process has ended."""
        self._thread.join(_LAST_WORDS_S)
        return self.said


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
        self._errors: _Stream | None = None
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
        """Why the pod could not connect to the store, in a sentence; empty where kubectl does not say.

        It is asked when a connection has been closed, and a kubectl that lives may say why a moment later: that is
        waited for.
        """
        until, process = time.monotonic() + _SAYS_S, self._process
        while not (found := _REFUSED.findall(b"" if self._errors is None else self._errors.said)):
            has_ended = process is None or process.poll() is not None
            if has_ended or time.monotonic() >= until or self._closing.wait(0.02):
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

    def _start(self) -> None:
        """Start kubectl, and wait until it forwards.

        Raises:
            StoreUnavailable: it does not.
        """
        ports = f"{self._port or ''}:{self._store.port}"
        command = ["kubectl", "port-forward", "--address=127.0.0.1", *self._where, ports]
        pipe = subprocess.PIPE
        self._process = process = subprocess.Popen(
            [sys.executable, "-ISc", ENDS_WITH_PARENT, *command], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
        assert process.stdout is not None
        assert process.stderr is not None
        words, self._errors = _Stream(process.stdout), _Stream(process.stderr)
        deadline = time.monotonic() + _OPEN_S
        while process.poll() is None and time.monotonic() < deadline:
            if found := _FORWARDING.search(words.said):
                self._port = int(found[1])
                return
            if self._closing.wait(0.05):
                break
        process.kill()
        process.wait()
        raise StoreUnavailable(f"no tunnel to pod {self._pod}: {self._last_words()}")

    def _keep(self) -> None:
        """Open it again, on the same port, whenever it has ended."""
        pause_s = _FIRST_PAUSE_S
        while (process := self._process) is not None and not self._closing.is_set():
            process.wait()
            if self._closing.is_set():
                return
            self._reason = self._last_words()
            if self._closing.wait(pause_s):
                return
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            with suppress(StoreUnavailable, OSError):
                self._start()
                self._reason, pause_s = "", _FIRST_PAUSE_S

    def _last_words(self) -> str:
        """Why kubectl has ended."""
        return last_line(b"" if self._errors is None else self._errors.all())
