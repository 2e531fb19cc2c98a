"""The job against its own past: slower as a whole, or slower on the network."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.alert_book import AlertBook, Life
from ddpmon.diagnose.job_policy import PACE
from ddpmon.diagnose.kinds import KINDS
from ddpmon.diagnose.late_policy import SUSTAINED
from ddpmon.diagnose.measure import Others
from ddpmon.diagnose.step_matrix import StepMatrix
from ddpmon.diagnose.sustained import onset
from ddpmon.diagnose.tick import Tick
from ddpmon.run.medians import middle
from ddpmon.run.model import Run
from ddpmon.run.rings import F32
from ddpmon.schema import PHASES

Numbers = dict[str, float]
JOB, NETWORK = 0, 1  # keys of the two lives
_SERIES = ("duration", "typical", "transfer", "spread", "samples")
_RISES = ("typical", "transfer", "spread", *PHASES)


class JobSlowerMeasures(Measures, frozen=True):
    """What shows that the whole job is slower than it was.

    Attributes:
        step_ms: the duration of a step now.
        normal_step_ms: the same without the rise.
        longer_ms: the rise of a step.
        rises_ms: by how much each part of a step has risen, by its name: the typical rank's work, the transfer, the
            spread of the ranks' work, and the phases.
        is_waiting: most of the rise is waiting for ranks that differ from step to step.
        several_hosts: the ranks are not known to share one host.
    """

    step_ms: float
    normal_step_ms: float
    longer_ms: float
    rises_ms: tuple[tuple[str, float], ...]
    is_waiting: bool
    several_hosts: bool


class SlowNetworkMeasures(Measures, frozen=True):
    """What shows that the gradient transfer takes longer than it did, on all ranks alike.

    Attributes:
        transfer_ms: the part of the transfer that no rank could hide, now, a step.
        normal_transfer_ms: the same in the baseline.
        longer_ms: by how much it has risen.
        spread_rise_ms: by how much the spread of the ranks' work has risen.
        step_ms: the duration of a step now.
        several_hosts: the ranks are not known to share one host.
    """

    transfer_ms: float
    normal_transfer_ms: float
    longer_ms: float
    spread_rise_ms: float
    step_ms: float
    several_hosts: bool


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
        self._recent: deque[float] = deque(maxlen=PACE.baseline_steps)
        self._sum = 0.0
        self._block = -1

    @property
    def level(self) -> float:
        """Median of the last 20 values."""
        return middle(np.array(list(self._recent)[-SUSTAINED.window_steps :])) if self._recent else math.nan

    def feed(self, step: int, value: float) -> bool:
        """Take the value of `step` in; whether it completed a new baseline."""
        self._recent.append(value)
        begun, self._block = step // PACE.baseline_steps != self._block, step // PACE.baseline_steps
        if math.isnan(self.normal) or (begun and self._has_fallen()):
            return self._settle()
        z = (value - self.normal) / self._noise
        clipped = min(PACE.clip_sigmas, max(-PACE.clip_sigmas, z))
        self._sum = min(PACE.cusum_most_sigmas, max(0.0, self._sum + clipped - PACE.cusum_slack_sigmas))
        return False

    @property
    def high(self) -> bool:
        """Whether the series is higher than it was, beyond doubt."""
        return self._sum > PACE.cusum_alarm_sigmas and (
            self._risen(SUSTAINED.window_steps, PACE.steep_ratio) or self._risen(PACE.baseline_steps, PACE.rise_ratio)
        )

    def _risen(self, count: int, least: float) -> bool:
        window = np.array(list(self._recent)[-count:])
        error = (
            SUSTAINED.noise_errors * 1.25 * self._noise / self.normal * math.sqrt(1 / count + 1 / PACE.baseline_steps)
        )
        often = (window > SUSTAINED.high_step_ratio * self.normal).mean() >= SUSTAINED.steady_share
        return bool(often and middle(window) >= max(least, 1 + error) * self.normal)

    @property
    def low(self) -> bool:
        """Whether it is clearly back where it was."""
        return self.level <= (1 + (PACE.rise_ratio - 1) / 2) * self.normal

    def _has_fallen(self) -> bool:
        """Whether the series has come down to stay. Asked once in fifty steps; the series is then measured again."""
        full = len(self._recent) == PACE.baseline_steps
        return full and self._sum == 0.0 and middle(np.array(self._recent)) < self.normal / PACE.rise_ratio

    def _settle(self) -> bool:
        if len(self._recent) < PACE.baseline_steps:
            return False
        values = np.array(self._recent)
        self.normal = max(1e-9, middle(values))
        spread = 1.4826 * middle(np.abs(values - self.normal))
        self._noise = max(spread, PACE.least_noise_share * self.normal)
        self._sum = 0.0
        return True


class Pace:
    """Follows the job's step time, what of it is not waiting for somebody, and its transfer.

    Each is measured against its own first fifty steps on record.
    """

    def __init__(self, book: AlertBook) -> None:
        self.lives = book.group("pace")
        self._duration, self._together, self._transfer = Shift(), Shift(), Shift()
        self._normal: Numbers = {}
        self._baseline: tuple[F32, NDArray[np.float64]] | None = None  # the baseline's work [n, T] and transfer [T]
        self._late_ranks = np.zeros(0, np.bool_)  # [n] which of them are named as late
        self._most_are_late = False  # the typical rank is then one of those that are named
        self._bounded = False  # what all ranks take is known within bounds only: then the step itself must be longer
        self._judged = -1
        self._shown = self._together  # what the job was last seen to be slower by

    def __call__(self, tick: Tick, said: Sequence[Alert]) -> list[Alert]:
        """Judge the steps that have come in."""
        run, matrix = tick.run, tick.steps
        if len(matrix.ranks) < run.rank_count:
            return []  # all may be waiting for a rank that is not seen
        named = [alert for alert in said if KINDS[alert.kind].late and alert.severity != "info"]
        self._late_ranks = np.isin(matrix.ranks, [rank for alert in named for rank in alert.ranks])
        self._most_are_late = 2 * int(self._late_ranks.sum()) > len(matrix.ranks)
        somebody, self._bounded = bool(named), matrix.own is not None
        for place in np.flatnonzero(matrix.steps > self._judged).tolist():
            self._observe(run, matrix, place, somebody=somebody)
        if len(matrix.steps):
            self._judged = max(self._judged, int(matrix.steps[-1]))
        for life in self.lives:
            if life.high:
                self._describe(run, matrix, life, somebody=somebody)
        return self.lives.firing

    def _observe(self, run: Run, matrix: StepMatrix, place: int, *, somebody: bool) -> None:
        step = int(matrix.steps[place])
        duration, typical, transfer = (float(matrix.job(name)[place]) for name in ("duration", "typical", "transfer"))
        if self._duration.feed(step, duration):
            count = PACE.baseline_steps
            self._normal = _figures(matrix, place, count) | _phases(run, matrix, place, count)
        if self._together.feed(step, typical + transfer):
            part = slice(max(0, place + 1 - PACE.baseline_steps), place + 1)
            self._baseline = matrix.work[:, part].copy(), matrix.job("transfer")[part].copy()
        self._transfer.feed(step, transfer)
        slower = self._slower(somebody=somebody or self._one_rank_leads(matrix, place))
        self._shown = slower or self._shown
        if not self._normal or (slower is None and not self._transfer.high and not self.lives.keys):
            return
        now = _figures(matrix, place, SUSTAINED.window_steps)
        rise = _rise(now, self._normal)
        network = self._transfer.high and len(matrix.ranks) > 1 and _on_the_network(rise, now, somebody=somebody)
        whole = (
            slower is not None
            and not (network and _of_the_network(rise))
            and self._per_sample(self._step_increase_ms(slower, matrix, place), now) >= PACE.rise_ratio
        )
        calm = self._calm(matrix, place, NETWORK, self._transfer) if self._transfer.low else step
        self.lives.observe(NETWORK, step, high=network, low=self._transfer.low, calm=calm)
        calm = step if whole else self._calm(matrix, place, JOB, self._shown)
        self.lives.observe(JOB, step, high=whole, low=not whole, calm=calm)

    def _calm(self, matrix: StepMatrix, place: int, key: int, shift: Shift) -> int:
        """The first step without it, as seen from `place`: from there on most are below the middle of the rise."""
        steps = matrix.steps
        told = [life.alert for life in self.lives if life.key == key and life.alert is not None]
        if not told:
            return int(steps[place])
        since = int(np.searchsorted(steps, told[0].since_step or 0))
        part = slice(min(place, max(since, place + 1 - PACE.baseline_steps)), place + 1)
        values = self._history(matrix, shift)[part]
        middle = (shift.normal + float(np.quantile(values, PACE.risen_quantile))) / 2
        below = np.cumsum(np.where(values <= middle, 1, -1)[::-1])
        return int(steps[place - int(below.argmax())])

    def _slower(self, *, somebody: bool) -> Shift | None:
        """What shows that the job is slower: what all ranks take, or the step where nobody is known to hold it up."""
        if self._together.high and not self._most_are_late and (self._duration.high or not self._bounded):
            return self._together
        return self._duration if self._duration.high and not somebody else None

    def _one_rank_leads(self, matrix: StepMatrix, place: int) -> bool:
        """Whether the same rank worked longest in nearly all of the last steps that were longer than before.

        Then it is about to be named, or its lateness is too small for that; nothing shows that the job is slower.
        """
        part = slice(max(0, place + 1 - SUSTAINED.window_steps), place + 1)
        longer = matrix.job("duration")[part] > SUSTAINED.high_step_ratio * self._duration.normal
        holders = matrix.top_row[part][longer]
        if self._bounded or len(matrix.ranks) < 2 or len(holders) < PACE.led_steps:
            return False
        return int(np.bincount(holders).max()) >= PACE.led_share * len(holders)

    def _step_increase_ms(self, slower: Shift, matrix: StepMatrix, place: int) -> float:
        """By how many ms a step is longer.

        What all ranks take is compared on the same ranks before and now, without those that are late: the typical one
        of two was the faster one in each step, and once one of them is late it is the other one in every step.
        """
        late = self._late_ranks
        if slower is not self._together or self._baseline is None or not late.any() or late.all():
            return slower.level - slower.normal
        work, transfer = self._baseline
        part = slice(max(0, place + 1 - SUSTAINED.window_steps), place + 1)
        if len(work) != len(late):
            return slower.level - slower.normal  # other ranks are compared by now
        now = _typical_step_ms(matrix.work[~late, part], matrix.job("transfer")[part])
        return now - _typical_step_ms(work[~late], transfer)

    def _per_sample(self, longer: float, now: Numbers) -> float:
        """How many times longer the job takes for the same number of samples; what late ranks add to a step stays."""
        before = self._normal
        more = max(1.0, now["samples"] / before["samples"]) if before["samples"] > 0 else 1.0
        usual = max(before["duration"], now["duration"] - longer) if self._late_ranks.any() else before["duration"]
        return (usual + longer) / usual / more

    def _describe(self, run: Run, matrix: StepMatrix, life: Life, *, somebody: bool) -> None:
        place = len(matrix.steps) - 1
        now = _figures(matrix, place, SUSTAINED.window_steps) | _phases(run, matrix, place, SUSTAINED.window_steps)
        rise = _rise(now, self._normal)
        several = not matrix.one_host
        if life.key == NETWORK:
            shift = self._transfer
            found = _slow_network(shift, rise, now, several_hosts=several)
        else:
            shift = self._slower(somebody=somebody) or self._together
            longer, waits = self._step_increase_ms(shift, matrix, place), self._is_waiting(shift, rise)
            found = _job_slower(longer, rise, now, is_waiting=waits, several_hosts=several)
        since, bound = onset(matrix.steps, self._history(matrix, shift) / shift.normal)
        if bound and life.alert is not None:
            since, bound = life.alert.since_step or 0, life.alert.since_is_bound
        found = replace(found, since_step=since, since_is_bound=bound)
        # Gloo within a host is work of the host's own cores, which anything else on them slows.
        by_cores = life.key == NETWORK and not several and run.info.backend == "gloo"
        lasted = (int(matrix.steps[place]) + 1 - since) * now["duration"]
        passing = lasted * (found.cost_pct or 0.0) / 100 < PACE.passing_ms
        harmless = by_cores or passing
        life.describe(found if harmless else replace(found, severity=life.severity(found.cost_pct or 0.0)))

    def _is_waiting(self, shift: Shift, rise: Numbers) -> bool:
        """Whether steps take longer, while the typical rank's work and the transfer have grown by little."""
        known = rise["typical"] + rise["transfer"]
        half = PACE.spread_share * (shift.level - shift.normal)
        return shift is self._duration and known < half <= rise["spread"]

    def _history(self, matrix: StepMatrix, shift: Shift) -> NDArray[np.float32]:
        """[T] what `shift` was fed."""
        transfer = matrix.job("transfer")
        together = shift is self._together
        series = matrix.job("duration") if shift is self._duration else transfer
        return (matrix.job("typical") + transfer if together else series).astype(np.float32)


