"""One rank's figures of now beside those of the other ranks, and several ranks beside each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.kinds import KINDS
from ddpmon.format import UNKNOWN, loss_brief, loss_difference, signed
from ddpmon.format import decimals as digits
from ddpmon.report.base_step import NOTABLE_SHARE, noise_ms, notable_ms
from ddpmon.report.silence import silent_ranks
from ddpmon.report.verdicts import late_ranks, marked_ranks
from ddpmon.report.wording import one_step_of
from ddpmon.run.medians import median, some_of, without
from ddpmon.run.silence import still_there
from ddpmon.schema import PHASES
from ddpmon.snapshot import Finding, Floats, Ints, Ranks, Snapshot

MOST_PEERS = 256  # ranks, evenly spaced, that stand for all others: the figures of each one's GPU are read one by one
RHYTHM = 9  # cells of the lateness of a rank that is late now and then: +361 1/5
GONE = ("lost", "failed", "unknown")
Worse = Literal["more", "less", "none"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure of a rank.

    Attributes:
        name: as it is shown. unit: of it.
        values: one value for each of some ranks, NaN where unknown.
        worse: whether more of it than the others have, or less, is bad, or neither.
    """

    name: str
    unit: str
    values: Callable[[Ranks, Sequence[int]], Floats]
    worse: Worse = "none"


def is_of_machine(unit: str) -> bool:
    """Whether a figure in this unit is a reading of the rank's machine or process, and not of its steps."""
    return unit not in ("ms", "")


def _column(name: str, factor: float = 1.0) -> Callable[[Ranks, Sequence[int]], Floats]:
    return lambda ranks, who: np.asarray(ranks.column(name)[list(who)] * factor, np.float64)


def _torch_memory(ranks: Ranks, who: Sequence[int]) -> Floats:
    held = ranks.figures.get("gpu_allocated")
    return np.full(len(who), np.nan) if held is None else held[list(who)] / 2**30


def _gpu(field: str, factor: float = 1.0) -> Callable[[Ranks, Sequence[int]], Floats]:
    def values(ranks: Ranks, who: Sequence[int]) -> Floats:
        found = [None if (gpu := ranks.gpu[rank]) is None else getattr(gpu, field) for rank in who]
        return np.array(found, np.float64) * factor  # None is NaN

    return values


TORCH_MEMORY = "torch memory"  # what the tensors occupy on the GPU
QUANTITIES = (
    *(Quantity(name, "ms", _column(f"{name}_ms"), "more") for name in PHASES),
    Quantity("work", "ms", _column("work_ms"), "more"),
    Quantity("wait", "ms", _column("wait_ms")),
    Quantity("barrier", "ms", _column("barrier_ms")),
    Quantity("step", "ms", _column("step_ms")),
    Quantity("GPU", "%", _gpu("utilization_pct")),
    Quantity("GPU power", "W", _gpu("power_w")),
    Quantity("GPU clock", "MHz", _gpu("sm_clock_mhz"), "less"),
    Quantity("GPU temp", "°C", _gpu("temperature_c")),
    Quantity("GPU memory", "GiB", _gpu("memory_used", 1 / 2**30)),
    Quantity(TORCH_MEMORY, "GiB", _torch_memory),
    Quantity("CPU", "%", _column("cpu_pct")),
    Quantity("run-queue wait", "%", _column("runqueue_pct"), "more"),
    Quantity("resident", "GiB", _column("rss_bytes", 1 / 2**30)),
    Quantity("loss", "", _column("loss")),
)
NOTABLE = 0.1  # a difference of less than a tenth of what the others have is not marked


