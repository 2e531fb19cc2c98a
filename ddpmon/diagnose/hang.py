"""Hangs: a job that has stopped, the rank that the others wait for, where it is, and whether anything moves at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.finding import Finding, Severity
from ddpmon.diagnose.pause import find_apart, find_graphed, find_pause, is_at_something, is_progressing
from ddpmon.diagnose.stall_state import Odd, Scene, find_odd, look
from ddpmon.diagnose.uneven_inputs import find_left_behind, find_uneven
from ddpmon.diagnose.waiting import JUST_CAME_S, WAITING, device_error, device_phase, is_broken, is_device_stuck
from ddpmon.diagnose.wording import clean, does, format_ranks, on_host, place, stack_command, stack_text
from ddpmon.format import age
from ddpmon.run.model import LOST_S, Run
from ddpmon.schema import PHASES

_DOING = {"exposed": "the gradient reduction", "barrier": "a collective"}
_FIRST_STEP_S = 300.0
_FIRST_STEP_HOST_S = 2.0  # more for each host with GPUs: all ranks of NCCL's bootstrap meet at one address
_FIRST_STEP_MOST_S = 1800.0  # with GPUs: as long as a compilation may take
_SOON_S = 5.0  # after the first rank the others notice, too, that they stand still
_GOES_ON_S = 60.0  # for so long: who comes and comes again does not go on


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
    end = (
        f"{format_ranks(odd.ranks)} took another path"
        if odd.certain
        else "the groups disagree, and which is wrong is unknown"
    )
    return f"for {age(scene.seconds)}, {elsewhere}, but {them}: {end}"


def nobody(run: Run, scene: Scene) -> str:
    """Everybody waits, or everybody is at work."""
    phases = Counter(frame.phase for frame in scene.going.values())
    absent = run.info.world_size - len(scene.going) - len(scene.ended)
    everybody = (
        format_ranks(list(scene.going)) if absent or len(scene.going) == 1 else f"all {len(scene.going):,} ranks"
    )
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
    whose = f"the GPU{'s' if several else ''} of {format_ranks(ranks)}"
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


def find_stuck(run: Run, ages: NDArray[np.float64]) -> list[Finding]:
    """What holds a job up that makes no progress: a `hang`, a `pause` under way, or `uneven_inputs`.

    A lost or a failed rank that the others wait for is spoken of elsewhere: then there is nothing to say here. A job
    that goes on without a rank that has finished is `uneven_inputs` as information. Where the ranks that are heard
    prove which of them is wrong, silent and lost ones explain nothing.
    """
    graphed = find_graphed(run, ages)
    if graphed is not None:
        return [graphed]
    scene = look(run, ages)
    if scene is None:
        return find_left_behind(run, ages)
    if any(frame.state == "failed" and scene.close(frame.step) for frame in scene.ended.values()):
        return []
    return _despite_silence(run, scene) or ([] if _is_lost(scene, ages) else _verdict(run, scene))


def _despite_silence(run: Run, scene: Scene) -> list[Finding]:
    """The verdict without the silent ranks, if the others prove that a rank that it names is wrong."""
    culprits = _proven(scene) if scene.silent else set()
    if not culprits:
        return []
    found = _verdict(run, replace(scene, silent={}))
    return [finding for finding in found if culprits.intersection(finding.ranks)]


def _verdict(run: Run, scene: Scene) -> list[Finding]:
    """What is said of a job that has stopped, unless a lost or a failed rank explains it."""
    found = find_apart(scene) or find_uneven(scene) or find_pause(run, scene)
    if found is not None:
        return [found]
    hang = _hang(run, scene)
    return [] if _is_too_soon(scene, hang.ranks) else [hang]


def _proven(scene: Scene) -> set[int]:
    """The ranks that the others show to be wrong, whatever the silent ones do."""
    odd = find_odd(scene.going)
    by_recorder = odd.ranks if odd is not None and odd.proven else ()
    return {*by_recorder, *(scene.busy() if scene.waits.proven else ())}


def _is_too_soon(scene: Scene, ranks: Sequence[int]) -> bool:
    """Whether the job may be about to go on, or ranks have yet to tell where they stand, as they do within a moment.

    Who has just come to its phase, such as back from an evaluation, is not stuck there. Who is named has told: a rank
    between the phases may save, or evaluate. Where nobody is, the culprit may be one that has not told.
    """
    blamed = [scene.going[rank] for rank in ranks or scene.waiting() if rank in scene.going]
    if scene.seconds < _GOES_ON_S and any(frame.phase_s < JUST_CAME_S for frame in blamed):
        return True
    told = all(frame.stall is not None for frame in (blamed if ranks else scene.going.values()))
    return scene.seconds < scene.patience_s + _SOON_S and not told


def _is_lost(scene: Scene, ages: NDArray[np.float64]) -> bool:
    """Whether a rank that the others may wait for is lost."""
    return any(ages[rank] > LOST_S for rank in scene.missing())


def _hang(run: Run, scene: Scene) -> Finding:
    """Who it is, by the best evidence there is: silence, the flight recorders, the phases."""
    silent = scene.missing()
    if silent:
        where, waits = clean(scene.silent[silent[0]].phase, 40), waiters(scene)
        sentence = f"{does(silent, 'have')} fallen silent in {where}; no step has finished for {age(scene.seconds)}"
        return _finding(run, scene, silent, f"{sentence}; {waits}" if waits else sentence)
    odd, proven = find_odd(scene.going), scene.waits.proven
    if odd is not None and odd.certain and (odd.absent or not proven):
        return _finding(run, scene, odd.ranks, path_sentence(scene, odd), odd.operation)
    waiting, busy = scene.waiting(), scene.busy()
    if busy and (waiting or proven):
        busy = [rank for rank in busy if not is_at_something(scene, rank)] or busy
        return _finding(run, scene, busy, "; ".join(filter(None, (standing(scene, busy), waiters(scene)))))
    if run.info.world_size == 1 and 0 in scene.going and is_device_stuck(scene.going[0]):
        return _finding(run, scene, (0,), standing(scene, (0,)))
    odd = odd or odd_phase(scene)
    if odd is not None:
        return _finding(run, scene, odd.ranks if odd.certain else (), path_sentence(scene, odd), odd.operation)
    return _finding(run, scene, (0,) if run.info.world_size == 1 else (), nobody(run, scene))


def _finding(run: Run, scene: Scene, ranks: Sequence[int], sentence: str, operation: str = "") -> Finding:
    frames = [scene.going.get(rank) or scene.silent[rank] for rank in ranks]
    shown = frames[0] if frames else next(iter(scene.going.values()))
    severity: Severity = "critical"
    if scene.held < 0 and scene.seconds < _first_step_s(run, scene):
        severity, sentence = "info", f"no rank has finished its first step (still compiling?): {sentence}"
    evidence: dict[str, float | int | str] = {"seconds": scene.seconds, "waiting": len(scene.waiting())}
    stack, operation = stack_text(shown.stall), operation or operation_of_most(scene)
    evidence |= {name: text for name, text in (("stack", stack), ("operation", operation)) if text}
    device = {"device_phase": device_phase(shown), "device_error": clean(device_error(shown), 60)}
    evidence |= {name: text for name, text in device.items() if text}
    at = device_phase(shown) if is_device_stuck(shown) else shown.phase
    return Finding(
        kind="hang",
        severity=severity,
        summary=sentence,
        ranks=tuple(ranks),
        nodes=tuple(sorted({frame.host for frame in frames})),
        phase=at if ranks and at in PHASES else None,
        since_step=scene.held + 1,
        cost_pct=100.0,
        evidence=evidence,
        advice=_advice(run, scene, ranks),
    )


def _first_step_s(run: Run, scene: Scene) -> float:
    """How long the first step may take: with GPUs longer on many hosts, and as long as some rank is seen at work."""
    frames = list(scene.going.values())
    if all(frame.gpu_uuid is None for frame in frames):
        return _FIRST_STEP_S
    if any(map(is_progressing, frames)):
        return _FIRST_STEP_MOST_S
    return min(_FIRST_STEP_MOST_S, _FIRST_STEP_S + _FIRST_STEP_HOST_S * (len(run.info.node_keys) - 1))


def _advice(run: Run, scene: Scene, ranks: Sequence[int]) -> str:
    if ranks:
        frame = scene.going.get(ranks[0]) or scene.silent[ranks[0]]
        if is_device_stuck(frame) or device_error(frame):
            return (
                f"look at this GPU: {on_host(frame.host, 'nvidia-smi')}, and for Xid errors "
                f"{on_host(frame.host, 'sudo dmesg')}; then {stack_command(frame.host, frame.pid)}"
            )
        return f"see where it is: {stack_command(frame.host, frame.pid)}"
    if scene.waiting():
        return f"check the network and the log of {clean(run.info.backend, 20)}; the rank detail shows every stack"
    return "if this is an evaluation or a checkpoint, wrap it in `with monitor.phase(name)`; else compare the stacks"
