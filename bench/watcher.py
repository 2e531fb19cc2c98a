"""A watcher in a process of its own, for another network namespace: `python bench/watcher.py [URL]`.

It prints one line of JSON a look: when it was taken (monotonic seconds), the status as scripts read it, the link, what
was set aside, and the first and last step of the run's history. Without a URL it finds the run on this host by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ddpmon.report.status_json import status_object
from ddpmon.snapshot import Snapshot
from ddpmon.watcher.observer import Observer

Seen = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
_LOOK_EVERY_S = 0.5


class Watcher:
    """Reads what such a process prints, as it prints it.

    Args:
        prefix: the command that runs another one where the watcher shall be.
        url: what it watches; None for the run on its host.
        log: where its stderr goes.
        environment: variables beside those of this process.
    """

    def __init__(
        self, prefix: Sequence[str], url: str | None, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        target = [] if url is None else [url]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, __file__, *target],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._latest: Seen | None = None
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def look(self, after: float, patience_s: float) -> Seen | None:
        """The newest look, if it was taken after `after` (monotonic seconds) or such a one comes in time."""
        with self._news:
            self._news.wait_for(lambda: self._taken_at() > after, patience_s)
            return self._latest if self._taken_at() > after else None

    def until(self, what: Callable[[Seen], object], deadline_s: float = 150.0) -> Seen:
        """The first look from now on at which `what` holds.

        Raises:
            TimeoutError: there is none within the deadline; the message holds the last look.
        """
        seen, after, deadline = None, time.monotonic(), time.monotonic() + deadline_s
        while time.monotonic() < deadline and self.process.poll() is None:
            found = self.look(after, 5.0)
            if found is not None and what(found):
                return found
            seen, after = found or seen, after if found is None else float(found["taken"])
        raise TimeoutError(f"not seen in time; at last {json.dumps(seen)[:6000]}")

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def _taken_at(self) -> float:
        return float("-inf") if self._latest is None else float(self._latest["taken"])

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with contextlib.suppress(ValueError), self._news:  # the last one of a killed process is torn
                    self._latest = json.loads(line)
                    self._news.notify_all()


@contextlib.contextmanager
def watching(prefix: Sequence[str], url: str, log: Path) -> Iterator[Watcher]:
    """A watcher at `url`, started by the command `prefix`; gone at the end."""
    watcher = Watcher(prefix, url, log)
    try:
        yield watcher
    finally:
        watcher.end()


def look(snapshot: Snapshot) -> Seen:
    """A snapshot as a line of JSON tells it."""
    steps = [] if snapshot.series is None else snapshot.series.step.tolist()
    return {
        "taken": snapshot.taken_monotonic,
        "status": status_object(snapshot),
        "link": [snapshot.link.state, snapshot.link.message],
        "notices": list(snapshot.notices),
        "history": [steps[0], steps[-1]] if steps else None,
    }


if __name__ == "__main__":
    observer = Observer(sys.argv[1] if len(sys.argv) > 1 else None)
    while True:
        print(json.dumps(look(observer.tick())), flush=True)
        time.sleep(_LOOK_EVERY_S)
