"""The loss of a loop that does not log it: what it calls `backward` on. On the training thread; never raises.

The root of a backward is the loss if it has one element and the watched model's gradients were computed from it. Where
a GradScaler has scaled it, or Accelerate or DeepSpeed has divided it, the loss is what these were given. A script that
divides it by the number of its micro-batches itself has parts, which add up to the loss of the step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import torch

from ddpmon.autoattach.wrapping import Undo, wrapped
from ddpmon.probe.event_log import EventLog

LOSS_FROM = "what backward was called on"
_MOST_PARTS = 1 << 20  # micro-batches of a step


class Roots:
    """Reads the losses that backwards start from.

    Attributes:
        argument: the loss that the framework was given whose backward is under way; None outside of that.
        scaled: the tensor that a GradScaler made last, and the loss that it was made of.
    """

    def __init__(self, recorder: EventLog) -> None:
        self._recorder = recorder
        self.argument: torch.Tensor | None = None
        self.scaled: tuple[Callable[[], Any], torch.Tensor] | None = None

    def loss_of(self, tensors: Any) -> torch.Tensor | None:
        """The loss, without its graph, of a backward from `tensors`; None if it has none."""
        root = tensors[0] if isinstance(tensors, Sequence) and len(tensors) == 1 else tensors
        if not isinstance(root, torch.Tensor):
            return None
        if self.argument is not None:
            root = self.argument
        elif self.scaled is not None and self.scaled[0]() is root:
            root = self.scaled[1]
        return root.detach() if type(root) is torch.Tensor and root.numel() == 1 else None

    def tell(self, tensors: Any, parts: int) -> None:
        """A backward from `tensors` has computed gradients of the watched model."""
        loss = self.loss_of(tensors)
        if loss is not None:
            self._recorder.logged(loss, parts=parts)

    def _note_divisor(self, tensors: Any) -> int:
        """By which number the loss was divided in its last operation; 0 if by none. The backward will free that."""
        root = tensors[0] if isinstance(tensors, Sequence) and len(tensors) == 1 else tensors
        node = None if self.argument is not None else getattr(root, "grad_fn", None)
        if node is not None and self.scaled is not None and self.scaled[0]() is root:
            node = node.next_functions[0][0]
        if type(node).__name__ != "DivBackward0":
            return 0
        saved: Any = getattr(node, "_raw_saved_other", None)
        # To unpack what hooks of the script's have packed would run these: its backward would find it gone. A torch
        # that cannot say whether there is such a hook does not tell the divisor.
        by: Any = saved.data if getattr(saved, "unpack_hook", saved) is None and saved is not None else None
        is_number = isinstance(by, torch.Tensor) and by.is_cpu and by.numel() == 1  # Python's own are
        number = by.item() if is_number else 0.0
        return int(number) if 1 < number < _MOST_PARTS and number == int(number) else 0

    def watch(self, undo: list[Undo]) -> None:
        """Wrap what starts a backward, and what changes a loss before; `undo` gets what undoes it."""
        undo.append(wrapped(torch.autograd, "backward", self._around_backward))
        undo.append(wrapped(torch.amp.GradScaler, "scale", self._around_scale))
        sharded = sys.modules.get("torch.distributed.fsdp.sharded_grad_scaler")
        if sharded is not None:  # it overrides `scale`
            undo.append(wrapped(sharded.ShardedGradScaler, "scale", self._around_scale))
        accelerate = sys.modules.get("accelerate.accelerator")
        if accelerate is not None:
            undo.append(wrapped(accelerate.Accelerator, "backward", self._around_framework))
        deepspeed = sys.modules.get("deepspeed.runtime.engine")
        if deepspeed is not None:
            undo.append(wrapped(deepspeed.DeepSpeedEngine, "backward", self._around_framework))

    def _around_backward(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        recorder = self._recorder
        task, tensors = recorder.task, args[0] if args else kwargs.get("tensors")
        parts = recorder.charge(self._note_divisor, tensors) or 0
        result = original(*args, **kwargs)
        if recorder.task != task:  # and not another model's backward
            recorder.charge(self.tell, tensors, parts)
            self.scaled = None
        return result

    def _around_scale(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = original(*args, **kwargs)
        self._recorder.charge(self._note_scaled, args[1] if len(args) > 1 else kwargs.get("outputs"), result)
        return result

    def _note_scaled(self, loss: Any, result: Any) -> None:
        self.scaled = None
        if type(loss) is torch.Tensor and type(result) is torch.Tensor and loss.numel() == 1 and result is not loss:
            self.scaled = ref(result), loss.detach()

    def _around_framework(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        loss = args[1] if len(args) > 1 else kwargs.get("loss")
        outer, self.argument = self.argument, loss.detach() if isinstance(loss, torch.Tensor) else None
        try:
            return original(*args, **kwargs)
        finally:
            self.argument = outer
