"""DeepSpeed: the sync point of a step is the end of what its engine reduces behind the backward."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ddpmon.probe.event_log import EventLog
from ddpmon.probe.parallel import DEEPSPEED, kind_of

Undo = Callable[[], None]


def hook_deepspeed(recorder: EventLog, engine: Any) -> list[Undo]:
    """Mark the sync points of `engine`; returns what undoes it, nothing for another kind of model.

    What the ZeRO optimizers reduce during the backward, bucket by bucket, is barrier time within it. The rest comes in
    `allreduce_gradients`, which the engine calls behind every backward; it is `exposed`.

    Raises:
        AttributeError: the engine has no `allreduce_gradients`: a release of DeepSpeed that ddpmon does not know.
    """
    if kind_of(engine) != DEEPSPEED:
        return []
    owner: Any = next((kind for kind in type(engine).__mro__ if "allreduce_gradients" in vars(kind)), None)
    if owner is None:
        raise AttributeError("this release of DeepSpeed is not known: its engine has no allreduce_gradients")
    original = owner.allreduce_gradients

    @functools.wraps(original)
    def allreduce_gradients(other: Any, *args: Any, **kwargs: Any) -> Any:
        is_step = other is engine and recorder.charge(lambda: bool(other.is_gradient_accumulation_boundary()))
        if not is_step:
            return original(other, *args, **kwargs)
        recorder.time_hook("arrived", recorder.mark_as, "arrived")
        recorder.reducing = True
        try:
            result = original(other, *args, **kwargs)
        finally:
            recorder.reducing = False
        recorder.synced()
        return result

    def undo() -> None:
        if owner.allreduce_gradients is allreduce_gradients:
            owner.allreduce_gradients = original

    owner.allreduce_gradients = allreduce_gradients
    return [undo]
