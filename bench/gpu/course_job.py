"""A watched DDP job of one rank with known delays, what its probe published, and what a watcher says of several."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from course_device import Device
from msgspec.structs import replace
from torch import Tensor, nn

import ddpmon
from ddpmon.diagnose.judge import Judge
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from ddpmon.schema import HOST_COLUMNS, HistoryFrame, RankFrame, RunInfo
from ddpmon.snapshot import Finding

RUN_ID = "gpu-course"
_LAST_FRAME_S = 15.0  # for the publisher's last frames, which take a second
_WARM_UP = 3  # steps: the first is not like the others


@dataclass
class Delays:
    """What every step takes besides its kernels, in ms: changed between steps, read in each.

    Attributes:
        forward, backward: of the device.
        host: of the host, in forward.
        wait: of the device, behind the reduction, as a rank that is late makes the others wait.
    """

    forward: float = 0.0
    backward: float = 0.0
    host: float = 0.0
    wait: float = 0.0


class _DelayedGradient(torch.autograd.Function):
    """The identity; the device is busy for a while before its gradient goes on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, delayed: Delayed) -> Tensor:
        ctx.delayed = delayed
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, None]:
        ctx.delayed.device.spin(ctx.delayed.delays.backward)
        return grads[0], None


class Delayed(nn.Module):
    """A model whose forward and backward take longer as `delays` says; backward before its first gradient."""

    def __init__(self, inner: Any, device: Device, delays: Delays) -> None:
        super().__init__()
        self.inner, self.device, self.delays = inner, device, delays
        self._before: Callable[[], None] = torch.compiler.disable(self._delay)
        self._behind: Callable[[Tensor], Tensor] = torch.compiler.disable(self._delay_backward)

    def forward(self, x: Tensor) -> Any:
        """Delay forward, and mark where backward is delayed."""
        self._before()
        return self._behind(self.inner(x.requires_grad_()))

    def _delay(self) -> None:
        until = time.perf_counter() + self.delays.host / 1e3
        while time.perf_counter() < until:
            pass  # a busy host, which launches nothing
        self.device.spin(self.delays.forward)

    def _delay_backward(self, y: Tensor) -> Tensor:
        delayed: Tensor = _DelayedGradient.apply(y, self)  # type: ignore[no-untyped-call]
        return delayed


def make_late(ddp: Any, device: Device, delays: Delays) -> None:
    """Let the device wait behind the reduction, on the stream on which NCCL's future completes.

    In a rehearsal the future completes so much later: a sleeping callback would hold up the thread that computes.
    """

    # DDP compares the annotations of a hook with its own types, and ours are postponed: it gets none.
    def hook(_state, bucket):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        wait_ms, buffer = delays.wait if bucket.is_last() else 0.0, bucket.buffer()
        if not device.is_gpu:
            later: torch.futures.Future[Tensor] = torch.futures.Future()
            threading.Timer(wait_ms / 1e3, later.set_result, [buffer]).start()
            return later

        def wait(done: Any) -> Any:
            device.spin(wait_ms)
            return done.value()[0]

        return dist.all_reduce(buffer, async_op=True).get_future().then(wait)

    ddp.register_comm_hook(None, hook)


@dataclass(frozen=True)
class Published:
    """What the probe of one rank published in a run."""

    history: HistoryFrame
    frame: RankFrame

    def column(self, name: str) -> Any:
        """A quantity of each step after the first ones, in ms: a column of the schema, or `work`."""
        if name == "work":
            return self.column("duration") - self.column("exposed") - self.column("barrier")
        packed = self.history.recent.values.get(name, b"")
        return np.frombuffer(packed, "<f2" if name in HOST_COLUMNS else "<f4")[_WARM_UP:].astype(float)

    def median(self, name: str) -> float:
        """Its median; NaN where the probe gave none."""
        found = self.column(name)
        return float(np.nanmedian(found)) if np.isfinite(found).any() else float("nan")

    @property
    def steps(self) -> int:
        """How many steps the probe published, of the last 256."""
        return len(self.history.recent)


def end(monitor: ddpmon.Monitor, device: Device) -> Published:
    """Detach, wait for the last frames, and take them.

    Raises:
        RuntimeError: the probe stopped measuring, or its publisher did not end.
    """
    assembly = monitor._assembly
    if assembly is None:
        raise RuntimeError("the monitor stopped measuring")
    device.finish()
    monitor.detach()
    assembly.publisher.join(_LAST_FRAME_S)
    if assembly.publisher.is_alive():
        raise RuntimeError("the publisher did not end")
    draft = assembly.draft
    draft.collect()
    return Published(draft.history_frame(), draft.word("running", 0).whole)


def judge(ranks: Sequence[Published], device: Device) -> tuple[Finding, ...]:
    """What a watcher says that attaches to a job in which each of `ranks` is one."""
    run, now = Run(_info(len(ranks), device)), time.monotonic()
    run.add_history(replace(each.history, run_id=RUN_ID, rank=rank) for rank, each in enumerate(ranks))
    for rank, each in enumerate(ranks):
        uuid = f"GPU-{rank}" if device.is_gpu else None
        known = replace(each.frame, run_id=RUN_ID, rank=rank, local_rank=rank, pid=100 + rank, gpu_uuid=uuid, seq=1)
        run.add_rank(replace(known, process=None, notes=[]), now)
    run.settle(now)
    return in_words(Judge()(run, run.ages(now)))


def _info(ranks: int, device: Device) -> RunInfo:
    return RunInfo(
        run_id=RUN_ID, name=RUN_ID, world_size=ranks, node_keys=[0], backend="nccl" if device.is_gpu else "gloo",
        device=device.at.type, parameters=1 << 20, gradient_bytes=4 << 20, bucket_detail=False,
        started_at=0.0, host="course", pid=100, versions={},
    )  # fmt: skip
