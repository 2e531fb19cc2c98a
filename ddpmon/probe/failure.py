"""The exception that ends a rank: noted on its way to whoever handles it, and read out in the publisher's thread."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from traceback import TracebackException
from types import TracebackType

from ddpmon.parts import Failure, wire_text

_LINES, _WIDTH = 32, 1024
_HEARD_S = 1.5


class _Newest:
    """When this process reported an exception last, on its monotonic clock."""

    at = float("-inf")


_newest = _Newest()


@dataclass(frozen=True, slots=True)
class Report:
    """What is kept of an exception: no frame of it, so that nothing in them lives longer than without us."""

    kind: str
    message: str
    step: int
    trace: TracebackException | None

    @staticmethod
    def of(error: BaseException, step: int) -> Report:
        """Take down `error`, which the rank met after `step`, or what a `sys.exit(1)` answers; reads no file."""
        error = _answered(error) or error
        if isinstance(error, Exception):
            _newest.at = monotonic()
        try:
            trace = TracebackException(type(error), error, error.__traceback__, limit=-_LINES, lookup_lines=False)
        except Exception:  # whatever a user's exception class does when it is looked at
            trace = None
        return Report(_kind(error), _message(error), step, trace)

    def read(self) -> Failure:
        """What crosses the store: the last 32 lines of the traceback, with their source but no underlining."""
        lines: list[str] = []
        try:
            for block in self.trace.format() if self.trace is not None else ():
                lines += [line for line in block.rstrip("\n").split("\n") if line.strip(" ^~")]
        except Exception:
            lines.append("the rest of the traceback could not be read")
        return Failure(self.kind, self.message, self.step, [wire_text(line, _WIDTH) for line in lines[-_LINES:]])


def unheard_s() -> float:
    """How many seconds this process should stay for the newest report's sake.

    When a rank ends of an exception its launcher ends the others, and with rank 0 the store, while watchers read once a
    second. Who interrupts a rank knows why it ends: only exceptions count.
    """
    return max(0.0, _newest.at + _HEARD_S - monotonic())


def _answered(error: BaseException) -> BaseException | None:
    """What was caught where `sys.exit` was called with a number."""
    if not isinstance(error, SystemExit) or isinstance(error.code, str):
        return None
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def is_failure(error: BaseException | None) -> bool:
    """Whether leaving with `error` means that training failed: not for `sys.exit(0)` nor for a closed generator."""
    if error is None or isinstance(error, GeneratorExit):
        return False
    return not (isinstance(error, SystemExit) and error.code in (None, 0))


def _kind(error: BaseException) -> str:
    kind = type(error)
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    return wire_text(f"{module}{kind.__qualname__}")


def _message(error: BaseException) -> str:
    try:
        return wire_text(str(error), _WIDTH)
    except Exception:
        return ""


def hook_exceptions(take: Callable[[BaseException], None]) -> Callable[[], None]:
    """Hand what nobody catches to `take`, then to the hook that was there; returns what undoes it.

    A hook that was installed behind ours and calls it stays: ours then only passes on.
    """
    previous, listening = sys.excepthook, True

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        # At a prompt the process lives on, and so may the training.
        if listening and not hasattr(sys, "ps1"):
            with suppress(Exception):
                take(error)
        previous(kind, error, trace)

    def undo() -> None:
        nonlocal listening
        listening = False
        if sys.excepthook is hook:
            sys.excepthook = previous

    sys.excepthook = hook
    return undo
