"""Runs whose frames go through the training's own rendezvous store."""

from __future__ import annotations

import os

import psutil

from tests.probe.probe_stage import note, perform, playing, scene, toy, train, wait_for, watched


def listening() -> list[int]:
    """The TCP ports on which this process listens."""
    found = psutil.Process().net_connections("tcp")
    return sorted(each.laddr.port for each in found if each.status == psutil.CONN_LISTEN)


@scene
def first() -> None:
    watch_ports()


@scene
def second() -> None:
    watch_ports()


def watch_ports() -> None:
    """A few steps; says which ports are open before it is watched, and once the test has seen it."""
    ddp = toy()
    train(ddp, steps=1)
    before = listening()
    with watched(ddp):
        train(ddp)
        wait_for(f"{playing()}.seen")
        note(
            before=before,
            after=listening(),
            rendezvous=f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
        )


if __name__ == "__main__":
    perform()
