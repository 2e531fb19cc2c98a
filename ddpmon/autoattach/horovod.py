"""Finds the model of Horovod's DistributedOptimizer: nothing wraps it, so it shows itself by its parameters."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any
from weakref import WeakSet

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from ddpmon.probe.parallel import HOROVOD_OPTIMIZERS
from ddpmon.probe.registration import say

_SEARCH_S = 300.0  # from the first call of a module on: an evaluation before the training takes minutes


def wraps(made: Any) -> bool:
    """Whether this is an optimizer of Horovod."""
    return isinstance(made, torch.optim.Optimizer) and hasattr(made, "synchronize")


def find_model(optimizer: torch.optim.Optimizer, found: Callable[[torch.nn.Module], None]) -> None:
    """Hand `found` the outermost module with all parameters of `optimizer`, in its first forward with gradients.

    The hook that looks for it is called for every module: it is taken out as soon as the model is found, and five
    minutes after the first call at the latest. What goes wrong is said in a line, and nothing is watched.
    """
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    others: WeakSet[torch.nn.Module] = WeakSet()
    deadline = 0.0

    def look(module: torch.nn.Module, _given: Any) -> None:
        nonlocal deadline
        try:
            now = monotonic()
            deadline = deadline or now + _SEARCH_S
            if now >= deadline:
                handle.remove()
                say("cannot watch this run: no module has all parameters of Horovod's optimizer")
            elif torch.is_grad_enabled() and module not in others:
                if own <= {id(parameter) for parameter in module.parameters()}:
                    handle.remove()
                    HOROVOD_OPTIMIZERS[module] = optimizer
                    found(module)
                else:
                    others.add(module)
        except Exception as error:
            handle.remove()
            say(f"cannot watch this run ({type(error).__name__}: {error}); training goes on unwatched")

    look._torchdynamo_disable = True  # type: ignore[attr-defined]  # as in `probe/hooks.py`
    handle = register_module_forward_pre_hook(look)
