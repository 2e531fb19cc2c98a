"""Own pace: what a rank's step would take if it never waited for the others, where the clock is a device's.

A host launches kernels and runs ahead of its device. While a device waits in a reduction its host goes on launching,
and afterwards the device finds a full queue: its work is then kernel time alone. The rank that sets the pace shows the
gaps that its host leaves as well. So the work of two ranks cannot be compared as it is, but their own pace can: the
longer of the device's work and of the host's own time without the transfer, which a host that is ahead does not see.
A rank whose host is not ahead has all of its host's time within its device's work. Of another the host's own time is
known from samples during which its device did not wait for others: nothing else that is not its own can hold a host up.
Without such samples it has bounds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.late_policy import LATENESS, OWN_PACE, SUSTAINED
from ddpmon.run.medians import row_medians
from ddpmon.run.model import Run
from ddpmon.run.rings import F32, I64
from ddpmon.schema import PHASES

_ALL = slice(None)
Quantity = int | slice
# The names of the columns: the least and the most of own pace, as a whole and in each phase.
LEAST = ("least", *(f"least_{phase}" for phase in PHASES))
MOST = ("most", *(f"most_{phase}" for phase in PHASES))
_COLUMNS = (*LEAST, *MOST, "close", "noise")
_CHUNK = 64  # steps that are taken out of the rings at once: a bound on memory
_PAUSED = np.isin(PHASES, ("input", "other"))  # where an evaluation or a checkpoint lies
_P = len(PHASES)
_NEAR_BY, _FAR_AHEAD, _BEHIND, _WORK, _BARE = range(5)  # the places of what every step shows; then the phases
_HOST_TIME, _FREE, _IS_CLEAN = (slice(5 + at * _P, 5 + (at + 1) * _P) for at in range(3))
_SEEN = 5 + 3 * _P
Flags = NDArray[np.bool_]


class Samples:
    """Rings of float32, one a rank and quantity; NaN is a value that is missing.

    Attributes:
        size: values kept.
    """

    size = SUSTAINED.window_steps

    def __init__(self, world_size: int, quantities: int) -> None:
        self._values: F32 = np.full((world_size, quantities, self.size), np.nan, np.float32)
        self._next: I64 = np.zeros((world_size, quantities), np.int64)

    def put(self, who: I64, values: F32) -> None:
        """Add one value [ranks, quantities] each, missing ones included."""
        self._put(who[:, None], np.arange(values.shape[1]), values)

    def put_known(self, who: I64, values: F32) -> None:
        """Add the values [ranks, quantities] that are not missing."""
        row, quantity = np.nonzero(~np.isnan(values))
        self._put(who[row], quantity, values[row, quantity])

    def _put(self, who: I64, quantity: I64, values: F32) -> None:
        self._values[who, quantity, self._next[who, quantity] % self.size] = values
        self._next[who, quantity] += 1

    def clear(self, who: I64) -> None:
        """Forget all values of these ranks."""
        self._values[who] = np.nan

    def count(self, who: I64, quantity: Quantity = _ALL) -> I64:
        """[ranks, quantities] how many are known."""
        found: I64 = np.count_nonzero(~np.isnan(self._values[who, quantity]), axis=-1)
        return found

    def median(self, who: I64) -> F32:
        """[ranks, quantities], NaN without values."""
        values = self._values[who]
        return np.asarray(row_medians(values.reshape(-1, self.size)), np.float32).reshape(values.shape[:2])

    def newest(self, who: I64, count: int, quantity: slice = _ALL) -> F32:
        """[ranks, quantities] the median of the last `count` values, NaN without any."""
        last = (self._next[who, quantity][..., None] - 1 - np.arange(count)) % self.size
        values = np.take_along_axis(self._values[who, quantity], last, axis=2)
        return np.asarray(row_medians(values.reshape(-1, count)), np.float32).reshape(values.shape[:2])

    def typical_mean(self, who: I64, quantity: int, median: F32) -> F32:
        """[ranks] the mean of what is known, values above three times the `median` [ranks] counted as so much."""
        values, limit = self._values[who, quantity], OWN_PACE.outlier_ratio * median[:, None]
        count = np.maximum(self.count(who, quantity), 1)
        return np.asarray(np.nansum(np.minimum(values, limit), axis=1) / count, np.float32)

    def shortest(self, who: I64, quantity: int) -> F32:
        """[ranks], NaN without values."""
        return np.asarray(np.fmin.reduce(self._values[who, quantity], axis=1), np.float32)

    def noise(self, who: I64) -> float:
        """The typical standard deviation of a rank's values, as part of their medians; 0 where too few are known.

        1.4826 times the median of the deviations from the median, which single long values do not move.
        """
        median = np.where(self.count(who) >= OWN_PACE.enough_samples, self.median(who), np.nan)
        off = np.abs(self._values[who] - median[..., None]).reshape(-1, self.size)
        deviation = 1.4826 * np.asarray(row_medians(off)).reshape(median.shape)
        of_rank = np.nansum(deviation, axis=1) / np.fmax(np.nansum(median, axis=1), OWN_PACE.tiny_ms)
        return float(np.median(of_rank[~np.isnan(median).all(axis=1)] if not np.isnan(median).all() else 0.0))

    def longest(self, who: I64) -> F32:
        """[ranks, quantities], NaN without values."""
        return np.asarray(np.fmax.reduce(self._values[who], axis=2), np.float32)

    def mean(self, who: I64, quantity: slice = _ALL) -> F32:
        """[ranks, quantities] of the values that are known, NaN without any."""
        values = self._values[who, quantity]
        count = self.count(who, quantity)
        return np.where(count > 0, np.nansum(values, axis=2) / np.maximum(count, 1), np.nan).astype(np.float32)


class OwnPaces:
    """Follows every rank step by step; what it says of a step depends on that step and those before."""

    def __init__(self, world_size: int, capacity: int) -> None:
        shape = (world_size, capacity)
        self._fed: I64 = np.full(world_size, -1, np.int64)
        self._step: I64 = np.full(shape, -1, np.int64)
        self._table: dict[str, F32] = {name: np.full(shape, np.nan, np.float32) for name in _COLUMNS}
        self._seen, self._clean, self._late = (Samples(world_size, count) for count in (_SEEN, _P, _P))
        self._noise = 0.0
        self._usual: F32 = np.full(world_size, np.nan, np.float32)
        self._beside: F32 = np.full((world_size, _P, _P), np.nan, np.float32)

    def take(self, name: str, steps: I64, who: I64) -> F32:
        """[ranks, len(steps)] of a bound on the whole step (least, most) or on a phase (least_forward), NaN if unknown.

        `close` is 1 where the host is not so far ahead that its device finds all kernels launched, else 0. `noise` is
        the scatter of what hosts need, as part of it, where own pace is a median of that, which shows none; else 0.
        """
        slots = steps % self._step.shape[1]
        found = self._table[name][who[:, None], slots]
        return np.where(self._step[who[:, None], slots] == steps, found, np.float32(np.nan))

    def feed(self, run: Run, who: I64, steps: I64) -> None:
        """Take steps in, ascending, that all ranks in `who` have finished; those known already are left out."""
        for start in range(0, len(steps), _CHUNK):
            part = steps[start : start + _CHUNK]
            take = {name: run.rings.take(name, part, who) for name in _NEEDED}
            take["transfer"] = np.broadcast_to(take["exposed"].min(axis=0), take["exposed"].shape)
            if run.info.backend == "gloo":  # its hosts block there, which is no time of their own
                take["host_exposed"] = np.zeros_like(take["exposed"])
            device, host, held = (np.stack([take[n] for n in names], axis=1) for names in (PHASES, _HOST, _HELD))
            for at, step in enumerate(part.tolist()):
                new = self._fed[who] < step
                if new.any():
                    one = {name: table[new, at] for name, table in take.items()}
                    self._feed(who[new], step, one, device[new, :, at], host[new, :, at], held[new, :, at])

    def _feed(self, who: I64, step: int, one: dict[str, F32], device: F32, host: F32, held: F32) -> None:
        """Take one step in. `device`, `host` and `held` are [ranks, phases]."""
        self._fed[who] = step
        typical = self._observe(who, step, one, host, held)
        if step % OWN_PACE.noise_every_steps == 0:
            self._noise = self._late.noise(who)
        least, most = self._of_host(who, typical)
        near, far = self._seen.mean(who, slice(2)).T
        ahead = ~(near >= OWN_PACE.mostly_share)  # what is unknown may be ahead
        known = ~(np.isnan(near) | np.isnan(least[:, -1]))
        as_long, whole, longest = self._whole(who, one, typical, ahead, known, least, most)
        low = np.where(as_long[:, None], least, device)
        high = np.where((ahead & (longest > one["work"]))[:, None], most, device)
        slot = step % self._step.shape[1]
        self._step[who, slot] = step
        for name, values in zip(LEAST, (whole, *low.T), strict=True):
            self._table[name][who, slot] = values
        for name, values in zip(MOST, (np.maximum(whole, longest), *high.T), strict=True):
            self._table[name][who, slot] = values
        self._table["close"][who, slot] = known & (far < OWN_PACE.mostly_share)
        self._table["noise"][who, slot] = np.where(as_long, self._noise, 0.0)

    def _observe(self, who: I64, step: int, one: dict[str, F32], host: F32, held: F32) -> F32:
        """Keep what one step shows of each rank; returns [ranks, quantities] the medians of the last twenty."""
        unknown = np.isnan(one["lead"])
        near = one["lead"] <= np.maximum(OWN_PACE.in_step_share * one["duration"], OWN_PACE.in_step_ms)
        far = one["lead"] >= OWN_PACE.far_ahead_share * one["duration"]
        near_by, far_ahead = np.where(unknown, np.nan, near), np.where(unknown, np.nan, far)
        bare = np.where(far, one["work"], np.nan)
        shown = np.stack([near_by, far_ahead, one["host_exposed"], one["work"], bare], axis=1)
        clean = held <= OWN_PACE.clean_share * np.maximum(host, OWN_PACE.tiny_ms)
        clean &= ~((one["marked"] > 0)[:, None] & _PAUSED)
        self._seen.put(who, np.concatenate([shown, host, host - held, clean], axis=1))
        typical = self._seen.median(who)
        self._forget(who, typical[:, _BARE])
        (self._late if step >= SUSTAINED.warm_up_steps else self._clean).put_known(who, np.where(clean, host, np.nan))
        return typical

    def _whole(
        self, who: I64, one: dict[str, F32], typical: F32, ahead: Flags, known: Flags, least: F32, most: F32
    ) -> tuple[Flags, F32, F32]:
        """[ranks] whether the host takes as long as its device or longer, the least of own pace, and the most.

        A device that has time to spare makes up for a long step: of one that the host paces only the usual work
        matters. What a host that is not ahead takes behind the last gradient, such as to launch copies, looks like a
        wait.
        """
        work, transfer = one["work"], one["transfer"]
        behind = np.nan_to_num(typical[:, _BEHIND])
        certain = np.nan_to_num(self._seen.shortest(who, _BEHIND))
        usual = self._seen.typical_mean(who, _WORK, typical[:, _WORK])
        usual = np.maximum(usual, self._seen.newest(who, OWN_PACE.newest_samples, slice(_WORK, _WORK + 1))[:, 0])
        host = np.where(known & ahead, np.nansum(least, axis=1) + certain - transfer, 0.0)
        as_long = host >= LATENESS.host_as_long_ratio * usual
        longest = np.where(known, np.nansum(most, axis=1) + behind - transfer, one["duration"])
        longest = np.where(ahead, longest, work + np.minimum(behind, one["exposed"] - transfer))
        return as_long, np.where(host > usual, host, work), np.maximum(longest, work)

    def _of_host(self, who: I64, typical: F32) -> tuple[F32, F32]:
        """[ranks, phases] the least and the most that the host itself needs, over the last twenty steps.

        Where there are clean samples these tell, within the bounds that the last steps set: a host that was held up
        needs no more than it took, and no less than what it took while its device did not wait. The samples of the
        warm-up count as long as there are no others. A host that has become slower in the phases that it shows may
        have in the others, too, at most by as much.
        """
        low, high = typical[:, _FREE], typical[:, _HOST_TIME]
        late = self._late.count(who) >= OWN_PACE.enough_samples
        clean, sampled = self._late.median(who), late
        if not late.all():
            clean = np.where(late, clean, self._clean.median(who))
            sampled = late | (self._clean.count(who) >= OWN_PACE.enough_samples)
        within = np.minimum(np.maximum(clean, low), high)
        error = self._error(clean, np.where(late, self._late.count(who), self._clean.count(who)))
        few = np.fmax(self._late.longest(who), self._clean.longest(who)) * OWN_PACE.few_samples_ratio
        at_most = np.fmax(np.fmin(high, few), low)
        newest = self._late.newest(who, OWN_PACE.newest_samples)
        rising = np.where(late, np.minimum(np.fmax(newest, self._at_its_pace(who, newest)), high), -np.inf)
        surely = np.maximum(within - error, low)
        perhaps = np.minimum(within + error, np.maximum(within, high))
        return np.where(sampled, surely, low), np.where(sampled, np.maximum(perhaps, rising), at_most)

    def _error(self, clean: F32, count: I64) -> F32:
        """[ranks, phases] how far the median of `count` clean samples may be off, beyond what that of twenty may be.

        The rules allow for the latter: 1.25 / sqrt(20) of the noise is the standard error of a median of twenty.
        """
        fewer = np.sqrt(np.maximum(0.0, 1 / np.maximum(count, 1) - 1 / Samples.size))
        return np.asarray(OWN_PACE.sample_errors * 1.25 * self._noise * fewer * clean, np.float32)

    def _at_its_pace(self, who: I64, newest: F32) -> F32:
        """[ranks, phases] what a phase that is seldom seen without a wait may take now, NaN where that is no more.

        That is its last clean sample, times how much longer the phases take that are often seen, `newest` [ranks,
        phases], than they took when it was taken.
        """
        often = self._seen.mean(who, _IS_CLEAN) * self._seen.size >= OWN_PACE.newest_samples
        level = np.where(often, newest, np.nan)
        sampled = self._seen.newest(who, 1, _IS_CLEAN) > 0
        beside = np.where(sampled[..., None], level[:, None, :], self._beside[who])
        self._beside[who] = beside
        both = ~np.isnan(beside) & ~np.isnan(level)[:, None, :]
        now = np.where(both, level[:, None, :], 0).sum(axis=2)
        then = np.where(both, beside, 0).sum(axis=2)
        times = now / np.where(then > 0, then, np.inf)
        pace = self._late.newest(who, 1) * np.maximum(times, 1.0)
        return np.where(~often & (pace > OWN_PACE.slowed_ratio * newest), pace, np.nan).astype(np.float32)

    def _forget(self, who: I64, now: F32) -> None:
        """Drop the samples of a rank whose kernels take another time than when they were taken, as after a new shape.

        Only where its host has been far ahead for twenty steps is its device's work kernel time, `now` [ranks] of late.
        """
        full = self._seen.count(who, _BARE) == self._seen.size
        usual = self._usual[who]
        changed = full & (np.abs(now - usual) > OWN_PACE.new_kernels_share * usual)
        for samples in (self._clean, self._late):
            samples.clear(who[changed])
        self._usual[who] = np.where(full & (np.isnan(usual) | changed), now, usual)


_HOST = tuple(f"host_{phase}" for phase in PHASES)
_HELD = tuple(f"held_{phase}" for phase in PHASES)
_NEEDED = ("work", "duration", "exposed", "lead", "marked", "host_exposed", *PHASES, *_HOST, *_HELD)
