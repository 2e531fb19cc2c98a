"""Tells whether two runs computed the same, bit for bit: `python -m trainer.compare A.json B.json`."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import _get_default_store

Dump = dict[str, Any]
_dumps = count()  # of this process: the ranks write as many, so each has keys of its own in the store
_DESCRIPTION = "Tell whether two runs of the trainer computed the same, bit for bit, from what their --dump wrote."


def write_dump(path: Path, first_step: int, losses: Sequence[float], model: nn.Module) -> None:
    """Write every rank's losses as hexadecimal floats and a hash of the parameters; all ranks must call it."""
    mine = [loss.hex() for loss in losses]
    every, rank = [mine], 0
    if dist.is_initialized():
        # Not by a collective: Gloo's thread may hold its tensors for a moment more, and a thread that lets go of one of
        # Python's while the interpreter ends aborts the process.
        rank, store = dist.get_rank(), PrefixStore(f"dump/{next(_dumps)}", _get_default_store())
        store.set(str(rank), json.dumps(mine))
        if rank == 0:
            every = [json.loads(store.get(str(each))) for each in range(dist.get_world_size())]
    if rank == 0:
        dump = {"first_step": first_step, "losses": every, "parameters": hash_parameters(model)}
        path.write_text(json.dumps(dump, indent=1) + "\n")


def hash_parameters(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters' bytes, in the model's order."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def read_dump(path: Path) -> Dump:
    """Read what `write_dump` wrote.

    Raises:
        ValueError: with one sentence, if the file is missing or is no dump.
    """
    try:
        dump = json.loads(path.read_text())
        if not {"first_step", "losses", "parameters"} <= dump.keys():
            raise ValueError
    except (OSError, ValueError, AttributeError):
        raise ValueError(f"{path} is not a file written by the trainer's --dump") from None
    return dict(dump)


def differ(a: Dump, b: Dump) -> str | None:
    """Name the first difference of two runs, or None; steps that only one of them made are not compared."""
    if len(a["losses"]) != len(b["losses"]):
        return f"{len(a['losses'])} ranks and {len(b['losses'])} ranks"
    first = max(a["first_step"], b["first_step"])
    for rank, (one, other) in enumerate(zip(a["losses"], b["losses"], strict=True)):
        common = one[first - a["first_step"] :], other[first - b["first_step"] :]
        if len(common[0]) != len(common[1]):
            return "the runs end at different steps"
        for step, (x, y) in enumerate(zip(*common, strict=True), first):
            if x != y:
                return f"rank {rank}'s loss at step {step}: {float.fromhex(x)!r} and {float.fromhex(y)!r}"
    return None if a["parameters"] == b["parameters"] else "equal losses, but different parameters at the end"


def main(argv: Sequence[str] | None = None) -> int:
    """Compare two dumps; return 0 if they are identical, 1 if they differ, 2 if there is nothing to compare."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}.compare", description=_DESCRIPTION)
    parser.add_argument("dump", type=Path, nargs=2)
    paths: list[Path] = parser.parse_args(argv).dump
    try:
        a, b = (read_dump(path) for path in paths)
    except ValueError as error:
        print(f"trainer.compare: {error}", file=sys.stderr)
        return 2
    difference = differ(a, b)
    if difference:
        print(f"different: {difference}")
        return 1
    print(f"bit-identical: {len(a['losses'])} ranks, the losses of every common step and the final parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
