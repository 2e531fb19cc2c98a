"""Finds the model of Horovod's DistributedOptimizer: nothing wraps it, so it shows itself by its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from ddpmon.probe.parallel import HOROVOD_OPTIMIZERS
from ddpmon.probe.registration import say

_MOST_CALLS = 10_000  # of modules: where the model is not among them, it is not trained in this process


def wraps(made: Any) -> bool:
    """Whether this is an optimizer of Horovod."""
    return isinstance(made, torch.optim.Optimizer) and hasattr(made, "synchronize")


def find_model(optimizer: torch.optim.Optimizer, found: Callable[[torch.nn.Module], None]) -> None:
    """Hand `found` the outermost module with all parameters of `optimizer`, in its first forward with gradients.

    What goes wrong in that forward is said in a line, and nothing is watched.
    """
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    calls = 0

    def look(module: torch.nn.Module, _given: Any) -> None:
        nonlocal calls
        try:
            calls += 1
            is_it = torch.is_grad_enabled() and own <= {id(parameter) for parameter in module.parameters()}
            if is_it or calls > _MOST_CALLS:
                handle.remove()
            if is_it:
                HOROVOD_OPTIMIZERS[module] = optimizer
                found(module)
        except Exception as error:
            handle.remove()
            say(f"cannot watch this run ({type(error).__name__}: {error}); training goes on unwatched")

    look._torchdynamo_disable = True  # type: ignore[attr-defined]  # as in `probe/hooks.py`
    handle = register_module_forward_pre_hook(look)
