"""Whether a series is higher than it was: a CUSUM with its rise verified."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from ddpmon.diagnose.ratios import SIGMAS, WINDOW
from ddpmon.run.medians import middle

BASELINE = 50
RISE, STEEP = 1.10, 1.20
_K, _H = 1.0, 8.0
_CLIP = 4.0
_MOST = 30.0  # so many values as before make the next rise another one, however long this one lasted
_LEAST_NOISE = 0.01
_HIGH_STEP, _OFTEN = 1.05, 0.6


class Shift:
    """A one-sided CUSUM (k = 1, h = 8) on the robust z of a series, against its own first fifty values.

    An alarm holds only where the median of the last 50 values is at least 10 % above the baseline's, or that of the
    last 20 at least 20 %, and clear of the noise: raw change-point detection alone raises false alarms, and a job's
    pace wanders by some percent (docs/detection.md "The run against its own past").

    Attributes:
        normal: the baseline's median, NaN until there is one.
    """

    def __init__(self) -> None:
        self.normal = math.nan
        self._noise = math.nan
        self._recent: deque[float] = deque(maxlen=BASELINE)
        self._sum = 0.0
        self._block = -1

    @property
    def level(self) -> float:
        """Median of the last 20 values."""
        return middle(np.array(list(self._recent)[-WINDOW:])) if self._recent else math.nan

    def feed(self, step: int, value: float) -> bool:
        """Take the value of `step` in; whether it completed a new baseline."""
        self._recent.append(value)
        begun, self._block = step // BASELINE != self._block, step // BASELINE
        if math.isnan(self.normal) or (begun and self._has_fallen()):
            return self._settle()
        z = (value - self.normal) / self._noise
        self._sum = min(_MOST, max(0.0, self._sum + min(_CLIP, max(-_CLIP, z)) - _K))
        return False

    @property
    def high(self) -> bool:
        """Whether the series is higher than it was, beyond doubt."""
        return self._sum > _H and (self._risen(WINDOW, STEEP) or self._risen(BASELINE, RISE))

    def _risen(self, count: int, least: float) -> bool:
        window = np.array(list(self._recent)[-count:])
        error = SIGMAS * 1.25 * self._noise / self.normal * math.sqrt(1 / count + 1 / BASELINE)
        often = (window > _HIGH_STEP * self.normal).mean() >= _OFTEN
        return bool(often and middle(window) >= max(least, 1 + error) * self.normal)

    @property
    def low(self) -> bool:
        """Whether it is clearly back where it was."""
        return self.level <= (1 + (RISE - 1) / 2) * self.normal

    def _has_fallen(self) -> bool:
        """Whether the series has come down for good: asked once in fifty steps, it is then measured anew."""
        full = len(self._recent) == BASELINE
        return full and self._sum == 0.0 and middle(np.array(self._recent)) < self.normal / RISE

    def _settle(self) -> bool:
        if len(self._recent) < BASELINE:
            return False
        values = np.array(self._recent)
        self.normal = max(1e-9, middle(values))
        spread = 1.4826 * middle(np.abs(values - self.normal))
        self._noise = max(spread, _LEAST_NOISE * self.normal)
        self._sum = 0.0
        return True
