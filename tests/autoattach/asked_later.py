"""A training that is asked later to watch its model: `python -m tests.autoattach.asked_later FOLDER [by-itself]`.

Each rank's loss is the number of its step. "by-itself": the ranks do at different steps what `ddpmon inject` asks for.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddpmon.autoattach.living import watch_living
from tests.probe.probe_stage import folder, leave

FIRST_ASKED, LATER = 10, 30


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, step = dist.get_rank(), 0
    model = DistributedDataParallel(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    over = torch.zeros(1)
    while not over.item():
        if "by-itself" in sys.argv and step == FIRST_ASKED + LATER * rank:
            watch_living()
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
