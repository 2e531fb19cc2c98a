"""The app as a reader uses it: keys in, what is on the screen out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpmon.snapshot import Link
from ddpmon.tui.draw.heat import TALLEST
from ddpmon.tui.screens.findings_screen import FindingsScreen
from ddpmon.tui.screens.help_screen import HelpScreen
from ddpmon.tui.screens.overview import Overview
from ddpmon.tui.screens.rank_screen import RankScreen
from ddpmon.tui.theme import DARK, LIGHT
from ddpmon.tui.widgets.canvas import Canvas
from tests.tui.made_runs import NOTES, Made, Playing, snapshot
from tests.tui.watched import STRAGGLER, Fixed, Watched, watch


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (120, 34), (160, 50), (300, 80)])
@pytest.mark.parametrize("ranks", [1, 8, 1024, 4096])
def test_it_draws_at_every_size(size: tuple[int, int], ranks: int) -> None:
    shown = snapshot(Made(ranks=ranks, straggler=ranks - 1 if ranks > 1 else None, per_node=8))

    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms" if ranks > 1 else "only one rank")
        text = watched.text()
        assert " ddpmon  gpt-stdlib" in text
        assert "q quit" in text
        assert all(len(line) <= size[0] for line in text.split("\n"))
        assert len(text.split("\n")) == size[1]

    watch(Fixed(shown), act, size)


def test_a_tiny_terminal_says_so_and_still_quits() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("needs 40x12")
        await watched.press("q")
        await watched.until(lambda: not watched.app.is_running)

    watch(Fixed(STRAGGLER), act, (30, 8))


def test_resizing_draws_for_the_new_size() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("samples/s")
        await watched.pilot.resize_terminal(30, 8)
        await watched.until_shown("needs 40x12")
        await watched.pilot.resize_terminal(160, 50)
        await watched.until_shown("+41 ms")
        assert "needs 40x12" not in watched.text()

    watch(Fixed(STRAGGLER), act)


def test_space_freezes_the_display_and_not_the_collection() -> None:
    source = Playing(Made(ranks=4))

    async def act(watched: Watched) -> None:
        await watched.until_shown("step   1,2")
        await watched.press("space")
        await watched.until_shown("display frozen at step")
        frozen = watched.app.picture.snapshot.run
        seen = source.made.step
        await watched.until(lambda: source.made.step > seen + 12)
        await watched.pilot.pause()
        assert watched.app.picture.snapshot.run is frozen
        assert "FROZEN" in watched.text()
        await watched.press("space")
        now = watched.app.picture.snapshot.run
        assert now is not None
        assert frozen is not None
        assert (now.step or 0) > (frozen.step or 0)
        assert "FROZEN" not in watched.text()

    watch(source, act)


def test_enter_opens_the_worst_rank_and_esc_goes_back() -> None:
    source = Fixed(STRAGGLER)

    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        await watched.press("enter")
        assert isinstance(watched.app.screen, RankScreen)
        assert source.focus == 5
        await watched.until_shown("last 20 steps")
        assert "pid 4305" in watched.text()
        await watched.press("escape")
        assert isinstance(watched.app.screen, Overview)
        assert source.focus is None

    watch(source, act, interval=10)


def test_j_in_the_detail_goes_to_the_next_rank_of_the_table() -> None:
    source = Fixed(STRAGGLER)

    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        await watched.press("enter", "j")
        assert source.focus == watched.rows()[1] != 5
        await watched.until_shown(f"rank {watched.rows()[1]} of 8")

    watch(source, act)


def test_the_detail_comes_even_while_the_display_is_frozen() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        await watched.press("space", "enter")
        await watched.until_shown("last 20 steps")
        assert "FROZEN" in watched.text()

    watch(Fixed(STRAGGLER), act)


def test_sorting_and_reversing() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        assert watched.rows()[0] == 5
        await watched.press("s")
        assert watched.rows() == list(range(8))
        await watched.press("r")
        assert watched.rows() == list(range(7, -1, -1))
        assert "by rank" in watched.text()

    watch(Fixed(STRAGGLER), act)


def test_filtering_as_one_types() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        await watched.press("slash", *"node0")
        assert watched.rows() == [0, 1, 2, 3]
        await watched.press("enter")
        assert "filter node0: 4 of 8" in watched.text()
        assert "q quit" in watched.text()
        await watched.press("escape")
        assert len(watched.rows()) == 8

    watch(Fixed(STRAGGLER), act)


def test_a_letter_typed_into_the_filter_is_no_command() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        await watched.press("slash", "q", "space", "5", "question_mark")
        assert watched.app.is_running
        assert isinstance(watched.app.screen, Overview)
        assert len(watched.rows()) == 8, "the filter before stays"
        assert "'q' stands" in watched.text() or "is called 'q'" in watched.text()
        await watched.press("escape", "q")
        await watched.until(lambda: not watched.app.is_running)

    watch(Fixed(STRAGGLER), act)


def test_the_cursor_follows_its_rank() -> None:
    source = Fixed(STRAGGLER)

    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        overview = watched.app.screen
        assert isinstance(overview, Overview)
        assert overview.table.rank == 5
        await watched.press("j", "down")
        chosen = overview.table.rank
        assert chosen == watched.rows()[2]
        source.shown = replace(snapshot(Made(ranks=8, straggler=7)), findings=())
        await watched.until(lambda: watched.rows()[0] == 7)
        assert overview.table.rank == chosen
        await watched.press("home")
        assert overview.table.rank == 7
        await watched.press("end")
        assert overview.table.rank == watched.rows()[-1]

    watch(source, act)


def test_4096_ranks_can_be_walked_from_end_to_end() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        overview = watched.app.screen
        assert isinstance(overview, Overview)
        await watched.press("end")
        assert overview.table.view.cursor == 4095
        assert overview.table.view.top + overview.table.size.height - 2 == 4096
        await watched.press("pageup", "home")
        assert overview.table.view.top == 0

    watch(Fixed(snapshot(Made(ranks=4096, straggler=7, per_node=8))), act)


def test_findings_and_help_open_and_close() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        await watched.press("5")
        assert isinstance(watched.app.screen, FindingsScreen)
        assert "work ratio 1.35" in watched.text()
        await watched.press("question_mark")
        assert isinstance(watched.app.screen, HelpScreen)
        assert "Keys: findings" in watched.text()
        await watched.press("G")
        await watched.until_shown("waits least")
        await watched.press("escape")
        assert isinstance(watched.app.screen, FindingsScreen)
        await watched.press("1")
        assert isinstance(watched.app.screen, Overview)

    watch(Fixed(STRAGGLER), act)


def test_hostile_text_is_shown_as_plain_text() -> None:
    evil = "[bold red]\x1b[2J\x1b]0;pwned\x07[/] [link=http://x]\u202e"
    shown = snapshot(Made(ranks=4, name=evil, hosts=(evil,)))
    finding = replace(NOTES[0], summary=f"rank 2 {evil}", advice=evil, severity="critical", cause=evil)
    source = Fixed(replace(shown, findings=(finding,), link=Link("silent", evil), notices=(evil,)))

    async def act(watched: Watched) -> None:
        await watched.until_shown("rank 2 [bold red][2J]0;pwned[/] [link=http://x]")
        for keys in (("5",), ("1", "enter")):
            await watched.press(*keys)
            assert "[bold red]" in watched.text()
            assert all(char.isprintable() or char == "\n" for char in watched.text())

    watch(source, act, (160, 50))


def test_ascii_only_draws_nothing_else() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        assert watched.text().isascii()
        await watched.press("enter")
        await watched.until_shown("last 20 steps")
        assert watched.text().isascii()

    watch(Fixed(STRAGGLER), act, ascii_only=True)


def test_no_color_draws_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        strips = watched.app.screen._compositor.render_strips()
        filtered = [strip.apply_filter(f, watched.app.screen.background_colors[1]) for strip in strips
                    for f in watched.app._filters[-1:]]  # fmt: skip
        styles = [segment.style for strip in filtered for segment in strip if segment.style]
        assert styles
        assert not [s for s in styles for colour in (s.color, s.bgcolor) if colour and not colour.is_default]

    watch(Fixed(STRAGGLER), act)


def test_the_light_theme_changes_the_look() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        before = watched.app.picture.look
        watched.app.theme = "ddpmon-light"
        await watched.until(lambda: watched.app.picture.look is not before)
        assert watched.app.picture.look.accent != before.accent
        await watched.until(lambda: DARK.background not in _backgrounds(watched))
        assert LIGHT.background in _backgrounds(watched)

    watch(Fixed(STRAGGLER), act)


def _backgrounds(watched: Watched) -> set[str]:
    """The colours that lie under what is on the screen."""
    strips = watched.app.screen._compositor.render_strips()
    styles = [segment.style for strip in strips for segment in strip]
    return {style.bgcolor.name for style in styles if style is not None and style.bgcolor is not None}


def test_the_rate_can_be_changed_within_its_bounds() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        await watched.press(*["minus"] * 9)
        assert watched.app.picture.interval == 10
        assert "every 10 s" in watched.text()
        await watched.press(*["plus"] * 9)
        assert watched.app.picture.interval == 0.25

    watch(Fixed(STRAGGLER), act, (160, 40), interval=1.0)


def test_only_lines_that_changed_are_drawn_again() -> None:
    source = Fixed(STRAGGLER)

    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        heat = watched.app.screen.query_one("#heat", Canvas)
        await watched.pilot.pause()
        marked: list[object] = []
        heat.refresh = lambda *regions, **_: marked.extend(regions)  # type: ignore[method-assign,assignment]
        seen = source.ticks
        await watched.until(lambda: source.ticks > seen + 2)
        assert marked == []
        assert STRAGGLER.heat is not None
        late = STRAGGLER.heat.values.copy()
        late[2, -30:] = 60
        source.shown = replace(STRAGGLER, heat=replace(STRAGGLER.heat, values=late))
        await watched.until(lambda: bool(marked))
        assert len(marked) <= TALLEST, "the lines of one rank"

    watch(source, act)


def test_enter_on_a_node_of_the_heat_map_shows_its_ranks_alone() -> None:
    """With the first picture already: the next one is ten seconds away."""
    source = Fixed(snapshot(Made(ranks=128, per_node=8, straggler=43)))

    async def act(watched: Watched) -> None:
        await watched.until_shown("lateness, host x step")
        await watched.pilot.press("tab")
        await watched.until_shown("these ranks")
        await watched.pilot.press("enter")
        await watched.until_shown("8 of 128 ranks")
        assert sorted(watched.rows()) == list(range(40, 48))
        await watched.pilot.press("escape")
        await watched.until_shown("lateness, host x step")
        assert len(watched.rows()) == 128

    watch(source, act, interval=10)
