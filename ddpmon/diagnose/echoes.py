"""What a rank says of the exception that ended it, and whether it is only the echo of another rank's end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from ddpmon.diagnose.wording import clean
from ddpmon.schema import RankFrame

Role = Literal["cause", "unknown", "interrupt", "echo"]
_BACKEND = {"DistBackendError", "DistNetworkError", "DistStoreError", "ChildFailedError"}
_CARRIERS = {"RuntimeError", "ConnectionError", "ConnectionResetError", "ConnectionAbortedError", "TimeoutError"}
_CARRIERS |= {"BrokenPipeError", "DistError", "OSError"}
_ECHO = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|broken pipe|gloo|nccl|timed? ?out|socket|remote peer|"
    r"process group",
    re.IGNORECASE,
)
_INTERRUPTS = {"KeyboardInterrupt", "SIGTERM", "SIGINT", "SignalException"}
_LINE = re.compile(r'File "([^"]*)", line (\d+), in (.+)')
_FOREIGN = re.compile(r"site-packages|dist-packages|/lib/python\d|<frozen|<string>")


def role_of(frame: RankFrame) -> Role:
    """Whether a failed rank ended by itself, by an interrupt, or since another rank had gone."""
    failure = frame.failure
    if failure is None:
        return "unknown"
    kind = failure.kind.rsplit(".", 1)[-1]
    if kind in _INTERRUPTS or "SIGTERM" in failure.message:
        return "interrupt"
    echoes = kind in _BACKEND or (kind in _CARRIERS and _ECHO.search(failure.message) is not None)
    return "echo" if echoes else "cause"


def step_of(frame: RankFrame) -> int:
    """The last step that it had finished, -1 before the first."""
    return frame.failure.step if frame.failure is not None else frame.step


def error_of(frame: RankFrame, limit: int = 160) -> str:
    """Its exception and the message, at most `limit` characters of it."""
    failure = frame.failure
    if failure is None:
        return "an error that it did not report"
    kind, message = clean(failure.kind, 60), clean(failure.message, limit)
    return f"{kind}: {message}" if message else kind


def place_of(traceback: Sequence[str]) -> str:
    """The innermost line that is the user's own code, else the innermost; "" if there is none."""
    lines = "\n".join(traceback).split("\n")
    found = [(match, lines[at + 1 : at + 2]) for at, line in enumerate(lines) if (match := _LINE.search(line))]
    if not found:
        return ""
    own = [entry for entry in found if not _FOREIGN.search(entry[0][1])]
    match, following = (own or found)[-1]
    source = clean(following[0], 80) if following and not _LINE.search(following[0]) else ""
    name = match[1].replace("\\", "/").rsplit("/", 1)[-1]
    return f"{clean(name, 60)}:{match[2]} in {clean(match[3], 60)}{f': {source}' if source else ''}"
