"""A training with DeepSpeed's engine, accumulation and a slow rank: FOLDER and the stage of ZeRO."""

from __future__ import annotations

import sys
import time

import deepspeed
import torch
from torch import nn

from tests.frameworks.leaving import leave_behind

STEPS, BATCH, PARTS, WIDTH = 12, 4, 2, 16


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    deepspeed.init_distributed("gloo")
    engine, _, _, _ = deepspeed.initialize(
        model=net,
        model_parameters=net.parameters(),
        config={
            "train_micro_batch_size_per_gpu": BATCH,
            "gradient_accumulation_steps": PARTS,
            "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
            "zero_optimization": {"stage": int(sys.argv[2])},
        },
    )
    rank, losses = torch.distributed.get_rank(), []
    data = torch.Generator().manual_seed(rank)
    for part in range(PARTS * (STEPS + 1)):
        if part == PARTS * STEPS // 2:
            engine.save_checkpoint(sys.argv[1])
        x = torch.randn(BATCH, WIDTH, generator=data)
        loss = (engine(x) - x).pow(2).mean()
        if rank == 1:
            time.sleep(0.05)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    leave_behind(net, losses)


if __name__ == "__main__":
    main()
