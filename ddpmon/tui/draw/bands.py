"""Which ranks share a row of the heat-map: a rank, a host, or several hosts a row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ddpmon.report.verdicts import is_broken, late_ranks, marked_ranks
from ddpmon.snapshot import Ints
from ddpmon.tui.draw.host_labels import LABEL, LABEL_MOST, host_labels
from ddpmon.tui.draw.panel_sizes import fold
from ddpmon.tui.filter.fits import fitting_ranks
from ddpmon.tui.view_state import ViewState

GUTTER = 7  # cells of a usual label, its marker, and a gap
FRAME = 2  # lines of the panel besides the rows: title and axis
_KEPT = 256  # labels of rows of several hosts, more than a tall terminal has; a row of 8 hosts takes 1 kB


@dataclass(frozen=True, slots=True)
class Bands:
    """Rows of the heat-map.

    Attributes:
        order: [k] the ranks shown, band after band.
        starts: [b] where in `order` each band begins.
        labels: what each band is called: its first rank, or its hosts' names in short, such as `n0-n3`, not cut to
            `label` cells.
        unit: "rank" or "host".
        size: how many of these a band holds.
        halves: two bands share a line.
        label: cells of a label.
        hosts: [k] of ranks that share a band with others of other hosts the label of each one's host; else empty.
    """

    order: Ints
    starts: Ints
    labels: tuple[str, ...]
    unit: str
    size: int
    halves: bool
    label: int = LABEL
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.order.flags.writeable = self.starts.flags.writeable = False  # drawings share them

    def ranks(self, band: int) -> Ints:
        """The ranks of a band."""
        end = int(self.starts[band + 1]) if band + 1 < len(self.starts) else len(self.order)
        return self.order[int(self.starts[band]) : end]

    def band_of(self, rank: int) -> int:
        """The band of a rank; the first one where the rank is not shown."""
        found = np.flatnonzero(self.order == rank)
        return int(np.searchsorted(self.starts, found[0], side="right")) - 1 if len(found) else 0

    def label_of(self, first: int, end: int, worth: Ints) -> tuple[str, int]:
        """What the bands from `first` to before `end` are called, and the rank after which they are, -1 for none.

        It is the rank of the greatest `worth` [world], or its host; where all have 0, the first band has its own label,
        and hosts are called from the first to the last.
        """
        start = int(self.starts[first])
        stop = int(self.starts[end]) if end < len(self.starts) else len(self.order)
        at = start + int(worth[self.order[start:stop]].argmax())
        rank = int(self.order[at])
        if not worth[rank]:
            span = _span(self.hosts[start:stop], self.label) if self.hosts and end > first + 1 else self.labels[first]
            return span, -1
        return (self.hosts[at] if self.hosts else str(rank)), rank

    @property
    def gutter(self) -> int:
        """Cells left of the map: the label, its marker, and a gap."""
        return GUTTER + self.label - LABEL

    @property
    def folded(self) -> bool:
        """Whether some ranks share a band."""
        return len(self.starts) < len(self.order)


@lru_cache(maxsize=_KEPT)
def _span(hosts: tuple[str, ...], most: int = LABEL_MOST) -> str:
    """`n0-n3`: the first and the last of these hosts, the first alone where both need more than `most` cells.

    Hosts that do not stand in the order of their numbers are called `n54 +1`.
    """
    distinct = list(dict.fromkeys(hosts))
    first, more = distinct[0], len(distinct) - 1
    orders = list(map(_natural, distinct))
    both = first if not more else f"{first}-{distinct[-1]}" if orders == sorted(orders) else f"{first} +{more}"
    return both if len(both) <= most else first


def _natural(name: str) -> list[tuple[int, str]]:
    """What orders names by the numbers in them: `n9` before `n10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.findall(r"\d+|\D+", name)]


def share_out(chosen: Ints, hosts: Sequence[str], room: int, *, halves: bool) -> Bands:
    """The rows for the ranks `chosen` in `room` lines; `hosts` are all ranks' host names, "" where unknown."""
    folding = fold(len(chosen), room, halves=halves)
    if folding.size > 1:
        names = [hosts[rank] for rank in chosen.tolist()] if hosts else []
        if len(set(names)) > 1 and all(names):
            return _by_host(chosen, names, room, halves=halves)
    starts = np.arange(folding.bands) * folding.size
    labels = tuple(map(str, chosen[starts].tolist()))
    return Bands(chosen, starts, labels, "rank", folding.size, folding.halves)


def _by_host(chosen: Ints, names: list[str], room: int, *, halves: bool) -> Bands:
    named = list(dict.fromkeys(names))
    place = {name: number for number, name in enumerate(named)}
    host = np.array([place[name] for name in names])
    order = np.argsort(host, kind="stable")
    folding = fold(len(named), room, halves=halves, hosts=True)
    first = np.arange(folding.bands) * folding.size
    found, cells = host_labels(named)
    labels = tuple(found)
    starts = np.searchsorted(host[order], first)
    shown = tuple(_span(labels[number : number + folding.size]) for number in first.tolist())
    of_ranks = tuple(labels[number] for number in host[order].tolist())
    shared = range(0, len(labels), folding.size * (2 if folding.halves else 1))
    lines = [_span(labels[number : number + shared.step]) for number in shared]
    longest = max(map(len, (*shown, *lines))) if shared.step > 1 else 0
    cells = max(cells, min(longest, LABEL_MOST))
    return Bands(chosen[order], starts, shown, "host", folding.size, folding.halves, cells, of_ranks)


@dataclass(slots=True)
class _Shared:
    """The rows shared out last; ranks seldom move, and to find the hosts of thousands twice a tick is slow."""

    chosen: Ints
    hosts: tuple[str, ...]
    room: int
    halves: bool
    bands: Bands

    def serves(self, chosen: Ints, hosts: tuple[str, ...], room: int, halves: bool) -> bool:
        """Whether they are the rows for these ranks."""
        same = (self.room, self.halves) == (room, halves) and np.array_equal(self.chosen, chosen)
        if same and self.hosts is not hosts and self.hosts == hosts:
            self.hosts = hosts  # the next comparison with this snapshot is at once over
        return same and self.hosts is hosts


_shared: list[_Shared] = []


def _share_once(chosen: Ints, hosts: tuple[str, ...], room: int, *, halves: bool) -> Bands:
    if not (_shared and _shared[0].serves(chosen, hosts, room, halves)):
        _shared[:] = [_Shared(chosen, hosts, room, halves, share_out(chosen, hosts, room, halves=halves))]
    return _shared[0].bands


def bands_of(picture: ViewState, height: int, wanted: str = "", only: Sequence[int] = ()) -> Bands | None:
    """Which ranks share a row of a heat-map of this height; `only` are the ranks to show, in this order.

    None where the filter `wanted` fits no rank.
    """
    snapshot = picture.snapshot
    count = 0 if snapshot.heat is None else len(snapshot.heat.values)
    hosts = () if snapshot.ranks is None or len(snapshot.ranks) != count else snapshot.ranks.host
    chosen = np.array(only, np.int64) if only else np.arange(count)
    if wanted and hosts:
        chosen = chosen[fitting_ranks(snapshot, wanted)[chosen]]
        if not chosen.size:
            return None
    return _share_once(chosen, hosts, height - FRAME, halves=picture.look.smooth)


def named_ranks(bands: Bands, picture: ViewState) -> NDArray[np.int64]:
    """[at least the highest rank shown + 1] 1 where a finding names a rank, 2 where it says that it is broken."""
    marked = np.zeros(int(bands.order.max(initial=-1)) + 1, np.int64)
    for rank, finding in marked_ranks(picture.snapshot.findings, "warning").items():
        if 0 <= rank < len(marked):
            marked[rank] = 1 + is_broken(finding)
    return marked


def naming_worth(named: Ints, picture: ViewState) -> Ints:
    """[world] how much each rank is worth to give a row of several its name: the latest most, whose cells it shows."""
    snapshot = picture.snapshot
    late = [rank for rank in late_ranks(snapshot.findings) if rank < len(named) and named[rank]]
    if snapshot.ranks is not None and late and late[-1] < len(snapshot.ranks):
        late.sort(key=np.nan_to_num(snapshot.ranks.lateness_ms).__getitem__)
    worth = named.copy()
    worth[late] = named.max(initial=0) + 1 + np.arange(len(late))
    return worth
