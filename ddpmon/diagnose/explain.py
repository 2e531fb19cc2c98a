"""How much of a lateness a machine's figures explain, and which contention fits it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.contention.contention_lives import Contention
from ddpmon.diagnose.contention.gpu_health import GpuThrottledMeasures
from ddpmon.diagnose.contention.gpu_sharing import GpuSharedMeasures
from ddpmon.diagnose.contention.process_history import ProcessHistory
from ddpmon.diagnose.contention_policy import GPU
from ddpmon.diagnose.kinds import COMPUTES, KINDS
from ddpmon.diagnose.late_policy import CAUSE, SUSTAINED
from ddpmon.diagnose.measure import LateMeasures
from ddpmon.diagnose.regression import JobSlowerMeasures, SlowNetworkMeasures
from ddpmon.diagnose.step_matrix import StepMatrix
from ddpmon.run.limits import POWER_CAP
from ddpmon.run.medians import median, middle, some_of
from ddpmon.run.model import Run


class Lateness(Struct, frozen=True):
    """A verdict that the machine may explain.

    Attributes:
        ranks: who is late; all ranks for the job as a whole.
        step_ms: a step's duration. excess_ms: what the lateness adds to a step, on average.
        shares: measure -> how much of the excess it carries; missing where unknown.
    """

    alert: Alert
    ranks: frozenset[int]
    step_ms: float
    excess_ms: float
    shares: dict[str, float]

    @property
    def whole(self) -> bool:
        """Whether the whole job is meant."""
        return KINDS[self.alert.kind].slower

    def share_of(self, contention: Contention) -> float | None:
        """How much of the excess the contention carries by its figures; None where these do not tell."""
        measures = contention.symptom.measures
        if isinstance(measures, GpuSharedMeasures) and measures.sm_pct is not None:
            return measures.sm_pct / 100 * self.step_ms / self.excess_ms
        return self.shares.get(KINDS[contention.symptom.kind].measure)

    def suits(self, contention: Contention) -> bool:
        """Whether the contention can act on the phase that is late."""
        phases = KINDS[contention.symptom.kind].acts_on
        if self.alert.kind == "slow_network":
            return contention.symptom.kind == "nic_errors"
        if _is_paced_by_its_host(self.alert) and KINDS[contention.symptom.kind].slows_gpu:
            return False
        return bool(phases) if self.alert.phase is None else self.alert.phase in phases

    def began_with(self, contention: Contention) -> bool:
        """Whether both may have begun together, the reason hardly after its effect; a host is heard once a second."""
        return self._began_at(contention, contention.since) or (
            contention.again is not None and self._began_at(contention, contention.again)
        )

    def _began_at(self, contention: Contention, began: int | None) -> bool:
        since, near = self.alert.since_step, CAUSE.near(self.step_ms)
        if began is None or since is None:
            return since is None or self.alert.since_is_bound or since <= near
        if contention.bound and began == contention.since:
            return self.alert.since_is_bound or since <= began + near
        return not self.alert.since_is_bound and -near <= began - since <= CAUSE.after(self.step_ms)

    def precedes(self, contention: Contention) -> bool:
        """Whether the contention may have begun before the lateness; a host is heard once a second.

        A power cap must have been seen before: a late GPU computes while its peers wait, so it is capped because it is
        late.
        """
        since, began = self.alert.since_step, contention.since
        if contention.bound or since is None or began is None:
            return True
        measures = contention.symptom.measures
        capped = isinstance(measures, GpuThrottledMeasures) and measures.reasons == (POWER_CAP,)
        return began < since if capped else began <= since + CAUSE.after(self.step_ms)

    def meets(self, contention: Contention, spread: Sequence[Contention]) -> bool:
        """Whether the contention may be a reason, as far as its kind, ranks, time and size tell.

        Args:
            contention: one of them.
            spread: all of its kind: what slows the whole job must act on half of it or more.
        """
        if not self.suits(contention) or (contention.symptom.kind == "gpu_throttled" and not self.precedes(contention)):
            return False
        share = self.share_of(contention)
        if share is not None and share < CAUSE.some_share:
            return False
        if self.whole:
            met = {rank for other in spread for rank in other.symptom.ranks}
            return self.began_with(contention) and len(met & self.ranks) >= CAUSE.met_share * len(self.ranks)
        return not self.ranks.isdisjoint(contention.symptom.ranks) and (
            share is not None or self.began_with(contention)
        )


def weigh(run: Run, matrix: StepMatrix, figures: ProcessHistory, found: Sequence[Alert]) -> list[Lateness]:
    """The verdicts of lateness that last, each with what the ranks' figures carry of it."""
    standing = [each for each in found if each.cleared_at_step is None]
    late = np.array([rank for each in standing if KINDS[each.kind].late for rank in each.ranks], np.int64)
    others = matrix.ranks[np.isin(matrix.ranks, late, invert=True)]
    weighed = []
    for alert in standing:
        whole = KINDS[alert.kind].slower
        if not whole and not (KINDS[alert.kind].late and alert.ranks):
            continue
        ranks = matrix.ranks if whole else np.array(alert.ranks, np.int64)
        excess, step = _excess(alert), median(matrix.job("duration")[-SUSTAINED.window_steps :])
        if excess > 0 and step > 0 and ranks.size:
            shares = _waits(figures, alert, ranks, others, step / excess, whole=whole)
            if not whole and alert.phase in COMPUTES:
                shares |= _clocks(run, figures, alert, ranks, others)
            weighed.append(Lateness(alert, frozenset(ranks.tolist()), step, excess, shares))
    return weighed


