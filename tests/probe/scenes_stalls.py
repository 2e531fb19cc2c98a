"""A rank that gets stuck outside any collective, goes on, and gets stuck again in a phase of its user's."""

from __future__ import annotations

import os
import pprint
from collections.abc import Callable
from typing import Any

from tests.probe.probe_stage import folder, perform, scene, toy, train, wait_for, watched

PIPE = "source.py"


def stuck_in_a_pipe() -> Callable[[], None]:
    """A function whose source nobody can read: opening the file waits for a writer, as a dead file system would."""
    os.mkfifo(folder() / PIPE)
    names: dict[str, Any] = {"wait_for": wait_for}
    exec(compile("def unreadable():\n    wait_for('on')\n", str(folder() / PIPE), "exec"), names)
    function: Callable[[], None] = names["unreadable"]
    return function


def readable() -> None:
    wait_for("done")


@scene
def stuck_twice() -> None:
    ddp = toy()
    with watched(ddp) as monitor:
        train(ddp)
        stuck_in_a_pipe()()
        train(ddp, steps=3)
        with monitor.phase("eval"):
            readable()
        train(ddp)


@scene
def at_something() -> None:
    """Work that belongs to no phase, in Python, such as scoring what an evaluation without a name has made."""
    ddp = toy()
    table = {str(number): [number, {str(each): each for each in range(9)}] for number in range(400)}
    with watched(ddp):
        train(ddp)
        while not (folder() / "done").exists():
            pprint.pformat(table)
        train(ddp)


if __name__ == "__main__":
    perform()
