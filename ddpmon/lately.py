"""What is remembered by name, where names come and go: a bounded number, the ones asked for last."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lately(Generic[T]):
    """One thing a name, made when it is first asked for.

    Args:
        make: makes one.
        most: how many are kept; must be more than are in use at the same time.
    """

    def __init__(self, make: Callable[[], T], most: int) -> None:
        self._make, self._most = make, most
        self._known: dict[Hashable, T] = {}

    def of(self, name: Hashable) -> T:
        """What belongs to the name; the one that was not asked for longest is forgotten for it."""
        found = self._known.pop(name) if name in self._known else self._make()
        self._known[name] = found
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        return found
