"""Where the clock is a device's: the host's side of a step, made of the same marks in the publisher's thread."""

from __future__ import annotations

from typing import Any

from ddpmon.leads import NAMED, UNKNOWN, Interval, Leads, Mark, StepTimes
from ddpmon.probe.clock import Clock, CpuClock
from ddpmon.probe.record import StepRecord


class HostTimes:
    """Makes `schema.HOST_COLUMNS` of finished records, which must come in order.

    Device times are added up from step to step: two events that are hours apart give a duration too coarse.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._leads = Leads()
        self._sync: Any = None
        self._at = 0.0

    def of(self, record: StepRecord) -> tuple[float, ...]:
        """The columns' values of one step; empty on a host's clock, NaN where they cannot be told. Never raises."""
        if self._clock.name == CpuClock.name:
            return ()
        try:
            if record.start is not self._sync:  # steps were lost between
                self._begin()
            times = self._times(record)
            self._sync, self._at = record.sync, self._at + times.duration
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
        for column, start, end, _ in record.spans:
            (host, device), (host_end, device_end) = mark(start), mark(end)
            if column == "barrier":
                waits.append((device, device_end))
            else:
                phases[column].append((host, host_end))
        ready, sync = mark(record.ready), mark(record.sync)
        forward = next(mark(start) for column, start, _, _ in record.spans if column == "forward")
        return StepTimes(
            begins=record.start.host_ns / 1e6,
            ends=ready[0],
            synced=sync[0],
            phases=phases,
            marks=[*known.values()],
            forward=forward,
            waits=[*waits, (ready[1], sync[1])],
            duration=sync[1] - self._at,
        )
