"""How far a rank's host runs ahead of its device, and which of its host time the other ranks may have prolonged.

A host launches kernels and does not wait for them. Every mark has a host time (when it was recorded) and a device time
(when the device passed it). Both count from a zero of their own, so that their difference is known up to a constant:
its smallest value so far is taken for a lead of 0. The other ranks can hold a host up only while its own device waits
for them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

NAMED = ("input", "forward", "backward", "optimizer")
UNKNOWN = (math.nan,) * 12
_NOT_HELD = (0.0,) * 5
_DRIFT = 2e-4  # a quartz drifts by 1e-4 at most, and NTP slews a host's clock by as much again
_MOST_WAITS = 512
_TYPICAL = 9  # steps
_LONGEST_MS, _LONGEST_STEPS = 1000.0, 256  # a launch queue holds 1,024 entries, and a step takes more than four

Interval = tuple[float, float]
Mark = tuple[float, float]  # host time, device time


class StepTimes(NamedTuple):
    """The marks of one step in milliseconds.

    Attributes:
        begins, ends, synced: host times of the sync point before it, of its last gradient, and of its own sync point.
        phases: phase (of `NAMED`) -> its host intervals; a phase that is not there is unknown.
        marks: every mark with both times, that of the sync point before it left out.
        forward: the mark at which the first forward begins.
        waits: device intervals in which the device waited for other ranks, in order.
        duration: sync point to sync point on the device.
    """

    begins: float
    ends: float
    synced: float
    phases: Mapping[str, Sequence[Interval]]
    marks: Sequence[Mark]
    forward: Mark
    waits: Sequence[Interval]
    duration: float


class Leads:
    """Follows one rank, step by step.

    Args:
        base: device time less host time of a mark without a lead, where it is known; by default that of the first.
    """

    def __init__(self, base: float = math.inf) -> None:
        self._base = base
        self._at = math.nan
        self._waits: deque[Interval] = deque(maxlen=_MOST_WAITS)
        self._durations: deque[float] = deque(maxlen=_TYPICAL)

    def take(self, step: StepTimes) -> tuple[float, ...]:
        """Milliseconds in the order of `schema.HOST_COLUMNS`, NaN where unknown.

        Five times the host time of a phase, `other` last; five times the part of it during which the device waited for
        other ranks; the host time from the last gradient to the sync point; the lead at the launch of forward.
        """
        latest, least = _extremes(step.marks)
        if not math.isfinite(latest + least):
            return UNKNOWN
        known = self._renew(latest, least, step.duration)
        first = step.begins + self._base
        while self._waits and self._waits[0][1] < first:
            self._waits.popleft()
        self._waits.extend(step.waits)
        own, behind = _by_phase(step, _length), _length((step.ends, step.synced))
        if not known or len(self._waits) == _MOST_WAITS:
            return (*own, *UNKNOWN[:5], behind, math.nan)
        # The usual case of a rank in step: the device has not waited before the host had launched everything.
        ends = step.ends + self._base
        is_free = all(since >= ends for since, _ in self._waits)  # out of order where the device's clock went back
        held = _NOT_HELD if is_free and len(step.phases) == len(NAMED) else _by_phase(step, self._held)
        return (*own, *held, behind, step.forward[1] - step.forward[0] - self._base)

    def _renew(self, now: float, least: float, duration: float) -> bool:
        """Bring the base up to date; returns whether a lead can be told from it.

        The base is forgotten as slowly as two clocks may drift apart. A lead of more steps than a launch queue holds is
        none: a clock has been set, or has stood still while the machine slept.

        Args:
            now: the host time of the latest mark.
            least: the least of device time less host time.
            duration: of the step.
        """
        passed = now - self._at
        base = self._base + (_DRIFT * passed if passed > 0 else 0.0)
        self._at = now
        self._durations.append(duration)
        typical = sorted(self._durations)[(len(self._durations) - 1) // 2]
        lost = base < math.inf and least - base > max(_LONGEST_MS, _LONGEST_STEPS * typical)
        self._base = least if lost else min(base, least)
        if lost:
            self._waits.clear()
        return not lost

    def _held(self, part: Interval) -> float:
        begins, ends = part[0] + self._base, part[1] + self._base
        return sum(max(0.0, min(ends, until) - max(begins, since)) for since, until in self._waits)


def _extremes(marks: Sequence[Mark]) -> tuple[float, float]:
    """The latest host time, and the least of device time less host time; not finite where a mark is not."""
    latest, least, total = -math.inf, math.inf, 0.0
    for host, device in marks:  # faster than two generators, and the interpreter is the training's
        total += host + device
        lag = device - host
        latest = host if host > latest else latest
        least = lag if lag < least else least
    return (latest, least) if math.isfinite(total) else (math.nan, math.nan)


def _length(part: Interval) -> float:
    length = part[1] - part[0]
    return length if length > 0.0 else 0.0


def _by_phase(step: StepTimes, measure: Callable[[Interval], float]) -> tuple[float, ...]:
    """What `measure` says of each phase; `other` is what the named ones leave of the step."""
    spent = {name: sum(map(measure, parts)) if parts else 0.0 for name, parts in step.phases.items()}
    other = max(0.0, measure((step.begins, step.ends)) - sum(spent.values()))
    return (*(spent.get(name, math.nan) for name in NAMED), other)
