"""Training, from the model to the last step."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

import ddpmon

from . import checkpoint, compare
from .config import Config, ConfigError
from .data import Batch, Stream, read_corpus, split
from .faults import Faults
from .launch import Place
from .model import GPT
from .parallel import Spread
from .progress import Progress

EVAL_BATCHES = 8


def train(config: Config, place: Place) -> None:
    """Train this rank's replica for `config.steps` steps, or for what a checkpoint leaves of them."""
    trainer = Trainer(config, place)
    folders = {"checkpoints": config.checkpoint, "data": config.text}
    with ddpmon.attach(
        trainer.ddp,
        name=config.name,
        optimizer=trainer.optimizer,
        buckets=config.buckets or None,
        folders={use: folder for use, folder in folders.items() if folder is not None},
    ) as trainer.monitor:
        trainer.run()
    if config.dump:
        compare.write_dump(config.dump, trainer.first_step, trainer.progress.losses, trainer.model)


class Trainer:
    """One rank's model, optimizer and data; `group` has the ranks that train together, None for all."""

    monitor: ddpmon.Monitor

    def __init__(self, config: Config, place: Place, group: dist.ProcessGroup | None = None) -> None:
        self.config, self.place, self.device = config, place, place.device
        torch.manual_seed(config.seed)
        self.model = GPT(config).to(self.device)
        self.spread = Spread(config, place, group)
        self.spread.shard(self.model)
        self.optimizer = self.spread.optimizer(self.model)
        half = torch.float16 if self.device.type == "cuda" and not torch.cuda.is_bf16_supported() else torch.bfloat16
        self.autocast = torch.autocast(self.device.type, dtype=half, enabled=config.amp)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.amp and half is torch.float16)

        self.first_step = self.restore()
        samples = config.batch * config.accumulate * place.world_size
        self.progress = Progress(self.first_step, config.log_every, samples, speaks=place.rank == 0)
        if self.first_step:
            self.progress.say(f"resumed from {config.checkpoint} at step {self.first_step}")

        self.faults = Faults(config.fault, place.rank, self.device)
        self.faults.plant(self.model.middle)
        if config.compile:
            self.model.compile()
        self.ddp = self.spread.wrap(self.model)
        text, held_out = split(read_corpus(config.text))
        self.stream = Stream(config, text, place.rank, place.world_size)
        self.held_out = Stream(config, held_out, place.rank, place.world_size) if config.eval_every else None

    def run(self) -> None:
        """Train step by step, evaluating and saving on the way."""
        config = self.config
        batches = self.stream.read(self.first_step, self.faults.input_delay_ms, self.faults.end_step)
        for step in range(self.first_step, config.steps):
            last = step + 1 == config.steps
            loss = self.train_step(step, batches)
            if loss is None:
                break
            self.progress.record(loss, last)
            if self.held_out and (step + 1) % config.eval_every == 0:
                with self.monitor.phase("eval"):
                    self.progress.say(f"step {step + 1}  held-out loss {self.evaluate(self.held_out):.3f}")
            if config.checkpoint and (last or (step + 1) % config.checkpoint_every == 0):
                with self.monitor.phase("checkpoint"):
                    self.save(step + 1)
        self.progress.finish()

    def train_step(self, step: int, batches: Iterator[Batch]) -> Tensor | None:
        """Make one optimizer step from `accumulate` micro-batches; return their mean loss (a scalar), if any came."""
        # Each step's random numbers depend on nothing before it, so a resumed run draws the same ones.
        torch.manual_seed((self.config.seed << 32) + step * self.place.world_size + self.place.rank)
        self.faults.arm(step)
        count = self.config.accumulate
        losses = [self.micro_batch(batch, count - 1 - i) for i, batch in enumerate(islice(batches, count))]
        if not losses:
            return None
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.faults.strike("host")
        self.faults.meet(step)
        return torch.stack(losses).mean()

    def micro_batch(self, batch: Batch, left: int) -> Tensor:
        """Add the gradient of one micro-batch, `left` of which are to come; return its loss, detached."""
        x, y = (part.to(self.device, non_blocking=True) for part in batch)
        with self.spread.holding_back(self.ddp, left):
            with self.autocast:
                loss = self.faults.spoil(cross_entropy(self.ddp(x), y))
            torch.autograd.backward(self.scaler.scale(loss / self.config.accumulate))
        self.monitor.log(loss=loss.detach(), samples=len(x))
        return loss.detach()

    @torch.no_grad()
    def evaluate(self, held_out: Stream) -> float:
        """Return the mean loss over the first held-out batches of all ranks."""
        self.model.eval()
        total = torch.zeros(2, device=self.device)
        for x, y in islice(held_out.loader, EVAL_BATCHES):
            with self.autocast:
                loss = cross_entropy(self.model(x.to(self.device)), y.to(self.device))
            total += torch.stack([loss, torch.ones_like(loss)])
        self.model.train()
        if dist.is_initialized():
            dist.barrier()
            dist.all_reduce(total)
        return (total[0] / total[1]).item()

    def save(self, step: int) -> None:
        """Write the checkpoint on rank 0."""
        if self.place.rank == 0 and self.config.checkpoint:
            state = {"step": step, "shape": self.shape, "model": self.model.state_dict()}
            state |= {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}
            checkpoint.save(self.config.checkpoint, state)

    def restore(self) -> int:
        """Load the checkpoint, if there is one, and return the step to go on with."""
        if self.config.checkpoint is None:
            return 0
        checkpoint.prepare(self.config.checkpoint)
        state = checkpoint.load(self.config.checkpoint)
        if state is None:
            return 0
        if state["shape"] != self.shape:
            raise ConfigError(
                f"{self.config.checkpoint} holds a model of another size, {state['shape']}: use its options"
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        return int(state["step"])

    @property
    def shape(self) -> dict[str, int]:
        """The options that decide which parameters the model has."""
        return {key: getattr(self.config, key) for key in ("layers", "heads", "width", "context")}


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Return the mean loss of logits [batch, context, 256] for the bytes y [batch, context]."""
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())
