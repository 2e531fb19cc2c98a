"""Two ranks started one by one, whose rendezvous the test hosts, so that either may be stopped or killed."""

from __future__ import annotations

import os
import sys
import threading
import time

import psutil
import torch

import ddpmon
from ddpmon.probe import publisher
from tests.probe.probe_stage import dist_rank, folder, note, perform, scene, toy, train, wait_for


def ready() -> None:
    (folder() / f"ready.{dist_rank()}").touch()


def connected(port: int) -> bool:
    return any(c.raddr and c.raddr.port == port for c in psutil.Process().net_connections("tcp"))


def blocked_in_a_put() -> bool:
    """Whether the publisher has been in the same call of the store for a second."""
    began, number = time.monotonic(), _publisher_number()
    while time.monotonic() - began < 1.0:
        frame = sys._current_frames().get(number)
        while frame is not None and frame.f_code.co_name != "put":
            frame = frame.f_back
        if frame is None:
            return False
        time.sleep(0.01)
    return True


def _publisher_number() -> int:
    found = [thread for thread in threading.enumerate() if thread.name == "ddpmon-publisher"]
    return int(found[0].ident or 0) if found else 0


@scene
def host_stops_before_the_other_joins() -> None:
    ddp = toy()
    if dist_rank() == 0:
        ddpmon.attach(ddp, name="host")
        wait_for("never")
    ready()
    wait_for("stopped")
    ddpmon.attach(ddp, name="host")
    port = int((folder() / "stopped").read_text())
    while not connected(port):
        time.sleep(0.02)
    leave()


@scene
def host_stops_while_the_other_publishes() -> None:
    publisher.INTERVAL_S = 0.0  # fills the socket's buffers in seconds
    ddp = toy()
    ddpmon.attach(ddp, name="host")
    train(ddp)
    ready()
    wait_for("stopped" if dist_rank() else "never")
    while not blocked_in_a_put():
        time.sleep(0.02)
    leave()


def leave() -> None:
    """End as a script does that has reached its last line."""
    note(left=True)
    sys.exit(0)


@scene
def host_is_killed() -> None:
    """Rank 1 trains on until its collective fails, and says how."""
    ddp = toy()
    with ddpmon.attach(ddp, name="host"):
        train(ddp)
        ready()
        try:
            train(ddp, after=lambda _step: time.sleep(0.01), steps=1_000_000)
        except Exception as error:
            note(failed=type(error).__name__)
    while any(thread.name.startswith("ddpmon") for thread in threading.enumerate()):  # its last frame is on its way
        time.sleep(0.02)
    note(alive=bool(torch.ones(1).sum() > 0))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    perform()
