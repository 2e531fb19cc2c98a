"""A memory that grows until it is full, as a finding says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddpmon.format import age
from ddpmon.report.verdicts import firing
from ddpmon.snapshot import Finding


@dataclass(frozen=True, slots=True)
class Leak:
    """The memory of a rank that grows.

    Attributes:
        key: of `RankDetail.courses`.
        full_bytes: what the rank occupies once the memory is full, at this pace; None where that is not known.
        left_s: until then, in seconds; None where that is not known.
    """

    key: str
    full_bytes: float | None = None
    left_s: float | None = None

    @property
    def words(self) -> str:
        """`full within 5 h`; empty where that is not known."""
        return "" if self.left_s is None else f"full within {age(self.left_s)}"


def leak_of(findings: Sequence[Finding], rank: int) -> Leak | None:
    """The leak that the first lasting one of these findings on the rank is about; None if it is about another thing.

    Of the ranks of one finding only the first has a time.
    """
    finding = next((each for each in firing(findings) if rank in each.ranks), None)
    evidence = {} if finding is None else finding.evidence
    for key, held, growth, over in (
        ("gpu_allocated", "allocated_bytes", "growth_bytes", "over_s"),
        ("rss_bytes", "rss_bytes", "growth_bytes_s", ""),
    ):
        if finding is not None and growth in evidence:
            told = [evidence.get(name) for name in (held, growth, "left_s")]
            numbers = [float(each) for each in told if isinstance(each, float | int)]
            if len(numbers) < len(told) or rank != finding.ranks[0]:
                return Leak(key)
            occupied, bytes_s, left_s = numbers[0], numbers[1] / float(evidence.get(over, 1.0)), numbers[2]
            return Leak(key, occupied + bytes_s * left_s if occupied else None, left_s)
    return None
