"""Losses, steps and phases of Lightning, by a callback that Lightning asks for itself.

`pyproject.toml` registers `callbacks` as an entry point. Lightning calls it for every Trainer in an environment with
ddpmon, so it answers at once, and imports nothing, unless `ddpmon run` has started the process.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from typing import Any

LOSS_FROM = "what training_step of the LightningModule returns"
_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_PHASES = {"save_checkpoint": "checkpoint"}


def callbacks() -> list[Any]:
    """The callback for a Trainer that is being made; none outside of `ddpmon run`."""
    if not os.environ.get("DDPMON_RUN") or os.environ.get("DDPMON") == "0":
        return []
    asking = [sys.modules[package].Callback for package in _PACKAGES if _is_asking(package)]
    return [type("DdpmonCallback", (_Watch, base), {})() for base in asking]


def _is_asking(package: str) -> bool:
    """Whether a Trainer of this package is among the callers: both packages may be imported."""
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(f"{package}.trainer"):
            return package in sys.modules
        frame = frame.f_back
    return False


def is_training() -> bool:
    """Whether a training of Lightning is under way in this process, with the callback."""
    return _Watch.is_training


def watch_checkpoints() -> list[Callable[[], None]]:
    """Mark what Lightning's Trainers write as checkpoints; returns what undoes it."""
    from ddpmon.autoattach.wrapping import mark_phases

    modules = (sys.modules.get(package) for package in _PACKAGES)
    return [undo for module in modules if module is not None for undo in mark_phases(module.Trainer, _PHASES)]


class _Watch:
    """Tells the monitor what a Trainer does: the methods of a callback, which has no state to be saved.

    Attributes:
        is_training: whether one of them has seen a training begin that has not ended.
    """

    is_training = False

    def __init__(self) -> None:
        super().__init__()
        self._phase: Any = None

    def on_train_start(self, *_: Any) -> None:
        """A training begins."""
        _Watch.is_training = True

    def on_train_end(self, *_: Any) -> None:
        """It ends."""
        _Watch.is_training = False

    def on_train_batch_end(self, trainer: Any, _module: Any, outputs: Any, *_: Any, **__: Any) -> None:
        """A micro-batch is over; Lightning has divided its loss among the micro-batches of the step."""
        watched = _watched()
        if watched is not None:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            watched.log_part(loss, trainer.global_step, _total(trainer))

    def on_validation_start(self, *_: Any) -> None:
        """An evaluation begins, within an epoch or behind it."""
        watched = _watched()
        if watched is not None:
            self._phase = watched.phase("eval")
            self._phase.__enter__()

    def on_validation_end(self, *_: Any) -> None:
        """It ends."""
        phase, self._phase = self._phase, None
        if phase is not None:
            phase.__exit__(None, None, None)

    def on_exception(self, *_: Any, **__: Any) -> None:
        """The training ends, and whatever phase was under way."""
        _Watch.is_training = False
        self.on_validation_end()


def _watched() -> Any:
    """The monitor that `ddpmon run` has attached; None before the first forward, and where the script has its own."""
    from ddpmon.probe import monitor

    watched = monitor.active()
    return watched if watched is not None and watched.automatic else None


def _total(trainer: Any) -> int | None:
    """The steps that a Trainer will make; None where it goes on without end."""
    steps = trainer.max_steps if trainer.max_steps and trainer.max_steps > 0 else trainer.estimated_stepping_batches
    return int(steps) if isinstance(steps, int | float) and math.isfinite(steps) else None
