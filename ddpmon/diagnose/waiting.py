"""Which ranks wait for others: by what their hosts say, by how far their GPUs have come, and by their hosts' steps."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from ddpmon.diagnose.stop_policy import STALL
from ddpmon.parts import NO_ANSWER
from ddpmon.schema import RankFrame

WAITING = frozenset({"exposed", "barrier"})
BUILT_IN = frozenset({"start", "input", "forward", "backward", "optimizer", "other"}) | WAITING
Frames = dict[int, RankFrame]


class Waits(Struct, frozen=True):
    """Who waits in a job that has stopped.

    Attributes:
        by_rank: rank -> whether it waits for others; None if nothing tells, while another rank is known not to wait.
        proven: GPUs show that some ranks have not come to where the GPUs of others wait, or cannot come any more.
        anybody: whether any rank waits.
    """

    by_rank: Mapping[int, bool | None] = field(default_factory=dict)
    proven: bool = False
    anybody: bool = False


def waits(frame: RankFrame) -> bool:
    """Whether a rank by itself seems to wait: it says so, or, on a GPU, it has queued a collective that is under way.

    There the host may be in any phase when it blocks, since it only queues the reduction. Where the host itself
    reduces, its phase is the truth: Gloo's recorder may not have noticed yet that a collective has completed.
    """
    if frame.gpu_uuid is None:
        return frame.phase in WAITING
    if (device_phase(frame) or frame.phase) in WAITING:
        return True
    pending = frame.stall.flights if frame.stall is not None else []
    return any(0 <= flight.last_completed < flight.last_enqueued for flight in pending)


def in_named_phase(frame: RankFrame) -> bool:
    """Whether the rank is in a phase that the user named."""
    return frame.phase not in BUILT_IN


def device_phase(frame: RankFrame) -> str:
    """The phase that the rank's GPU has reached, "" if it is unknown or no phase of a step."""
    if frame.gpu_uuid is None or frame.stall is None:
        return ""
    phase = frame.stall.device_phase
    return phase if phase in BUILT_IN or phase == frame.phase else ""


def device_error(frame: RankFrame) -> str:
    """Why the rank's GPU cannot go on, or `NO_ANSWER`; "" if neither."""
    return frame.stall.device_error if frame.gpu_uuid is not None and frame.stall is not None else ""


def is_broken(frame: RankFrame) -> bool:
    """Whether the rank's GPU cannot go on."""
    return device_error(frame) not in ("", NO_ANSWER)


def is_device_stuck(frame: RankFrame) -> bool:
    """Whether the rank's GPU is at work that its host has left behind, and does not wait for other ranks.

    A host that has just come into its phase says nothing: what its GPU is in was asked for before.
    """
    phase = device_phase(frame)
    behind = phase not in ("", frame.phase) and phase not in WAITING and frame.phase_s >= STALL.just_came_s
    return is_broken(frame) or behind


def who_waits(going: Frames, held: int) -> Waits:
    """Sort out who waits, by the best that is known: the GPUs, then flight recorders and phases, then the steps.

    Args:
        going: the newest frames of the ranks that are heard.
        held: the last step that any of them has finished.
    """
    said: dict[int, bool | None] = {rank: waits(frame) for rank, frame in going.items()}
    known, proven = _by_devices(going)
    known = known or _by_steps(going, said, held)
    if False in known.values():  # nobody else is blamed beside who is known to be late
        said = {rank: found or (False if going[rank].gpu_uuid is None else None) for rank, found in said.items()}
    by_rank = said | known
    return Waits(by_rank, proven, any(by_rank.values()))


def _by_devices(going: Frames) -> tuple[dict[int, bool | None], bool]:
    """What the GPUs tell, and whether it is proof.

    Where no GPU is seen to wait, those of all ranks may wait in collectives without marks: then only a broken one
    tells. A GPU that does not answer tells something where those of all other ranks wait.
    """
    reached = {rank: phase for rank, frame in going.items() if (phase := device_phase(frame))}
    broken: dict[int, bool | None] = {rank: False for rank, frame in going.items() if is_broken(frame)}
    known: dict[int, bool | None] = {rank: phase in WAITING for rank, phase in reached.items()}
    if True not in known.values():
        return broken, bool(broken)
    known |= broken
    proven = False in known.values()
    if not proven and len(known) > 1:
        known |= {rank: False for rank, frame in going.items() if device_error(frame) == NO_ANSWER}
    return known, proven


def _by_steps(going: Frames, said: Mapping[int, bool | None], held: int) -> dict[int, bool | None]:
    """Where no recorder and no GPU tells: the hosts that have finished fewer steps are those that the others wait for.

    Hosts run ahead of their GPUs; one that is stuck itself does not.
    """
    steps = {
        rank: frame.step for rank, frame in going.items() if frame.gpu_uuid and held - STALL.queued_steps <= frame.step
    }
    lowest = min(steps.values(), default=held)
    if lowest == held:
        return {}
    return {rank: step > lowest for rank, step in steps.items() if not said[rank] and _is_unclear(going[rank])}


def _is_unclear(frame: RankFrame) -> bool:
    """Whether neither the rank's recorder nor its GPU tells anything."""
    return not device_phase(frame) and not (frame.stall is not None and frame.stall.flights)