@dataclass(frozen=True, slots=True)
class Row:
    """A quantity of some ranks.

    Attributes:
        quantity: which.
        own: each rank's, NaN where unknown. others: the median of the ranks that are compared with, NaN where unknown.
        noise_ms: a difference of times below this is noise.
        notable_ms: a difference of times below this does not matter.
        compared: whether each rank's steps are those of the others.
    """

    quantity: Quantity
    own: tuple[float, ...]
    others: float
    noise_ms: float
    notable_ms: float
    compared: tuple[bool, ...]

    def words(self, value: float, unknown: str = "") -> str:
        """One of the figures, with as many decimals as all of them have; a loss has digits of its own."""
        return figure_words(value, self._decimals, self.quantity.unit, unknown)

    def difference_words(self, own: float, other: float) -> str:
        """The difference of two figures as they are shown: `+158`; ±0 where it is noise, empty where unknown."""
        return difference_words(own, other, self._decimals, self.quantity.unit, self.noise)

    @property
    def _decimals(self) -> int:
        return shared_decimals(*self.own, self.others)

    def difference(self, place: int = 0) -> float:
        """How much more a rank has than the others; NaN of one that cannot be compared with them."""
        return self.own[place] - self.others if self.compared[place] else math.nan

    def shown_difference(self, place: int = 0) -> float:
        """The same as it is shown: 0 where it is noise or too small for the decimals."""
        apart = shown_difference(self.own[place], self.others, self._decimals, self.noise)
        return apart if self.compared[place] else math.nan

    def difference_from_first(self, place: int) -> float:
        """How much more a rank has than the first one; NaN where one of the two cannot be compared."""
        return self.own[place] - self.own[0] if self.compared[place] and self.compared[0] else math.nan

    @property
    def noise(self) -> float:
        """The difference below which there is none."""
        return self.noise_ms if self.quantity.unit == "ms" else 0.0

    def is_worse(self, place: int = 0) -> bool:
        """Whether it differs, as it is shown, by a tenth or more in the direction that is bad, so that it matters.

        A time matters from `notable_ms` on, and a share of the time from as large a share on.
        Nothing is worse on a rank that cannot be compared, such as one whose steps are of another time.
        """
        worse = {"more": 1, "less": -1, "none": 0}[self.quantity.worse] * self.shown_difference(place)
        least = {"ms": self.notable_ms, "%": NOTABLE_SHARE * 100}.get(self.quantity.unit, 0.0)
        return worse > 0 and worse >= max(NOTABLE * abs(self.others), least)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Some ranks beside others.

    Attributes:
        rows: one for each quantity that is known.
        others: whose median is compared with. all_others: how many other ranks there are.
    """

    rows: list[Row]
    others: int = 0
    all_others: int = 0


def shared_decimals(*values: float) -> int:
    """The decimals that leave three digits of the largest of some figures, at most two."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return min(digits(largest), 2)


def lateness_decimals(ranks: Ranks) -> int:
    """The decimals of every lateness in all views, of ranks `as_shown`: two digits of the largest are enough."""
    known = np.abs(ranks.lateness_ms[np.isfinite(ranks.lateness_ms)])
    return min(max(digits(float(known.max(initial=0.0))) - 1, 0), 2)


def figure_words(value: float, decimals: int, unit: str, unknown: str) -> str:
    """A figure with so many decimals; a loss, which alone has no unit, with its own."""
    if not math.isfinite(value):
        return unknown
    return f"{value:,.{decimals}f}" if unit else loss_brief(value)


def difference_words(own: float, other: float, decimals: int, unit: str, noise: float = 0.0) -> str:
    """`+158`, `-375`, `±0`: the difference of two figures as they are shown; ±0 below `noise`, empty where unknown."""
    if not (math.isfinite(own) and math.isfinite(other)):
        return ""
    if not unit:
        return loss_difference(own, other)
    shown = shown_difference(own, other, decimals, noise)
    return f"{shown:+,.{decimals}f}" if shown else "±0"


def shown_difference(own: float, other: float, decimals: int, noise: float) -> float:
    """The difference of two figures, both rounded to so many decimals; 0 below `noise`, NaN where one is unknown."""
    apart = round(own, decimals) - round(other, decimals)
    return 0.0 if abs(apart) < max(noise, 0.5 * 10**-decimals) else apart


def now_and_then_words(finding: Finding | None, width: int) -> str:
    """`+361 1/5` of a rank that a finding says is late by 361 ms in one step of five; empty of any other finding.

    Its medians over the steps do not show this lateness. The rhythm is left out where `width` is too short, and where
    the sentence of the finding says "in most steps".
    """
    if finding is None or (measured := now_and_then(finding)) is None:
        return ""
    excess, rhythm = measured
    more = signed(excess)
    whole = f"{more} 1/{rhythm:.0f}" if one_step_of(rhythm) else more
    return whole if len(whole) <= width else more


def now_and_then(finding: Finding) -> tuple[float, float] | None:
    """By how many ms its rank is late, and in one step of how many; None of a finding that measured no rhythm."""
    excess, rhythm = finding.evidence.get("excess_ms"), finding.evidence.get("one_step_in")
    if not KINDS[finding.kind].late or not isinstance(excess, float | int) or not isinstance(rhythm, float | int):
        return None
    return excess, rhythm


def as_shown(snapshot: Snapshot) -> Ranks | None:
    """The ranks with the lateness that tables show: of one that is late now and then that of its late steps.

    What is not known stays so: while no step finishes nobody is late.
    """
    ranks, found = snapshot.ranks, dict(_late_now_and_then(snapshot))
    if ranks is None or not found:
        return ranks
    late = ranks.lateness_ms.copy()
    for rank, (excess, _) in found.items():
        late[rank] = excess
    return replace(ranks, lateness_ms=late)


