"""Losses, steps and phases of Hugging Face's Trainer, by wrapping methods of its class.

The training runs in these methods already when a model is attached to; the next call meets the wrapper. A version whose
methods have other names is measured without what they would tell.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from ddpmon.autoattach.wrapping import Undo, mark_phases, wrapped
from ddpmon.probe.event_log import EventLog
from ddpmon.probe.record import ALWAYS_PARTS

MODULE = "transformers.trainer"
LOSS_FROM = "what Trainer.training_step returns"
_PHASES = {"evaluate": "eval", "predict": "eval", "_save_checkpoint": "checkpoint"}


def trainer_among(callers: Iterable[Any]) -> Any:
    """The class of the Trainer of transformers that is among these objects; None if there is none."""
    base = getattr(sys.modules.get(MODULE), "Trainer", None)
    return None if base is None else next((type(caller) for caller in callers if isinstance(caller, base)), None)


def watch_trainer(recorder: EventLog, trainer: Any, undo: list[Undo]) -> None:
    """Read losses and steps of a class of Trainers, mark evaluations and checkpoints; `undo` gets what undoes it."""

    def around_step(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        is_whole = recorder.last_step >= 0  # of the first step, micro-batches may have gone before
        loss = original(*args, **kwargs)
        if is_whole:
            recorder.logged(loss, parts=ALWAYS_PARTS)  # the Trainer has divided it among micro-batches
        return loss

    def around_step_end(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        state = args[2] if len(args) > 2 else kwargs.get("state")
        recorder.charge(_tell_progress, recorder, state)
        return original(*args, **kwargs)

    undo.append(wrapped(trainer, "training_step", around_step))
    with suppress(Exception):  # a Trainer without it does not say its steps
        handler = sys.modules["transformers.trainer_callback"].CallbackHandler
        undo.append(wrapped(handler, "on_step_end", around_step_end))
    mark_phases(trainer, _PHASES, undo)


def _tell_progress(recorder: EventLog, state: Any) -> None:
    recorder.put("progress", state.global_step, state.max_steps)
