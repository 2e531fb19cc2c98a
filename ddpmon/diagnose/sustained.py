"""Rule A: who works longer than the others, step after step. Followed for ranks, and for whole hosts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ddpmon.diagnose.alert_book import Group
from ddpmon.diagnose.late_policy import INTERMITTENT, SUSTAINED
from ddpmon.run.medians import middle, middles
from ddpmon.run.rings import F32, I64

_TINY_MS = 1e-3  # ms that work counts at least, so that 0 is no divisor and gets no logarithm
_CHUNK = 64  # window ends that are judged at once: a bound on memory


class Verdicts(Struct, frozen=True):
    """Rule A at each of T window ends, for the k rows that may be high or are watched.

    Attributes:
        row: [k] which rows of the ratios these are.
        step: [T] the last step of each window.
        high: [k, T] ratio above `max(1.10, exp(4.5 * CV * 1.25 / sqrt(20)))`, in at least 60 % of the window's steps
            above 1.05; the ratio is the window's median.
        low: [k, T] ratio below half the threshold's excess.
    """

    row: I64
    step: I64
    high: NDArray[np.bool_]
    low: NDArray[np.bool_]


def work_ratios(work: F32, others: F32) -> F32:
    """[n, T] each rank's work over that of the others at the same step. n >= 2, no NaN."""
    ratios: F32 = (work / np.maximum(others, _TINY_MS)).astype(np.float32)
    return ratios


