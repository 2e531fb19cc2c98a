"""Keys and clicks take effect in the order in which they were made, however close together they arrive."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from textual import events
from textual.app import App, ScreenStackError

TAKE_TURNS = (
    events.Key | events.Paste | events.MouseDown | events.MouseUp | events.MouseScrollDown | events.MouseScrollUp
)
MOST_TURNS = 10_000  # of the event loop, some 0.1 s: a widget that never answers does not take the keyboard away


class OrderedKeys(App[None]):
    """An app that handles a key or a click only once all widgets have finished with the one before.

    Textual passes a key to the widget that has the focus now, and its binding runs some turns of the event loop later.
    Of several keys in one packet, as a stalled SSH connection sends them, the second one went to the widget
    that the first one was about to take the focus from, and letters overtook `backspace`. A click would overtake all
    keys that are held back, and go to the view that they are about to leave.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._held: deque[events.Event] = deque()
        self._held_task: asyncio.Task[None] | None = None

    async def on_event(self, event: events.Event) -> None:
        """Hold a key, a paste or a click back while another one is at work."""
        if not isinstance(event, TAKE_TURNS) or event.is_forwarded:
            await self._handle(event)
        elif self._is_closing:
            return
        elif self._held_task is not None or not self._is_quiet():
            self._held.append(event)
            if self._held_task is None:
                self._held_task = asyncio.create_task(self._handle_held())
        else:
            await self._handle(event)

    async def _handle(self, event: events.Event) -> None:
        """Let Textual handle an event; the app may close meanwhile, and then a key or a click finds no screen."""
        try:
            await super().on_event(event)
        except ScreenStackError:
            if not self._is_closing:
                raise

    async def _handle_held(self) -> None:
        """Handle what is held back, one after the other."""
        try:
            while self._held:
                await self._become_quiet()
                if self._is_closing:
                    break
                await self._handle(self._held.popleft())
        except Exception as error:  # what Textual does in its own tasks: it ends with the traceback
            self._handle_exception(error)
        finally:
            self._held_task = None

    @property
    def _is_closing(self) -> bool:
        """Whether nothing is left that a key could mean; to look a key up without a screen raises."""
        return not (self.is_running and self.screen_stack)

    async def _become_quiet(self) -> None:
        """Let the event loop turn until it is quiet."""
        for _ in range(MOST_TURNS):
            if self._is_quiet():
                return
            await asyncio.sleep(0)

    def _is_quiet(self) -> bool:
        """Whether no message waits for the app or for a widget of the open screen."""
        open_now = self.screen_stack[-1:]
        widgets = (widget for screen in open_now for widget in screen.walk_children())
        return not any(pump.message_queue_size for pump in (self, *open_now, *widgets))
