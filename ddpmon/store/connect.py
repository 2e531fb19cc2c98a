"""From a TARGET to a store: what the watchers call."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ddpmon.store.base import RUNS_KEY, Store, TargetError
from ddpmon.store.patience import PatientStore

_SILENCE_S = 600.0  # a store that is stopped may come back: only our patience is short
_FORM = "a TARGET is tcp://host:port, or nothing for the run on this host"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a run is to be read: a store's address, and a run in it (None: the newest)."""

    host: str
    port: int
    run_id: str | None = None

    @property
    def url(self) -> str:
        """The target as a URL, without the run."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"


def parse_target(text: str) -> Target:
    """Understand a TARGET.

    Raises:
        TargetError: an unknown scheme, a bad host or port, or a path (recordings cannot be read yet).
    """
    if "://" not in text:
        raise TargetError(_not_a_url(text))
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise TargetError(f"{text!r} is no address ({error}): {_FORM}") from None
    if parts.scheme != "tcp":
        raise TargetError(f"unknown scheme {parts.scheme!r} in {text!r}: {_FORM}")
    if not host:
        raise TargetError(f"{text!r} names no host: {_FORM}")
    if not port:
        raise TargetError(f"{text!r} names no port: {_FORM}")
    return Target(host, port, parts.path.strip("/") or None)


def connect(target: Target, *, timeout_s: float = 5.0) -> Store:
    """Open the store at `target`; no operation on it holds its caller for longer than `timeout_s`.

    Raises:
        StoreUnavailable: it cannot be reached or is no store, or torch is not installed.
    """
    # Set before torch is loaded: its C++ warnings would be written across the screen.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    from ddpmon.store.tcp import TcpStore, load_torch

    load_torch()  # seconds on a cold disk: not counted against the store

    def opener() -> Store:
        store = TcpStore(target.host, target.port, timeout_s=timeout_s)
        store.be_patient(_SILENCE_S)
        return store

    return PatientStore(opener, target.url, patience_s=timeout_s)


def list_runs(store: Store) -> list[str]:
    """The ids of the runs that the store holds, newest last.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    (value,) = store.get_many([RUNS_KEY])
    if value is None or len(value) > 1 << 20:
        return []
    return [line for line in value.decode("utf-8", "replace").split("\n") if line]


def _not_a_url(text: str) -> str:
    if text and _exists(text):
        return f"{text!r} is not a ddpmon recording: {_FORM}"
    return f"{text!r} is neither an address nor an existing file: {_FORM}"


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # too long for a name, or not one at all
        return False
