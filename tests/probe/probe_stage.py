"""What the ranks of these tests share: scenes by name, a small model that is slow on request, a note to the test."""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import ddpmon

STEPS = 4  # the test reads these; a scene trains one more, because a step is published when the next one begins
SLOW_S = 0.15
HELD = "held"
WIDTH = 8

Scene = Callable[[], None]
_scenes: dict[str, Scene] = {}


def scene(play: Scene) -> Scene:
    """Make a function one of this script's scenes."""
    _scenes[play.__name__] = play
    return play


def perform() -> None:
    """Play the scenes named on the command line, one after the other, in one process group."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    play_all()


def play_all() -> None:
    """Play the scenes in the process group that there is, and leave it."""
    for name in sys.argv[2:]:
        torch.manual_seed(0)
        _current[0] = name
        _scenes[name]()
    leave()


def leave() -> NoReturn:
    """End when every rank has finished, without the interpreter's last moments: Gloo sometimes aborts in them.

    Seen in one launch of seven without any monitor ("terminate called without an active exception").
    """
    (folder() / f"{dist_rank()}.finished").touch()
    for rank in range(int(os.environ["WORLD_SIZE"])):
        wait_for(f"{rank}.finished")
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(0)


_current = [""]


def folder() -> Path:
    """Where the test and the ranks leave files for each other."""
    return Path(sys.argv[1])


def playing() -> str:
    """The name of the scene."""
    return _current[0]


def note(**facts: Any) -> None:
    """Tell the test what this rank saw."""
    path = folder() / f"{_current[0]}.{dist_rank()}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.with_suffix(".tmp").write_text(json.dumps(known | facts))
    path.with_suffix(".tmp").replace(path)


def dist_rank() -> int:
    return int(os.environ["RANK"])


def wait_for(name: str) -> None:
    """Until the test has left a file of that name, or has gone."""
    test = Path("/proc", os.environ["TEST_PID"])
    while not (folder() / name).exists():
        if not test.exists():
            os._exit(3)
        time.sleep(0.02)


@contextmanager
def watched(model: nn.Module, **options: Any) -> Iterator[ddpmon.Monitor]:
    """Attach under the scene's name; at the end stay attached until the test has read the frames."""
    monitor = ddpmon.attach(model, name=_current[0], **options)
    yield monitor
    wait_for(f"{_current[0]}.release")
    monitor.detach()


def hold(monitor: ddpmon.Monitor) -> None:
    """Stay until the test has read the frames, in a phase that tells it that all has been said."""
    with monitor.phase(HELD):
        wait_for(f"{_current[0]}.release")


class Late(torch.autograd.Function):
    """The identity, whose gradient comes late."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, None]:
        time.sleep(ctx.seconds)
        return grads[0], None


def late(x: Tensor, seconds: float) -> Tensor:
    result: Tensor = Late.apply(x, seconds)  # type: ignore[no-untyped-call]
    return result


class Toy(nn.Module):
    """Two layers; sleeps in forward and, inside autograd, in backward."""

    def __init__(self, forward_s: float = 0.0, backward_s: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.forward_s = forward_s
        self.backward_s = backward_s

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(self.forward_s)
        y: Tensor = self.layers(late(x.requires_grad_(), self.backward_s))
        return y


class SlowSGD(torch.optim.SGD):
    """SGD whose step sleeps."""

    seconds = 0.0

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        time.sleep(self.seconds)
        super().step(closure)


def batch() -> Tensor:
    return torch.ones(2, WIDTH)


def train(
    ddp: nn.Module,
    *,
    forward: Callable[[], Tensor] | None = None,
    after: Callable[[int], None] = lambda _step: None,
    steps: int = STEPS + 1,
) -> None:
    """The plainest loop there is; `forward` makes the loss, `after` follows each step."""
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    for step in range(steps):
        loss = ddp(batch()).pow(2).mean() if forward is None else forward()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        after(step)


def toy(**options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(Toy(), **options)
