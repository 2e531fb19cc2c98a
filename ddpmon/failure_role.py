"""Whether a rank failed by itself, or because another one had ended: told by its exception."""

from __future__ import annotations

import re
from typing import Literal

from ddpmon.parts import Failure

Role = Literal["cause", "unknown", "interrupt", "secondary"]
_BACKEND = {"DistBackendError", "DistNetworkError", "DistStoreError", "ChildFailedError"}
_CARRIERS = {"RuntimeError", "ConnectionError", "ConnectionResetError", "ConnectionAbortedError", "TimeoutError"}
_CARRIERS |= {"BrokenPipeError", "DistError", "OSError"}
_CONNECTION = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|broken pipe|gloo|nccl|timed? ?out|socket|remote peer|"
    r"process group",
    re.IGNORECASE,
)
_INTERRUPTS = {"KeyboardInterrupt", "SIGTERM", "SIGINT", "SignalException"}


def role_of(failure: Failure | None) -> Role:
    """Whether a failed rank ended by itself, by an interrupt, or because another rank had ended."""
    if failure is None:
        return "unknown"
    kind = failure.kind.rsplit(".", 1)[-1]
    if kind in _INTERRUPTS or is_terminated(failure):
        return "interrupt"
    is_broken = _CONNECTION.search(" ".join(failure.message.split())) is not None
    return "secondary" if kind in _BACKEND or (kind in _CARRIERS and is_broken) else "cause"


def is_terminated(failure: Failure | None) -> bool:
    """Whether SIGTERM ended a rank, which launchers send."""
    return failure is not None and ("SIGTERM" in failure.message or failure.kind.rsplit(".", 1)[-1] == "SIGTERM")
