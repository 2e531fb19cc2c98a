"""Who is where while a run stands still: ranks in groups of one phase, one collective and one line of code."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ddpmon.parts import Flight, StackFrame, Stall
from ddpmon.report.trace import main_stack, newest_own
from ddpmon.report.wording import phase_name
from ddpmon.snapshot import Ranks, Snapshot

WAITING, ALIVE = ("exposed", "barrier"), ("running", "stalled")  # phases; states of a rank that is in one
_FRAMES_S = 2.0  # ranks publish once a second, each at a moment of its own
_MOST_SEEN = 8  # distinct stacks that the next one is compared with
Where = tuple[tuple[str, int] | None, tuple[str, int] | None]  # the collective with its number; file and line
_newest: list[tuple[Ranks, list[Place]]] = []  # the groups that were worked out last


@dataclass(frozen=True, slots=True)
class Place:
    """Where some ranks are.

    Attributes:
        ranks: their numbers, ascending.
        state: of all of them.
        phase: likewise.
        seconds: how long they have made no step, counted to one moment for all groups; None where they do not tell.
        operation: the collective that they are in; "" if in none, or if it is unknown.
        sequence: the number of the collective entered last in its group; None if unknown.
        frame: the user's own line that was entered last, else the innermost line; None without a stack.
    """

    ranks: tuple[int, ...]
    state: str
    phase: str
    seconds: float | None
    operation: str
    sequence: int | None
    frame: StackFrame | None

    @property
    def is_waiting(self) -> bool:
        """Whether they wait for other ranks."""
        return self.phase in WAITING and self.state in ALIVE

    @property
    def name(self) -> str:
        """The phase as the screen calls it, or the state of ranks that are in no phase any more."""
        return phase_name(self.phase) if self.state in ALIVE else self.state


def is_hanging(snapshot: Snapshot) -> bool:
    """Whether the run stands still, and some rank tells where it is."""
    return (
        snapshot.run is not None
        and snapshot.run.state == "stalled"
        and snapshot.ranks is not None
        and any(stall is not None for stall in snapshot.ranks.stall)
    )


def places(ranks: Ranks) -> list[Place]:
    """The groups: those that do not wait come first, and of these the smallest."""
    if not (_newest and _newest[0][0] is ranks):  # several panels of one picture ask
        _newest[:] = [(ranks, _grouped(ranks))]
    return _newest[0][1]


def _grouped(ranks: Ranks) -> list[Place]:
    groups: dict[tuple[str, str, Where], list[int]] = {}
    seen: list[tuple[Stall, Where]] = []
    for rank, key in enumerate(
        zip(ranks.state, ranks.phase, (_where(stall, seen) for stall in ranks.stall), strict=True)
    ):
        groups.setdefault(key, []).append(rank)
    found = [_place(ranks, members) for members in groups.values()]
    longest = max((place.seconds for place in found if place.seconds is not None), default=0.0)
    found = [_at_one_moment(place, longest) for place in found]
    return sorted(found, key=lambda place: (place.is_waiting, len(place.ranks), place.ranks))


def _at_one_moment(place: Place, longest: float) -> Place:
    """The group with the longest duration, which the finding tells, where its own frames are only a moment older."""
    is_same = place.seconds is not None and longest - place.seconds < _FRAMES_S
    return replace(place, seconds=longest) if is_same else place


def _where(stall: Stall | None, seen: list[tuple[Stall, Where]]) -> Where:
    """The collective and the line; a stack like one of the last is not searched again, since most ranks are alike."""
    if stall is None:
        return None, None
    for other, where in seen:
        if stall.stacks == other.stacks and stall.flights == other.flights:
            return where
    frame, flight = _frame(stall), _flight(stall)
    line = None if frame is None else (frame.file, frame.line)
    where = None if flight is None else (flight.operation, flight.last_enqueued), line
    seen.insert(0, (stall, where))
    del seen[_MOST_SEEN:]
    return where


def _place(ranks: Ranks, members: list[int]) -> Place:
    first = members[0]
    stall = ranks.stall[first]
    flight = _flight(stall)
    return Place(
        ranks=tuple(members),
        state=ranks.state[first],
        phase=ranks.phase[first],
        seconds=max((stall.seconds for rank in members if (stall := ranks.stall[rank]) is not None), default=None),
        operation="" if flight is None or _is_done(flight) else flight.operation,
        sequence=None if flight is None or flight.last_enqueued < 0 else flight.last_enqueued,
        frame=_frame(stall),
    )


def _frame(stall: Stall | None) -> StackFrame | None:
    stack = None if stall is None else main_stack(stall)
    if stack is None or not stack.frames:
        return None
    return newest_own(stack.frames) or stack.frames[-1]


def _flight(stall: Stall | None) -> Flight | None:
    """The process group with a collective under way, else the first."""
    flights = () if stall is None else stall.flights
    return min(flights, key=_is_done, default=None)


def _is_done(flight: Flight) -> bool:
    return flight.last_enqueued <= flight.last_completed


def rank_ranges(ranks: tuple[int, ...]) -> str:
    """Ascending ranks in ranges: `0-20, 22-63`."""
    parts: list[str] = []
    start = previous = ranks[0]
    for rank in (*ranks[1:], None):
        if rank is not None and rank == previous + 1:
            previous = rank
            continue
        parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = rank if rank is not None else previous
    return ", ".join(parts)
