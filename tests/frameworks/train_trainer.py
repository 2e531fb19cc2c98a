"""A training with Hugging Face's Trainer: a tiny GPT-2, accumulation, evaluations and checkpoints."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from tests.frameworks.leaving import leave_behind

STEPS, BATCH, PARTS, LENGTH, EVERY = 12, 2, 2, 8, 5


class Rows(Dataset[dict[str, Tensor]]):
    """Token ids, the same in every run."""

    def __len__(self) -> int:
        return 4 * BATCH * PARTS * STEPS

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        ids = torch.randint(50, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}


def main() -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=LENGTH, n_embd=8, n_layer=1, n_head=2))
    arguments = TrainingArguments(
        output_dir=str(Path(sys.argv[1], "out")), max_steps=STEPS, per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=PARTS, eval_strategy="steps", eval_steps=EVERY, save_steps=EVERY, logging_steps=1,
        report_to=[], use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    few = torch.utils.data.Subset(Rows(), range(4))
    trainer = Trainer(model=model, args=arguments, train_dataset=Rows(), eval_dataset=few)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    leave_behind(model, losses)


if __name__ == "__main__":
    main()