class ShownLateness:
    """The lateness of ranks as every view shows it, worked out once for a drawing.

    Attributes:
        ranks: as `as_shown` gives them.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.ranks = as_shown(snapshot)
        self._named, self._noise = marked_ranks(snapshot.findings), noise_ms(snapshot)
        self._decimals = 0 if self.ranks is None else lateness_decimals(self.ranks)

    def words(self, chosen: Sequence[int], unknown: str, width: int = RHYTHM) -> str:
        """Return by how much the latest of the chosen ranks is late: `+361`, now and then `+361 1/5`."""
        ranks = self.ranks
        late = {} if ranks is None else {rank: float(ranks.lateness_ms[rank]) for rank in chosen if rank < len(ranks)}
        most = max((each for each in late.values() if math.isfinite(each)), default=None)
        named = [self._named[rank] for rank, each in late.items() if rank in self._named and each == most]
        often = (now_and_then_words(finding, width) for finding in named)
        return next(filter(None, often), self.one(most, unknown))

    def one(self, late_ms: float | None, unknown: str = UNKNOWN) -> str:
        """Return a single lateness: `+41`, `±0`."""
        return signed(late_ms, unknown, self._noise, self._decimals)


def rhythms(snapshot: Snapshot) -> dict[int, float]:
    """Each rank that `as_shown` gives the lateness of its late steps -> in one step of how many it is late."""
    return {rank: rhythm for rank, (_, rhythm) in _late_now_and_then(snapshot)}


def _late_now_and_then(snapshot: Snapshot) -> Iterator[tuple[int, tuple[float, float]]]:
    """The ranks that are late now and then, each with by how many ms, and in one step of how many."""
    late = np.empty(0) if snapshot.ranks is None else snapshot.ranks.lateness_ms
    for rank, finding in marked_ranks(snapshot.findings).items():
        measured = now_and_then(finding)
        if measured is not None and 0 <= rank < len(late) and math.isfinite(late[rank]):
            yield rank, measured


def compare(snapshot: Snapshot, who: Sequence[int]) -> Comparison:
    """What is known of these ranks, beside the median of up to `MOST_PEERS` others."""
    ranks, rows, least = snapshot.ranks, list[Row](), (noise_ms(snapshot), notable_ms(snapshot))
    if ranks is None:
        return Comparison(rows)
    there = others_of(snapshot, ranks, who)
    others = [some_of(there, MOST_PEERS).tolist(), machine_peers(snapshot, ranks, who)]
    alike = tuple(at_same_steps(ranks)[list(who)].tolist())
    for quantity in QUANTITIES:
        own, rest = quantity.values(ranks, who), quantity.values(ranks, others[is_of_machine(quantity.unit)])
        rest = rest[np.isfinite(rest)]
        if np.isfinite(own).any() or rest.size:
            middle = median(rest)
            rows.append(Row(quantity, tuple(own.tolist()), middle, *least, alike))
    return Comparison(rows, len(others[False]), len(there))


def others_of(snapshot: Snapshot, ranks: Ranks, who: Sequence[int], *, of_machine: bool = False) -> Ints:
    """The others that ranks are compared with, as verdicts do: those that are heard, and that no finding calls late.

    The readings `of_machine` are compared with those of ranks that no finding names at all, such as for their memory.
    Where all that are left are named or late, they are the others. Where nobody is left, there are none.
    """
    there = np.flatnonzero(possible_others(ranks))
    there = there[~np.isin(there, list(who))]
    named = marked_ranks(snapshot.findings) if of_machine else ()
    return without(there, late_ranks(snapshot.findings), named)


def machine_peers(snapshot: Snapshot, ranks: Ranks, who: Sequence[int]) -> list[int]:
    """Up to `MOST_PEERS` of the others with which the machines of ranks are compared."""
    some = some_of(others_of(snapshot, ranks, who, of_machine=True), MOST_PEERS).tolist()
    held = ranks.figures.get("gpu_memory")
    return some if held is None else still_there(some, ranks.gpu.__getitem__, held)


_compared: list[tuple[Ranks, NDArray[np.bool_]]] = []  # of the ranks asked for last: ten drawings of a picture ask


def possible_others(ranks: Ranks) -> NDArray[np.bool_]:
    """[world] the ranks that others can be compared with: those that are there, at the steps of the rest; read-only."""
    for known, compared in _compared:
        if known is ranks:
            return compared
    there: NDArray[np.bool_] = np.isfinite(ranks.work_ms) & at_same_steps(ranks) & ~_gone(ranks)
    there.flags.writeable = False
    _compared[:] = [(ranks, there)]
    return there


def at_same_steps(ranks: Ranks) -> NDArray[np.bool_]:
    """[world] the ranks whose lateness is known; where nobody's is, such as while no step finishes, those in step.

    The other ranks are in other steps than the rest, or have just come back.
    """
    known: NDArray[np.bool_] = np.isfinite(ranks.lateness_ms)
    return known if known.any() else ~ranks.out_of_step


def _gone(ranks: Ranks) -> NDArray[np.bool_]:
    """[world] whether a rank is gone, or silent while others are heard, so that its GPU does nothing for the run."""
    gone = silent_ranks(ranks)
    return gone if {*GONE}.isdisjoint(ranks.state) else gone | np.isin(np.array(ranks.state), GONE)
