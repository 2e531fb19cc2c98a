"""What rank 0 prints while it trains."""

from __future__ import annotations

import time

import torch
from torch import Tensor


class Progress:
    """Collects the losses; their values are fetched from the device once in `log_every` steps, not at each."""

    def __init__(self, first_step: int, log_every: int, samples_per_step: int, speaks: bool) -> None:
        self.step = first_step
        self.log_every = log_every
        self.samples_per_step = samples_per_step
        self.speaks = speaks
        self.losses: list[float] = []
        self.pending: list[Tensor] = []
        self.started = self.lap = time.perf_counter()

    def record(self, loss: Tensor, last: bool) -> None:
        """Take one optimizer step's loss (a scalar); every `log_every` steps and at the last one, print a line."""
        self.pending.append(loss)
        self.step += 1
        if last or len(self.pending) == self.log_every:
            self._finish_lap()

    def _finish_lap(self) -> None:
        losses = torch.stack(self.pending).tolist()
        self.losses += losses
        self.pending.clear()
        now = time.perf_counter()
        pace = (now - self.lap) / len(losses)
        self.lap = now
        loss, rate = sum(losses) / len(losses), self.samples_per_step / pace
        self.say(f"step {self.step}  loss {loss:.3f}  {pace * 1000:.0f} ms/step  {rate:.0f} samples/s")

    def say(self, text: str) -> None:
        """Print a line on rank 0."""
        if self.speaks:
            print(text, flush=True)

    def finish(self) -> None:
        """Print the last line: the loss of the first step and the mean of the last `log_every`."""
        if self.pending:
            self._finish_lap()
        if not self.losses:
            self.say(f"done: step {self.step} was reached before, so there is nothing to do")
            return
        latest = self.losses[-self.log_every :]
        first, last = self.losses[0], sum(latest) / len(latest)
        seconds = time.perf_counter() - self.started
        self.say(f"done: {len(self.losses)} steps, loss {first:.3f} -> {last:.3f}, {seconds:.1f} seconds")
