"""The forms that a training loop and a model take; forward and backward each hold a known delay."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import ddpmon
from tests.probe.probe_stage import STEPS, WIDTH, Toy, batch, late, note, perform, scene, train, watched

DELAY_S = 0.03


def slow_toy() -> Toy:
    return Toy(DELAY_S, DELAY_S)


@scene
def accumulating() -> None:
    """Three micro-batches a step, their losses step + 0, 1 and 5."""
    ddp = DistributedDataParallel(slow_toy())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    with watched(ddp) as monitor:
        for step in range(STEPS + 1):
            for extra in (0, 1, 5):
                with nullcontext() if extra == 5 else ddp.no_sync():
                    ddp(batch()).sum().backward()
                monitor.log(loss=torch.tensor(float(step + extra)), samples=2)
            optimizer.step()


class Wrapped(nn.Module):
    """Gives its output in another form."""

    def __init__(self, form: Callable[[Tensor], Any], inner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner or slow_toy()
        self.form = form

    def forward(self, x: Tensor) -> Any:
        return self.form(self.inner(x))


@dataclass
class Output:
    logits: Tensor
    name: str = "out"


def train_wrapped(form: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]) -> None:
    ddp = DistributedDataParallel(Wrapped(form))
    with watched(ddp):
        train(ddp, forward=lambda: unpack(ddp(batch())).sum())


@scene
def output_in_a_dict() -> None:
    train_wrapped(lambda y: {"nested": {"logits": y}, "none": None}, lambda out: out["nested"]["logits"])


@scene
def output_in_a_tuple() -> None:
    train_wrapped(lambda y: (y.detach(), [y, y + 1], 3), lambda out: out[1][0] + out[1][1])


@scene
def output_in_a_dataclass() -> None:
    train_wrapped(Output, lambda out: out.logits)


@scene
def static_graph() -> None:
    ddp = DistributedDataParallel(slow_toy(), static_graph=True)
    with watched(ddp):
        train(ddp)


class Partly(nn.Module):
    """Uses one of its branches, not always the same."""

    def __init__(self) -> None:
        super().__init__()
        self.common = slow_toy()
        self.branches = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        y: Tensor = self.branches[self.calls % 2](self.common(x))
        return y


@scene
def unused_parameters() -> None:
    ddp = DistributedDataParallel(Partly(), find_unused_parameters=True)
    with watched(ddp):
        train(ddp)


class Checkpointed(nn.Module):
    """Forgets what its middle computed and computes it again, slowly, in backward."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.middle = nn.Linear(WIDTH, WIDTH)
        self.reentrant = reentrant

    def recompute(self, x: Tensor) -> Tensor:
        time.sleep(DELAY_S)
        y: Tensor = self.middle(x)
        return y

    def forward(self, x: Tensor) -> Tensor:
        y = checkpoint(self.recompute, self.first(x), use_reentrant=self.reentrant)
        z: Tensor = self.last(y)
        return z


@scene
def checkpointing() -> None:
    ddp = DistributedDataParallel(Checkpointed(reentrant=False))
    with watched(ddp):
        train(ddp)


@scene
def reentrant_checkpointing() -> None:
    ddp = DistributedDataParallel(Checkpointed(reentrant=True))
    with watched(ddp):
        train(ddp)


class Forgetful(nn.Module):
    """All of its parameters are in a re-entrant checkpoint: the outer backward accumulates none."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = slow_toy()

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.inner, x.requires_grad_(), use_reentrant=True)


@scene
def reentrant_checkpointing_of_all() -> None:
    ddp = DistributedDataParallel(Forgetful())
    with watched(ddp):
        train(ddp)


@scene
def gradient_penalty() -> None:
    """The gradients asked for go back through the model as well, before the backward does."""
    ddp = DistributedDataParallel(slow_toy())

    def forward() -> Tensor:
        x = batch().requires_grad_()
        y = ddp(x)
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        loss: Tensor = y.sum() + gradient.square().sum()
        return loss

    with watched(ddp):
        train(ddp, forward=forward)


@scene
def adversarial() -> None:
    """Forwards whose only gradient is the input's, with one whole backward behind them."""
    ddp = DistributedDataParallel(slow_toy())

    def forward() -> Tensor:
        x = batch()
        for _ in range(2):
            x = x.detach().requires_grad_()
            x = x + torch.autograd.grad(ddp(x).sum(), x)[0].sign()
        loss: Tensor = ddp(x.detach()).sum()
        return loss

    with watched(ddp):
        train(ddp, forward=forward)


