"""Losses, steps and phases of Lightning, by a callback that Lightning asks for itself.

`pyproject.toml` registers `callbacks` as an entry point. Lightning calls it for every Trainer in an environment with
ddpmon, so it answers at once, and imports nothing, unless `ddpmon run` has started the process.
"""

from __future__ import annotations

import functools
import importlib
import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

LOSS_FROM = "what training_step of the LightningModule returns"
_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_PHASES = {"save_checkpoint": "checkpoint"}


def callbacks() -> list[Any]:
    """The callback for a Trainer that is being made; none outside of `ddpmon run`."""
    if not os.environ.get("DDPMON_RUN") or os.environ.get("DDPMON") == "0":
        return []
    try:
        return [_callback(package) for package in _PACKAGES if _is_asking(package)]
    except Exception as error:
        _say_once(error)
        return []


def _callback(package: str) -> Any:
    """A callback of the classes of `package`; a process that unpickles one makes it in the same way."""
    base = importlib.import_module(package).Callback
    return type("DdpmonCallback", (_Watch, base), {"package": package})()


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


def watch_checkpoints(undo: list[Callable[[], None]]) -> None:
    """Mark what Lightning's Trainers write as checkpoints; `undo` gets what undoes it."""
    from ddpmon.autoattach.wrapping import mark_phases

    for package in _PACKAGES:
        if (module := sys.modules.get(package)) is not None:
            mark_phases(module.Trainer, _PHASES, undo)


def _guarded(tell: Callable[..., None]) -> Callable[..., None]:
    """`tell` without its exceptions, the first of which one line names."""

    @functools.wraps(tell)
    def call(*args: Any, **kwargs: Any) -> None:
        try:
            tell(*args, **kwargs)
        except Exception as error:
            _say_once(error)

    return call


def _say_once(error: Exception) -> None:
    if not _Watch.has_failed:
        _Watch.has_failed = True
        with suppress(Exception):
            from ddpmon.probe.registration import say

            say(f"cannot read what this Lightning does ({type(error).__name__}: {error}); training is not affected")


class _Watch:
    """Tells the monitor what a Trainer does: the methods of a callback, without a state. They never raise.

    Attributes:
        package: of Lightning's two.
        is_training: whether one of them has seen a training begin that has not ended.
        has_failed: whether a line has said that one of them cannot tell.
    """

    package = ""
    is_training = False
    has_failed = False

    def __init__(self) -> None:
        super().__init__()
        self._phase: Any = None

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return _callback, (self.package,)

    def on_train_start(self, *_: Any) -> None:
        """A training begins."""
        _Watch.is_training = True

    def on_train_end(self, *_: Any) -> None:
        """It ends."""
        _Watch.is_training = False

    @_guarded
    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any, **__: Any) -> None:
        """A micro-batch is over; Lightning has divided its loss among them, unless the module optimizes itself."""
        watched = _watched()
        if watched is not None:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            is_divided = getattr(module, "automatic_optimization", True)
            watched.log_part(loss, trainer.global_step, _total(trainer), is_divided=is_divided)

    @_guarded
    def on_validation_start(self, *_: Any) -> None:
        """An evaluation begins, within an epoch or behind it."""
        watched = _watched()
        if watched is not None:
            self._phase = watched.phase("eval")
            self._phase.__enter__()

    @_guarded
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
    """The steps that a Trainer will make, the fewer of its `max_steps` and its epochs; None where it has no end."""
    steps = trainer.estimated_stepping_batches
    return int(steps) if isinstance(steps, int | float) and math.isfinite(steps) and steps > 0 else None
