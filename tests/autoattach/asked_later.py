"""A training that is asked later to watch its model: `python -m tests.autoattach.asked_later FOLDER [by-itself]`.

Each rank's loss is the number of its step. "by-itself": the ranks do at different steps what `ddpmon inject` asks for.
The first time nothing comes of it, because DDPMON=0 is set meanwhile, and the model is copied and pickled; so they are
asked again.
"""

from __future__ import annotations

import copy
import os
import pickle
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddpmon.autoattach.living import watch_living
from tests.probe.probe_stage import folder, leave

FIRST_ASKED, LATER = 10, 30


class Askings:
    """Has a rank asked twice, at other steps than the others."""

    def __init__(self, model: DistributedDataParallel, rank: int) -> None:
        self._model, self._at, self._rank = model, FIRST_ASKED + LATER * rank, rank
        self._is_again = False

    def before(self, step: int) -> None:
        """Ask, if it is time; all ranks call this before each step."""
        if step == self._at:
            watch_living()
            if not self._is_again:
                os.environ["DDPMON"] = "0"
                assert b"ddpmon" not in pickle.dumps(self._model)
                copy.deepcopy(self._model)
        if self._is_again:
            return
        waits = torch.tensor(float(step <= self._at or bool(self._model._forward_pre_hooks)))
        dist.all_reduce(waits)
        if not waits.item():
            del os.environ["DDPMON"]
            self._is_again, self._at = True, step + FIRST_ASKED + LATER * self._rank


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, step = dist.get_rank(), 0
    model = DistributedDataParallel(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    askings = Askings(model, rank) if "by-itself" in sys.argv else None
    over = torch.zeros(1)
    while not over.item():
        if askings is not None:
            askings.before(step)
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
