"""The state of every rank while no step finishes: where it stands, and what its flight recorder says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from ddpmon.diagnose.stop_policy import STALL
from ddpmon.diagnose.waiting import WAITING, Frames, Waits, in_named_phase, waits, who_waits
from ddpmon.parts import Flight
from ddpmon.run.model import SILENT_S, Run
from ddpmon.schema import HANDED_S, RankFrame

CollectivePhase = Literal["exposed", "barrier"]


class StallState(Struct):
    """A job that has stopped.

    Attributes:
        going: the ranks heard of lately that have not ended.
        silent: those that have not ended and are silent.
        ended: those that have finished or failed.
        held: the last step that the stopped ranks have finished.
        seconds: how long the job has stood still.
        patience_s: after how long a rank says that it stands still.
        untold: silent rank -> steps that it may have finished before it fell silent, of which nothing has been read.
        waits: who of `going` waits for others.
    """

    going: Frames = field(default_factory=dict)
    silent: Frames = field(default_factory=dict)
    ended: Frames = field(default_factory=dict)
    held: int = -1
    seconds: float = 0.0
    patience_s: float = STALL.patience_s
    untold: dict[int, int] = field(default_factory=dict)
    waits: Waits = field(default_factory=Waits)

    def close(self, step: int, untold: int = 0) -> bool:
        """Whether a rank that came to its end after `step`, or as many more as `untold`, is what the others wait for.

        On a GPU their hosts may have queued some steps more.
        """
        return step <= self.held <= step + untold + STALL.queued_steps

    def missing(self) -> list[int]:
        """The silent ranks that the others may wait for: on GPUs none that was ahead of a rank that holds them up."""
        late = [self.going[rank] for rank in self.busy()]
        behind = [frame.step for frame in late if frame.gpu_uuid is not None and self.close(frame.step)]
        newest = min(behind, default=self.held)
        close = [rank for rank, frame in self.silent.items() if self.close(frame.step, self.untold.get(rank, 0))]
        return [rank for rank in close if self.silent[rank].step <= newest]

    def waiting(self) -> list[int]:
        """The ranks that wait for others."""
        return [rank for rank, waits in self.waits.by_rank.items() if waits]

    def busy(self) -> list[int]:
        """The ranks that do not, as far as that is known."""
        return [rank for rank, waits in self.waits.by_rank.items() if waits is False]


def stall_state(run: Run, ages: NDArray[np.float64]) -> StallState | None:
    """The state of a job without progress; None while it makes some, or nothing tells."""
    if not (run.latest.stalled | (run.latest.phase_s >= STALL.patience_s)).any():
        return None
    frames = [(rank, known.frame) for rank, known in enumerate(run.ranks) if known is not None]
    age = ages.tolist()
    stopped = _stopped(run, [(rank, frame) for rank, frame in frames if age[rank] <= SILENT_S])
    if not stopped:
        return None
    held, seconds = max(frame.step for frame in stopped), max(map(_seconds, stopped))
    step_s = _step_s(run, stopped[0].rank)
    patience_s = max(STALL.patience_s, STALL.patience_steps * step_s)
    state = StallState(held=held, seconds=seconds, patience_s=patience_s)
    for rank, frame in frames:
        if frame.state in ("finished", "failed"):
            state.ended[rank] = frame
        else:
            (state.silent if age[rank] > SILENT_S else state.going)[rank] = frame
    state.untold = {rank: int(_untold_s(run, rank) / step_s) for rank in state.silent if step_s > 0}
    state.waits = who_waits(state.going, held)
    return None if _has_progressed(state) else state


def _stopped(run: Run, frames: Sequence[tuple[int, RankFrame]]) -> list[RankFrame]:
    """Frames of ranks that say that they stand still, or that wait longer than a step could take."""
    still = [frame for _, frame in frames if frame.state == "stalled"]
    held_up = [(rank, frame) for rank, frame in frames if frame.phase in WAITING and frame.phase_s >= STALL.patience_s]
    if held_up:
        patience = max(STALL.patience_s, STALL.patience_steps * _step_s(run, held_up[0][0]))
        still += [frame for _, frame in held_up if frame.state == "running" and frame.phase_s >= patience]
    return still


def _step_s(run: Run, rank: int) -> float:
    """The rank's median step, 0 before its first."""
    return float(np.nan_to_num(run.rings.usual_ms([rank]))) / 1e3