def _figures(matrix: StepMatrix, place: int, count: int) -> Numbers:
    """Medians of the job's figures over the `count` usable steps that end at `place`."""
    part = slice(max(0, place + 1 - count), place + 1)
    return {name: middle(matrix.job(name)[part]) for name in _SERIES}


def _phases(run: Run, matrix: StepMatrix, place: int, count: int) -> Numbers:
    """Medians of the phases over ranks and the same steps."""
    steps = matrix.steps[max(0, place + 1 - count) : place + 1]
    normal = Others(run, steps, matrix.ranks, PHASES).normal
    return {phase: middle(normal[phase]) for phase in PHASES}


def _rise(now: Numbers, normal: Numbers) -> Numbers:
    return {name: now[name] - normal[name] for name in now}


def _on_the_network(rise: Numbers, now: Numbers, *, somebody: bool) -> bool:
    """The part of the transfer that nobody could hide has grown, and not because the ranks come more unevenly."""
    flat = somebody or rise["spread"] <= PACE.spread_share * rise["transfer"]
    return flat and 100 * rise["transfer"] >= PACE.network_least_pct * now["duration"]


def _of_the_network(rise: Numbers) -> bool:
    """Whether the transfer alone explains what all ranks take longer for."""
    return rise["transfer"] >= PACE.explained_share * (rise["typical"] + rise["transfer"])


