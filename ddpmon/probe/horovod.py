"""Horovod's DistributedOptimizer: gradients are reduced beside the backward, and waited for in its `synchronize`.

The sync point of a step is the end of `synchronize`, which `step` calls, and what the rank waits there is exposed. What
Python code waits for in Horovod's other operations is barrier time. There is no process group: the ranks meet in the
key-value server of `horovodrun --gloo`, and their numbers are in the environment.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection
from typing import Any

from ddpmon.probe.collectives import timed_wait
from ddpmon.probe.event_log import EventLog
from ddpmon.probe.parallel import HOROVOD_OPTIMIZERS

ADDRESS, PORT = "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"
_SCOPE, _LIMIT_S = "ddpmon", 2.0
Undo = Callable[[], None]


def hook_horovod(recorder: EventLog, model: Any) -> list[Undo]:
    """Mark the sync points of `model`, and the waits in other operations; returns what undoes it."""
    optimizer = HOROVOD_OPTIMIZERS.get(model)
    if optimizer is None:
        return []
    undo = [_replaced(type(optimizer), "synchronize", functools.partial(_synchronized, recorder, optimizer))]
    busy = threading.local()
    for module, name in (("horovod.torch.mpi_ops", "synchronize"), ("horovod.torch", "barrier")):
        with suppress(Exception):  # without it those waits are work, and nothing worse
            owner = sys.modules[module]
            undo.append(_replaced(owner, name, timed_wait(recorder, getattr(owner, name), busy)))
    return undo


def _replaced(owner: Any, name: str, replacement: Callable[..., Any]) -> Undo:
    original = vars(owner)[name]
    if isinstance(replacement, functools.partial):
        around = functools.partial(replacement, original)

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            return around(*args, **kwargs)

    setattr(owner, name, replacement)

    def undo() -> None:
        if vars(owner)[name] is replacement:
            setattr(owner, name, original)

    return undo


def _synchronized(recorder: EventLog, watched: Any, original: Callable[..., Any], optimizer: Any, *args: Any) -> Any:
    """Wait for the reductions; the optimizer's time is interrupted, where this is within its step."""
    is_step = optimizer is watched and bool(getattr(optimizer, "_handles", ()))
    if is_step:
        recorder.time_hook("arrived", _arrive, recorder)
    result = original(optimizer, *args)
    if is_step:
        recorder.synced()
        recorder.time_hook("optimizer", recorder.mark_as, "optimizer")
    return result


def _arrive(recorder: EventLog) -> None:
    recorder.mark_as("optimized")
    recorder.mark_as("arrived")


class KeyValues:
    """The key-value server of `horovodrun --gloo`, as far as a handover needs a store. The publisher's thread calls it.

    Raises:
        OSError: in every method: the server does not answer.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    def set(self, key: str, value: str) -> None:
        """Leave a value."""
        self._ask("PUT", key, value)

    def check(self, keys: list[str]) -> bool:
        """Whether all of these are there."""
        return all(self._ask("GET", key) is not None for key in keys)

    def get(self, key: str) -> bytes:
        """A value that is there."""
        return self._ask("GET", key) or b""

    def _ask(self, method: str, key: str, value: str | None = None) -> bytes | None:
        connection = HTTPConnection(self._host, self._port, timeout=_LIMIT_S)
        try:
            connection.request(method, f"/{_SCOPE}/{key.replace('/', '.')}", value)
            answer = connection.getresponse()
            said = answer.read(1 << 12)
            return said if answer.status == 200 else None
        finally:
            connection.close()


def key_values() -> KeyValues | None:
    """The server that `horovodrun --gloo` has told this process of; None without one, as under mpirun."""
    host, port = os.environ.get(ADDRESS), os.environ.get(PORT, "")
    return KeyValues(host, int(port)) if host and port.isdigit() else None
