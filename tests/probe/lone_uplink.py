"""The way to its store of a rank 0 that is alone, without a training."""

from __future__ import annotations

import os
from typing import Any

import torch

from ddpmon.probe.external_store import external_store, uplink_of
from ddpmon.probe.identity import Identity
from ddpmon.probe.uplink import Handover, Uplink
from ddpmon.schema import HistoryFrame, StepColumns
from tests.made_frames import run_info


def lone_uplink(name: str, training: Any = None, ranks: int = 1) -> Uplink:
    """Not connected yet; `training` is the training's own store. It publishes as the environment says."""
    me = Identity(0, ranks, 0, 0, (0,), "here", os.getpid(), torch.device("cpu"), None, "gloo")
    return uplink_of(
        me, name, Handover(training, "address"), lambda run: run_info(ranks, run_id=run, name=name), external_store()
    )


def speak(uplink: Uplink) -> None:
    """Publish a history without steps."""
    uplink.put_history(HistoryFrame(run_id=uplink.run, rank=0, recent=StepColumns(), older=StepColumns()))
