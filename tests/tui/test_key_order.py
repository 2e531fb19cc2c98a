"""Keys that arrive in one packet, as a stalled connection sends them, take effect in their order."""

from __future__ import annotations

import asyncio

import pytest
from textual.events import Key, MouseDown, MouseUp, Paste
from textual.widgets import Input

from ddpmon.tui.app import CRASHED
from ddpmon.tui.draw.table import HEAD
from ddpmon.tui.screens.host_screens import HostsScreen
from ddpmon.tui.widgets.virtual_table import RankTable
from tests.tui.test_views import SHOWN, timed
from tests.tui.watched import STRAGGLER, Fixed, Watched, watch

NAMED = {"/": "slash", " ": "space", "=": "equals_sign", ">": "greater_than_sign", "<": "backspace", "\n": "enter"}


def send(watched: Watched, text: str) -> None:
    """Send all keys before the app has handled any of them; `<` is backspace and a line's end is enter."""
    for letter in text:
        watched.app.post_message(Key(NAMED.get(letter, letter), None if letter in "<\n" else letter))


async def settle(watched: Watched) -> None:
    for _ in range(3):
        await watched.pilot.pause()


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ("/rank=3\n", "rank=3"),
        ("/rank=3<4\n", "rank=4"),
        ("/late>10 host=node1\n", "late>10 host=node1"),
        ("/rank=3<<<<<<late>30\n", "late>30"),
        ("/rank=3\n/ host=node0\n", "rank=3 host=node0"),
    ],
)
def test_a_filter_that_arrives_in_one_packet_is_in_force(keys: str, wanted: str) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        send(watched, keys)
        await watched.until(lambda: watched.app.picture.wanted == wanted)
        await settle(watched)
        assert watched.app.picture.wanted == wanted
        assert not watched.app.screen_stack[0].query_one(Input).has_focus

    watch(Fixed(STRAGGLER), act)


def test_a_paste_behind_the_key_of_the_filter_goes_into_the_line() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        watched.app.post_message(Key("slash", "/"))
        watched.app.post_message(Paste("rank=3-4"))
        send(watched, "<5\n")
        await watched.until(lambda: watched.rows() == [5, 3, 4])
        assert watched.app.picture.wanted == "rank=3-5"

    watch(Fixed(STRAGGLER), act)


def test_keys_behind_one_that_opens_a_view_go_to_that_view() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        send(watched, "3G/late>0\n\n")
        await watched.until(lambda: watched.app.picture.wanted == "late>0" and len(watched.app.screen_stack) == 3)
        hosts = watched.app.screen_stack[1]
        assert isinstance(hosts, HostsScreen)

    watch(Fixed(timed(SHOWN)), act, (120, 34))


def test_a_click_behind_keys_that_are_held_back_takes_its_turn() -> None:
    """It went to the table before the filter was in force, and so chose another rank."""

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await settle(watched)
        table = watched.app.screen.query_one(RankTable)
        x, y = table.region.x + 10, table.region.y + HEAD + 1
        send(watched, "/rank=3,4,5\n")
        for kind in (MouseDown, MouseUp):
            watched.app.post_message(kind(None, x, y, 0, 0, 1, False, False, False, x, y))
        await watched.until(lambda: watched.rows() == [5, 3, 4])
        await watched.until(lambda: table.rank == 3)

    # No notice that the store is slow, which would move the table by a line, however busy this machine is.
    watch(Fixed(STRAGGLER), act, interval=600)


@pytest.mark.parametrize("turns", range(10))
def test_clicks_that_wait_for_their_turn_while_the_dashboard_closes_are_dropped(turns: int) -> None:
    """Some turns of the event loop after a key they met an app without a screen: it ended with a traceback."""

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        send(watched, "/3")
        for _ in range(3):
            watched.app.post_message(MouseDown(None, 10, 6, 0, 0, 1, False, False, False, 10, 6))
        for _ in range(turns):
            await asyncio.sleep(0)

    watch(Fixed(STRAGGLER), act)


def test_a_key_that_comes_after_the_dashboard_has_closed_means_nothing() -> None:
    """It was looked up on a screen that was gone, and ended the dashboard with a traceback instead of its last line."""

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")

    app = watch(Fixed(STRAGGLER), act)
    asyncio.run(app.on_event(Key("enter", "\n")))
    assert app.return_code != CRASHED