def judge_windows(step: I64, ratios: F32, watched: NDArray[np.bool_], unseen: NDArray[np.float64]) -> Verdicts:
    """Rule A (steady straggler) on every window of 20 steps in `ratios` [n, T + 19]; `watched` is [n].

    `unseen` [T + 19] is noise of work, as part of it, that the ratios do not show since they come from medians.

    The threshold widens with the noise of the statistic itself: 1.25 / sqrt(20) is the standard error of a median in
    units of the noise (docs/detection.md "Steady stragglers"). Up to a CV of 8 % the floor of 10 % holds. Noise is
    taken of the ratios' logarithms, which are even on both sides.
    """
    often = _share(ratios > SUSTAINED.high_step_ratio) >= SUSTAINED.steady_share
    row = np.flatnonzero(often.any(axis=1) | watched)
    typical_noise = middles(_noise(ratios[:: max(1, len(ratios) // SUSTAINED.noise_ranks)])[1].T)
    middle, noise = _noise(ratios[row])
    hidden = middles(np.lib.stride_tricks.sliding_window_view(unseen, SUSTAINED.window_steps))
    error = np.maximum(noise, np.maximum(typical_noise, hidden)) * 1.25 / math.sqrt(SUSTAINED.window_steps)
    threshold = np.maximum(math.log(SUSTAINED.floor_ratio), SUSTAINED.noise_errors * error)
    return Verdicts(
        row=row,
        step=step[SUSTAINED.window_steps - 1 :],
        high=(middle > threshold) & often[row],
        low=middle <= np.log(1 + np.expm1(threshold) / 2),
    )


def _share(flags: NDArray[np.bool_]) -> NDArray[np.float64]:
    """[n, T] the part of each window of 20 that is set."""
    size = SUSTAINED.window_steps
    total = np.zeros((flags.shape[1] + 1, len(flags)), np.int16)  # the ranks of a step lie beside each other
    np.cumsum(flags.T, axis=0, out=total[1:])
    return (total[size:] - total[:-size]).T / size


def _noise(ratios: F32) -> tuple[F32, F32]:
    """[n, T] of the logarithms the median of each window of 20, and 1.4826 MAD: a robust CV."""
    logs = np.log(np.maximum(ratios, _TINY_MS))
    windows = np.lib.stride_tricks.sliding_window_view(logs, SUSTAINED.window_steps, axis=1)
    middle: F32 = middles(windows)
    spread: F32 = 1.4826 * middles(np.abs(windows - middle[..., None]))  # type: ignore[assignment]
    return middle, spread


def onset(step: I64, ratios: F32) -> tuple[int, bool]:
    """The first step of the present stretch of high `ratios` [T]; and whether it is only a bound.

    A one-sided CUSUM against the middle between healthy (1) and the present level: the change point is the last step
    with S = 0. If S never was 0, the stretch is older than the record. S is held so low that a window of healthy steps,
    after which a straggler is over, takes it down to 0: what was over before is not of the present stretch.

    On a record that begins within a run the change point is exact only behind a window of healthy steps. S begins at 0
    whatever was before, and by chance it comes back to 0 in a stretch that goes on.
    """
    # The last steps show where a rise has got to, all of the window where it was, should it have ended within it.
    level = max(middle(ratios[-count:]) for count in (SUSTAINED.window_steps // 2, SUSTAINED.window_steps))
    half = max(SUSTAINED.onset_least_share, level - 1) / 2
    most = 1 + SUSTAINED.onset_clip_excess * 2 * half
    s, zeros = 0.0, [-1]
    for index, excess in enumerate((np.minimum(ratios, most) - 1 - half).tolist()):
        s = min(SUSTAINED.window_steps * half, max(0.0, s + excess))
        if s == 0.0:
            zeros.append(index)
    last_zero, is_bound = zeros[-1], zeros[-1] < 0
    if not begins_with_run(step):
        last_zero, is_bound = _shown_zero(ratios, zeros, 1 + half)
    return int(step[min(last_zero + 1, len(step) - 1)]), is_bound


def begins_with_run(step: I64) -> bool:
    """Whether a record of steps, ascending, lacks at most the first steps of the run, which are no evidence."""
    return int(step[0]) <= INTERMITTENT.quiet_steps


def _shown_zero(ratios: F32, zeros: Sequence[int], healthy: float) -> tuple[int, bool]:
    """The last of the `zeros` (-1 is the record's beginning) before which a window is healthy, and False.

    If there is none, the last with less than a window before it, and True.
    """
    for zero in reversed(zeros):
        begin = zero + 1 - SUSTAINED.window_steps
        if begin < 0:
            break
        if middle(ratios[begin : zero + 1]) <= healthy:
            return zero, False
    return zero, True


class SteadyRule:
    """Walks through the windows of 20 steps; what it says depends on the steps alone, not on how they came in.

    Attributes:
        lives: who is under suspicion.
    """

    def __init__(self, lives: Group) -> None:
        self.lives = lives
        self._judged = -1

    def update(self, steps: I64, ratios: Callable[[slice], F32], keys: I64, unseen: NDArray[np.float64]) -> None:
        """Judge the windows that end in steps not judged before.

        Args:
            steps: [T] ascending.
            ratios: gives [n, k] work over the median of the others, of a part of the steps.
            unseen: [T] noise of work that the ratios do not show.
            keys: [n] what each row is called, from call to call.
        """
        self.lives.keep(set(keys.tolist()))
        first = max(SUSTAINED.window_steps - 1, int(np.searchsorted(steps, self._judged, side="right")))
        for start in range(first, len(steps), _CHUNK):
            part = slice(start - SUSTAINED.window_steps + 1, min(len(steps), start + _CHUNK))
            known = np.isin(keys, [*self.lives.keys, *self.lives.former])
            verdicts = judge_windows(steps[part], ratios(part), known, unseen[part])
            calm = steps[start - SUSTAINED.window_steps // 2 :].tolist()
            for at, step in enumerate(verdicts.step.tolist()):
                for place, row in enumerate(verdicts.row.tolist()):
                    high, low = bool(verdicts.high[place, at]), bool(verdicts.low[place, at])
                    self.lives.observe(int(keys[row]), step, high=high, low=low, calm=calm[at])
        if len(steps):
            self._judged = max(self._judged, int(steps[-1]))
