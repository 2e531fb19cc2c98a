"""Wraps functions of frameworks, and puts them back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ddpmon.probe import monitor

Undo = Callable[[], None]
Around = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def wrapped(owner: Any, name: str, around: Around) -> Undo:
    """Let `around` call a function of `owner`, a module or class, with its arguments; returns what puts it back.

    Raises:
        AttributeError: there is no such function.
    """
    if isinstance(owner, type):  # where the class inherits it from
        owner = next((kind for kind in owner.__mro__ if name in vars(kind)), owner)
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return around(original, args, kwargs)

    def undo() -> None:
        if getattr(owner, name) is call:
            setattr(owner, name, original)

    setattr(owner, name, call)
    return undo


def mark_phases(owner: Any, phases: dict[str, str], undo: list[Undo]) -> None:
    """Mark every call of these methods of `owner` as a phase; `undo` gets what undoes it."""
    for name, phase in phases.items():
        if hasattr(owner, name):
            undo.append(wrapped(owner, name, _in_phase(phase)))


def _in_phase(phase: str) -> Around:
    def around(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        watched = monitor.active()
        if watched is None:
            return original(*args, **kwargs)
        with watched.phase(phase):
            return original(*args, **kwargs)

    return around
