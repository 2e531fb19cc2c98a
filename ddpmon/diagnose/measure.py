"""The numbers behind a verdict on ranks: how much later, in which phase, at what cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.own_pace import OwnPaces
from ddpmon.diagnose.step_matrix import StepMatrix
from ddpmon.diagnose.sustained import WINDOW
from ddpmon.format import ms
from ddpmon.run.medians import median, middle, middles
from ddpmon.run.model import Run
from ddpmon.run.rings import F32, I64
from ddpmon.schema import PHASES

COLUMNS = ("work", "wait", "gc", "samples", *PHASES)
COST_STEPS = 100
_SAMPLE = 256
_PHASE_SHARE = 0.8
_CAUSE_SHARE = 0.5
_WAIT_SHARE = 0.5
_HEAVY = 3.0  # times what it is usually late by: in such a step all of it is lateness
_HIDDEN_SHARE = 0.25
_BEFORE = 50
_LAUNCHED = ("forward", "backward", "optimizer")
_MOSTLY, _AS_LONG = 0.5, 0.9

Numbers = dict[str, float]


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
        asked = peers[:: -(-len(peers) // _SAMPLE)]
        self.normal = self._typical(run, columns, asked, "most")

    def compare(self, run: Run, ranks: I64) -> Numbers:
        """Medians over the steps in ms: `ranks` (the median one, if several) against the others."""
        own = self._typical(run, COLUMNS, ranks, "least")
        excess = {name: middle(own[name] - self.normal[name]) for name in COLUMNS}
        numbers = {
            "work_ms": middle(own["work"]),
            "others_work_ms": middle(self.normal["work"]),
            "excess_ms": excess["work"],
            "waits_less_ms": _waits_less(self.normal["wait"] - own["wait"], excess["work"]),
            **{f"excess_{phase}_ms": excess[phase] for phase in PHASES},
            "phases_ms": float(np.mean([own[phase] - self.normal[phase] for phase in PHASES]) * len(PHASES)),
            "gc_ms": float(np.mean(own["gc"] - self.normal["gc"])),
            "samples_ratio": _ratio(own["samples"], self.normal["samples"]),
        }
        return numbers | self._launches(run, ranks, numbers)

    def _launches(self, run: Run, ranks: I64, numbers: Numbers) -> Numbers:
        """How long a step the devices of `ranks` wait for their hosts in the phases of the excess, where these set it.

        So they do where the host takes as long for a phase as its device does, without being far ahead of it.
        """
        phase = phase_of(numbers)
        phases = _LAUNCHED if phase == "work" else [phase]
        if self._own is None or not {*phases} <= {*_LAUNCHED}:
            return {}
        host = np.sum([run.rings.take(f"host_{name}", self.steps, ranks) for name in phases], axis=0)
        own = np.sum([self._own.take(f"least_{name}", self.steps, ranks) for name in phases], axis=0)
        close = np.nan_to_num(self._own.take("close", self.steps, ranks)).mean() >= _MOSTLY
        longer = sum(numbers[f"excess_{name}_ms"] for name in phases)
        by_host = close and longer > 0 and median(host) >= _AS_LONG * median(own)
        return {"launch_ms": longer} if by_host else {}

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
    if typical >= _WAIT_SHARE * excess or len(less) < 2:
        return typical
    return max(typical, float((less.sum() - less.max()) / len(less)))


def _ratio(own: F32, others: F32) -> float:
    total = float(others.sum())
    return float(own.sum()) / total if total > 0 else float("nan")


def agrees(numbers: Numbers) -> bool:
    """Whether the others wait for it: what it works longer it must wait less (docs/detection.md "Agreement and phase").

    At least half of the excess must be missing from its waits.
    """
    return numbers["waits_less_ms"] >= _WAIT_SHARE * numbers["excess_ms"]


def phase_of(numbers: Numbers) -> str:
    """The phase that holds at least 80 % of the excess, else "work"."""
    excess = numbers["excess_ms"]
    phase = max(PHASES, key=lambda name: numbers[f"excess_{name}_ms"])
    return phase if excess > 0 and numbers[f"excess_{phase}_ms"] >= _PHASE_SHARE * excess else "work"


def phases_tell(numbers: Numbers) -> bool:
    """Whether the phases on record hold at least half of the excess: of a table they may be missing."""
    return numbers["phases_ms"] >= _CAUSE_SHARE * numbers["excess_ms"]


def cause_of(numbers: Numbers) -> str | None:
    """What the rank itself tells of the reason: garbage collection, where it holds half of the excess."""
    collected = numbers["gc_ms"] >= _CAUSE_SHARE * numbers["excess_ms"] > 0
    return f"garbage collection takes {ms(numbers['gc_ms'])} of it" if collected else None


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
    bounds = (matrix.most, matrix.work) if at_most else (matrix.work, matrix.most)
    work, others = (bound[:, late] for bound in bounds)
    healthy = np.delete(others, suspects, axis=0)
    peers = healthy if len(healthy) else others
    normal = np.median(peers[:: -(-len(peers) // _SAMPLE)], axis=0)
    above = work[rows] - normal
    usual = np.maximum(0, np.median(above, axis=1, keepdims=True))
    without = np.where((usual > 0) & (above > _HEAVY * usual), normal, work[rows] - usual).max(axis=0)
    saved = np.maximum(0, work[rows].max(axis=0) - np.maximum(healthy.max(axis=0, initial=0), without))
    return float(min(100.0, 100 * saved.sum() / max(1e-9, matrix.job("duration")[over].sum())))


def hidden_ms(matrix: StepMatrix, since: int, at: I64, excess_ms: float) -> float:
    """What of a lateness since `since` the job does not lose: the transfer that nobody could hide is shorter by it.

    Where communication overlaps with a backward that takes longer, more of it is hidden. Little of it may be chance: 0.
    """
    end = int(np.searchsorted(matrix.steps, since))
    transfer = matrix.job("transfer")
    if end < WINDOW or not len(at):
        return 0.0
    less = float(np.median(transfer[max(0, end - _BEFORE) : end]) - np.median(transfer[at]))
    return min(less, excess_ms) if less >= _HIDDEN_SHARE * excess_ms else 0.0


def cost_window(steps: I64, since: int) -> I64:
    """The places on record of the steps since the onset, at most the last hundred and at least the last one."""
    first = int(np.searchsorted(steps, min(since, int(steps[-1]))))
    return np.arange(max(first, len(steps) - COST_STEPS), len(steps))
