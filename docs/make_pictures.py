"""Makes the pictures of README.md and docs, and a recording of a session: `make pictures`, six minutes.

    python docs/make_pictures.py [NAME ...] [--svg]

The overview is of a real run of 8 Gloo ranks, the other pictures are of simulated runs. Each is exported by the
dashboard as SVG, and rsvg-convert turns it into PNG; with --svg, or without rsvg-convert, the SVG stays. `session.cast`
is what a terminal showed, with its times, in the format of asciinema (`asciinema play docs/pictures/session.cast`).
"""

from __future__ import annotations

import argparse
import asyncio
import codecs
import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from picture_files import as_png, can_convert, simulated, with_cells

from ddpmon.diagnose.kinds import KindName
from ddpmon.tui.app import WatchApp
from ddpmon.watcher.observer import Observer

FOLDER = Path(__file__).resolve().parent / "pictures"
STEPS = 220
TRAINING = (
    "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=8", "-m", "trainer", "--name=gpt-stdlib",
    f"--steps={STEPS}", "--fault=backward:rank=5,ms=150,from=90",
)  # fmt: skip
_EVIDENCE_S = 45.0  # after the first finding, so that figures and plots show how it went on


class Picture(NamedTuple):
    """A view of a simulated run: the run's options, the kind of finding that is waited for, the keys, the size."""

    options: str
    kind: KindName
    keys: tuple[str, ...]
    size: tuple[int, int] = (140, 40)


PICTURES = {
    "timeline": Picture("--ranks 64 --scenario straggler", "straggler", ("2",)),
    "hosts": Picture("--ranks 64 --scenario clash", "gpu_shared", ("3",)),
    "findings": Picture("--ranks 64 --scenario mixed", "straggler", ("5",)),
    "rank": Picture("--ranks 64 --scenario straggler", "straggler", ("enter",)),
    "hang": Picture("--ranks 64 --scenario hang", "hang", ()),
}
# Seconds after the first picture, and the key that is pressed then.
SESSION = ((6.0, "j"), (8.0, "k"), (10.0, "\r"), (15.0, "\x1b"), (17.0, "2"), (21.0, "3"), (25.0, "5"), (30.0, "q"))


async def overview() -> str:
    """The overview of 8 real ranks of which one is slow in backward, at step 200."""
    with TemporaryDirectory() as folder, subprocess.Popen([sys.executable, *TRAINING], env=_alone(folder)) as training:
        app = WatchApp(Observer(None))
        async with app.run_test(size=(120, 34)) as pilot:
            while training.poll() is None and _step(app) < STEPS - 20:
                await pilot.pause(1.0)
            return app.export_screenshot(title="ddpmon watch")


def _alone(folder: str) -> dict[str, str]:
    """The environment in which a run is announced in this folder, where no other run of this host is."""
    os.environ["XDG_RUNTIME_DIR"] = folder
    return dict(os.environ)


async def view(picture: Picture, url: str) -> str:
    """The view that these keys open, some time after the finding is there."""
    app = WatchApp(Observer(url))
    async with app.run_test(size=picture.size) as pilot:
        while picture.kind not in (finding.kind for finding in app.picture.snapshot.findings):
            await pilot.pause(1.0)
        await pilot.pause(_EVIDENCE_S)
        await pilot.press(*picture.keys)
        await pilot.pause(3.0)
        return app.export_screenshot(title="ddpmon watch")


def _step(app: WatchApp) -> int:
    run = app.picture.snapshot.run
    return -1 if run is None or run.step is None else run.step


def save(name: str, svg: str, *, as_svg: bool) -> None:
    """Write the picture, as PNG where that can be made."""
    out = FOLDER / f"{name}.svg"
    out.write_text(with_cells(svg))
    if not as_svg and can_convert():
        as_png(out)


def record_session(url: str, size: tuple[int, int] = (110, 32)) -> None:
    """Watch the run in a terminal of its own, press the keys of `SESSION`, and write down what it showed."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        os.execv(sys.executable, [sys.executable, "-m", "ddpmon.cli", "watch", url, "--theme", "dark"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    header = {"version": 2, "width": size[0], "height": size[1], "title": "ddpmon watch"}
    events = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in _events(terminal))
    (FOLDER / "session.cast").write_text(f"{json.dumps(header)}\n{events}")
    os.waitpid(process, 0)


def _events(terminal: int) -> Iterator[tuple[float, str, str]]:
    """What the terminal gets, each with seconds since the first of it, while the keys are pressed."""
    keys, began = list(SESSION), 0.0
    text = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        if began and keys and time.monotonic() - began > keys[0][0]:
            os.write(terminal, keys.pop(0)[1].encode())
        if not select.select([terminal], [], [], 0.05)[0]:
            continue
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:  # the dashboard has ended
            return
        began = began or time.monotonic()
        yield round(time.monotonic() - began, 3), "o", text.decode(data)


def main() -> None:
    """Make the pictures that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["overview", *PICTURES, "session"]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--svg", action="store_true", help="leave the pictures as SVG")
    args = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    for name in args.names or names:
        print(name, flush=True)
        if name == "overview":
            save(name, asyncio.run(overview()), as_svg=args.svg)
        elif name == "session":
            with simulated("--ranks 16 --scenario straggler") as run:
                time.sleep(_EVIDENCE_S)
                record_session(run.url)
        else:
            with simulated(PICTURES[name].options) as run:
                save(name, asyncio.run(view(PICTURES[name], run.url)), as_svg=args.svg)


if __name__ == "__main__":
    main()
