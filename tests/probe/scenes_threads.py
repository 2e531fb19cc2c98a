"""What the probe's threads do to a process that may fork at any time: nothing here has imported what they need."""

from __future__ import annotations

import sys
import threading
from typing import Any

from tests.probe.probe_stage import hold, note, perform, scene, toy, train, watched


class Imports:
    """Notes who looks for which module; finds none."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def find_spec(self, name: str, *_: Any) -> None:
        self.seen.append((threading.current_thread().name, name))


@scene
def nothing_is_imported() -> None:
    ddp, imports = toy(), Imports()
    sys.meta_path.insert(0, imports)
    with watched(ddp) as monitor:
        train(ddp)
        hold(monitor)
    note(imported=[name for thread, name in imports.seen if thread.startswith("ddpmon-")], seen=len(imports.seen))


if __name__ == "__main__":
    perform()
