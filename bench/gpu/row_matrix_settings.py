"""The settings of row 4: everything that changes the streams, the callbacks or the kernels of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

WIDTH, BATCH = 256, 64


@dataclass(frozen=True)
class Setting:
    """One way to train.

    Attributes:
        inner: makes the model inside the delays.
        options: DDP's.
        accumulate: micro-batches a step, all but the last under `no_sync()`.
        amp: the dtype of autocast; float16 with a GradScaler.
        streams: what runs on a stream of the user's own.
        compiled: what torch.compile wraps; "graphs" is reduce-overhead, which captures CUDA graphs.
        buckets: bucket detail, which must be asked for before the first backward.
        hooked: whether a communication hook of the user's makes the device wait.
        optimizer: makes it.
        tensor_samples: log the samples as a tensor on the device.
        gpu_only: why it cannot be rehearsed; empty where it can.
    """

    inner: Callable[[], nn.Module]
    options: dict[str, Any] = field(default_factory=dict)
    accumulate: int = 1
    amp: torch.dtype | None = None
    streams: Literal["", "step", "backward"] = ""
    compiled: Literal["", "inside", "outside", "graphs"] = ""
    graphed: bool = False
    buckets: bool = False
    hooked: bool = True
    optimizer: Callable[[Any], torch.optim.Optimizer] = lambda parameters: torch.optim.AdamW(parameters, lr=1e-5)
    tensor_samples: bool = False
    gpu_only: str = ""

    @property
    def scaled(self) -> bool:
        """Whether a GradScaler reads on the host whether gradients overflowed: a synchronisation of torch's own."""
        return self.amp is torch.float16


def layers() -> nn.Module:
    """A few square layers."""
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(6)))


class Checkpointed(nn.Module):
    """Computes its middle again in backward."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(WIDTH, WIDTH), layers(), nn.Linear(WIDTH, WIDTH)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Any:
        """Forward, of whose middle nothing is kept."""
        return self.last(checkpoint(self.middle, self.first(x), use_reentrant=self.reentrant))


class Unused(nn.Module):
    """Has a layer that no forward uses."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.unused = layers(), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Any:
        """Forward, past the layer."""
        return self.layers(x)


def fused(parameters: Any) -> torch.optim.Optimizer:
    """One kernel for all parameters."""
    return torch.optim.AdamW(parameters, lr=1e-5, fused=True)


_STREAMS, _GRAPHS = "a CPU has no streams", "a CPU has no CUDA graphs"
SETTINGS: dict[str, Setting] = {
    "plain": Setting(layers),
    "no hook": Setting(layers, hooked=False),
    "gradient_as_bucket_view": Setting(layers, {"gradient_as_bucket_view": True}),
    "static_graph": Setting(layers, {"static_graph": True}),
    "find_unused_parameters": Setting(Unused, {"find_unused_parameters": True}),
    "small buckets": Setting(layers, {"bucket_cap_mb": 0.5}),
    "no_sync, 3 micro-batches": Setting(layers, accumulate=3),
    "autocast bf16": Setting(layers, amp=torch.bfloat16),
    "GradScaler fp16": Setting(layers, amp=torch.float16, gpu_only="its half precision is a GPU's"),
    "checkpointing": Setting(lambda: Checkpointed(reentrant=False)),
    "re-entrant checkpointing": Setting(lambda: Checkpointed(reentrant=True)),
    "step on a side stream": Setting(layers, streams="step", gpu_only=_STREAMS),
    "backward on a side stream": Setting(layers, streams="backward", gpu_only=_STREAMS),
    "compiled inside": Setting(layers, compiled="inside"),
    "compiled outside": Setting(layers, compiled="outside"),
    "reduce-overhead inside": Setting(layers, compiled="graphs", gpu_only=_GRAPHS),
    "make_graphed_callables inside": Setting(layers, graphed=True, gpu_only=_GRAPHS),
    "bucket detail, hooked": Setting(layers, {"bucket_cap_mb": 0.5}, buckets=True),
    "bucket detail, no hook": Setting(layers, {"bucket_cap_mb": 0.5}, buckets=True, hooked=False),
    "fused AdamW": Setting(layers, optimizer=fused),
    "samples as a tensor": Setting(layers, tensor_samples=True),
}