def _untold_s(run: Run, rank: int) -> float:
    """What a rank did in so many seconds before it fell silent may not have been read.

    A host frame that a later one has replaced cannot be read any more. So a watcher that comes after the last word of a
    rank whose figures host frames carry finds its last whole frame only.
    """
    latest = run.latest
    only_whole = latest.writer[rank] >= 0 and latest.column("seq")[rank] == latest.whole_seq[rank]
    return STALL.untold_s + (HANDED_S if only_whole else 0.0)


def _seconds(frame: RankFrame) -> float:
    return frame.stall.seconds if frame.stall is not None else frame.phase_s


def _has_progressed(state: StallState) -> bool:
    """Whether some rank has finished a step since."""
    running = (frame for frame in state.going.values() if frame.state == "running" and not in_named_phase(frame))
    return any(frame.step > state.held for frame in running)


class Collective(Struct, frozen=True):
    """A collective that ranks wait in.

    Attributes:
        operation: as the flight recorders name it, with its sizes; "" if they do not tell.
        phase: "exposed" is the reduction of the gradients, "barrier" any other collective, or an unknown one.
    """

    operation: str = ""
    phase: CollectivePhase = "barrier"


class CollectiveMismatch(Struct, frozen=True):
    """What the flight recorders tell of ranks that are not in one collective.

    Attributes:
        ranks: who is missing or elsewhere.
        others: the rest.
        absent: `ranks` never came (else they are in another collective than `others`).
        certain: `ranks` are fewer than `others`, or they never came: it is they that are wrong.
        proven: it is certain, and no rank that nothing is heard of could be why.
        collective: the one that `others` are in.
        theirs: the one that `ranks` are in, or entered last.
    """

    ranks: tuple[int, ...]
    others: tuple[int, ...]
    absent: bool
    certain: bool
    proven: bool
    collective: Collective
    theirs: Collective


def find_mismatch(frames: Frames) -> CollectiveMismatch | None:
    """The ranks that the flight recorders give away, in the largest process group that tells anything."""
    groups: dict[str, dict[int, Flight]] = {}
    for rank, frame in frames.items():
        for flight in frame.stall.flights if frame.stall is not None else []:
            groups.setdefault(flight.group, {})[rank] = flight
    for flights in sorted(groups.values(), key=len, reverse=True):
        found = _mismatch_in(frames, flights)
        if found is not None:
            return found
    return None


def _mismatch_in(frames: Frames, flights: dict[int, Flight]) -> CollectiveMismatch | None:
    lowest = min(flight.last_enqueued for flight in flights.values())
    behind = tuple(rank for rank, flight in flights.items() if flight.last_enqueued == lowest)
    ahead = tuple(rank for rank, flight in flights.items() if flight.last_enqueued > lowest)
    if not ahead:
        return _another_operation(flights)
    never_came = tuple(rank for rank in behind if not waits(frames[rank]))
    if never_came:
        entered, theirs = collective_of(flights, ahead), collective_of(flights, never_came)
        return CollectiveMismatch(never_came, ahead, True, True, True, entered, theirs)
    # Those behind wait too, so they are in a collective that the others have left out, or the other way round.
    # A silent rank may be why some have gone on and some have not: it sent its part to those alone.
    return _elsewhere(flights, *sorted((behind, ahead), key=len), alike=False)


def _another_operation(flights: dict[int, Flight]) -> CollectiveMismatch | None:
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


def _elsewhere(
    flights: dict[int, Flight], few: tuple[int, ...], many: tuple[int, ...], *, alike: bool
) -> CollectiveMismatch:
    """Two sides in different collectives; `alike` says whether both have entered equally many."""
    certain = len(few) < len(many)
    entered, theirs = collective_of(flights, many), collective_of(flights, few)
    return CollectiveMismatch(few, many, False, certain, certain and alike, entered, theirs)


def collective_of(flights: dict[int, Flight], ranks: tuple[int, ...]) -> Collective:
    """What most of `ranks` entered last."""
    names = Counter(flights[rank].operation for rank in ranks if flights[rank].operation)
    return Collective(names.most_common(1)[0][0] if names else "")
