"""A standstill in words: who never came, where it is, and who waits for it in what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ddpmon.diagnose.flights import Odd
from ddpmon.diagnose.scene import Scene
from ddpmon.diagnose.waiting import WAITING, device_error, device_phase, is_broken, is_device_stuck
from ddpmon.diagnose.wording import clean, does, place, who
from ddpmon.format import age
from ddpmon.run.model import Run

_DOING = {"exposed": "the gradient reduction", "barrier": "a collective"}


def odd_phase(scene: Scene) -> Odd | None:
    """All wait, some for the gradient reduction, some in another collective: who is in which, without recorders."""
    sides = {phase: tuple(rank for rank, frame in scene.going.items() if frame.phase == phase) for phase in _DOING}
    few, many = sorted(sides, key=lambda phase: len(sides[phase]))
    if not sides[few]:
        return None
    certain = len(sides[few]) < len(sides[many])
    return Odd(sides[few], sides[many], False, certain, False, _DOING[many], _DOING[few])


def path_sentence(scene: Scene, odd: Odd) -> str:
    """Who never came to the collective that the others are in, or is in another; or that two sides disagree."""
    if odd.absent:
        it = "it" if len(odd.ranks) == 1 else "them"
        return f"{standing(scene, odd.ranks)}; {does(odd.others, 'wait')} for {it} in {odd.operation}"
    elsewhere = f"{does(odd.ranks, 'are')} in {odd.theirs}{_at(scene, odd.ranks)}"
    them = f"{does(odd.others, 'are')} in {odd.operation}{_at(scene, odd.others)}"
    end = f"{who(odd.ranks)} took another path" if odd.certain else "the groups disagree, and which is wrong is unknown"
    return f"for {age(scene.seconds)}, {elsewhere}, but {them}: {end}"


def nobody(run: Run, scene: Scene) -> str:
    """Everybody waits, or everybody is at work."""
    phases = Counter(frame.phase for frame in scene.going.values())
    absent = run.info.world_size - len(scene.going) - len(scene.ended)
    everybody = who(list(scene.going)) if absent or len(scene.going) == 1 else f"all {len(scene.going):,} ranks"
    missing = f" ({absent} have not reported)" if absent else ""
    have = "has" if len(scene.going) == 1 else "have"
    if scene.waiting():
        where = operation_of_most(scene) or " and ".join(sorted(phases_of(phases)))
        return (
            f"{everybody}{missing} {have} waited in {where} for {age(scene.seconds)}: no single rank is to blame"
            f"{_on_devices(scene)}"
        )
    where = ", ".join(f"{clean(phase, 40)} ({count})" for phase, count in phases.most_common(4))
    where = clean(next(iter(phases)), 40) if len(phases) == 1 else where
    nobody = "" if len(scene.going) == 1 else ": no rank waits for another"
    said = f"{everybody}{missing} in {where}{_at(scene)}{nobody}{_on_devices(scene)}"
    return f"no step has finished for {age(scene.seconds)}: {said}"


def _on_devices(scene: Scene) -> str:
    """What the GPUs are in, if none of them is seen to wait: "; the GPUs are in forward (8)"."""
    phases = Counter(filter(None, map(device_phase, scene.going.values())))
    if not phases or WAITING.intersection(phases) or not any(map(is_device_stuck, scene.going.values())):
        return ""
    return f"; the GPUs are in {', '.join(f'{clean(phase, 40)} ({count})' for phase, count in phases.most_common(4))}"


def phases_of(phases: Counter[str]) -> list[str]:
    """What the ranks are in, the four that most are in."""
    return [_DOING.get(phase) or clean(phase, 40) for phase, _ in phases.most_common(4)]


def operation_of_most(scene: Scene) -> str:
    """The collective that most of the waiting ranks entered last, "" if unknown."""
    stalls = [stall for rank in scene.waiting() if (stall := scene.going[rank].stall) is not None and stall.flights]
    names = Counter(stall.flights[0].operation for stall in stalls)
    return clean(names.most_common(1)[0][0], 80) if names else ""


def waiters(scene: Scene) -> str:
    """Who waits, and in what; "" if nobody does."""
    waiting = scene.waiting()
    if not waiting:
        return ""
    doing = Counter(device_phase(scene.going[rank]) or scene.going[rank].phase for rank in waiting).most_common(1)[0][0]
    return f"{does(waiting, 'wait')} in {operation_of_most(scene) or _DOING.get(doing, 'a collective')}"


def standing(scene: Scene, ranks: Sequence[int]) -> str:
    """Where `ranks` are stuck and for how long, with the first one's line; the GPU first, if it is that."""
    frame = scene.going[ranks[0]]
    if is_device_stuck(frame) or device_error(frame):
        return _device_standing(scene, ranks)
    phase, at = clean(scene.going[ranks[0]].phase, 40), _at(scene, ranks)
    return f"{does(ranks, 'have')} been stuck in {phase} for {age(scene.seconds)}{',' if at else ''}{at}"


def _device_standing(scene: Scene, ranks: Sequence[int]) -> str:
    frame, several = scene.going[ranks[0]], len(ranks) > 1
    whose = f"the GPU{'s' if several else ''} of {who(ranks)}"
    have, host = "have" if several else "has", clean(frame.phase, 40)
    if is_broken(frame):
        found = f"{whose} cannot go on: error {clean(device_error(frame), 60)}"
    elif device_error(frame):
        return f"{whose} {have} not answered, and no step has finished for {age(scene.seconds)}"
    else:
        found = f"{whose} {have} been stuck in {device_phase(frame)} for {age(scene.seconds)}"
    return f"{found} (the CPU is in {host}{_at(scene, ranks)})"


def _at(scene: Scene, ranks: Sequence[int] = ()) -> str:
    """Where the first of `ranks` (or of all) that says so is: " at data.py:88 in __getitem__: ..."."""
    stacks = (place(scene.going[rank].stall) for rank in ranks or scene.going)
    line = next(filter(None, stacks), "")
    return f" at {line}" if line else ""
