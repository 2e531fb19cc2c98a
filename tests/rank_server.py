"""A server that has imported torch and forks a process for each request: `python -m tests.rank_server FD`.

Importing torch takes 4 s of CPU time, so a test that starts four interpreters waits 10 s on two cores before its first
step. A fork of this server starts at once. It has one thread, which makes forking safe.

`FD` is a SOCK_SEQPACKET socket. A request is one JSON message with four descriptors: stdin, stdout, stderr, and a
socket that receives the process id and later the exit code, each as four bytes (native signed integer). The server
kills what it has forked and ends when the other end of `FD` is closed.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import tempfile
import threading
from typing import Any, NoReturn

# What a training imports in its first second. ddpmon's own threads may import nothing; a test of that starts afresh.
PRELOADED = ("torch", "torch._dynamo", "trainer.loop")
NUMBER = struct.Struct("i")
LARGEST_REQUEST = 1 << 20  # bytes


class Server:
    """Forks processes and reports how they end.

    Args:
        control: the socket of the requests.
    """

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.running: dict[int, socket.socket] = {}
        self.wake, self.woken = socket.socketpair()
        for end in (self.wake, self.woken):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.woken.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        """Answer requests until nobody can send one any more."""
        while True:
            readable, _, _ = select.select([self.control, self.wake], [], [])
            if self.wake in readable:
                self.wake.recv(4096)
                self.report()
            if self.control in readable and not self.answer():
                break
        for pid in self.running:
            os.killpg(pid, signal.SIGKILL)

    def report(self) -> None:
        """Send the exit code of every process that has ended; minus the signal's number after a signal."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = found
                with self.running.pop(pid) as asker, contextlib.suppress(OSError):
                    asker.send(NUMBER.pack(os.waitstatus_to_exitcode(status)))

    def answer(self) -> bool:
        """Start what the next request asks for; False when there will be none."""
        data, descriptors, _, _ = socket.recv_fds(self.control, LARGEST_REQUEST, 4)
        if not data:
            return False
        *streams, asking = descriptors
        pid = os.fork()
        if pid == 0:
            self.become(json.loads(data), streams)
        for stream in streams:
            os.close(stream)
        self.running[pid] = asker = socket.socket(fileno=asking)
        asker.send(NUMBER.pack(pid))
        return True

    def become(self, request: dict[str, Any], streams: list[int]) -> NoReturn:
        """Turn this fork into the process that was asked for, in a session of its own."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for place, stream in enumerate(streams):
            os.dup2(stream, place)
        os.closerange(3, max(*streams, self.control.fileno(), self.woken.fileno(), *self.inherited()) + 1)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        tempfile.tempdir = None
        sys.argv = [request["module"], *request["arguments"]]
        os._exit(run(request["module"]))

    def inherited(self) -> list[int]:
        return [asker.fileno() for asker in self.running.values()]


def run(module: str) -> int:
    """Run a module as `python -m` does, to what the interpreter does at its end; returns the exit code."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code: object = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    for name in PRELOADED:
        importlib.import_module(name)
    Server(socket.socket(fileno=int(sys.argv[1]))).serve()
