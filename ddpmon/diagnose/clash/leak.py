"""Ranks whose memory grows steadily towards the limit: not a jump, not warm-up, not page cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.clash.figures import Figures
from ddpmon.diagnose.steps import WARM_UP

_QUICK, _QUICK_LEFT_S, _QUICK_RISE = 7, 120.0, 8 << 20
_SLOW, _SLOW_LEFT_S, _SLOW_RISE = 12, 3600.0, 64 << 20
_EVEN = 0.5
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Leak:
    """One rank's growth: bytes a second, and the seconds until nothing is left at what the machine loses."""

    bytes_s: float
    left_s: float


class Leaks:
    """Follows all ranks; a rise must show both in the rank and in what is left, which page cache does not touch."""

    def __init__(self) -> None:
        self._slow: dict[int, Leak] = {}

    def update(self, figures: Figures) -> dict[int, Leak]:
        """The ranks that grow, after a new round."""
        if figures.at_long:
            self._slow = _slow(figures)
        return {**self._slow, **_quick(figures)}


def _quick(figures: Figures) -> dict[int, Leak]:
    """Growth in each of the last seconds that leaves two minutes or less."""
    if figures.rounds < _QUICK:
        return {}
    rss, room = figures.recent("rss", _QUICK), figures.recent("room", _QUICK)
    with np.errstate(invalid="ignore"):
        who = np.flatnonzero((rss[-1] - rss[0] >= _QUICK_RISE) & (room[0] > room[-1]))
    if not who.size:
        return {}
    at, step = figures.recent("at", _QUICK)[:, who], figures.recent("step", _QUICK)[0, who]
    rss, room = rss[:, who], room[:, who]
    steady = (np.diff(rss, axis=0) > 0).all(axis=0) & (np.diff(room, axis=0) < 0).all(axis=0) & (step >= WARM_UP)
    return _leaks(who[steady], at[:, steady], rss[:, steady], room[:, steady], _QUICK_LEFT_S)


def _slow(figures: Figures) -> dict[int, Leak]:
    """Growth over minutes, alike in each quarter of them, that leaves an hour or less."""
    if figures.rounds < _SLOW * 10:
        return {}
    rss, room = (figures.long(name).astype(np.float64) for name in ("rss", "room"))
    at, step = figures.long("at").astype(np.float64), figures.long("step")
    first = int(np.argmax((step >= WARM_UP).any(axis=1)))
    at, rss, room = at[first:], rss[first:], room[first:]
    if len(at) < _SLOW:
        return {}
    with np.errstate(invalid="ignore"):
        who = np.flatnonzero((rss[-1] - rss[0] >= _SLOW_RISE) & (room[0] > room[-1]) & (step[first] >= WARM_UP))
    at, rss, room = at[:, who], rss[:, who], room[:, who]
    steady = _evenly(rss) & _evenly(-room)
    return _leaks(who[steady], at[:, steady], rss[:, steady], room[:, steady], _SLOW_LEFT_S)


def _evenly(values: Floats) -> NDArray[np.bool_]:
    """Whether it rises from quarter to quarter, each time by half of the mean rise or more."""
    quarters = np.array([part.mean(axis=0) for part in np.array_split(values, 4)])
    rises = np.diff(quarters, axis=0)
    found: NDArray[np.bool_] = (rises > 0).all(axis=0) & (rises >= _EVEN * rises.mean(axis=0)).all(axis=0)
    return found


def _leaks(who: NDArray[np.int64], at: Floats, rss: Floats, room: Floats, most_s: float) -> dict[int, Leak]:
    seconds = np.maximum(at[-1] - at[0], 1e-3)
    grows, lost = (rss[-1] - rss[0]) / seconds, (room[0] - room[-1]) / seconds
    left = room[-1] / np.maximum(lost, 1e-9)
    return {
        int(rank): Leak(float(grows[place]), float(left[place]))
        for place, rank in enumerate(who)
        if left[place] <= most_s
    }
