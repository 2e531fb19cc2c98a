"""The end of a process that multiprocessing has started, with the exception that ends it.

Such a process may end without `atexit`, and its exceptions never meet `sys.excepthook`. What it offers are finalizers.
Before Python 3.13 they run while the exception is handled. From then on they run later, when it is gone, so it is taken
in the lines of `BaseProcess._bootstrap` that handle it: `sys.monitoring` tells of the lines of this one function, and
nothing else becomes slower.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any

_TOOLS = (4, 3)  # numbers of `sys.monitoring` that stand for no kind of tool
_NAME = "ddpmon"


def at_end_of_child(speak: Callable[[BaseException | None], None]) -> None:
    """Call `speak` when this process ends, a child of multiprocessing, with the exception that ends it or None."""
    ending = _Ending(speak)
    _listen(ending.look)
    Finalize(None, ending, exitpriority=0)


class _Ending:
    """Remembers the exception that the process was last seen to handle."""

    def __init__(self, speak: Callable[[BaseException | None], None]) -> None:
        forked = multiprocessing.get_start_method(allow_none=True) == "fork"
        # A child that its parent forked in an `except` is born with that exception; else it would only be kept.
        self._handled = sys.exc_info()[1] if forked else None
        self._error: BaseException | None = None
        self._speak = speak

    def look(self, *_line: object) -> None:
        """See what is being handled now; it is called with code and line, and never raises."""
        error = sys.exc_info()[1]
        if error is not None and error is not self._handled:
            self._error = error

    def __call__(self) -> None:
        self.look()
        self._speak(self._error)


def _listen(take: Callable[..., None]) -> None:
    """Call `take` at each line of `_bootstrap` that this process still comes to; not before Python 3.12."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        return
    for tool in _TOOLS:
        if monitoring.get_tool(tool) is None:
            monitoring.use_tool_id(tool, _NAME)
        if monitoring.get_tool(tool) == _NAME:  # a parent that forked this process may have taken it
            line = monitoring.events.LINE
            monitoring.register_callback(tool, line, take)
            monitoring.set_local_events(tool, BaseProcess._bootstrap.__code__, line)  # type: ignore[attr-defined]
            return
