"""What notices a backward: hooks on a forward's outputs, or one lasting hook on a parameter where that does as well.

Whichever fires first queues a callback with the autograd engine that runs when all gradients are computed; that one
queues a second, which runs behind DDP's own finalisation: the sync point.

Hooking an output in every step is the most expensive thing that a probe can do (15 us in a hot loop, 50 us
between long steps). A job whose backwards have been regular for a while is watched by one parameter instead: its
gradient is accumulated in every backward that synchronises, or DDP itself would complain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from time import perf_counter_ns
from typing import Any

import torch

from ddpmon.probe.event_log import EventLog, queue_callback
from ddpmon.probe.parallel import DDP, DEEPSPEED, is_sharded, kind_of, reduced

TRIAL = 10  # regular backwards in a row before the lasting hook takes over
_MAX_DEPTH = 8

_graph_task: Callable[[], int] = torch._C._current_graph_task_id
_will_run: Callable[[Any], bool] = torch._C._will_engine_execute_node
_this_node: Callable[[], Any] = torch._C._current_autograd_node
_computes_all: Callable[[], bool] = torch.autograd.Variable._execution_engine.is_checkpoint_valid


class BackwardDetector:
    """Sees to it that every backward of one data parallel model is marked once.

    A backward is regular if one forward went before it and if the autograd engine ran nothing else since the last
    one: graph tasks are numbered, so a nested backward (re-entrant checkpointing, where a callback queued within would
    run too early), a second model's and `torch.autograd.grad` all show as a gap. Once the lasting hook is in place the
    first irregular one brings the hooks on outputs back for good.

    Attributes:
        steady: whether the lasting hook is in place and every backward since has been regular.
        witness: the parameter that it hangs on, or may.
    """

    __slots__ = (
        "_begin",
        "_handle",
        "_queue",
        "_ready",
        "_recorder",
        "_regular",
        "_sink",
        "steady",
        "witness",
    )

    def __init__(self, recorder: EventLog, model: torch.nn.Module, ddp: Any) -> None:
        self._recorder = recorder
        self._begin, self._ready = self.begin, recorder.gradients_ready
        self._queue = queue_callback
        self.witness: Any = witness(model, ddp)
        self._sink = sink(ddp)
        self.steady = False
        self._handle: Any = None
        self._regular = 0

    def forward_ends(self, output: Any) -> None:
        """A forward has ended in `output`: its backward, when it comes, will be noticed."""
        recorder = self._recorder
        began = perf_counter_ns() if recorder.sampling else 0
        try:
            recorder.mark_as("forwarded")
            self._follow(output)
        except Exception as error:
            recorder.on_error(error)
        if began:
            recorder.spend("forwarded", began)

    def _follow(self, output: Any) -> None:
        overdue, self._recorder.due = self._recorder.due, True
        if overdue:
            self._regular = 0
        sure = self._regular >= TRIAL and self.witness is not None and self.witness.requires_grad
        if self._handle is None:
            if not sure:
                return self._hang(output)
            self._handle = self.witness.register_post_accumulate_grad_hook(self._begin)
        elif not sure:
            self.witness = None
            if not overdue:  # an overdue backward may still come by the parameter alone
                self.stop()
            self._hang(output)
        self.steady = sure
        return None

    def stop(self) -> None:
        """Take the lasting hook back."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _hang(self, output: Any) -> None:
        hook = _OutputHook(self.begin_by_output)
        if isinstance(output, torch.Tensor) and output.requires_grad:
            output.register_hook(hook)
        else:
            for tensor in differentiable(output):
                tensor.register_hook(hook)

    def begin_by_output(self) -> bool:
        """A gradient has come to an output; returns whether with a backward, which has then begun."""
        try:
            accumulates = _accumulates(self._sink)
        except Exception as error:
            self._recorder.on_error(error)
            return True
        if accumulates:
            self.begin()
        return accumulates

    def begin(self, parameter: Any = None) -> None:
        """A backward has begun, in the graph task that this is called from; by `parameter` only if one is due."""
        recorder = self._recorder
        if parameter is not None and not recorder.due:
            return
        began = perf_counter_ns() if recorder.sampling else 0
        try:
            task = _graph_task()
            if task == recorder.task + 1:
                self._regular += 1
            else:
                self._regular, self.steady = 0, False
            recorder.task = task
            recorder.due = False
            if not recorder.in_backward:
                recorder.in_backward = True
                queue = self._queue
                queue(self._ready)
        except Exception as error:
            recorder.on_error(error)
        if began:
            recorder.spend("backward", began)


class _OutputHook:
    """A gradient hook on one forward's outputs: the first that fires in a backward counts."""

    __slots__ = ("_begin", "_fired")

    def __init__(self, begin: Callable[[], bool]) -> None:
        self._begin = begin
        self._fired = False

    def __call__(self, _grad: Any) -> None:
        if not self._fired:
            self._fired = self._begin()


def _accumulates(sink: Any) -> bool:
    """Whether the graph task that this is called in is a backward: `torch.autograd.grad` accumulates nothing.

    In a backward that computes all gradients `sink` may still be missing: frozen, unused, or within a re-entrant
    checkpoint, which is a backward of its own. What the output was made of is never missing then.
    """
    try:
        if sink is None or _will_run(sink):
            return True
    except RuntimeError:  # the very gradient that `torch.autograd.grad` was asked for
        return False
    return _computes_all() and all(_will_run(node) for node, _ in _this_node().next_functions if node is not None)


def sink(ddp: Any) -> Any:
    """The node of the autograd graph that accumulates the gradient of the last parameter that `ddp` reduces.

    None for a sharded model, as DeepSpeed's may be: what it accumulates into is made again in every forward.
    """
    parameters = [] if is_sharded(ddp) or kind_of(ddp) == DEEPSPEED else reduced(ddp)
    if not parameters:
        return None
    with suppress(Exception), torch.enable_grad():  # a tensor of a kind of its own may have no such view
        view: Any = parameters[-1].view_as(parameters[-1])
        return view.grad_fn.next_functions[0][0]
    return None


def witness(model: torch.nn.Module, ddp: Any) -> torch.nn.Parameter | None:
    """A parameter whose gradient every synchronising backward accumulates; None where there may be no such one."""
    if (
        kind_of(ddp) != DDP
        or model is not ddp
        or ddp.find_unused_parameters
        or ddp.static_graph
        or getattr(ddp, "mixed_precision", None)
    ):
        return None
    if getattr(ddp, "_delay_all_reduce_params", None) or any(_is_compiled(module) for module in ddp.modules()):
        return None
    parameters = reduced(ddp)
    return parameters[-1] if parameters else None


def _is_compiled(module: torch.nn.Module) -> bool:
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def differentiable(output: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Every tensor that requires a gradient, in nested tuples, lists, dicts and dataclasses."""
    if isinstance(output, torch.Tensor):
        if output.requires_grad:
            yield output
    elif depth < _MAX_DEPTH:
        for part in _parts(output):
            yield from differentiable(part, depth + 1)


def _parts(output: Any) -> Iterator[Any]:
    if isinstance(output, Mapping):
        return iter(output.values())
    if isinstance(output, (tuple, list)):
        return iter(output)
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        return (getattr(output, part.name) for part in dataclasses.fields(output))
    return iter(())
