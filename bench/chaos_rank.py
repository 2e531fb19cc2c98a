"""A rank of the chaos job: the trainer, which also writes down the exact loss of every step as it is made.

`LOSSES` names a folder; each process has a file RANK-PID there, with a line a step: its number, and the loss in hex.
`LAST_WORDS_S` is how long the run's store outlives the job once that has been killed: the course waits for its end.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ddpmon.probe import uplink
from ddpmon.store.server_process import start
from trainer import loop, parallel
from trainer.__main__ import main
from trainer.progress import Progress


class Exact(Progress):
    """What rank 0 tells, and what every rank writes down."""

    def __init__(self, first_step: int, log_every: int, samples_per_step: int, speaks: bool) -> None:
        super().__init__(first_step, log_every, samples_per_step, speaks)
        name = f"{os.environ['RANK']}-{os.getpid()}"
        self._file = (Path(os.environ["LOSSES"]) / name).open("w", buffering=1)

    def record(self, loss: Tensor, last: bool) -> None:
        """Take one optimizer step's loss (a scalar)."""
        self._file.write(f"{self.step} {float(loss).hex()}\n")
        super().record(loss, last)


class Lasting(DistributedDataParallel):
    """Keeps its first buckets: the last bit of a sum over four ranks depends on the gradient's place in its bucket.

    Otherwise the first step behind a checkpoint would be summed in another order than in a run that goes straight on.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "find_unused_parameters": True})


if __name__ == "__main__":
    parallel.DistributedDataParallel = Lasting  # type: ignore[attr-defined]
    loop.Progress = Exact  # type: ignore[attr-defined]
    uplink.start = partial(start, last_words_s=float(os.environ["LAST_WORDS_S"]))  # type: ignore[attr-defined]
    sys.exit(main())
