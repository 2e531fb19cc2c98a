"""The trainings of row 13, which know nothing of ddpmon: each leaves its losses and a digest of its parameters.

    torchrun --standalone --nproc-per-node 1 bench/gpu/any_run_job.py KIND FOLDER [--rehearse]

It writes `FOLDER/result.json` after 40 steps, and ends once `FOLDER/release` exists.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

STEPS = 40
_WIDTH, _LAYERS, _BATCH = 256, 4, 64
_POLL_S = 0.05

Trained = tuple[nn.Module, Sequence[Any]]  # the model, and the loss of each step or micro-batch


def perceptron() -> nn.Module:
    """The model of all plain loops."""
    return nn.Sequential(*(layer for _ in range(_LAYERS) for layer in (nn.Linear(_WIDTH, _WIDTH), nn.GELU())))


def batches(at: torch.device) -> list[Tensor]:
    """A batch for each step."""
    return list(torch.randn(STEPS, _BATCH, _WIDTH, device=at))


def loop(model: Any, optimizer: torch.optim.Optimizer, at: torch.device) -> list[Tensor]:
    """A plain loop; returns the losses."""
    losses = []
    for x in batches(at):
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses


def ddp_of(model: nn.Module, at: torch.device) -> DistributedDataParallel:
    """The model in DDP, on the device."""
    return DistributedDataParallel(model.to(at), device_ids=None if at.type == "cpu" else [0])


def around(at: torch.device) -> Trained:
    """`torch.compile` around DDP."""
    ddp = ddp_of(perceptron(), at)
    return ddp, loop(torch.compile(ddp), torch.optim.AdamW(ddp.parameters(), 1e-3), at)


def inside(at: torch.device) -> Trained:
    """`torch.compile` inside DDP."""
    plain = perceptron().to(at)
    ddp = ddp_of(torch.compile(plain), at)  # type: ignore[arg-type]
    return plain, loop(ddp, torch.optim.AdamW(ddp.parameters(), 1e-3), at)


def scaler(at: torch.device) -> Trained:
    """Half precision with a `GradScaler`, and two micro-batches a step."""
    ddp = ddp_of(perceptron(), at)
    optimizer, scaling = torch.optim.AdamW(ddp.parameters(), 1e-3), torch.amp.GradScaler(at.type)
    losses: list[Tensor] = []
    for x in batches(at):
        for part in x.chunk(2):
            ddp.require_backward_grad_sync = len(losses) % 2 == 1
            with torch.autocast(at.type, torch.bfloat16 if at.type == "cpu" else torch.float16):
                loss = (ddp(part) - part).square().mean() / 2
            scaling.scale(loss).backward()
            losses.append(loss.detach())
        scaling.step(optimizer)
        scaling.update()
        optimizer.zero_grad()
    return ddp, losses


def fsdp2(at: torch.device) -> Trained:
    """`fully_shard` of each layer and of the whole."""
    from torch.distributed.fsdp import fully_shard

    model: Any = perceptron().to(at)
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    return model, loop(model, torch.optim.AdamW(model.parameters(), 1e-3), at)


def lightning(at: torch.device) -> Trained:
    """Lightning's Trainer."""
    import lightning.pytorch as framework

    class Module(framework.LightningModule):  # type: ignore[misc]
        """The perceptron, and its losses."""

        def __init__(self) -> None:
            super().__init__()
            self.inner, self.losses = perceptron(), list[Tensor]()

        def training_step(self, batch: list[Tensor], _index: int) -> Tensor:
            """One step of 64 samples."""
            loss: Tensor = (self.inner(batch[0]) - batch[0]).square().mean()
            self.losses.append(loss.detach())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            """AdamW, as everywhere."""
            return torch.optim.AdamW(self.parameters(), 1e-3)

    module = Module()
    run = framework.Trainer(
        accelerator="cpu" if at.type == "cpu" else "gpu", devices=1, strategy="ddp", max_steps=STEPS, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    run.fit(module, DataLoader(TensorDataset(torch.randn(STEPS * _BATCH, _WIDTH)), _BATCH))
    return module, module.losses


KINDS: dict[str, Callable[[torch.device], Trained]] = {
    "compile around DDP": around,
    "compile inside DDP": inside,
    "GradScaler": scaler,
    "FSDP2": fsdp2,
    "Lightning": lightning,
}


def write_result(folder: Path, model: nn.Module, losses: Sequence[Any]) -> None:
    """Write the losses and a digest of the parameters, and wait to be released."""
    whole = [getattr(value, "full_tensor", value.detach)() for value in model.state_dict().values()]
    data = b"".join(value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() for value in whole)
    result = {"losses": [float(loss) for loss in losses], "parameters": hashlib.sha256(data).hexdigest()}
    (folder / "new").write_text(json.dumps(result))
    (folder / "new").rename(folder / "result.json")
    while not (folder / "release").exists() and os.getppid() != 1:
        time.sleep(_POLL_S)


def main() -> None:
    """Train as the command line says."""
    kind, rehearse = sys.argv[1], "--rehearse" in sys.argv
    at = torch.device("cpu") if rehearse else torch.device("cuda", 0)
    torch.manual_seed(0)
    if kind != "Lightning":  # which makes its process group itself
        dist.init_process_group("gloo" if rehearse else "nccl", device_id=None if rehearse else at)
    write_result(Path(sys.argv[2]), *KINDS[kind](at))


if __name__ == "__main__":
    main()
