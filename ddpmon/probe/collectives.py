"""torch.distributed functions called from Python: the time blocked in them is `barrier` time.

So is, on CPUs, the time in `Work.wait`: asynchronous calls are waited for there, and functions imported by name before
wait there, too. DDP's own gradient reduction is issued and waited for in C++ and does not pass here. That of a sharded
model (FSDP) does: a reduction in its backward is no barrier, and the last one of a step is the sync point.

On a GPU only barriers and what passes Python objects blocks the host. The others are marked on the device, all of them
while that costs less than 1 % of a step, and otherwise only one in so many, which then stands for all of these.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns
from typing import Any

import torch
import torch.distributed as dist

from ddpmon.probe.clock import CpuClock
from ddpmon.probe.event_log import EventLog

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
# What a sharded model calls in backward to reduce gradients; with replicas (HSDP) an all-reduce follows.
REDUCTIONS = frozenset(
    {"reduce_scatter_single", "reduce_scatter_tensor", "_reduce_scatter_base", "reduce_scatter", "all_reduce"}
)


def hook_collectives(recorder: EventLog) -> list[Callable[[], None]]:
    """Wrap the functions as attributes of torch.distributed, and `Work.wait`; returns what puts them back."""
    undo: list[Callable[[], None]] = []
    busy = threading.local()
    on_host = recorder.clock.name == CpuClock.name
    ration = Ration(recorder)
    for name in NAMES:
        original = getattr(dist, name, None)
        if original is not None:
            blocks = on_host or "barrier" in name or "object" in name
            reduces = name in REDUCTIONS
            wrapped = _timed(recorder, original, busy, ration=None if blocks else ration, reduces=reduces)
            setattr(dist, name, wrapped)
            undo.append(functools.partial(_restore, name, wrapped, original))
    # On a GPU the host does not block there, and marks on the device would cost more than they tell.
    if on_host:
        with suppress(Exception):  # without it those waits are work, and nothing worse
            undo.append(_hook_wait(recorder, busy))
    return undo


def timed_wait(recorder: EventLog, original: Callable[..., Any], busy: threading.local) -> Callable[..., Any]:
    """A function of another library in which this rank waits for others, so that its time is barrier time."""
    return _timed(recorder, original, busy, waits=True)


def _restore(name: str, wrapped: Any, original: Any) -> None:
    if getattr(dist, name) is wrapped:
        setattr(dist, name, original)


def _hook_wait(recorder: EventLog, busy: threading.local) -> Callable[[], None]:
    work: Any = torch._C._distributed_c10d.Work
    original = vars(work)["wait"]
    wrapped = _timed(recorder, original, busy, waits=True)

    def undo() -> None:
        if vars(work)["wait"] is wrapped:
            work.wait = original

    work.wait = wrapped
    return undo


class Ration:
    """Chooses which collectives of a step are marked where marks are dear.

    A step's share is what fits into 1 % of the step before, by the host's clock. If that had more collectives, one in
    `stride` is marked, another one each step.
    """

    _NS_EACH = 6_000  # two marks on a CUDA stream, an estimate from the cost of their parts
    _SHARE = 0.01  # of a step
    _ALWAYS = 8  # a step

    def __init__(self, recorder: EventLog) -> None:
        self._recorder = recorder
        self._step = recorder.last_step
        self._since_ns = perf_counter_ns()
        self._count = 0
        self.stride = 1

    def grant(self) -> int:
        """How many collectives the coming one stands for; 0 if it is not marked."""
        step = self._recorder.last_step
        if step != self._step:
            self._next_step(step)
        self._count += 1
        return 0 if (self._count + step) % self.stride else self.stride

    def _next_step(self, step: int) -> None:
        now = perf_counter_ns()
        steps = max(1, step - self._step)  # another thread may have noticed the step meanwhile
        affordable = self._SHARE * (now - self._since_ns) / steps / self._NS_EACH
        self.stride = math.ceil(self._count / max(self._ALWAYS, affordable)) or 1
        self._step, self._since_ns, self._count = step, now, 0


def _timed(
    recorder: EventLog,
    original: Callable[..., Any],
    busy: threading.local,
    *,
    waits: bool = False,
    ration: Ration | None = None,
    reduces: bool = False,
) -> Callable[..., Any]:
    @functools.wraps(original)
    def collective(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or getattr(busy, "on", False) or recorder.reducing or not _is_ours(recorder):
            return original(*args, **kwargs)
        is_steps_own = reduces and recorder.sharded and recorder.in_backward  # and is marked in every step
        recorder.syncing |= is_steps_own
        if kwargs.get("async_op"):  # it will not block
            return original(*args, **kwargs)
        stands_for = 1 if ration is None or is_steps_own else recorder.charge(ration.grant)
        if not stands_for:
            return original(*args, **kwargs)
        busy.on = True
        begins, ends = ("reduce", "reduced") if is_steps_own else ("barrier", "barriered")
        account = functools.partial(recorder.time_hook, "reduce") if is_steps_own else recorder.charge
        account(recorder.mark_as, begins)
        result: Any = None
        try:
            result = original(*args, **kwargs)
        finally:
            busy.on = False
            # An asynchronous call returns a Work and did not block.
            account(_ends, recorder, ends, stands_for if waits or result is None else 0)
        return result

    return collective


def _is_ours(recorder: EventLog) -> bool:
    """The training thread, or the autograd engine's while it runs a backward."""
    return threading.get_ident() == recorder.thread or torch._C._current_graph_task_id() >= 0


def _ends(recorder: EventLog, kind: str, stands_for: int) -> None:
    recorder.put(kind, recorder.clock.mark(), stands_for)
