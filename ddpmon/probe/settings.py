"""How DDP was set up: what tuning advice rests on."""

from __future__ import annotations

import functools
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from ddpmon.parts import Settings
from ddpmon.probe.buckets import BucketTimer
from ddpmon.probe.text import plain


def settings_of(ddp: DistributedDataParallel) -> Settings:
    """The settings of `ddp` now; what this torch does not say is None."""
    return Settings(
        gradient_as_bucket_view=_flag(ddp, "gradient_as_bucket_view"),
        find_unused_parameters=_flag(ddp, "find_unused_parameters"),
        static_graph=_flag(ddp, "static_graph"),
        gradient_dtype=_gradient_dtype(ddp),
        comm_hook=_comm_hook(ddp),
    )


def _flag(ddp: DistributedDataParallel, name: str) -> bool | None:
    value = getattr(ddp, name, None)
    return None if value is None else bool(value)


def _gradient_dtype(ddp: DistributedDataParallel) -> str | None:
    """Such as "float32", or "mixed"; None without gradients."""
    kinds = {str(p.dtype).removeprefix("torch.") for p in ddp.parameters() if p.requires_grad}
    return "mixed" if len(kinds) > 1 else next(iter(kinds), None)


def _comm_hook(ddp: DistributedDataParallel) -> str | None:
    """The qualified name of the user's communication hook, which may lie inside ours."""
    hooks: list[tuple[Any, Any]] = list(getattr(ddp, "_comm_hooks", []))
    timer = getattr(hooks[0][0], "__self__", None) if hooks else None
    hook = timer.users_hook if isinstance(timer, BucketTimer) else hooks[0][0] if hooks else None
    if isinstance(hook, functools.partial):
        hook = hook.func
    if hook is None:
        return None
    kind = hook if hasattr(hook, "__qualname__") else type(hook)
    return plain(f"{kind.__module__}.{kind.__qualname__}")
