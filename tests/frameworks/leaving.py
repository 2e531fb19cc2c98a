"""What a training of these tests leaves behind, and how it waits until its run has been read."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch


def leave_behind(model: torch.nn.Module, losses: Sequence[float]) -> None:
    """Write the losses and a digest of the parameters of this rank, and wait for the test."""
    folder, rank = Path(sys.argv[1]), os.environ["RANK"]
    data = b"".join(value.detach().numpy().tobytes() for value in model.state_dict().values())
    told = {"losses": list(losses), "parameters": hashlib.sha256(data).hexdigest()}
    (folder / f"{rank}.tmp").write_text(json.dumps(told))
    (folder / f"{rank}.tmp").rename(folder / f"{rank}.json")
    while not (folder / "release").exists() and os.getppid() != 1:
        time.sleep(0.05)
