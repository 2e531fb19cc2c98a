"""Which ranks share a row of the heat-map: where they do not all fit, the ranks of a node do, or of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ddpmon.snapshot import Ints
from ddpmon.tui.draw.fold import fold

LABEL = 5


@dataclass(frozen=True, slots=True)
class Bands:
    """Rows of the heat-map.

    Attributes:
        order: [k] the ranks shown, band after band.
        starts: [b] where in `order` each band begins.
        labels: what each band is called: its first rank, or the end of its first node's name.
        unit: "rank" or "node".
        size: how many of these a band holds.
        halves: two bands share a line.
    """

    order: Ints
    starts: Ints
    labels: tuple[str, ...]
    unit: str
    size: int
    halves: bool

    def __post_init__(self) -> None:
        self.order.flags.writeable = self.starts.flags.writeable = False  # drawings share them

    def ranks(self, band: int) -> Ints:
        """The ranks of a band."""
        end = int(self.starts[band + 1]) if band + 1 < len(self.starts) else len(self.order)
        return self.order[int(self.starts[band]) : end]

    @property
    def folded(self) -> bool:
        """Whether some ranks share a band."""
        return len(self.starts) < len(self.order)


def share_out(chosen: Ints, hosts: Sequence[str], room: int, *, halves: bool) -> Bands:
    """The rows for the ranks `chosen` in `room` lines; `hosts` are all ranks' host names, "" where unknown."""
    return _shared(tuple(chosen.tolist()), tuple(hosts), room, halves)


@lru_cache(maxsize=2)  # ranks seldom move: of thousands, finding their nodes anew twice a tick would weigh
def _shared(ranks: tuple[int, ...], hosts: tuple[str, ...], room: int, halves: bool) -> Bands:
    chosen, folding = np.array(ranks, np.int64), fold(len(ranks), room, halves=halves)
    if folding.size > 1:
        names = [hosts[rank] for rank in ranks] if hosts else []
        if len(set(names)) > 1 and all(names):
            return _by_node(chosen, names, room, halves=halves)
    starts = np.arange(folding.bands) * folding.size
    labels = tuple(map(str, chosen[starts].tolist()))
    return Bands(chosen, starts, labels, "rank", folding.size, folding.halves)


def _by_node(chosen: Ints, names: list[str], room: int, *, halves: bool) -> Bands:
    nodes = list(dict.fromkeys(names))
    place = {name: number for number, name in enumerate(nodes)}
    node = np.array([place[name] for name in names])
    order = np.argsort(node, kind="stable")
    folding = fold(len(nodes), room, halves=halves)
    first = np.arange(folding.bands) * folding.size
    low, high = min(nodes), max(nodes)
    common = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    labels = tuple((nodes[number][common:] or nodes[number])[-LABEL:] for number in first.tolist())
    return Bands(chosen[order], np.searchsorted(node[order], first), labels, "node", folding.size, folding.halves)
