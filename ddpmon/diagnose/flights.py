"""Who is missing from a collective, from the flight recorders' summaries."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from ddpmon.diagnose.waiting import Frames, waits
from ddpmon.diagnose.wording import clean
from ddpmon.parts import Flight


@dataclass(frozen=True, slots=True)
class Odd:
    """What the flight recorders tell.

    Attributes:
        ranks: who is missing or elsewhere.
        others: the rest.
        absent: `ranks` never came (else they are in another collective than `others`).
        certain: `ranks` are fewer than `others`, or they never came: it is they that are wrong.
        proven: it is certain, and no rank that nothing is heard of could be why.
        operation: the collective that `others` are in.
        theirs: the collective that `ranks` are in, or entered last.
    """

    ranks: tuple[int, ...]
    others: tuple[int, ...]
    absent: bool
    certain: bool
    proven: bool
    operation: str
    theirs: str


def find_odd(frames: Frames) -> Odd | None:
    """The ranks that the flight recorders give away, in the largest process group that tells anything."""
    groups: dict[str, dict[int, Flight]] = {}
    for rank, frame in frames.items():
        for flight in frame.stall.flights if frame.stall is not None else []:
            groups.setdefault(flight.group, {})[rank] = flight
    for flights in sorted(groups.values(), key=len, reverse=True):
        found = _odd_in(frames, flights)
        if found is not None:
            return found
    return None


def _odd_in(frames: Frames, flights: dict[int, Flight]) -> Odd | None:
    lowest = min(flight.last_enqueued for flight in flights.values())
    behind = tuple(rank for rank, flight in flights.items() if flight.last_enqueued == lowest)
    ahead = tuple(rank for rank, flight in flights.items() if flight.last_enqueued > lowest)
    if not ahead:
        return _another_operation(flights)
    never_came = tuple(rank for rank in behind if not waits(frames[rank]))
    if never_came:
        return Odd(never_came, ahead, True, True, True, operation_of(flights, ahead), operation_of(flights, never_came))
    # Those behind wait too, so they are in a collective that the others have left out, or the other way round.
    # A silent rank may be why some have gone on and some have not: it sent its part to those alone.
    return _elsewhere(flights, *sorted((behind, ahead), key=len), alike=False)


def _another_operation(flights: dict[int, Flight]) -> Odd | None:
    """All have come equally far: is somebody in another operation?"""
    kinds = {rank: _kind(flight.operation) for rank, flight in flights.items() if flight.operation}
    common = Counter(kinds.values()).most_common(1)
    majority = tuple(rank for rank, kind in kinds.items() if kind == common[0][0])
    minority = tuple(rank for rank, kind in kinds.items() if kind != common[0][0])
    return _elsewhere(flights, minority, majority, alike=True) if minority else None


def _kind(operation: str) -> str:
    """What two ranks in one collective must agree on: its name, and the sizes where everybody's are the same.

    The root of a gather or a scatter has other sizes than the rest.
    """
    name = re.split(r"[\s\[(]", operation, maxsplit=1)[0]
    return operation if re.search("all_?reduce", name.lower()) else name


def _elsewhere(flights: dict[int, Flight], few: tuple[int, ...], many: tuple[int, ...], *, alike: bool) -> Odd:
    """Two sides in different collectives; `alike` says whether both have entered equally many."""
    certain = len(few) < len(many)
    return Odd(few, many, False, certain, certain and alike, operation_of(flights, many), operation_of(flights, few))


def operation_of(flights: dict[int, Flight], ranks: tuple[int, ...]) -> str:
    """What most of `ranks` entered last; "a collective" if nobody knows."""
    names = Counter(flights[rank].operation for rank in ranks if flights[rank].operation)
    return clean(names.most_common(1)[0][0], 80) if names else "a collective"
