"""Attaching, detaching and losing the store very often: what watchers, writers and the store hold before and after.

The store is that of a simulated run, in a process of its own; between it and those who come and go stands a relay that
can be shut and opened, which is how the store fails and heals.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
from chaos_leaks import first_to_last, sample

from ddpmon.store.base import StoreUnavailable
from ddpmon.store.tcp_client import TcpClient
from ddpmon.watcher.observer import Observer

ROOT = Path(__file__).resolve().parents[1]
_WARM_UP = 50  # cycles before the first count: what is loaded and pooled once is no leak
_SETTLE_S = 3.0
_RESOLVES_S = 60.0  # torch asks for the name of every address that it connects to, and a name server may be busy
Address = tuple[str, int]


def cycles(count: int) -> bool:
    """Go through so many of each kind, and print what is held before and after; True if it is not more and more."""
    with simulated_run() as (url, host), Relay(url) as relay:
        good = [_part("watcher attaches, detaches", count, lambda: attach(url), host)]
        good.append(_part("writer attaches, detaches", count, lambda: write(address_of(url)), host))
        observer = Observer(f"tcp://{relay.address[0]}:{relay.address[1]}")
        good.append(_part("store fails, heals", count, lambda: fail(relay, observer), host))
        observer.close()
    return all(good)


def _part(name: str, count: int, each: Callable[[], bool], host: psutil.Process) -> bool:
    right, before = 0, [sample(psutil.Process()), sample(host)]
    for cycle in range(_WARM_UP + count):
        if cycle == _WARM_UP:
            time.sleep(_SETTLE_S)
            before = [sample(psutil.Process()), sample(host)]
        right += each()
    time.sleep(_SETTLE_S)
    after = [sample(psutil.Process()), sample(host)]
    both = list(zip(before, after, strict=True))
    print(f"{name}, {right:,} of {_WARM_UP + count:,} right")
    print(f"    here: {first_to_last(both[0])}\n    store's host: {first_to_last(both[1])}", flush=True)
    leaked = any(b.fds > a.fds + count / 100 or b.threads > a.threads + count / 100 for a, b in both)
    return right == _WARM_UP + count and not leaked


def attach(url: str) -> bool:
    """A watcher comes, looks until it sees the run, and goes; True if it saw it."""
    observer, until = Observer(url), time.monotonic() + _RESOLVES_S
    try:
        while observer.tick().link.state != "live":
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
        return True
    finally:
        observer.close()


def write(address: Address) -> bool:
    """A client of the store comes, puts and goes; True if what it put is there."""
    store = TcpClient(*address, timeout_s=_RESOLVES_S)
    try:
        store.put("ddpmon/cycles", b"here")
        return store.get_many(["ddpmon/cycles"]) == [b"here"]
    finally:
        store.close()


def fail(relay: Relay, observer: Observer) -> bool:
    """The store fails and heals under a watcher and a writer; True if both noticed, and the watcher is live again."""
    writer = TcpClient(*relay.address, timeout_s=_RESOLVES_S)
    relay.shut()
    lost = observer.tick().link.state != "live"
    with contextlib.suppress(StoreUnavailable):
        for _ in range(1000):
            writer.put("ddpmon/cycles", b"lost")
        lost = False
    writer.close()
    relay.open()
    until = time.monotonic() + _RESOLVES_S
    while observer.tick().link.state != "live" and time.monotonic() < until:
        time.sleep(0.1)
    return observer.rebuild().link.state == "live" and lost


def address_of(url: str) -> Address:
    """Host and port of tcp://host:port."""
    host, _, port = url.removeprefix("tcp://").rpartition(":")
    return host, int(port)


class Relay:
    """Passes connections on to the store at `url`, while it is open."""

    def __init__(self, url: str) -> None:
        self._store = address_of(url)
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, socket.socket] = {}
        self.address = ("127.0.0.1", 0)
        self._ended = False
        self.open()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._thread.join()
        self.shut()
        self._selector.close()

    def open(self) -> None:
        """Listen, at the same port as before."""
        listener = socket.create_server(self.address)
        self.address = ("127.0.0.1", int(listener.getsockname()[1]))
        with self._lock:
            self._listener = listener
            self._selector.register(listener, selectors.EVENT_READ)

    def shut(self) -> None:
        """Refuse everybody, and drop all connections."""
        with self._lock:
            self._selector.unregister(self._listener)
            self._listener.close()
            for each in [*self._peers]:
                self._drop(each)

    def _run(self) -> None:
        while not self._ended:
            ready = self._selector.select(0.05)
            with self._lock, contextlib.suppress(OSError):
                for key, _ in ready:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._peers:
                        self._pass_on(key.fileobj)

    def _accept(self) -> None:
        near, far = self._listener.accept()[0], socket.create_connection(self._store)
        for one, other in ((near, far), (far, near)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, one: socket.socket) -> None:
        try:
            data = one.recv(1 << 16)
            self._peers[one].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(one)

    def _drop(self, one: socket.socket) -> None:
        other = self._peers.pop(one, None)
        if other is not None:
            self._peers.pop(other, None)
            for each in (one, other):
                self._selector.unregister(each)
                each.close()


@contextlib.contextmanager
def simulated_run() -> Iterator[tuple[str, psutil.Process]]:
    """A run in a store of its own: its address, and the process that hosts it."""
    command = [sys.executable, "-m", "ddpmon.cli", "simulate", "--ranks=4", "--processes=1", "--scenario=healthy"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as run:
        assert run.stdout is not None
        try:
            yield run.stdout.readline().split()[-1], psutil.Process(run.pid)
        finally:
            run.terminate()
