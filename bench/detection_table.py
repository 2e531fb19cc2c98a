"""The table: rows of scores, each over many runs, and the totals that the issue asks for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from detection_truth import Found, Outcome

HEAD = (
    f"{'case':<30} {'runs':>5} {'prec':>6} {'recall':>6} {'kind':>6} {'rank':>6} {'phase':>6} {'onset':>9} "
    f"{'steps':>9} {'seconds':>9} {'clear':>9} {'false/1k':>8} {'info/1k':>8} {'cost error':>11}"
)
LEGEND = """prec: warnings that are true; recall: faults named by the right verdict; kind: by the best one;
rank: the first rank named in a fault is its own; phase: right phase;
onset, steps (of all ranks that the watcher had), seconds (since the first faulty step) and clear: median/p90;
false: warnings that are not true, info: lesser verdicts that are not, per 1,000 steps;
cost error: |said - true| / true, median/p90, where the true cost is 1 % or more. -: does not apply."""


def row(title: str, outcomes: Sequence[Outcome]) -> str:
    """One line over all runs of a case."""
    found = [found for outcome in outcomes for found in outcome.found]
    true = sum(outcome.true_alarms for outcome in outcomes)
    false = sum(len(outcome.false_alarms) for outcome in outcomes)
    return (
        f"{title:<30} {len(outcomes):>5} {_percent([1] * true + [0] * false):>6} {recall(found):>6} "
        f"{_percent(f.best_kind for f in found):>6} {_percent(f.rank for f in found):>6} "
        f"{_percent(f.phase for f in found):>6} {_spread(f.onset_error for f in found):>9} "
        f"{_spread(f.latency_steps for f in found):>9} {_spread((f.latency_s for f in found), '.1f'):>9} "
        f"{_spread(f.clear_steps for f in found):>9} {per_thousand(outcomes):>8} "
        f"{per_thousand(outcomes, infos=True):>8} {_spread((f.cost_error for f in found), '.0%'):>11}"
    )


def recall(found: Iterable[Found]) -> str:
    """Percent of the faults that were named; those that may be passed over count only where all may."""
    met = list(found)
    strict = [f for f in met if f.required] or met
    return _percent(f.hit for f in strict)


def per_thousand(outcomes: Sequence[Outcome], infos: bool = False) -> str:
    """False alarms (or false informations) per 1,000 steps."""
    count = sum(len(outcome.false_infos if infos else outcome.false_alarms) for outcome in outcomes)
    steps = sum(outcome.steps for outcome in outcomes)
    return f"{1000 * count / steps:.2f}" if steps else "-"


def summary(title: str, outcomes: Sequence[Outcome]) -> str:
    """The totals in one sentence."""
    found = [found for outcome in outcomes for found in outcome.found if found.required]
    alarms = f"false alarms {per_thousand(outcomes)} per 1,000 steps ({len(outcomes):,} runs)"
    if not found:
        return f"{title}: {alarms}"
    slow = [f.latency_steps for f in found if f.latency_steps is not None]
    within = _percent(steps <= 30 for steps in slow)
    return (
        f"{title}: recall {recall(found)} %, right rank {_percent(f.rank for f in found)} %, right phase "
        f"{_percent(f.phase for f in found)} %, within 30 steps {within} %, cost error "
        f"{_spread((f.cost_error for f in found), '.1%')}, {alarms}"
    )


def _percent(values: Iterable[bool | int | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * sum(known) / len(known):.1f}" if known else "-"


def _spread(values: Iterable[float | None], form: str = ".0f") -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    middle, high = np.percentile(known, [50, 90])
    return f"{middle:{form}}/{high:{form}}"
