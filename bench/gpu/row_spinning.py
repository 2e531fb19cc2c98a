"""Row 6: by how much a kernel that waits in NCCL slows the backward beside it.

A kernel of ours holds some of the GPU's SMs on a stream of its own, with 640 threads a block, while a transformer's
backward runs: with 200 KiB of shared memory a block, so that nothing else that needs some fits on its SM, and with
none. NCCL lies between the two. On a GPU half a minute.

    python bench/gpu/row_spinning.py [--rehearse]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from course_device import Device, Holder
from course_figures import Figures, run_row
from torch import nn

_BLOCKS = (0, 8, 16, 24, 32)
_ASKED = 24  # SMs that NCCL's kernels take on such a GPU
_SLOWER_PCT = 5.0  # from here on a waiting rank hides part of a straggler
_THREADS = 640
_SHARED = {"no shared memory": 0, "200 KiB of shared memory": 200 << 10}
_ROUNDS, _WARM_UP = 8, 3
_LONGEST_MS = 2000.0


class Backward:
    """A transformer's backward, beside a kernel that holds SMs."""

    def __init__(self, device: Device) -> None:
        self._device = device
        layers, width, batch = (6, 2048, (8, 1024, 2048)) if device.is_gpu else (2, 64, (2, 16, 64))
        self._net = nn.Sequential(
            *(nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True) for _ in range(layers))
        ).to(device.at, torch.bfloat16 if device.is_gpu else torch.float32)
        self._x = torch.randn(batch, device=device.at, dtype=next(self._net.parameters()).dtype)

    def time(self, hold: Callable[[], object], let_go: Callable[[], object]) -> float:
        """Milliseconds of the device for one backward beside what is held meanwhile."""
        loss = self._net(self._x).float().square().mean()
        self._device.finish()
        hold()
        time.sleep(0.005)  # until the kernel has begun
        took = self._time_alone(loss) if self._device.is_gpu else self._device.time(loss.backward)
        let_go()
        self._device.finish()
        self._net.zero_grad()
        return took

    def _time_alone(self, loss: Any) -> float:
        """Without a synchronisation, which would wait for the kernel that is held as well."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        loss.backward()
        end.record()
        while not end.query():
            time.sleep(0.0005)
        return float(start.elapsed_time(end))


def slowed_pct(backward: Backward, holder: Holder | None, blocks: int) -> tuple[float, float]:
    """Percent by which the median backward is slower beside so many blocks, and its median ms, both in turns."""
    stream: Any = None if holder is None else torch.cuda.Stream(priority=-1)

    def hold() -> None:
        if holder is not None and blocks:
            holder.hold(blocks, _THREADS, _LONGEST_MS, stream)

    def let_go() -> None:
        if holder is not None and blocks:
            holder.let_go()

    pairs = [
        (backward.time(lambda: None, lambda: None), backward.time(hold, let_go)) for _ in range(_WARM_UP + _ROUNDS)
    ]
    kept = pairs[_WARM_UP:]
    return 100 * (statistics.median(held / alone for alone, held in kept) - 1), statistics.median(h for _, h in kept)


def measure(figures: Figures, rehearse: bool) -> None:
    """Hold more and more SMs."""
    device = Device(rehearse)
    backward = Backward(device)
    slower: dict[str, float] = {}
    for kind, shared in _SHARED.items():
        holder = None if rehearse else Holder(shared)
        for blocks in _BLOCKS:
            pct, ms = slowed_pct(backward, holder, blocks)
            figures.put({f"{blocks} SMs, {kind}: backward ms": ms, f"{blocks} SMs, {kind}: slower %": pct})
            if blocks == _ASKED:
                slower[kind] = pct
    figures.say(f"backward beside {_ASKED} held SMs: " + ", ".join(f"{pct:+.1f} % ({k})" for k, pct in slower.items()))
    most = max(slower.values())
    figures.conclude(most >= _SLOWER_PCT, f"at most {most:.1f} % slower beside {_ASKED} SMs")


if __name__ == "__main__":
    run_row(measure, __doc__)
