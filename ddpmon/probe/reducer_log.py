"""What DDP's own logger knows: the window from the first bucket's launch to the last reduction, once a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.nn.parallel import DistributedDataParallel

_DEFAULT_RATE = 100  # kDDPRuntimeLoggingSampleRate


_SAMPLED_STEPS = 3  # sync points from switching the logger on to reading a step that it saw whole


class ReducerLog:
    """Reads `_get_ddp_logging_data` (40 us) on the training thread, each time that the publisher asks for it.

    What it tells is the newest sampled all-reduce window in milliseconds.

    On the CPU the logger samples every step (13 us each) for as long as it takes to read one; on CUDA it keeps its
    default of one in a hundred, since a sampled step synchronises on events at the next forward.
    """

    def __init__(self, ddp: DistributedDataParallel, tell: Callable[[float], None], *, on_cpu: bool) -> None:
        self._ddp = ddp
        self._tell = tell
        self._wait = _SAMPLED_STEPS if on_cpu else 1
        self._left = self._wait
        self._stopped = False
        self._last_sample: Any = None
        self.bucket_count = 0
        self.gradient_bytes = sum(p.numel() * p.element_size() for p in ddp.parameters() if p.requires_grad)

    def stop(self) -> None:
        """Put the logger's sample rate back to DDP's default."""
        self._stopped = True
        self._ddp._set_ddp_runtime_logging_sample_rate(_DEFAULT_RATE)

    def __call__(self) -> bool:
        """Called at sync points until it returns True: then it has told what it knows.

        The logger takes a step in at the next forward: what is read here is the window of the step before.
        """
        if self._stopped:
            return True
        if self._left == self._wait > 1:
            self._ddp._set_ddp_runtime_logging_sample_rate(1)
        self._left -= 1
        if self._left > 0:
            return False
        self._left = self._wait
        if self._wait > 1:
            self._ddp._set_ddp_runtime_logging_sample_rate(_DEFAULT_RATE)
        self._read()
        return True

    def _read(self) -> None:
        data = self._ddp._get_ddp_logging_data()
        self.bucket_count = int(data.get("num_buckets_reduced", 0))
        sample = data.get("backward_comm_time_end")
        if sample and sample != self._last_sample:
            self._last_sample = sample
            self._tell(data["backward_comm_time"] / 1e6)