def _slow_network(shift: Shift, rise: Numbers, now: Numbers, *, several_hosts: bool) -> Alert:
    return Alert(
        kind="slow_network",
        severity="info",
        cost_pct=100 * rise["transfer"] / now["duration"],
        measures=SlowNetworkMeasures(
            transfer_ms=now["transfer"],
            normal_transfer_ms=shift.normal,
            longer_ms=rise["transfer"],
            spread_rise_ms=rise["spread"],
            step_ms=now["duration"],
            several_hosts=several_hosts,
        ),
    )


def _typical_step_ms(work: F32, transfer: NDArray[np.float64]) -> float:
    """What these ranks take together in a step: the typical one's work ([n, T]), and the transfer ([T])."""
    lower = (len(work) - 1) // 2
    return middle(np.partition(work.astype(np.float64), lower, axis=0)[lower] + transfer)


def _job_slower(longer: float, rise: Numbers, now: Numbers, *, is_waiting: bool, several_hosts: bool) -> Alert:
    phase = max(PHASES, key=lambda name: rise[name])
    return Alert(
        kind="job_slower",
        severity="info",
        phase=phase if rise[phase] >= PACE.explained_share * longer and not is_waiting else None,
        cost_pct=100 * longer / now["duration"],
        measures=JobSlowerMeasures(
            step_ms=now["duration"],
            normal_step_ms=now["duration"] - longer,
            longer_ms=longer,
            rises_ms=tuple((name, rise[name]) for name in _RISES),
            is_waiting=is_waiting,
            several_hosts=several_hosts,
        ),
    )
