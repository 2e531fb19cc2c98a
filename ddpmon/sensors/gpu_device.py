"""One GPU or MIG instance: what is known of it, figure by figure, and why the rest is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddpmon.sensors.gpu_figures import COUNTED, Reading
from ddpmon.sensors.nvml import LOST, Nvml, Unread
from ddpmon.sensors.reading import Since


class Device:
    """Reads the figures of one handle.

    Args:
        each: read every time.
        now_and_then: read when the slow figures have their turn.
        once: then too, until they are known.
        lifetime: count errors since the driver began, instead of since the first reading.
    """

    def __init__(
        self,
        each: Sequence[Reading],
        now_and_then: Sequence[Reading],
        once: Sequence[Reading],
        *,
        lifetime: bool = False,
    ) -> None:
        self.handle: Any = None
        self.known: dict[str, Any] = {}
        self.unread: dict[str, str] = {}
        self._each, self._now_and_then, self._once = each, now_and_then, once
        self._since: dict[str, Since] = {name: Since(lifetime=lifetime) for name in COUNTED}

    def read(self, nvml: Nvml, slow: bool) -> None:
        """Read what is due; `slow` is the slow figures' turn.

        Raises:
            Unread: the GPU is lost.
        """
        for reading in self._each:
            self._take(nvml, reading)
        if slow:
            for reading in self._now_and_then:
                self._take(nvml, reading)
            for reading in self._once:
                if reading.figures[0] not in self.known:
                    self._take(nvml, reading)

    def forget(self, reason: str) -> None:
        """The GPU is gone: only what never changes stays known."""
        for reading in (*self._each, *self._now_and_then):
            self._miss(reading, reason)
        for reading in self._once:
            if reading.figures[0] not in self.known:
                self._miss(reading, reason)

    def _take(self, nvml: Nvml, reading: Reading) -> None:
        try:
            found = reading.read(nvml, self.handle)
        except Unread as error:
            if error.code == LOST:
                raise
            self._miss(reading, str(error))
            return
        for figure, value in found.items():
            self.known[figure] = self._since[figure](*value) if figure in self._since else value
            self.unread.pop(figure, None)

    def _miss(self, reading: Reading, reason: str) -> None:
        for figure in reading.figures:
            self.known.pop(figure, None)
            self.unread[figure] = reason
