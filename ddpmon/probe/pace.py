"""Where the clock is a device's: the host's side of a step, made of the same marks in the publisher's thread."""

from __future__ import annotations

from typing import Any

from ddpmon.leads import NAMED, UNKNOWN, Interval, Leads, Mark, StepTimes
from ddpmon.probe.clock import Clock, CpuClock
from ddpmon.probe.record import StepRecord


class HostTimes:
    """Makes `schema.HOST_COLUMNS` of finished records, which must come in order and before their marks are recycled.

    Device times are added up from step to step: two events that are hours apart give a duration too coarse.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._leads = Leads()
        self._next: int | None = None  # a step number and no mark: marks are used again
        self._at = 0.0

    def of(self, record: StepRecord) -> tuple[float, ...]:
        """The columns' values of one step; empty on a host's clock, NaN where they cannot be told. Never raises."""
        if self._clock.name == CpuClock.name:
            return ()
        try:
            if record.step != self._next:  # steps were lost between
                self._begin()
            times = self._times(record)
            self._next, self._at = record.step + 1, self._at + times.duration
            return self._leads.take(times)
        except Exception:
            self._begin()
            return UNKNOWN

    def _times(self, record: StepRecord) -> StepTimes:
        known: dict[int, Mark] = {}

        def mark(raw: Any) -> Mark:
            found = known.get(id(raw))
            if found is None:
                found = known[id(raw)] = (raw.host_ns / 1e6, self._at + self._clock.ms(record.start, raw))
            return found

        phases: dict[str, list[Interval]] = {name: [] for name in NAMED}
        phases["input"] = [(began / 1e6, ended / 1e6) for began, ended in record.loads or ()]
        waits: list[Interval] = []
        for column, start, end, *_ in record.spans:
            (host, device), (host_end, device_end) = mark(start), mark(end)
            if column == "barrier":
                waits.append((device, device_end))
            else:
                phases[column].append((host, host_end))
        ready, sync = mark(record.ready), mark(record.sync)
        waits.append((ready[1], sync[1]))
        if _has_unmarked(record):  # the device may have waited in them at any time of the step
            waits = [(self._at, sync[1])]
        forward = next(mark(start) for column, start, *_ in record.spans if column == "forward")
        return StepTimes(
            begins=record.start.host_ns / 1e6,
            ends=ready[0],
            synced=sync[0],
            phases=phases,
            marks=[*known.values()],
            forward=forward,
            waits=waits,
            duration=sync[1] - self._at,
        )


def _has_unmarked(record: StepRecord) -> bool:
    """Whether there were collectives without marks: a marked one then stands for several."""
    return any(stands_for > 1 for *_, stands_for in record.spans)
