"""The training's own rendezvous store as the place for frames: for clusters where no further port may be opened."""

from __future__ import annotations

import os
from typing import Any

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]


def is_wanted() -> bool:
    """Whether DDPMON_STORE asks for it."""
    return os.environ.get("DDPMON_STORE") == "rendezvous"


def server_of(training: Any) -> tuple[str, int]:
    """Host and port of the server behind a process group's store, as this rank reaches it.

    The group's own client is left to the training: its one lock and socket must not wait for our frames.

    Raises:
        RuntimeError: there is no TCPStore behind it.
    """
    inner = training
    while isinstance(inner, PrefixStore):
        inner = inner.underlying_store
    if not isinstance(inner, TCPStore):
        raise RuntimeError(f"DDPMON_STORE=rendezvous needs a TCPStore, this run has a {type(inner).__name__}")
    return str(inner.host), int(inner.port)
