"""Lists of CPUs as the kernel writes them, as bits: "0-3,8" is 0b100001111."""

from __future__ import annotations

import re
from functools import lru_cache

_MOST = 8192
_PART = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?$")


@lru_cache(maxsize=4096)
def mask_of(cpus: str | None) -> int:
    """The bits of a list of CPUs; 0 where it is unknown or makes no sense."""
    mask = 0
    for part in (cpus or "").split(","):
        found = _PART.match(part.strip())
        if found is None:
            return 0
        first, last = int(found[1]), min(int(found[2] or found[1]), _MOST)
        mask |= ((1 << max(0, last - first + 1)) - 1) << first if first < _MOST else 0
    return mask


def count(mask: int) -> int:
    """How many CPUs it holds."""
    return bin(mask).count("1")


@lru_cache(maxsize=4096)
def crowds(lists: tuple[str | None, ...]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Those whose CPUs overlap, together, where they are more than these: (their CPUs as one mask, their places)."""
    groups: list[tuple[int, tuple[int, ...]]] = []
    for place, mask in enumerate(map(mask_of, lists)):
        if not mask:
            continue
        joined, apart = mask, list[tuple[int, tuple[int, ...]]]()
        places: tuple[int, ...] = (place,)
        for other, members in groups:
            if other & mask:
                joined, places = joined | other, (*members, *places)
            else:
                apart.append((other, members))
        groups = [*apart, (joined, tuple(sorted(places)))]
    return tuple((mask, places) for mask, places in groups if len(places) > count(mask))


@lru_cache(maxsize=4096)
def is_apart(cpus: str | None, near: str) -> bool:
    """Whether both are known and have no CPU in common."""
    return bool(mask_of(cpus) and mask_of(near)) and not mask_of(cpus) & mask_of(near)
