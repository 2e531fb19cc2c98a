"""The hosts' screens as a reader uses them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpmon.snapshot import Finding, Snapshot
from ddpmon.tui.screens.host_screens import HostScreen, HostsScreen
from ddpmon.tui.screens.overview import Overview
from ddpmon.tui.screens.rank_screen import RankScreen
from ddpmon.tui.widgets.linked_text import LinkedText
from ddpmon.tui.widgets.virtual_table import HostTable
from tests.tui.made_runs import Made, snapshot
from tests.tui.watched import Fixed, Watched, watch

ONE = snapshot(Made(ranks=8, per_node=8, gpu=True, troubled=(0,)))
FIVE = snapshot(Made(ranks=10, per_node=2, gpu=True))
MANY = snapshot(Made(ranks=128, per_node=8, gpu=True, troubled=(5,)))


def chosen(watched: Watched) -> int | None:
    assert isinstance(watched.app.screen, HostsScreen)
    return watched.app.screen.table.chosen


def test_3_opens_the_hosts_arrows_choose_enter_opens_one_and_esc_goes_back() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("3 hosts")
        await watched.press("3")
        await watched.until_shown("ranks 40-47")
        assert chosen(watched) == 5, "something stands out on it"
        await watched.press("down", "j", "j", "up", "end", "up")
        assert chosen(watched) == 14
        await watched.until_shown("─ node14 · ranks 112-119")
        await watched.press("enter")
        assert isinstance(watched.app.screen, HostScreen)
        await watched.until_shown("on the GPUs")
        assert "rank 112 " in watched.text()
        await watched.press("escape")
        assert chosen(watched) == 14
        await watched.press("escape")
        assert isinstance(watched.app.screen, Overview)

    watch(Fixed(MANY), act, (160, 50))


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (160, 50)])
@pytest.mark.parametrize("shown", [ONE, MANY], ids=["one host", "16 hosts"])
def test_it_draws_at_every_size(shown: Snapshot, size: tuple[int, int]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("3")
        await watched.until_shown("node0")
        lines = watched.text().split("\n")
        assert len(lines) == size[1]
        assert {len(line) for line in lines} == {size[0]}
        assert "q quit" in lines[-1]

    watch(Fixed(shown), act, size)


def test_the_only_host_is_shown_in_full_at_once_and_scrolls() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("3 hosts")
        await watched.press("3")
        await watched.until_shown("▲  3 foreign           8123 bob")
        assert "unavailable" not in watched.text()
        await watched.press("G")
        await watched.until_shown("steal: no /proc/stat")
        await watched.press("escape")
        assert isinstance(watched.app.screen, Overview)

    watch(Fixed(ONE), act, (80, 24))


@pytest.mark.parametrize("moves", [0, 6], ids=["from the top", "scrolled"])
def test_a_click_on_the_row_of_a_gpu_chooses_its_rank_and_a_double_click_opens_it(moves: int) -> None:
    async def act(watched: Watched) -> None:
        async def click(text: str, times: int = 1) -> None:
            at = next(y for y, line in enumerate(watched.text().split("\n")) if text in line)
            await watched.pilot.click(offset=(20, at), times=times)
            await watched.pilot.pause()

        await watched.until_shown("3 hosts")
        await watched.press("3", *(["j"] * moves))
        await watched.until_shown("power cap")
        before = watched.app.links.chosen
        await click("more lines below")
        assert watched.app.links.chosen == before, "no row of a GPU is drawn there"
        await click("power cap")
        assert watched.app.links.chosen == watched.app.screen.query_one(LinkedText).rank == 2
        await click("foreign process", times=2)
        assert isinstance(watched.app.screen, RankScreen)
        assert watched.app.screen.rank == 3

    watch(Fixed(ONE), act, (80, 16))


def test_a_double_click_below_the_list_of_hosts_opens_the_host_in_full() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("3 hosts")
        await watched.press("3")
        await watched.until_shown("─ GPUs")
        await watched.pilot.click("#chosen", offset=(20, 4), times=2)
        await watched.until(lambda: isinstance(watched.app.screen, HostScreen))

    watch(Fixed(MANY), act, (160, 50))


def test_a_click_on_the_row_of_a_gpu_below_the_list_chooses_its_rank_and_a_double_click_opens_it() -> None:
    """A click did nothing there, and a double click opened the host."""

    async def act(watched: Watched) -> None:
        async def click(start: str, times: int = 1) -> None:
            at = next(y for y, line in enumerate(watched.text().split("\n")) if line.startswith(start))
            await watched.pilot.click(offset=(10, at), times=times)
            await watched.pilot.pause()

        await watched.until_shown("3 hosts")
        await watched.press("3")
        await watched.until_shown("─ GPUs")
        await click("    2    42 ")
        assert watched.app.links.chosen == 42
        assert isinstance(watched.app.screen, HostsScreen)
        await click("    3 rank 43 ", times=2)
        assert isinstance(watched.app.screen, RankScreen)
        assert watched.app.screen.rank == 43

    watch(Fixed(MANY), act, (160, 60))


def test_the_chosen_rank_is_in_sight_below_the_list_of_hosts() -> None:
    """At 80x24 the GPUs of a host with 16 end below the last line, and nothing scrolled to the chosen rank's."""

    async def act(watched: Watched) -> None:
        await watched.until_shown("3 hosts")
        watched.app.links.choose(30)
        await watched.press("3")
        await watched.until_shown("─ node1 · ranks 16-31")
        await watched.until(lambda: gpus(watched)[:2] == [14, 0])
        watched.app.links.choose(17)
        watched.app.redraw()
        await watched.until(lambda: gpus(watched)[:2] == [0, 1])

    def gpus(watched: Watched) -> list[int]:
        lines = watched.text().split("\n")
        rows = lines[next(at for at, line in enumerate(lines) if "gpu  rank" in line) + 1 :]
        return [int(line[:6]) for line in rows if line[:6].strip().isdigit()]

    watch(Fixed(snapshot(Made(ranks=32, per_node=16, gpu=True))), act, (80, 24))