def _excess(alert: Alert) -> float:
    """What the lateness adds to a step, in ms."""
    measures = alert.measures
    if isinstance(measures, JobSlowerMeasures):
        return measures.step_ms - measures.normal_step_ms
    if isinstance(measures, SlowNetworkMeasures):
        return measures.transfer_ms - measures.normal_transfer_ms
    return measures.excess_ms / max(1.0, measures.one_step_in or 1.0) if isinstance(measures, LateMeasures) else 0.0


def _waits(
    figures: ProcessHistory,
    alert: Alert,
    ranks: NDArray[np.int64],
    others: NDArray[np.int64],
    times: float,
    *,
    whole: bool,
) -> dict[str, float]:
    """What waiting for a CPU, and a quota, carry: against the other ranks, or, for the whole job, its own past.

    A thread that a quota stops counts as one that waits for a CPU, and for longer than as throttled: where there is a
    quota at work, that wait is its doing.
    """
    since, shares, stopped = alert.since_step or 0, {}, False
    for name in ("queue", "throttled"):
        own, usual = median(figures.mean(name, ranks, since)), np.nan
        if np.isnan(own):
            continue
        if others.size and not whole:
            usual = median(figures.mean(name, some_of(others, CAUSE.sampled_ranks), since))
        if np.isnan(usual):
            usual = median(figures.usual(name, ranks, since))
        if name == "throttled" and np.isnan(usual):
            usual = 0.0  # those without a quota do not tell
        share = (own - usual) / 100 * times
        if np.isfinite(share):
            shares[name] = share
            stopped = name == "throttled" and own - usual >= CAUSE.stopped_pct
    if stopped and "queue" in shares:
        shares |= {"throttled": max(shares.values()), "queue": 0.0}
    return shares


def _is_paced_by_its_host(alert: Alert) -> bool:
    """Whether the GPU has time to spare, since its CPU launches slowly: what slows a GPU then explains nothing."""
    return isinstance(alert.measures, LateMeasures) and alert.measures.launch_ms is not None


def _clocks(
    run: Run, figures: ProcessHistory, alert: Alert, ranks: NDArray[np.int64], others: NDArray[np.int64]
) -> dict[str, float]:
    """What a lower clock carries: work at a fixed number of cycles takes longer by the ratio of the clocks.

    That of the GPU where a GPU is late, and that of the CPU where its CPU paces it, or where there is no GPU; both
    where the CPU may pace it.
    """
    asked = (ranks, some_of(others, CAUSE.sampled_ranks))
    late = alert.measures
    usual = late.others_work_ms if isinstance(late, LateMeasures) else 0.0
    longer = late.excess_ms / usual if isinstance(late, LateMeasures) and usual > 0 else 0.0
    on_cpu = not any(run.latest.gpu_uuid[rank] for rank in ranks.tolist())
    clocks: dict[str, tuple[float, ...]] = {}
    if not on_cpu and not _is_paced_by_its_host(alert):
        clocks["clock"] = tuple(_clock(run, who) for who in asked)
    if on_cpu or (isinstance(late, LateMeasures) and late.may_launch_slowly):
        clocks["cpu_clock"] = tuple(median(figures.mean("mhz", who, alert.since_step or 0)) for who in asked)
    known = {name: pair for name, pair in clocks.items() if all(mhz > 0 for mhz in pair) and longer > 0}
    return {name: (peers / own - 1) / longer for name, (own, peers) in known.items()}


def _clock(run: Run, ranks: NDArray[np.int64]) -> float:
    """The middle SM clock of these ranks' GPUs under load, 0 where unknown."""
    utilization_pct, _, clock_mhz = run.gpu_numbers(ranks).T
    with np.errstate(invalid="ignore"):
        is_at_work = (utilization_pct >= GPU.loaded_pct) & (clock_mhz > 0)
    return middle(clock_mhz[is_at_work]) if is_at_work.any() else 0.0