@scene
def weighed_losses() -> None:
    """By their gradients in the model's last parameter and in its output, as adaptive weights do."""
    ddp = DistributedDataParallel(slow_toy())
    last = list(ddp.parameters())[-1]

    def forward() -> Tensor:
        y = ddp(batch())
        (weight,) = torch.autograd.grad(y.sum(), last, retain_graph=True)
        (slope,) = torch.autograd.grad(y.square().sum(), y, retain_graph=True)
        loss: Tensor = y.sum() * weight.norm() * slope.norm()
        return loss

    with watched(ddp):
        train(ddp, forward=forward)


class Renamed(DistributedDataParallel):
    """A subclass of the user's with a forward of its own, and hooks of the user's around it."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs) * 1.0  # type: ignore[no-untyped-call]


@scene
def forward_of_a_subclass() -> None:
    ddp = Renamed(slow_toy())
    ddp.register_forward_pre_hook(lambda _module, args: (args[0] * 2,))
    ddp.register_forward_hook(lambda _module, _args, output: output + 1)
    with watched(ddp):
        train(ddp)


@scene
def forward_of_an_instance() -> None:
    """As libraries replace it that cast a model's outputs."""
    ddp = DistributedDataParallel(slow_toy())
    original: Any = ddp.forward
    ddp.forward = lambda *args: original(*args).float()  # type: ignore[method-assign]
    with watched(ddp):
        train(ddp)


@scene
def another_model_beside() -> None:
    """Its forwards go through the same method."""
    ddp, other = DistributedDataParallel(slow_toy()), DistributedDataParallel(Toy(2 * DELAY_S))

    def forward() -> Tensor:
        other(batch())
        loss: Tensor = ddp(batch()).sum()
        return loss

    with watched(ddp):
        train(ddp, forward=forward)


@scene
def wrapped_anew() -> None:
    """For each step, as some do for each epoch; attached each time, and never detached in between."""
    model = slow_toy()
    found, wrappers = [], []
    with watched(DistributedDataParallel(model)) as monitor:
        for _ in range(STEPS + 1):
            ddp = DistributedDataParallel(model)
            wrappers.append(weakref.ref(ddp))
            found.append(ddpmon.attach(ddp) is monitor)
            train(ddp, steps=1)
        gc.collect()
        note(same=found, held=[wrapper() is not None for wrapper in wrappers])


def logging(when: str) -> None:
    """Each step's loss is its number."""
    ddp = DistributedDataParallel(slow_toy())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    with watched(ddp) as monitor:
        for step in range(STEPS + 1):
            loss = ddp(batch()).sum()
            told = step + 0 * loss.detach()
            if when == "before backward":
                monitor.log(loss=told, samples=step + 10)
            loss.backward()
            if when == "after backward":
                monitor.log(loss=told, samples=step + 10)
            optimizer.step()
            if when == "after the optimizer":
                monitor.log(loss=told, samples=step + 10)


@scene
def logged_before_backward() -> None:
    logging("before backward")


@scene
def logged_after_backward() -> None:
    logging("after backward")


@scene
def logged_after_the_optimizer() -> None:
    logging("after the optimizer")


@scene
def two_forwards_one_backward() -> None:
    ddp = DistributedDataParallel(slow_toy())
    with watched(ddp):
        train(ddp, forward=lambda: (ddp(batch()) + ddp(batch())).sum())


@scene
def evaluating_without_gradients() -> None:
    ddp = DistributedDataParallel(slow_toy())

    def evaluate(_step: int) -> None:
        with torch.no_grad():
            ddp(batch())

    with watched(ddp):
        train(ddp, after=evaluate)


class Plain(nn.Module):
    """What a compiler can take whole; the delay in backward stands outside it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x).tanh()
        return y


class Around(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(DELAY_S)
        y: Tensor = self.inner(late(x.requires_grad_(), DELAY_S))
        return y


@scene
def compiled_submodule() -> None:
    ddp = DistributedDataParallel(Around(torch.compile(Plain(), backend="aot_eager")))
    with watched(ddp):
        train(ddp)


def slow_loss(model: Any) -> Tensor:
    """The delay is in the loss, whose backward runs before the model's: it is not the model's own."""
    loss: Tensor = late(model(batch()), DELAY_S).sum()
    return loss


@scene
def ddp_of_compiled() -> None:
    compiled: Any = torch.compile(Plain(), backend="aot_eager")
    ddp = DistributedDataParallel(compiled)
    with watched(ddp):
        train(ddp, forward=lambda: slow_loss(ddp))


@scene
def compiled_ddp() -> None:
    compiled: Any = torch.compile(DistributedDataParallel(Plain()), backend="aot_eager")
    with watched(compiled):
        train(compiled, forward=lambda: slow_loss(compiled))


if __name__ == "__main__":
    perform()
