"""A bounded dict that creates missing values and evicts the least recently used."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class LruDefaultDict(Generic[T]):
    """Values by name, where names come and go.

    Args:
        make: makes the value of a name that is not known.
        most: how many values are kept; it must be more than are in use at the same time.
    """

    def __init__(self, make: Callable[[], T], most: int) -> None:
        self._make, self._most = make, most
        self._known: dict[Hashable, T] = {}

    def of(self, name: Hashable) -> T:
        """The value of the name; the least recently used one is evicted for a new one."""
        found = self._known.pop(name) if name in self._known else self._make()
        self._known[name] = found
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        return found
