"""Makes the README's picture: the dashboard on a real run with a slow rank, as SVG (a browser turns it into PNG).

python docs/make_picture.py OUT.svg [COLUMNS ROWS]
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from ddpmon.tui.app import WatchApp
from ddpmon.watcher.observer import Observer

STEPS = 220


async def picture(out: Path, size: tuple[int, int]) -> None:
    """Train 8 ranks of which one is slow in backward, watch them to step 200, and export the screen."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=8", "-m", "trainer"]
    fault = "--fault=backward:rank=5,ms=150,from=90"
    with subprocess.Popen([*command, "--name=gpt-stdlib", f"--steps={STEPS}", fault]) as training:
        app = WatchApp(Observer(None))
        async with app.run_test(size=size) as pilot:
            while training.poll() is None and _step(app) < STEPS - 20:
                await pilot.pause(1.0)
            out.write_text(app.export_screenshot(title="ddpmon watch"))
        training.wait()


def _step(app: WatchApp) -> int:
    run = app.picture.snapshot.run
    return -1 if run is None or run.step is None else run.step


if __name__ == "__main__":
    columns, rows = (int(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) > 3 else (120, 34)
    asyncio.run(picture(Path(sys.argv[1]), (columns, rows)))
