"""What the host frames of one reading say, as arrays over all their ranks: no Python loop runs over ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpmon.figures import FIGURES, PLACE
from ddpmon.parts import MAX_RANKS
from ddpmon.run.rings import Tables
from ddpmon.schema import HostFrame, StepRows, names_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Words = NDArray[np.object_]
StepTable = tuple[Ints, Ints, Tables]
Part = tuple[int, int, StepRows]  # the place of its frame's first rank among all, how many these are, and steps

_LEAST, _MOST = (np.array([getattr(figure, bound) for figure in FIGURES]) for bound in ("least", "most"))
_COUNTS = np.flatnonzero([figure.counts for figure in FIGURES])
_OPTIONAL = np.array([figure.optional for figure in FIGURES])
_ROWS_AT_ONCE = 1 << 17  # of steps that are unpacked together, so that many long host frames take little memory


@dataclass(frozen=True, slots=True)
class HostRows:
    """One row for each of n different ranks.

    Attributes:
        ranks: [n].
        figures: [n, len(FIGURES)], NaN where unknown.
        phase: [n] the names of their phases.
        first: [n] whether the host frame that has the row is the first that this watcher sees of its writer.
    """

    ranks: Ints
    figures: Floats
    phase: Words
    first: Flags
    _kept: Ints  # [n] the place of each row among all ranks of the frames
    _steps: Mapping[int, Sequence[Part]]  # by their columns
    _count: int

    def column(self, name: str) -> Floats:
        """[n] a figure by its name."""
        found: Floats = self.figures[:, PLACE[name]]
        return found

    def steps_of(self, chosen: Flags) -> Iterator[StepTable]:
        """The steps of the chosen rows [n], as `Rings.add_rows` takes them."""
        ranks = np.full(self._count, -1)
        ranks[self._kept[chosen]] = self.ranks[chosen]
        for columns, parts in self._steps.items():
            for some in _parts(parts):
                yield _table(columns, some, ranks)


def gather(frames: Sequence[HostFrame], is_first: Callable[[int], bool], world_size: int) -> tuple[HostRows, list[int]]:
    """The rows of host frames whose lengths have been checked.

    Args:
        frames: of different writers. Of a rank that several of them have, its newest row is taken.
        is_first: whether the frame of this writer is the first that is seen of it.
        world_size: of the run.

    Returns:
        The rows, and the places of the frames that have others, which cannot be true: of a rank that the frame has
        twice or that is beyond the run, or with a figure out of its bounds.
    """
    counts = np.array([len(frame.ranks) // 4 for frame in frames], np.int64)
    starts, source = np.cumsum(counts) - counts, np.repeat(np.arange(len(frames)), counts)
    ranks = np.frombuffer(b"".join([frame.ranks for frame in frames]), "<i4").astype(np.int64)
    figures = np.frombuffer(b"".join([frame.figures for frame in frames]), "<f8").reshape(-1, len(FIGURES))
    named = np.array([len(frame.phases) for frame in frames], np.int64)
    good = (ranks >= 0) & (ranks < world_size) & _are_possible(figures)
    good &= ~(figures[:, PLACE["phase"]] >= named[source]) & ~_repeated(source * MAX_RANKS + ranks % MAX_RANKS)
    steps: dict[int, list[Part]] = {}
    for start, count, frame in zip(starts.tolist(), counts.tolist(), frames, strict=True):
        for rows in frame.steps:
            steps.setdefault(rows.columns, []).append((start, count, rows))
    kept = np.flatnonzero(good)
    kept = kept[_newest(ranks[kept], figures[kept])]
    names: Words = np.array([phase for frame in frames for phase in frame.phases], object)
    phase = names[(np.cumsum(named) - named)[source[kept]] + figures[kept, PLACE["phase"]].astype(np.int64)]
    first = np.array([is_first(frame.rank) for frame in frames], np.bool_)[source[kept]]
    bad = {*source[~good].tolist()}
    return HostRows(ranks[kept], figures[kept], phase, first, kept, steps, len(ranks)), sorted(bad)


def _are_possible(figures: Floats) -> Flags:
    """[n] whether every figure of a row is within its bounds, or unknown where it may be."""
    unknown = np.isnan(figures) & _OPTIONAL
    possible = unknown | ((figures >= _LEAST) & (figures <= _MOST))
    counted = figures[:, _COUNTS]
    with np.errstate(invalid="ignore"):  # hostile: NaN of the kind that signals
        whole = np.isnan(counted) | (counted == np.floor(counted))
    if possible.all() and whole.all():  # the usual case
        return np.ones(len(figures), np.bool_)
    found: Flags = possible.all(axis=1) & whole.all(axis=1)
    return found


def _repeated(values: Ints) -> Flags:
    """[n] whether an equal value stands elsewhere."""
    ordered = np.sort(values)
    return np.isin(values, ordered[1:][ordered[1:] == ordered[:-1]])


def _newest(ranks: Ints, figures: Floats) -> Ints:
    """The places of each rank's newest row."""
    order = np.lexsort((figures[:, PLACE["sent_at"]], ranks))
    last: Ints = order[np.diff(ranks[order], append=-1) != 0]
    return last


def _parts(parts: Sequence[Part]) -> Iterator[Sequence[Part]]:
    """Parts of a bounded size."""
    some: list[Part] = []
    rows = 0
    for part in parts:
        some.append(part)
        rows += len(part[2].step) // 8
        if rows >= _ROWS_AT_ONCE:
            yield some
            some, rows = [], 0
    if some:
        yield some


def _table(columns: int, parts: Sequence[Part], ranks: Ints) -> StepTable:
    """Steps that have the same columns; `ranks` has the rank of every place, -1 for one that is left out."""
    lengths = [len(rows.step) // 8 for _, _, rows in parts]
    place = np.frombuffer(b"".join([rows.place for _, _, rows in parts]), "<u2").astype(np.int64)
    place[place >= np.repeat([count for _, count, _ in parts], lengths)] = len(ranks)  # of no rank of its frame
    who = np.append(ranks, -1)[np.minimum(place + np.repeat([start for start, _, _ in parts], lengths), len(ranks))]
    steps = np.frombuffer(b"".join([rows.step for _, _, rows in parts]), "<i8").astype(np.int64, copy=False)
    wide, narrow = names_of(columns)
    values = np.frombuffer(b"".join([rows.values for _, _, rows in parts]), "<f4").reshape(len(place), len(wide))
    halves = np.frombuffer(b"".join([rows.halves for _, _, rows in parts]), "<f2").reshape(len(place), len(narrow))
    return who, steps, [(wide, values), (narrow, halves)]
