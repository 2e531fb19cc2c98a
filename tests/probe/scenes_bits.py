"""Training with bucket detail against training without, bit for bit, in every way that DDP reduces.

All settings are played in one launch of six ranks: the first two of them, the first three, and so on are groups.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import ddpmon
from tests.probe.probe_stage import note, perform, scene, watched

WIDTH = 16
BITS_STEPS = 5
WORLDS = range(2, 7)
Prepare = Callable[[DistributedDataParallel, Any], None]


class Net(nn.Module):
    """A few layers in several buckets; the first may have sparse gradients, and there may be one that nothing uses."""

    def __init__(self, *, sparse: bool = False, unused: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(8, WIDTH, sparse=sparse)
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.unused = nn.Linear(WIDTH, WIDTH) if unused else None

    def forward(self, words: Tensor) -> Tensor:
        y: Tensor = self.layers(self.words(words))
        return y


def with_fp16(ddp: DistributedDataParallel, group: Any) -> None:
    ddp.register_comm_hook(group, default_hooks.fp16_compress_hook)


def with_power_sgd(ddp: DistributedDataParallel, group: Any) -> None:
    state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=1, start_powerSGD_iter=3)
    ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def with_builtin(ddp: DistributedDataParallel, _group: Any) -> None:
    ddp._register_builtin_comm_hook(torch._C._distributed_c10d.BuiltinCommHookType.FP16_COMPRESS)


FIND = {"find_unused_parameters": True}
# name -> DDP's options, the hook, what the net has and how it is trained
SETTINGS: dict[str, tuple[dict[str, Any], Prepare | None, dict[str, Any]]] = {
    "plain": ({}, None, {}),
    "kept gradients": ({}, None, {"set_to_none": False}),
    "views": ({"gradient_as_bucket_view": True}, None, {}),
    "views of kept gradients": ({"gradient_as_bucket_view": True}, None, {"set_to_none": False}),
    "batched copies": ({"batched_grad_copy": True}, None, {}),
    "batched copies of kept gradients": ({"batched_grad_copy": True}, None, {"set_to_none": False}),
    "batched views": (
        {"batched_grad_copy": True, "gradient_as_bucket_view": True}, None, {"set_to_none": False},
    ),
    "static graph": ({"static_graph": True}, None, {}),
    "static views": ({"static_graph": True, "gradient_as_bucket_view": True}, None, {"set_to_none": False}),
    "unused are found": (FIND, None, {"unused": True}),
    "unused are skipped": (FIND | {"skip_all_reduce_unused_params": True}, None, {"unused": True}),
    "accumulated": ({}, None, {"accumulate": 2}),
    "half precision": ({}, None, {"dtype": torch.bfloat16}),
    "sparse": ({}, None, {"sparse": True}),
    "fp16 hook": ({}, with_fp16, {}),
    "fp16 hook and views": ({"gradient_as_bucket_view": True}, with_fp16, {"set_to_none": False}),
    # One bucket: with several its nested reductions take all of Gloo's threads and wait for each other.
    "PowerSGD hook": ({"bucket_cap_mb": 25}, with_power_sgd, {}),
    "a hook in C++": ({}, with_builtin, {}),
}  # fmt: skip


def train(ddp: DistributedDataParallel, rank: int, *, set_to_none: bool = True, accumulate: int = 1) -> list[Any]:
    """All losses, and the parameters at the end, to the last bit."""
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.3)
    torch.manual_seed(100 + rank)
    losses = []
    for _ in range(BITS_STEPS):
        for micro_batch in range(accumulate):
            with ExitStack() as stack:
                if micro_batch < accumulate - 1:
                    stack.enter_context(ddp.no_sync())
                loss = ddp(torch.randint(8, (4,))).float().pow(2).mean()
                loss.backward()
                losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)
    return [losses, [parameter.detach().float().tolist() for parameter in ddp.parameters()]]


def play(setting: str, group: Any, *, buckets: bool) -> tuple[list[Any], bool]:
    """What training comes to, and whether its buckets were timed."""
    options, prepare, loop = SETTINGS[setting]
    loop = dict(loop)
    torch.manual_seed(0)
    net = Net(sparse=loop.pop("sparse", False), unused=loop.pop("unused", False)).to(loop.pop("dtype", torch.float32))
    ddp = DistributedDataParallel(net, process_group=group, **{"bucket_cap_mb": 0.0005, **options})
    if prepare is not None:
        prepare(ddp, group)
    hooks = len(ddp._comm_hooks)
    with ddpmon.attach(ddp, name="bits", buckets=True) if buckets else ExitStack():
        timed = vars(ddp).get("register_comm_hook") is not None
        found = train(ddp, dist.get_rank(group), **loop)
    assert timed or len(ddp._comm_hooks) == hooks, "what could not be hooked is as it was"
    return found, timed


def exists(setting: str) -> bool:
    """Whether the installed torch knows the setting."""
    return SETTINGS[setting][0].keys() <= inspect.signature(DistributedDataParallel).parameters.keys()


@contextmanager
def groups() -> Iterator[dict[int, Any]]:
    """World size -> the group of that many ranks."""
    yield {world: dist.new_group(list(range(world))) for world in WORLDS}


@scene
def bit_for_bit() -> None:
    same: dict[str, bool] = {}
    detail: dict[str, bool] = {}
    with groups() as all_groups:
        for world, group in all_groups.items():
            for setting in filter(exists, SETTINGS) if dist.get_rank() < world else ():
                without, _ = play(setting, group, buckets=False)
                found, timed = play(setting, group, buckets=True)
                same[f"{setting}, {world} ranks"] = found == without
                detail[f"{setting}, {world} ranks"] = timed
            dist.barrier()
    note(same=same, detail=detail)


@scene
def refused() -> None:
    ddp = DistributedDataParallel(nn.Linear(WIDTH, WIDTH), gradient_as_bucket_view=True)
    with watched(ddp, buckets=True):
        for _ in range(BITS_STEPS):
            ddp(torch.ones(1, WIDTH)).sum().backward()


if __name__ == "__main__":
    perform()
