"""The trainer itself, several times in one process group: without the monitor, with it, and with bucket detail."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

from tests.probe.probe_stage import folder, perform, scene
from trainer.config import parse_args
from trainer.launch import Place
from trainer.loop import train

TINY = ("--layers=1", "--heads=2", "--width=16", "--context=16", "--batch=2", "--bucket-cap-mb=0.001", "--steps=6")
LOOPS = {"plain": (), "accumulate": ("--accumulate=3",), "hook": ("--comm-hook=fp16", "--accumulate=2")}
WAYS = {"without": (), "attached": (), "buckets": ("--buckets",)}


@scene
def every_loop_every_way() -> None:
    here = Place(dist.get_rank(), dist.get_world_size(), torch.device("cpu"))
    for loop, options in LOOPS.items():
        for way, more in WAYS.items():
            os.environ["DDPMON"] = "0" if way == "without" else "1"
            dump = f"--dump={folder() / f'{loop}-{way}.json'}"
            train(parse_args([*TINY, *options, *more, dump]), here)


if __name__ == "__main__":
    perform()
