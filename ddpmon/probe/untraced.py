"""Keeps torch.compile away from the probe: what a compiled model calls is traced, unless it is marked."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from types import CodeType
from typing import Any, cast

import torch


@cache
def leave_untraced() -> None:
    """Mark every function of the probe's, once a process.

    Otherwise a model that is compiled after attach has them compiled as well, warns of what it finds in them, and does
    so anew whenever a number in them changes. Never raises: where torch knows no such mark, nothing is marked.
    """
    with suppress(Exception):
        skip = _marker()
        for name, module in list(sys.modules.items()):
            if name.startswith(f"{__package__}."):
                for code in _codes_of(module, name):
                    skip(code)


def _marker() -> Callable[[CodeType], None]:
    frames: Any = torch._C._dynamo.eval_frame  # what torch._dynamo itself marks by; importing that takes a second
    if hasattr(frames, "skip_code"):  # torch 2.6
        return cast("Callable[[CodeType], None]", frames.skip_code)
    strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
    return lambda code: frames.set_code_exec_strategy(code, strategy)


def _codes_of(holder: Any, module: str) -> Iterator[CodeType]:
    """The code of all functions that `holder`, a module or a class in it, defines."""
    for value in vars(holder).values():
        if getattr(value, "__module__", None) != module:
            continue
        if inspect.isfunction(value):
            yield from _within(value.__code__)
        elif inspect.isclass(value):
            yield from _codes_of(value, module)


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _within(constant)
