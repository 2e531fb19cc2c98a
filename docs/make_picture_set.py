"""Makes every view of every kind of run at several sizes, to look at after a change of the screen: half an hour.

    python docs/make_picture_set.py FOLDER [--cases hang ended] [--ranks 4 64 1024] [--sizes 80x24] [--views rank]

Each case is one simulated run of each number of ranks and one dashboard on it. Once the dashboard says what the case is
about, and some evidence has come, it is drawn: `FOLDER/CASE-RANKS-SIZE-VIEW.png`. Sizes that are narrow enough also
stand side by side in `CASE-RANKS-sheet-VIEW.png`. Without rsvg-convert the pictures stay SVG. At the end it is said
where the dashboard did not say in time what the case is about, whose pictures are there all the same, and what could
not be drawn or converted; the exit code is 1 then. It takes Python 3.11.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psutil
from picture_files import Simulation, as_png, can_convert, side_by_side, simulated, with_cells
from textual.pilot import Pilot

from ddpmon.diagnose.kinds import KindName
from ddpmon.report.verdicts import is_judged
from ddpmon.snapshot import Snapshot
from ddpmon.tui.app import WatchApp
from ddpmon.tui.preferences import Preferences
from ddpmon.tui.screens.base import BaseScreen
from ddpmon.watcher.observer import Observer

Size = tuple[int, int]
RANKS = (4, 64, 1024)
SIZES: tuple[Size, ...] = ((80, 24), (120, 40), (160, 50), (240, 70))
VIEWS: dict[str, tuple[str, ...]] = {  # the keys that open it from the overview
    "overview": (),
    "rank": ("enter",),
    "timeline": ("2",),
    "hosts": ("3",),
    "host": ("enter", "h"),
    "run": ("4",),
    "findings": ("5",),
    "compare": ("c",),
}
_SHEET_COLUMNS = 200  # of the sizes on a sheet, together: its letters can be read where it is shown 1,600 pixels wide
_MANY_RANKS = 1000  # runs of so many have workers of their own: two of them keep two cores busy
_WORKERS_MANY, _WORKERS_FEW = 2, 3
_TOLD_S = 1.5  # within the first second every simulated rank has told what it remembers
_EVIDENCE_S = 30.0
_LIMIT_S = 150.0  # for what a case is about
_SILENT_S = 12.0  # after a rank's last word it counts as lost within 10 s
_END_STATES = {"ended": "finished", "killed": "killed", "gone": "lost"}
_DRAWN_S = 5.0  # for all panels of a picture to be drawn, on a busy machine
_SETTLED_S = 0.8  # after keys: the next picture has come with what the view needs


class Case(NamedTuple):
    """A kind of run.

    Attributes:
        scenario: of the simulated run.
        about: the kind of finding that is waited for; None where there is to be none.
        ending: what becomes of the run before it is drawn: "gone" is killed with its store, as on another host.
        look: how the dashboard is set up.
        step_ms: None for the usual steps; a run of long steps is young for long.
    """

    scenario: str
    about: KindName | None = None
    ending: Literal["", "ended", "killed", "gone"] = ""
    look: Preferences = Preferences()
    step_ms: int | None = None

    def options(self, ranks: int) -> str:
        """The options of `ddpmon simulate`."""
        hosts = " --hosts 2" if ranks <= 8 and self.scenario in ("slow-node", "mixed", "clash") else ""
        steps = "" if self.step_ms is None else f" --step-ms {self.step_ms}"
        return f"--ranks {ranks} --scenario {self.scenario}{hosts}{steps}"

    def is_told(self, snapshot: Snapshot) -> bool:
        """Whether the dashboard says what this case is about."""
        if self.step_ms is not None:
            return snapshot.run is not None and (snapshot.run.step or 0) > 2
        if self.about is None:
            return is_judged(snapshot)
        return self.about in (finding.kind for finding in snapshot.findings)


CASES = {
    "healthy": Case("healthy"),
    "straggler": Case("straggler", "straggler"),
    "intermittent": Case("intermittent", "intermittent_straggler"),
    "slow-node": Case("slow-node", "slow_node"),
    "hang": Case("hang", "hang"),
    "churn": Case("churn", "rank_lost"),
    "clash": Case("clash", "gpu_shared"),
    "memory": Case("memory", "gpu_memory_growth"),
    "mixed": Case("mixed", "gpu_shared"),
    "ended": Case("straggler", "straggler", "ended"),
    "killed": Case("straggler", "straggler", "killed"),
    "gone": Case("straggler", "straggler", "gone"),
    "young": Case("healthy", step_ms=5000),
    "light": Case("mixed", "gpu_shared", look=Preferences(theme="light")),
    "mono": Case("mixed", "gpu_shared", look=Preferences(theme="mono")),
    "ascii": Case("mixed", "gpu_shared", look=Preferences(glyphs="ascii")),
}


class Order(NamedTuple):
    """What is to be drawn of one run."""

    folder: Path
    case: str
    ranks: int
    sizes: tuple[Size, ...]
    views: tuple[str, ...]

    @property
    def name(self) -> str:
        """What its files begin with."""
        return f"{self.case}-{self.ranks}"

    def svg(self, middle: str, view: str) -> Path:
        """The file of a view."""
        return self.folder / f"{self.name}-{middle}-{view}.svg"


def draw(order: Order) -> str:
    """Draw all views of a run; returns a sentence if the dashboard did not say what the case is about, else nothing."""
    case = CASES[order.case]
    with simulated(case.options(order.ranks), elsewhere=case.ending == "gone") as run, socket.socket() as held:
        return asyncio.run(_draw(order, case, run, held))


async def _draw(order: Order, case: Case, run: Simulation, held: socket.socket) -> str:
    await asyncio.sleep(_TOLD_S)
    app = WatchApp(Observer(run.url), case.look)
    async with app.run_test(size=order.sizes[0]) as pilot:
        is_told = await _until(pilot, lambda: case.is_told(app.picture.snapshot))
        if case.step_ms is None:
            await pilot.pause(_EVIDENCE_S)
        if case.ending:
            is_told = await _end(case, run, app, pilot, held) and is_told
        for size in order.sizes:
            await pilot.resize_terminal(*size)
            for view in order.views:
                await _open(app, pilot, view)
                order.svg(f"{size[0]}x{size[1]}", view).write_text(
                    with_cells(app.export_screenshot(title=f"{order.name} {view}"))
                )
    return "" if is_told else f"{order.name}: not what it is about within {_LIMIT_S:.0f} s"


async def _until(pilot: Pilot[None], condition: Callable[[], bool], limit_s: float = _LIMIT_S) -> bool:
    """Wait until something is so, for a limited time; returns whether it is."""
    until = time.monotonic() + limit_s
    while not (is_so := condition()) and time.monotonic() < until:
        await pilot.pause(0.1)
    return is_so


async def _end(case: Case, run: Simulation, app: WatchApp, pilot: Pilot[None], held: socket.socket) -> bool:
    """End the run, and wait until no rank counts as heard from; returns whether the dashboard says how it ended."""
    port = int(run.url.rpartition(":")[2].partition("/")[0])
    if case.ending == "ended":
        run.process.terminate()
    else:
        _kill(run, port)
    is_held = await _until(pilot, lambda: _is_taken(held, port))
    told = await _until(pilot, lambda: app.picture.snapshot.link.state == "gone")
    await pilot.pause(_SILENT_S)
    state = "" if app.latest_run is None else app.latest_run.state
    return is_held and told and state == _END_STATES[case.ending]


def _kill(run: Simulation, port: int) -> None:
    """Kill what publishes, and the store, which is no child of it, so that nobody has a last word."""
    stores = {each.pid for each in psutil.net_connections("tcp") if each.laddr[1:] == (port,) and not each.raddr}
    own = psutil.Process(run.process.pid)
    processes = [*map(psutil.Process, filter(None, stores)), own, *own.children(recursive=True)]
    for act in (psutil.Process.suspend, psutil.Process.kill):
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                act(process)


def _is_taken(held: socket.socket, port: int) -> bool:
    """Take the port of a store that has ended: the dashboard would go over to the next run that gets it."""
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the last connections may linger
        held.bind(("127.0.0.1", port))
    except OSError:
        return False
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # from now on nobody else can listen there
    return True


async def _open(app: WatchApp, pilot: Pilot[None], view: str) -> None:
    """Open a view from the overview; two ranks are marked only for the one that compares them."""
    await pilot.press("1")
    worst = app.links.current or 0
    app.links.marked = (worst, 0 if worst else 1) if view == "compare" else ()
    app.filter_by("")  # which draws the marks: of a run that is over no new picture comes
    await pilot.press(*VIEWS[view])
    await _until(pilot, lambda: isinstance(app.screen, BaseScreen) and app.screen.view == view, limit_s=_EVIDENCE_S)
    await _until(pilot, lambda: _is_detailed(app), limit_s=_EVIDENCE_S)
    await pilot.pause(_SETTLED_S)
    await _until(pilot, lambda: _is_drawn(app), limit_s=_DRAWN_S)


def _is_detailed(app: WatchApp) -> bool:
    """Whether the rank that the view is about has been read in full."""
    screen = app.screen
    rank = screen.detailed_rank if isinstance(screen, BaseScreen) else None
    return rank is None or app.picture.snapshot.detail is not None


def _is_drawn(app: WatchApp) -> bool:
    """Whether each panel in sight has its lines: on a busy machine the layout comes late."""
    screen = app.screen
    panels = screen.canvases if isinstance(screen, BaseScreen) else ()
    return all(panel.lines for panel in panels if panel.display and panel.size.height)


def sheets(order: Order) -> Iterator[Path]:
    """Write the sizes that have room side by side as one picture more of each view."""
    beside, columns = list[Size](), 0
    for size in order.sizes:
        if columns + size[0] <= _SHEET_COLUMNS:
            beside, columns = [*beside, size], columns + size[0]
    for view in order.views if len(beside) > 1 else ():
        pictures = [order.svg(f"{width}x{height}", view).read_text() for width, height in beside]
        sheet = order.svg("sheet", view)
        sheet.write_text(side_by_side(pictures))
        yield sheet


def make(orders: list[Order]) -> list[str]:
    """Draw everything and convert what is drawn; returns what went wrong, a sentence each."""
    spawn = multiprocessing.get_context("spawn")
    wrong, conversions = list[str](), dict[Path, Future[Path]]()
    with (
        ProcessPoolExecutor(_WORKERS_MANY, spawn, max_tasks_per_child=1) as many,
        ProcessPoolExecutor(_WORKERS_FEW, spawn, max_tasks_per_child=1) as few,
        ThreadPoolExecutor(_WORKERS_MANY) as converters,
    ):
        drawn = {(many if order.ranks >= _MANY_RANKS else few).submit(draw, order): order for order in orders}
        for future in as_completed(drawn):
            order = drawn[future]
            said = _failure(order.name, future) or future.result()
            print(said or order.name, flush=True)
            wrong += [said] if said else []
            if future.exception() is None and can_convert():
                conversions |= {file: converters.submit(as_png, file) for file in _files(order)}
    return wrong + [said for file, future in conversions.items() if (said := _failure(file.name, future))]


def _failure(name: str, future: Future[Any]) -> str:
    """The exception that ended the work on something, in one line; empty if none did."""
    error = future.exception()
    return "" if error is None else f"{name}: {type(error).__name__}: {error}"


def _files(order: Order) -> list[Path]:
    """The pictures of a run, with its sheets, which are made now."""
    views = [order.svg(f"{width}x{height}", view) for width, height in order.sizes for view in order.views]
    return [*views, *sheets(order)]


def _size(text: str) -> Size:
    width, _, height = text.partition("x")
    return int(width), int(height)


def main() -> int:
    """Make the pictures that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--ranks", nargs="+", type=int, default=RANKS, metavar="N")
    parser.add_argument("--sizes", nargs="+", type=_size, default=SIZES, metavar="COLUMNSxLINES")
    parser.add_argument("--views", nargs="+", choices=VIEWS, default=list(VIEWS), metavar="VIEW", help=", ".join(VIEWS))
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    sizes, views = tuple(args.sizes), tuple(args.views)
    orders = [Order(args.folder, case, ranks, sizes, views) for case in args.cases for ranks in args.ranks]
    wrong = make(orders)
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