def test_a_double_click_on_the_process_of_a_rank_opens_the_rank_and_one_beside_it_does_not() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("3 hosts")
        await watched.press("3")
        await watched.until_shown("on the CPUs")
        lines = watched.text().split("\n")
        at = next(y for y, line in enumerate(lines) if line.startswith("    4 rank 4 "))
        await watched.pilot.click(offset=(120, at), times=2)
        assert isinstance(watched.app.screen, HostsScreen), "a disk, or a user of CPU"
        await watched.pilot.click(offset=(10, at), times=2)
        await watched.pilot.pause()
        assert isinstance(watched.app.screen, RankScreen)
        assert watched.app.screen.rank == 4

    watch(Fixed(ONE), act, (200, 60))


def test_a_host_that_comes_later_turns_the_page_into_a_table() -> None:
    source = Fixed(replace(MANY, nodes=()))

    async def act(watched: Watched) -> None:
        await watched.until_shown("3 hosts")
        await watched.press("3")
        await watched.until_shown("waiting: no host has published yet")
        source.shown = replace(MANY, nodes=MANY.nodes[:1])
        await watched.until_shown("on the GPUs")
        source.shown = replace(MANY, nodes=MANY.nodes[:2])
        await watched.until_shown("2 of 16 heard from")
        await watched.press("down")
        assert chosen(watched) == 1

    watch(source, act, (120, 34))


def test_the_cursor_stays_on_its_host_when_another_gets_a_finding() -> None:
    source = Fixed(MANY)

    async def act(watched: Watched) -> None:
        await watched.until_shown("3 hosts")
        await watched.press("3", "down", "down")
        assert chosen(watched) == 1
        finding = Finding("disk_low", "warning", "/ckpt of node9 is nearly full.", nodes=("node9",))
        source.shown = replace(MANY, findings=(finding,))
        await watched.until(lambda: first(watched) == 9)
        assert chosen(watched) == 1
        await watched.press("home")
        await watched.until_shown("/ckpt of node9 is nearly full.")
        await watched.press("s")
        assert first(watched) == 0
        await watched.press("r")
        assert first(watched) == 15

    watch(source, act, (120, 34))


def test_a_host_that_is_opened_is_chosen() -> None:
    source = Fixed(MANY)

    async def act(watched: Watched) -> None:
        await watched.until_shown("3 hosts")
        await watched.press("3", "enter")
        opened = watched.app.screen
        assert isinstance(opened, HostScreen)
        await watched.press("escape")
        finding = Finding("disk_low", "warning", "/ckpt of node9 is nearly full.", nodes=("node9",))
        source.shown = replace(MANY, findings=(finding,))
        await watched.until(lambda: first(watched) == 9)
        assert chosen(watched) == opened.number != 9

    watch(source, act, (120, 34))


def first(watched: Watched) -> int:
    assert isinstance(watched.app.screen, HostsScreen)
    return int(watched.app.screen.table.view.order[0])


def test_512_hosts_can_be_walked_from_end_to_end() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("3 hosts")
        await watched.press("3", "end")
        assert chosen(watched) == 511
        await watched.until_shown("─ node511 · ranks 4088-4095")
        await watched.press("pageup", "home")
        assert chosen(watched) == 0

    watch(Fixed(snapshot(Made(ranks=4096, per_node=8, gpu=True))), act, (160, 50))


def test_ascii_only_draws_nothing_else() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("3 hosts")
        for keys in (("3",), ("enter",)):
            await watched.press(*keys)
            await watched.until_shown("node5")
            assert watched.text().isascii()

    watch(Fixed(MANY), act, ascii_only=True)


def test_3_and_5_and_1_lead_from_anywhere_to_their_screens() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("3 hosts")
        await watched.press("3", "enter", "5", "3")
        assert isinstance(watched.app.screen, HostsScreen)
        assert len(watched.app.screen_stack) == 2
        await watched.press("1")
        assert len(watched.app.screen_stack) == 1

    watch(Fixed(MANY), act)


class OneMoreHost(Fixed):
    """A source whose first host is heard from last; after that it answers no more."""

    def tick(self) -> Snapshot:
        read = super().tick()
        if len(read.nodes) == len(FIVE.nodes):
            self.answering.clear()
        return read


def test_the_first_host_stays_in_sight_when_one_more_makes_the_table_higher() -> None:
    source = OneMoreHost(replace(FIVE, nodes=FIVE.nodes[1:]))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        watched.app.links.choose(9)
        await watched.press("3")
        assert chosen(watched) == 4
        source.shown = FIVE
        await watched.until(lambda: not source.answering.is_set())
        table = watched.app.screen.query_one(HostTable)
        await watched.until(lambda: table.size.height == 2 + len(FIVE.nodes))
        await watched.pilot.pause()
        shown = [line.strip("▸ ").split(" ")[0] for line in watched.text().split("\n")[3:8]]
        source.answering.set()
        assert shown == [f"node{number}" for number in range(5)]

    watch(source, act, (80, 24))
