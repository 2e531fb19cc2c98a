"""A clock of a test's own: a simulated second takes 50 ms of it, however busy the machine is."""

from __future__ import annotations

import time

import pytest

SECOND_S = 0.05  # so long a simulated second takes on a machine that has nothing else to do


class OwnClock:
    """Stands for `time.monotonic` until the test ends. On a busy machine ranks that are away would else be silent."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._now = time.monotonic()
        patch.setattr(time, "monotonic", lambda: self._now)

    def pass_second(self) -> None:
        """A simulated second goes by."""
        self._now += SECOND_S
