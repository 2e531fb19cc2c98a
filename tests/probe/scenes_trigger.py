"""Jobs that are regular for a while, so that one lasting hook notices their backwards, and then no longer are."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from tests.probe.probe_stage import WIDTH, Toy, batch, late, note, perform, scene, train, watched

DELAY_S = 0.02
CHANGE = 14  # the step from which a job is no longer what it was
STEPS = 22
FROZEN = range(8, 16)  # when the lasting hook would take over


def lasting(ddp: nn.Module) -> int:
    """How many hooks stay on the model's parameters from step to step."""
    return sum(len(getattr(p, "_post_accumulate_grad_hooks", None) or ()) for p in ddp.parameters())


def change(ddp: nn.Module, forward: Callable[[bool], Tensor]) -> None:
    """Train; `forward` is told whether the change has come."""
    found: list[int] = []
    with watched(ddp):
        train(
            ddp,
            forward=lambda: forward(len(found) >= CHANGE),
            after=lambda _step: found.append(lasting(ddp)),
            steps=STEPS + 1,
        )
    note(lasting=found, left=lasting(ddp))


def slow_toy() -> DistributedDataParallel:
    return DistributedDataParallel(Toy(0.0, DELAY_S))


@scene
def nothing_changes() -> None:
    ddp = slow_toy()
    change(ddp, lambda _changed: ddp(batch()).sum())


@scene
def accumulating() -> None:
    ddp = slow_toy()
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    with watched(ddp) as monitor:
        for step in range(STEPS + 1):
            for last in (False, True):
                with nullcontext() if last else ddp.no_sync():
                    ddp(batch()).sum().backward()
            monitor.log(loss=step)
            optimizer.step()
        note(lasting=[lasting(ddp)])


@scene
def a_second_forward() -> None:
    ddp = slow_toy()
    change(ddp, lambda changed: (ddp(batch()) + ddp(batch()) if changed else ddp(batch())).sum())


@scene
def a_forward_for_nothing() -> None:
    ddp = slow_toy()

    def forward(changed: bool) -> Tensor:
        if changed:
            ddp(batch())
        loss: Tensor = ddp(batch()).sum()
        return loss

    change(ddp, forward)


@scene
def frozen_in_between() -> None:
    """As a discriminator is while its generator learns: the last parameter takes no hook then."""
    ddp, other = slow_toy(), nn.Linear(WIDTH, WIDTH)
    found: list[int] = []
    with watched(ddp) as monitor:
        for step in range(STEPS + 1):
            ddp.requires_grad_(step not in FROZEN)
            ddp(other(batch())).sum().backward()
            found.append(lasting(ddp))
        note(enabled=monitor.enabled)
    note(lasting=found)


@scene
def another_models_backward() -> None:
    ddp, other = slow_toy(), nn.Linear(WIDTH, WIDTH)

    def forward(changed: bool) -> Tensor:
        loss: Tensor = ddp(batch()).sum()
        if changed:
            other(batch()).sum().backward()
        return loss

    change(ddp, forward)


@scene
def gradients_by_hand() -> None:
    ddp = slow_toy()

    def forward(changed: bool) -> Tensor:
        x = batch().requires_grad_()
        loss: Tensor = ddp(x).sum()
        if changed:
            torch.autograd.grad(x.square().sum(), x)
        return loss

    change(ddp, forward)


class Checkpointing(nn.Module):
    """Its last parameters are computed again in a backward within the backward, behind which another delay comes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.forgets = False

    def forward(self, x: Tensor) -> Any:
        y = late(self.first(x), DELAY_S)
        return checkpoint(self.middle, y, use_reentrant=True) if self.forgets else self.middle(y)


@scene
def a_backward_within() -> None:
    model = Checkpointing()
    ddp = DistributedDataParallel(model)

    def forward(changed: bool) -> Tensor:
        model.forgets = changed
        loss: Tensor = ddp(batch()).sum()
        return loss

    change(ddp, forward)


@scene
def never_sure() -> None:
    """Where a parameter may go without a gradient nothing lasting is hung on one."""
    found = {}
    options: list[dict[str, Any]] = [{"find_unused_parameters": True}, {"static_graph": True}]
    for option in options:
        ddp = DistributedDataParallel(Toy(), **option)
        with watched(ddp):
            train(ddp, steps=STEPS + 1)
            found[str(option)] = lasting(ddp)
    compiled: Any = torch.compile(DistributedDataParallel(nn.Linear(WIDTH, WIDTH)), backend="aot_eager")
    with watched(compiled):
        train(compiled, steps=STEPS + 1)
        found["compiled"] = lasting(compiled)
    note(found=found)


if __name__ == "__main__":
    perform()
