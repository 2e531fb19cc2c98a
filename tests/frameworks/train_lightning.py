"""A training with Lightning's Trainer: accumulation, validations and checkpoints."""

from __future__ import annotations

import sys
import warnings

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.frameworks.leaving import leave_behind

STEPS, BATCH, PARTS, WIDTH = 12, 4, 2, 3


class Module(lightning.LightningModule):  # type: ignore[misc]
    """One layer, and the losses that it returned."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.losses = nn.Linear(WIDTH, WIDTH), list[float]()

    def training_step(self, batch: list[Tensor], _index: int) -> Tensor:
        loss: Tensor = (self.layer(batch[0]) - batch[0]).pow(2).mean()
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: list[Tensor], _index: int) -> None:
        self.layer(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.05)


def main() -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    module, rows = Module(), TensorDataset(torch.randn(2 * STEPS * BATCH * PARTS, WIDTH))
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=STEPS, accumulate_grad_batches=PARTS,
        val_check_interval=8, default_root_dir=sys.argv[1], logger=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, DataLoader(rows, BATCH), DataLoader(rows, 2 * BATCH))
    leave_behind(module, module.losses)


if __name__ == "__main__":
    main()
