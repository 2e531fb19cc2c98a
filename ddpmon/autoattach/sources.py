"""Chooses where losses, samples and steps of a training are read: by the framework whose loop runs it."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import torch.distributed as dist

from ddpmon.autoattach import huggingface, inputs, lightning, losses
from ddpmon.autoattach.wrapping import Undo, mark_phases
from ddpmon.probe.assembly import Sources
from ddpmon.probe.event_log import EventLog
from ddpmon.probe.external_store import speaks_for_its_host
from ddpmon.probe.registration import say

_SAVING = (  # a library's module, its class, and the method that writes a checkpoint
    ("accelerate.accelerator", "Accelerator", "save_state"),
    ("deepspeed.runtime.engine", "DeepSpeedEngine", "save_checkpoint"),
)
_CALLERS = 256  # frames above a forward in which a framework's Trainer may be


def callers(module: str) -> list[Any]:
    """The objects whose methods that `module` defines are under way on this thread, the innermost first.

    The locals of no other frame are read: before Python 3.13 a frame keeps alive what its `f_locals` has shown once.
    """
    found, frame = [], sys._getframe()
    for _ in range(_CALLERS):
        if frame.f_back is None:
            break
        frame = frame.f_back
        if frame.f_globals.get("__name__") == module and (caller := frame.f_locals.get("self")) is not None:
            found.append(caller)
    return found


def read_sources(recorder: EventLog) -> Sources:
    """Read losses and samples from now on; called in the first forward, below the framework's own frames. Never raises.

    A framework of a version whose functions have other names is measured as a plain loop is.
    """
    recorder.on_input = inputs.counting(recorder)
    undo: list[Undo] = []
    try:
        if (found := _of_framework(recorder, undo)) is not None:
            return found
    except Exception as error:
        while undo:
            undo.pop()()
        if not dist.is_initialized() or speaks_for_its_host(dist.get_rank()):
            say(f"this framework is of a version that was not tried ({error}); it is read as a plain loop")
    return _of_loop(recorder, undo)


def _of_framework(recorder: EventLog, undo: list[Undo]) -> Sources | None:
    """The sources of a framework that runs the loop; None where the script does. `undo` gets what was wrapped."""
    trainer = huggingface.trainer_among(callers(huggingface.MODULE)) if huggingface.MODULE in sys.modules else None
    if trainer is not None:
        huggingface.watch_trainer(recorder, trainer, undo)
        return Sources(huggingface.LOSS_FROM, inputs.SAMPLES_FROM, undo)
    if lightning.is_training():
        lightning.watch_checkpoints(undo)
        return Sources(lightning.LOSS_FROM, inputs.SAMPLES_FROM, undo)
    return None


def _of_loop(recorder: EventLog, undo: list[Undo]) -> Sources:
    loss_from = ""
    # A torch or another library may be built in another way: steps are measured all the same.
    with suppress(Exception):
        losses.Roots(recorder).watch(undo)
        loss_from = losses.LOSS_FROM
        _mark_checkpoints(undo)
    return Sources(loss_from, inputs.SAMPLES_FROM, undo)


def _mark_checkpoints(undo: list[Undo]) -> None:
    for module, kind, save in _SAVING:
        if (owner := getattr(sys.modules.get(module), kind, None)) is not None:
            mark_phases(owner, {save: "checkpoint"}, undo)
