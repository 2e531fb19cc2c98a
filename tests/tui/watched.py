"""A running app for tests: sources that return what they are told to, and what can be read off the screen."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from textual.pilot import Pilot

from ddpmon.snapshot import Metric, Snapshot
from ddpmon.tui.app import WatchApp
from ddpmon.tui.picture_reader import Source
from ddpmon.tui.preferences import Preferences, Session
from ddpmon.tui.screens.overview import Overview
from ddpmon.tui.widgets.canvas import Canvas
from tests.tui.made_runs import NOTES, Made, snapshot

Act = Callable[["Watched"], Awaitable[None]]


class Fixed:
    """A source that returns what it is told to, and counts."""

    def __init__(self, shown: Snapshot) -> None:
        self.shown = shown
        self.focus: int | None = None
        self.metric: Metric = "lateness"
        self.ticks = 0
        self.taken_monotonic = time.monotonic()
        self.closed = threading.Event()
        self.answering = threading.Event()
        self.answering.set()

    def tick(self) -> Snapshot:
        self.answering.wait(30)
        self.ticks += 1
        self.taken_monotonic = time.monotonic()
        return self.rebuild()

    def rebuild(self) -> Snapshot:
        made = snapshot(Made(ranks=8, straggler=5, focus=self.focus, gpu=_has_gpus(self.shown)))
        detail = made.detail if self.focus is not None else None
        return replace(self.shown, detail=detail, taken_monotonic=self.taken_monotonic)

    def close(self) -> None:
        self.closed.set()


def _has_gpus(shown: Snapshot) -> bool:
    return shown.ranks is not None and any(shown.ranks.gpu)


class Watched:
    """A running app, its pilot, and what can be read off its screen."""

    def __init__(self, app: WatchApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    def text(self) -> str:
        """Everything on the screen, as plain text."""
        lines = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text for strip in lines)

    def rows(self) -> list[int]:
        overview = self.app.screen_stack[0]
        assert isinstance(overview, Overview)
        return [int(rank) for rank in overview.table.view.order]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to become true; the suite's timeout ends a wait in vain."""
        while not condition():
            await self.pilot.pause(0.02)

    async def until_shown(self, text: str) -> None:
        """Wait for a text on a screen whose every part has been drawn: the header may come before the table below."""
        await self.until(lambda: text in self.text() and self._is_drawn())

    def _is_drawn(self) -> bool:
        return all(canvas.lines for canvas in self.app.screen.query(Canvas) if canvas.display and canvas.size.area)


def watch(
    source: Source,
    act: Act,
    size: tuple[int, int] = (120, 34),
    ascii_only: bool = False,
    interval: float = 0.25,
    remembered: Callable[[str], Session | None] = lambda _run_id: None,
    **chosen: Any,
) -> WatchApp:
    preferences = Preferences(interval=interval, glyphs="ascii" if ascii_only else "full", **chosen)
    app = WatchApp(source, preferences, remembered)

    async def go() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            await act(Watched(app, pilot))

    asyncio.run(go())
    return app


STRAGGLER = snapshot(Made(ranks=8, straggler=5, findings=NOTES))
