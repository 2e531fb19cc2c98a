"""The numbers behind a verdict on ranks: how much later, in which phase, at what cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Measures
from ddpmon.diagnose.late_policy import LATENESS, OWN_PACE, SUSTAINED
from ddpmon.diagnose.own_pace import OwnPaces
from ddpmon.diagnose.step_matrix import StepMatrix
from ddpmon.run.medians import median, middle, middles, some_of
from ddpmon.run.model import Run
from ddpmon.run.rings import F32, I64
from ddpmon.schema import PHASES

# The columns that ranks are compared in.
COLUMNS = ("work", "wait", "gc", "samples", *PHASES)
_LAUNCHED = ("forward", "backward", "optimizer")  # the phases in which a host launches kernels


class Whom(Struct, frozen=True):
    """Who is late together.

    Attributes:
        ranks: their numbers.
        host: where they are; "" for ranks of several hosts.
        of_host: how many ranks the host has, where all or nearly all of these are meant; None where single ranks are.
    """

    ranks: tuple[int, ...]
    host: str
    of_host: int | None = None


class RankProcess(Struct, frozen=True):
    """Where the process of a rank can be looked at.

    Attributes:
        on_gpu: whether it trains on a GPU.
        gpu_index: that GPU's number on its host, None where unknown.
    """

    host: str
    pid: int
    on_gpu: bool
    gpu_index: int | None


class LateMeasures(Measures, frozen=True):
    """By how much ranks are late: medians over the steps in ms, of several ranks the median one.

    Attributes:
        whom: who is late.
        work_ms, others_work_ms: their work, and the median of those whom nobody suspects.
        excess_ms: by how much they work longer.
        waits_less_ms: by how much they wait less: as much as they work longer, if the others wait for them.
        phases: of each of `PHASES` by how much it takes them longer.
        phases_ms: the sum of these, as a mean over the steps or as a median, whichever is more: a mean is lower where
            another rank is late now and then, and a median misses phases that lie in fewer than half of the steps.
        gc_ms: what the garbage collector takes of them longer, as a mean over the steps.
        samples_ratio: their samples over those of the others, NaN where unknown.
        is_own_pace: whether work and phases are own pace (`diagnose/own_pace.py`) and not as measured.
        launch_ms: how long their GPUs wait for their CPUs, None where their GPUs set their pace.
        launch_most_ms: the same, at most: their CPUs take as long as their GPUs, but may wait for a full launch queue.
        ratio: their work over the median of the others, None for what comes and goes.
        hidden_ms: what of the excess the transfer hides, None for nothing.
        cost_pct, cost_most_pct: percent of the job's time that fixing them saves at least, and at most; None for a
            most that is the least.
        hit_steps: in how many steps they were late, None for every step.
        one_step_in: the mean distance of these steps, None for every step.
        window_steps: the steps that the measures are of, None where `hit_steps` tells.
        latest: of several ranks the one that stands out, and by how many ms it is late; None if none does.
        alone_pct: what fixing them alone saves where others are late too; None where that is all of the cost.
        beside: the other ranks that are late, where `alone_pct` is given.
        process: that of the first of the ranks, None where it is unknown, as in a table.
    """

    whom: Whom
    work_ms: float
    others_work_ms: float
    excess_ms: float
    waits_less_ms: float
    phases: tuple[float, ...]
    phases_ms: float
    gc_ms: float
    samples_ratio: float
    is_own_pace: bool = False
    launch_ms: float | None = None
    launch_most_ms: float | None = None
    ratio: float | None = None
    hidden_ms: float | None = None
    cost_pct: float = 0.0
    cost_most_pct: float | None = None
    hit_steps: int | None = None
    one_step_in: float | None = None
    window_steps: int | None = None
    latest: tuple[int, float] | None = None
    alone_pct: float | None = None
    beside: tuple[int, ...] = ()
    process: RankProcess | None = None

    @property
    def may_launch_slowly(self) -> bool:
        """Whether their GPUs wait for their CPUs, or may do so."""
        return self.launch_ms is not None or self.launch_most_ms is not None

    def excess_of(self, phase: str) -> float:
        """By how much ms the phase takes them longer."""
        return self.phases[PHASES.index(phase)]


class Others:
    """What is normal at some steps: each column's median over ranks that nobody suspects.

    Args:
        run: the run.
        steps: [T] where to look.
        peers: rank numbers; of many, 256 spread over all are asked.
        columns: which columns; to `compare`, all of them.
        own: the ranks' own pace, which stands for their work and its phases; None where these are as measured.
    """

    def __init__(
        self, run: Run, steps: I64, peers: I64, columns: Sequence[str] = COLUMNS, own: OwnPaces | None = None
    ) -> None:
        self.steps = steps
        self._own = own
        self._asked = some_of(peers, LATENESS.sampled_ranks)
        self.normal = self._typical(run, columns, self._asked, "most")

    def compare(self, run: Run, whom: Whom) -> LateMeasures:
        """The measures of these ranks against the others, without what their lateness costs."""
        ranks = np.array(whom.ranks, np.int64)
        own = self._typical(run, COLUMNS, ranks, "least")
        excess = {name: middle(own[name] - self.normal[name]) for name in COLUMNS}
        in_phases = np.sum([own[phase] - self.normal[phase] for phase in PHASES], axis=0)
        measures = LateMeasures(
            whom=whom,
            work_ms=middle(own["work"]),
            others_work_ms=middle(self.normal["work"]),
            excess_ms=excess["work"],
            waits_less_ms=_waits_less(self.normal["wait"] - own["wait"], excess["work"]),
            phases=tuple(excess[phase] for phase in PHASES),
            phases_ms=max(float(np.mean(in_phases)), middle(in_phases)),
            gc_ms=float(np.mean(own["gc"] - self.normal["gc"])),
            samples_ratio=_ratio(own["samples"], self.normal["samples"]),
            is_own_pace=self._own is not None,
            process=_process_of(run, whom.ranks[0]),
        )
        phase = phase_of(measures)
        phases = _LAUNCHED if phase == "work" else (phase,)
        launch_ms = self._launch_ms(run, ranks, measures, phases)
        name = "launch_most_ms" if launch_ms is not None and self._can_fill(run, phases) else "launch_ms"
        return replace(measures, **{name: launch_ms})

    def _can_fill(self, run: Run, phases: tuple[str, ...]) -> bool:
        """Whether the launches of one of the phases may be as many as the launch queue holds.

        The others launch as many, so the time of their hosts tells, even if it holds waiting. Where a host takes longer
        in several phases, its queue was full in the first of them.
        """
        hosts = [median(run.rings.take(f"host_{phase}", self.steps, self._asked)) for phase in phases]
        own = [middle(self.normal[phase]) for phase in phases]
        return float(np.fmin(hosts, own).max()) >= OWN_PACE.queue_ms

    def _launch_ms(self, run: Run, ranks: I64, measures: LateMeasures, phases: tuple[str, ...]) -> float | None:
        """How long a step the devices of `ranks` wait for their hosts in the phases of the excess, where these set it.

        So they do where the host takes as long for a phase as its device does, without being far ahead of it.
        """
        if self._own is None or not {*phases} <= {*_LAUNCHED}:
            return None
        host = np.sum([run.rings.take(f"host_{name}", self.steps, ranks) for name in phases], axis=0)
        own = np.sum([self._own.take(f"least_{name}", self.steps, ranks) for name in phases], axis=0)
        close = np.nan_to_num(self._own.take("close", self.steps, ranks)).mean() >= OWN_PACE.mostly_share
        longer = sum(measures.excess_of(name) for name in phases)
        return longer if close and longer > 0 and median(host) >= LATENESS.host_as_long_ratio * median(own) else None

    def _typical(self, run: Run, columns: Sequence[str], ranks: I64, bound: str) -> dict[str, F32]:
        """Column -> [T] its median over the ranks, a missing value counted as 0; of own pace the given bound."""
        tables = run.rings.takes(columns, self.steps, ranks)
        for name, table in zip(columns, tables, strict=True):
            if self._own is not None and name in ("work", *PHASES):
                table[:] = self._own.take(bound if name == "work" else f"{bound}_{name}", self.steps, ranks)
        return dict(zip(columns, middles(np.nan_to_num(tables).swapaxes(1, 2)), strict=True))


def _waits_less(less: F32, excess: float) -> float:
    """[T] how much less it waits, as one number: the median; or the mean, where waits come in some of the steps only.

    So it is in a log of micro-batches, of which the last one waits for all. One step alone is no such rhythm.
    """
    typical = middle(less)
    if typical >= LATENESS.waits_share * excess or len(less) < 2:
        return typical
    return max(typical, float((less.sum() - less.max()) / len(less)))


def _ratio(own: F32, others: F32) -> float:
    total = float(others.sum())
    return float(own.sum()) / total if total > 0 else float("nan")


def _process_of(run: Run, rank: int) -> RankProcess | None:
    latest = run.latest
    if run.ranks[rank] is None or latest.pid[rank] <= 0:
        return None
    gpu = run.gpu_of(rank)
    on_gpu = latest.gpu_uuid[rank] is not None
    return RankProcess(latest.host[rank], latest.pid[rank], on_gpu, None if gpu is None else gpu.index)


def agrees(late: LateMeasures) -> bool:
    """Whether the others wait for them: what they work longer they must wait less.

    At least half of the excess must be missing from their waits (docs/detection.md "Agreement and phase").
    """
    return late.waits_less_ms >= LATENESS.waits_share * late.excess_ms


def phase_of(late: LateMeasures) -> str:
    """The phase that holds at least 80 % of the excess, else "work".

    Of own pace it is 80 % of what the phases show, if together they show 80 % of the excess: a device that works off
    its queue while its host is late shows less of the lateness in that phase than the step does as a whole.
    """
    phase = max(PHASES, key=late.excess_of)
    most = LATENESS.most_share
    tell = late.is_own_pace and sum(late.phases) >= most * late.excess_ms
    whole = min(late.excess_ms, sum(max(0.0, excess) for excess in late.phases)) if tell else late.excess_ms
    return phase if whole > 0 and late.excess_of(phase) >= most * whole else "work"


def phases_tell(late: LateMeasures) -> bool:
    """Whether the phases on record hold at least half of the excess: in a table they may be missing."""
    return late.phases_ms >= LATENESS.tells_share * late.excess_ms


def is_collecting(late: LateMeasures) -> bool:
    """Whether garbage collection holds half of the excess."""
    return late.gc_ms >= LATENESS.tells_share * late.excess_ms > 0


def cost_pct(matrix: StepMatrix, rows: I64, suspects: I64, at: I64, *, at_most: bool = False) -> float:
    """What the job would save without the lateness of `rows`, in percent of its time at the places `at` on record."""
    return cost_of_steps(matrix, rows, suspects, at, at, at_most=at_most)


def cost_of_steps(
    matrix: StepMatrix,
    rows: I64,
    suspects: I64,
    late: I64,
    over: I64 | NDArray[np.bool_],
    *,
    at_most: bool = False,
) -> float:
    """What the job would save without the lateness of `rows` in the steps `late`, in percent of its time `over` some.

    The what-if of a synchronous step (docs/detection.md "Cost"): the longest work as it is, less the longest
    as it would be, with each of `rows` at its work without what it is usually late by, and every other suspect left
    out. A step in which it is late by more than three times that is taken for a normal one.

    Where work has bounds this is the least that the job would save, or, with `at_most`, the most.
    """
    own, others = (matrix.most, matrix.work) if at_most else (matrix.work, matrix.most)
    work = own[rows][:, late]
    normal, longest = matrix.unsuspected.at(matrix.steps, others, suspects, late, "least" if at_most else "most")
    above = work - normal
    usual = np.maximum(0, middles(above)[:, None])
    without = np.where((usual > 0) & (above > LATENESS.heavy_ratio * usual), normal, work - usual).max(axis=0)
    saved = np.maximum(0, work.max(axis=0) - np.maximum(longest, without))
    return float(min(100.0, 100 * saved.sum() / max(1e-9, matrix.job("duration")[over].sum())))


def hidden_ms(matrix: StepMatrix, since: int, at: I64, excess_ms: float) -> float:
    """What of a lateness since `since` the job does not lose: the transfer that nobody could hide is shorter by it.

    Where communication overlaps with a backward that takes longer, more of it is hidden. Little of it may be chance: 0.
    """
    end = int(np.searchsorted(matrix.steps, since))
    transfer = matrix.job("transfer")
    if end < SUSTAINED.window_steps or not len(at):
        return 0.0
    less = middle(transfer[max(0, end - LATENESS.usual_transfer_steps) : end]) - middle(transfer[at])
    return min(less, excess_ms) if less >= LATENESS.hidden_share * excess_ms else 0.0


def cost_window(steps: I64, since: int) -> I64:
    """The places on record of the steps since the onset, at most the last hundred and at least the last one."""
    first = int(np.searchsorted(steps, min(since, int(steps[-1]))))
    return np.arange(max(first, len(steps) - LATENESS.cost_steps), len(steps))
