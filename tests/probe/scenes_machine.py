"""Two ranks that say which folders matter to them, and want a port that the test chose for their store."""

from __future__ import annotations

import os

from ddpmon.probe import uplink
from tests.probe.probe_stage import dist_rank, folder, hold, note, perform, scene, toy, train, watched


@scene
def with_folders() -> None:
    setattr(uplink, "FIRST_PORT", int(os.environ["WANTED_PORT"]))  # noqa: B010 (mypy: not exported from there)
    setattr(uplink, "PORTS_TO_TRY", 0)  # noqa: B010 (as if the others were taken, too)
    ddp = toy()
    with watched(ddp, folders={"checkpoints": folder() / "later", "data": os.fsencode(folder())}) as monitor:
        train(ddp)
        note(pid=os.getpid(), rank=dist_rank())
        hold(monitor)


if __name__ == "__main__":
    perform()
