"""Bucket detail of all ranks: what each bucket of a reduction takes, where `attach(buckets=True)` asked for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpmon.schema import BucketColumns

_STEPS, _LEAST_STEPS = 64, 8  # that are kept, and of a rank with very many buckets
_VALUES = 4096  # of a rank: 64 steps of 64 buckets; of 1,024 buckets 64 steps would be 256 kB a rank
_NEWEST = 20  # steps that are looked at together
F32 = NDArray[np.float32]
I64 = NDArray[np.int64]


def bus_bandwidth(size: int, ms: NDArray[np.floating], ranks: int) -> NDArray[np.float64]:
    """[like ms] `bytes / transfer * 2(n-1)/n` in GB/s (nccl-tests, PERFORMANCE.md); NaN where no transfer is known.

    That is so of one rank, too: it sends nothing.
    """
    transfer_ms = np.where(ms > 0, ms, np.nan) if ranks > 1 else np.full(ms.shape, np.nan)
    found: NDArray[np.float64] = size / 1e6 / transfer_ms * 2 * (ranks - 1) / ranks
    return found


@dataclass(frozen=True)
class Transfers:
    """What the buckets of the newest reductions took.

    Attributes:
        sizes: bytes of each bucket.
        step: [S] ascending.
        ms: [S, buckets] the least that any rank took. The rank that comes last waits for nobody: its time is the
            transfer.
    """

    sizes: tuple[int, ...]
    step: I64
    ms: F32

    def bandwidth(self, ranks: int) -> NDArray[np.float64]:
        """[S] the bus bandwidth of a job of so many ranks, in GB/s; NaN where it is not known."""
        return bus_bandwidth(sum(self.sizes), self.ms.sum(axis=1), ranks)


_NOTHING = Transfers((), np.empty(0, np.int64), np.empty((0, 0), np.float32))


class BucketTimes:
    """The newest steps of every rank that has bucket detail."""

    def __init__(self) -> None:
        self._ranks: dict[int, tuple[list[int], dict[int, F32]]] = {}

    def add(self, rank: int, columns: BucketColumns) -> None:
        """Take in what one frame has."""
        steps = np.frombuffer(columns.step, "<i8")
        table = np.frombuffer(columns.ms, "<f4").reshape(len(steps), len(columns.sizes))
        sizes, kept = self._ranks.get(rank, (columns.sizes, {}))
        if sizes != columns.sizes:
            kept = {}
        kept.update((step, row.copy()) for step, row in zip(steps.tolist(), table, strict=True))  # not the whole frame
        most = min(_STEPS, max(_LEAST_STEPS, _VALUES // max(1, len(columns.sizes))))
        self._ranks[rank] = (columns.sizes, dict(sorted(kept.items())[-most:]))

    def forget(self, rank: int) -> None:
        """Forget a rank that has restarted."""
        self._ranks.pop(rank, None)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each bucket, as the first rank has them; empty without bucket detail."""
        return tuple(next(iter(self._ranks.values()))[0]) if self._ranks else ()

    def transfers(self, ranks: NDArray[np.bool_]) -> Transfers:
        """The newest steps that these ranks have in common.

        Args:
            ranks: [world] those that reduce together. Until all of these tell of the same buckets, there are no steps.
        """
        who = np.flatnonzero(ranks).tolist() if self._ranks else []
        if not who or not self._ranks.keys() >= set(who):
            return _NOTHING
        sizes, tables = self._ranks[who[0]][0], [self._ranks[rank][1] for rank in who]
        common = sorted(set.intersection(*(set(steps) for steps in tables)))[-_NEWEST:]
        if not common or any(self._ranks[rank][0] != sizes for rank in who):
            return _NOTHING
        least = [np.min([steps[step] for steps in tables], axis=0) for step in common]
        return Transfers(tuple(sizes), np.array(common, np.int64), np.array(least, np.float32))
