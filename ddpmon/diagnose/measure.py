"""The numbers behind a verdict on ranks: how much later, in which phase, at what cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.ledger import Ledger
from ddpmon.diagnose.wording import ms
from ddpmon.run.model import Run
from ddpmon.run.rings import F32, I64
from ddpmon.schema import PHASES

COLUMNS = ("work", "wait", "gc", "samples", *PHASES)
COST_STEPS = 100
_SAMPLE = 256
_PHASE_SHARE = 0.8
_CAUSE_SHARE = 0.5
_WAIT_SHARE = 0.5

Numbers = dict[str, float]


class Others:
    """What is normal at some steps: each column's median over ranks that nobody suspects.

    Args:
        run: the run.
        steps: [T] where to look.
        peers: rank numbers; of many, 256 spread over all are asked.
        columns: which columns; to `compare`, all of them.
    """

    def __init__(self, run: Run, steps: I64, peers: I64, columns: Sequence[str] = COLUMNS) -> None:
        self.steps = steps
        asked = peers[:: -(-len(peers) // _SAMPLE)]
        tables = {name: run.rings.take(name, steps, asked) for name in columns}
        self.normal = {name: np.median(np.nan_to_num(table), axis=0) for name, table in tables.items()}

    def compare(self, run: Run, ranks: I64) -> Numbers:
        """Medians over the steps in ms: `ranks` (their mean, if several) against the others."""
        own = {name: np.nan_to_num(run.rings.take(name, self.steps, ranks)).mean(axis=0) for name in COLUMNS}
        excess = {name: float(np.median(own[name] - self.normal[name])) for name in COLUMNS}
        return {
            "work_ms": float(np.median(own["work"])),
            "others_work_ms": float(np.median(self.normal["work"])),
            "excess_ms": excess["work"],
            "waits_less_ms": -excess["wait"],
            **{f"excess_{phase}_ms": excess[phase] for phase in PHASES},
            "gc_ms": float(np.mean(own["gc"] - self.normal["gc"])),
            "samples_ratio": _ratio(own["samples"], self.normal["samples"]),
        }


def _ratio(own: F32, others: F32) -> float:
    total = float(others.sum())
    return float(own.sum()) / total if total > 0 else float("nan")


def agrees(numbers: Numbers) -> bool:
    """Whether the others wait for it: what it works longer, it must wait less (DESIGN section 5)."""
    return numbers["waits_less_ms"] >= _WAIT_SHARE * numbers["excess_ms"]


def phase_of(numbers: Numbers) -> str:
    """The phase that holds at least 80 % of the excess, else "work"."""
    excess = numbers["excess_ms"]
    phase = max(PHASES, key=lambda name: numbers[f"excess_{name}_ms"])
    return phase if excess > 0 and numbers[f"excess_{phase}_ms"] >= _PHASE_SHARE * excess else "work"


def cause_of(numbers: Numbers) -> str | None:
    """What the rank itself tells of the reason: garbage collection, where it holds half of the excess."""
    collected = numbers["gc_ms"] >= _CAUSE_SHARE * numbers["excess_ms"] > 0
    return f"garbage collection holds {ms(numbers['gc_ms'])} of it" if collected else None


def cost_pct(ledger: Ledger, rows: I64, suspects: I64, excess_ms: float, at: I64) -> float:
    """What the job would save without the lateness of `rows`, in percent of its time at the places `at` on record."""
    return cost_of_steps(ledger, rows, suspects, excess_ms, at, at)


def cost_of_steps(
    ledger: Ledger, rows: I64, suspects: I64, excess_ms: float, late: I64, over: I64 | NDArray[np.bool_]
) -> float:
    """What the job would save without the lateness of `rows` in the steps `late`, in percent of its time `over` some.

    The what-if of a synchronous step (reference/detection.md, section 1.2): the longest work as it is, less the longest
    as it would be, with `rows` at their work without `excess_ms`, and every other suspect left out.
    """
    work = ledger.work[:, late]
    healthy = np.delete(work, suspects, axis=0)
    slowest = healthy.max(axis=0, initial=0)
    own = work[rows].max(axis=0)
    saved = np.maximum(0, own - np.maximum(slowest, own - excess_ms))
    return float(100 * saved.sum() / max(1e-9, ledger.job("duration")[over].sum()))


def cost_window(steps: I64, since: int) -> I64:
    """The places on record of the steps since the onset, at most the last hundred and at least the last one."""
    first = int(np.searchsorted(steps, min(since, int(steps[-1]))))
    return np.arange(max(first, len(steps) - COST_STEPS), len(steps))
