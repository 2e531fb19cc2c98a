"""A training with Horovod: its optimizer, a metric that is averaged, and a slow rank on request."""

from __future__ import annotations

import os
import time

import horovod.torch as hvd
import torch
from torch import nn

from tests.frameworks.leaving import leave_behind

STEPS, BATCH = 13, 4


def main() -> None:
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.environ["RANK"] = str(hvd.rank())
    model, losses = nn.Linear(8, 5), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    data = torch.Generator().manual_seed(hvd.rank())
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randn(BATCH, 8, generator=data)).pow(2).mean()
        loss.backward()
        if hvd.rank() == 1:
            time.sleep(0.1)
        hvd.allreduce(loss.detach(), name="metric")
        optimizer.step()
        losses.append(loss.item())
    leave_behind(model, losses)


if __name__ == "__main__":
    main()
