"""A loop with Accelerate that accumulates gradients."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.frameworks.leaving import leave_behind

STEPS, BATCH, PARTS, WIDTH = 12, 4, 2, 3


def main() -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=PARTS)
    torch.manual_seed(0)
    rows = torch.randn(2 * STEPS * BATCH * PARTS, WIDTH)
    plain = nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(plain.parameters(), 0.05)
    model, optimizer, loader = accelerator.prepare(plain, optimizer, DataLoader(TensorDataset(rows), BATCH))
    losses = []
    for (x,) in loader:
        with accelerator.accumulate(model):
            loss = (model(x) - x).pow(2).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    accelerator.save_state(str(Path(sys.argv[1], "state")))
    (model(rows[:BATCH]) - rows[:BATCH]).pow(2).mean().backward()
    leave_behind(plain, losses)


if __name__ == "__main__":
    main()
