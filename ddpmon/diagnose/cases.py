"""The lifetime of a suspicion: raised, confirmed when it holds, cleared when it has been over for a while."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ddpmon.diagnose.alert import Alert, Severity

CONFIRMATIONS = 3
CLEAR_STEPS = 20
WARNING_PCT, CRITICAL_PCT = 5.0, 20.0
_EASE = 0.8  # a severity is kept until the cost falls below this part of its threshold
_REMEMBERED = 10


@dataclass(slots=True)
class Case:
    """One suspicion, on a rank, a host or the whole job.

    Attributes:
        key: who is under suspicion.
        high, low: how many judgements in a row said yes, and clearly no.
        calm: the first step without it, by the first of these that said no.
        confirmed_at: the step at which it had held often enough in a row.
        finding: how it was last described.
    """

    key: int
    high: int = 0
    low: int = 0
    calm: int = 0
    confirmed_at: int | None = None
    finding: Alert | None = None

    def severity(self, cost_pct: float) -> Severity:
        """Information below 5 % of the job's time, warning from 5 %, critical from 20 %; sticky at the edges."""
        before = "info" if self.finding is None else self.finding.severity
        critical = CRITICAL_PCT * (_EASE if before == "critical" else 1)
        warning = WARNING_PCT * (_EASE if before != "info" else 1)
        return "critical" if cost_pct >= critical else "warning" if cost_pct >= warning else "info"


class Cases:
    """All suspicions of one kind.

    Args:
        confirmations: judgements in a row that must say yes.

    Attributes:
        cleared: the last findings that are over, oldest first.
    """

    def __init__(self, confirmations: int = CONFIRMATIONS) -> None:
        self._confirmations = confirmations
        self._cases: dict[int, Case] = {}
        self.cleared: list[Alert] = []

    def __contains__(self, key: int) -> bool:
        return key in self._cases

    def __iter__(self) -> Iterator[Case]:
        return iter([case for case in self._cases.values() if case.confirmed_at is not None])

    @property
    def keys(self) -> list[int]:
        """Everybody under suspicion, confirmed or not."""
        return list(self._cases)

    def keep(self, keys: set[int]) -> None:
        """Forget those who are no longer judged."""
        self._cases = {key: case for key, case in self._cases.items() if key in keys}

    def turn(self, key: int, step: int, *, high: bool, low: bool, calm: int | None = None) -> None:
        """Take one judgement in, made at `step`.

        Args:
            key: on whom.
            step: the last one that it looked at.
            high: whether it says yes.
            low: whether it says clearly no.
            calm: the first step without the trouble, if this is the first to say no; by default `step`. A window says
                no only once half of its steps are without it.
        """
        case = self._cases.get(key)
        if case is None:
            if not high:
                return
            case = self._cases[key] = Case(key)
        case.high = case.high + 1 if high else 0
        if low and not case.low:
            case.calm = step if calm is None else calm
        case.low = case.low + 1 if low else 0
        if case.confirmed_at is None:
            if case.high >= self._confirmations:
                case.confirmed_at = step
            elif not high:
                del self._cases[key]
        elif case.low >= CLEAR_STEPS:
            self.clear(key, case.calm)

    def clear(self, key: int, step: int) -> None:
        """The suspicion is over: `step` was the first without it."""
        case = self._cases.pop(key, None)
        if case is not None and case.finding is not None:
            self.cleared.append(over(case.finding, max(step, case.finding.since_step or 0)))
            del self.cleared[:-_REMEMBERED]


def over(finding: Alert, step: int) -> Alert:
    """What is left of a finding once it is over."""
    return replace(finding, severity="info", cleared_at_step=step)
