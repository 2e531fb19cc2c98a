"""A watcher in a process of its own, for another network namespace: `python -m tests.watcher URL` prints what it sees.

One line of JSON a look: the status as scripts read it, the link, and the first and last step of the run's history.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ddpmon.commands.status_json import status_object
from ddpmon.observe import Observer
from ddpmon.snapshot import Snapshot

Seen = dict[str, Any]
ROOT = Path(__file__).parents[1]


class Watcher:
    """Reads what such a process prints."""

    def __init__(self, prefix: Sequence[str], url: str, log: Path) -> None:
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "tests.watcher", url],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def look(self, patience_s: float) -> Seen | None:
        """The next line, None when it does not come in time or the process has ended."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], patience_s)
        line = self.process.stdout.readline() if ready else b""
        return json.loads(line) if line else None

    def until(self, what: Callable[[Seen], object], deadline_s: float = 150.0) -> Seen:
        """The first look at which `what` holds.

        Raises:
            TimeoutError: there is none within the deadline; the message holds the last look.
        """
        seen, deadline = None, time.monotonic() + deadline_s
        while time.monotonic() < deadline and self.process.poll() is None:
            seen = self.look(5.0) or seen
            if seen is not None and what(seen):
                return seen
        raise TimeoutError(f"not seen in time; at last {json.dumps(seen)[:6000]}")


@contextlib.contextmanager
def watching(prefix: Sequence[str], url: str, log: Path) -> Iterator[Watcher]:
    """A watcher at `url`, started by the command `prefix`; gone at the end."""
    watcher = Watcher(prefix, url, log)
    try:
        yield watcher
    finally:
        watcher.process.kill()
        watcher.process.communicate()


def look(snapshot: Snapshot) -> Seen:
    steps = [] if snapshot.series is None else snapshot.series.step.tolist()
    return {
        "status": status_object(snapshot),
        "link": [snapshot.link.state, snapshot.link.message],
        "history": [steps[0], steps[-1]] if steps else None,
    }


if __name__ == "__main__":
    observer = Observer(sys.argv[1])
    while True:
        print(json.dumps(look(observer.tick())), flush=True)
        time.sleep(0.5)
