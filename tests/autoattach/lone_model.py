"""A training with DataParallel in one process, for a test: `python -m tests.autoattach.lone_model FOLDER`."""

from __future__ import annotations

import time

import torch
from torch import nn

import ddpmon
from tests.probe.probe_stage import STEPS, folder


def main() -> None:
    torch.manual_seed(0)
    model = nn.DataParallel(nn.Linear(8, 5))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = ddpmon.attach(model, name="lone")
    for step in range(STEPS + 1):
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        monitor.log(loss=loss.detach(), samples=4, step=step + 1, total=100)
    while not (folder() / "release").exists():
        time.sleep(0.02)
    monitor.detach()


if __name__ == "__main__":
    main()
