"""torch.distributed functions called from Python: the time blocked in them is `barrier` time.

So is, on CPUs, the time in `Work.wait`: asynchronous calls are waited for there, and functions imported by name before
wait there, too. DDP's own gradient reduction is issued and waited for in C++ and does not pass here.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist

from ddpmon.probe.clock import CpuClock
from ddpmon.probe.step import Recorder

# `_broadcast_coalesced` is how DDP spreads buffers (batch norm) at the start of forward.
NAMES = (
    "barrier",
    "monitored_barrier",
    "all_reduce",
    "all_reduce_coalesced",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_single",
    "_all_gather_base",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "_reduce_scatter_base",
    "scatter",
    "scatter_object_list",
    "_broadcast_coalesced",
)


def hook_collectives(recorder: Recorder) -> list[Callable[[], None]]:
    """Wrap the functions as attributes of torch.distributed, and `Work.wait`; returns what puts them back."""
    undo: list[Callable[[], None]] = []
    busy = threading.local()
    for name in NAMES:
        original = getattr(dist, name, None)
        if original is not None:
            wrapped = _timed(recorder, original, busy)
            setattr(dist, name, wrapped)
            undo.append(functools.partial(_restore, name, wrapped, original))
    # On a GPU the host does not block there, and marks on the device would cost more than they tell.
    if recorder.clock.name == CpuClock.name:
        with suppress(Exception):  # without it those waits are work, and nothing worse
            undo.append(_hook_wait(recorder, busy))
    return undo


def _restore(name: str, wrapped: Any, original: Any) -> None:
    if getattr(dist, name) is wrapped:
        setattr(dist, name, original)


def _hook_wait(recorder: Recorder, busy: threading.local) -> Callable[[], None]:
    work: Any = torch._C._distributed_c10d.Work
    original = vars(work)["wait"]
    wrapped = _timed(recorder, original, busy, waits=True)

    def undo() -> None:
        if vars(work)["wait"] is wrapped:
            work.wait = original

    work.wait = wrapped
    return undo


def _timed(
    recorder: Recorder, original: Callable[..., Any], busy: threading.local, *, waits: bool = False
) -> Callable[..., Any]:
    @functools.wraps(original)
    def collective(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or getattr(busy, "on", False) or not _is_ours(recorder):
            return original(*args, **kwargs)
        busy.on = True
        recorder.charge(recorder.mark_as, "barrier")
        result: Any = None
        try:
            result = original(*args, **kwargs)
        finally:
            busy.on = False
            # An asynchronous call returns a Work and did not block.
            recorder.charge(_ends, recorder, waits or result is None)
        return result

    return collective


def _is_ours(recorder: Recorder) -> bool:
    """The training thread, or the autograd engine's while it runs a backward."""
    return threading.get_ident() == recorder.thread or torch._C._current_graph_task_id() >= 0


def _ends(recorder: Recorder, blocked: bool) -> None:
    recorder.put("barriered", recorder.clock.mark(), blocked)
