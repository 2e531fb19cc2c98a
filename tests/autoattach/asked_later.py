"""A training that is asked later to watch its model: `python -m tests.autoattach.asked_later FOLDER [by-itself]`.

Each rank's loss is the number of its step. Rank 0 has a process group of its own besides. "by-itself": the ranks do at
different steps what `ddpmon inject` asks for, several times: nothing comes of it before the last (`ROUNDS`).
"""

from __future__ import annotations

import copy
import os
import pickle
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddpmon.autoattach import gate
from ddpmon.autoattach.running import watch_running
from tests.probe.probe_stage import folder, leave

FIRST_ASKED, LATER = 10, 30
STEP_S = 0.01  # so long a step takes at least: a reader that is held up for a second still finds the first ones
ROUNDS = ("switched off", "rank 0 alone", "all")  # DDPMON=0 is set meanwhile, and the model is copied; and so on


class Askings:
    """Has the ranks asked at different steps, once for each of `ROUNDS`."""

    def __init__(self, model: DistributedDataParallel, rank: int) -> None:
        self._model, self._at, self._rank = model, FIRST_ASKED + LATER * rank, rank
        self._rounds = [*ROUNDS]

    def before(self, step: int) -> None:
        """Ask, if it is time; all ranks call this before each step."""
        if step == self._at:
            self._ask(self._rounds[0])
        if len(self._rounds) == 1:
            return
        waits = torch.tensor(float(step <= self._at or bool(self._model._forward_pre_hooks)))
        dist.all_reduce(waits)
        if not waits.item():
            os.environ.pop("DDPMON", None)
            del self._rounds[0]
            self._at = step + FIRST_ASKED + LATER * self._rank

    def _ask(self, how: str) -> None:
        gate.LIMIT_S = 1.0 if how == "rank 0 alone" else 300.0
        if how != "rank 0 alone" or self._rank == 0:
            watch_running()
        if how == "switched off":
            os.environ["DDPMON"] = "0"
            assert b"ddpmon" not in pickle.dumps(self._model)
            copy.deepcopy(self._model)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, step = dist.get_rank(), 0
    model = DistributedDataParallel(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    askings = Askings(model, rank) if "by-itself" in sys.argv else None
    over, own = torch.zeros(1), dist.new_group([0])
    while not over.item():
        time.sleep(STEP_S)
        if askings is not None:
            askings.before(step)
        if rank == 0:
            dist.all_reduce(torch.zeros(1), group=own)
        optimizer.zero_grad()
        (model(torch.ones(2, 4)).sum() * 0 + float(step)).backward()
        optimizer.step()
        over.fill_((folder() / "release").exists())
        dist.broadcast(over, 0)
        step += 1
        if step == FIRST_ASKED:
            (folder() / f"{rank}.pid").write_text(str(os.getpid()))
    leave()


if __name__ == "__main__":
    main()
