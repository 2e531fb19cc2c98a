"""The app and its source: what is on the screen while it is awaited, answers, falls silent, goes or breaks."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from ddpmon.snapshot import Link, Snapshot
from ddpmon.tui.screens.findings_screen import FindingsScreen
from ddpmon.tui.view_state import NOTHING_YET
from ddpmon.tui.widgets.canvas import Canvas
from tests.commands.command_snapshots import unknown_ranks
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import text_of
from tests.tui.watched import STRAGGLER, Fixed, Watched, watch


def test_it_waits_for_a_run_and_shows_it_when_it_comes() -> None:
    source = Fixed(replace(NOTHING_YET, link=Link("waiting", "no run on this host yet")))

    async def act(watched: Watched) -> None:
        await watched.until_shown("no run on this host yet")
        assert "enter rank" not in watched.text()
        source.shown = STRAGGLER
        await watched.until_shown("late +41 ms")
        assert "waiting for a run" not in watched.text()

    watch(source, act)


def test_while_nothing_is_known_no_screen_reads_as_healthy() -> None:
    source = Fixed(replace(NOTHING_YET, link=Link("waiting", "no store at node7:1")))
    assert STRAGGLER.run is not None
    unheard = replace(NOTHING_YET, link=Link("live"), run=replace(STRAGGLER.run, step=None), ranks=unknown_ranks(8))

    async def act(watched: Watched) -> None:
        await watched.press("5")
        await watched.until_shown("waiting: no store at node7:1")
        assert "no findings" not in watched.text()
        await watched.press("3")
        await watched.until_shown("no store at node7:1")
        source.shown = unheard
        await watched.until_shown("waiting: no host has published yet")
        await watched.press("5")
        await watched.until_shown(
            "waiting: no rank has reported yet (run found at tcp://127.0.0.1:29480, 8 ranks expected)"
        )
        assert "no findings" not in watched.text()
        await watched.press("1")
        await watched.until_shown("waiting: no rank has reported yet")

    watch(source, act)


def test_when_the_store_goes_the_picture_stays_and_it_comes_back_live() -> None:
    source = Fixed(STRAGGLER)

    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        bright = [segment.style for segment in watched.app.screen.query_one("#heat", Canvas).render_line(1)]
        source.shown = replace(STRAGGLER, link=Link("gone", "the store has ended; this is its last state"))
        await watched.until_shown("the store has ended; this is its last state")
        assert "GONE" in watched.text()
        assert "late +41 ms" in watched.text()
        styles = [segment.style for segment in watched.app.screen.query_one("#heat", Canvas).render_line(1)]
        assert styles
        assert set(styles).isdisjoint(bright)
        assert STRAGGLER.run is not None
        source.shown = replace(source.shown, run=replace(STRAGGLER.run, state="failed"))
        await watched.until_shown("FAILED")
        source.shown = STRAGGLER
        await watched.until_shown("RUNNING")
        styles = [segment.style for segment in watched.app.screen.query_one("#heat", Canvas).render_line(1)]
        assert styles == bright

    app = watch(source, act)
    assert "rank 5 (node1) is late" in app.summary()


def test_what_is_faded_has_as_many_colours_as_before() -> None:
    shown = snapshot(Made(ranks=16, per_node=8, straggler=5))
    source = Fixed(shown)

    def colours(watched: Watched) -> set[object]:
        heat = watched.app.screen.query_one("#heat", Canvas)
        return {
            segment.style and segment.style.bgcolor for y in range(heat.size.height) for segment in heat.render_line(y)
        }

    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        bright = colours(watched)
        assert len(bright) > 1, "ranks share a cell"
        source.shown = replace(shown, link=Link("gone", "the store has ended; this is its last state"))
        await watched.until_shown("GONE")
        assert len(colours(watched)) == len(bright)
        assert colours(watched) != bright

    watch(source, act, (120, 34))


def test_nothing_is_drawn_for_a_snapshot_that_tells_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    source, drawn = Fixed(STRAGGLER), []
    plain = Canvas.redraw

    def noted(canvas: Canvas) -> None:
        drawn.append(source.shown)
        plain(canvas)

    monkeypatch.setattr(
        "ddpmon.tui.view_state._PATIENCE_S", 3600.0
    )  # however slow the machine is, the store is not late

    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        monkeypatch.setattr(Canvas, "redraw", noted)
        begin = source.ticks
        await watched.until(lambda: source.ticks > begin + 3)
        assert not drawn
        watched.app.picture = replace(watched.app.picture, stuck_s=4.0)  # as it was drawn while the store was late
        await watched.until(lambda: source.shown in drawn)
        drawn.clear()
        source.shown = replace(STRAGGLER, notices=("something was set aside",))
        await watched.until(lambda: source.shown in drawn)
        monkeypatch.setattr(Canvas, "redraw", plain)

    watch(source, act)


def test_a_source_that_does_not_answer_is_told_and_delays_nothing() -> None:
    source = Fixed(STRAGGLER)

    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        source.answering.clear()
        watched.app._latest = replace(watched.app._latest, taken_monotonic=time.monotonic() - 12)
        await watched.until_shown("no answer from the store for")
        assert "SILENT" in watched.text()
        await watched.press("5")
        assert isinstance(watched.app.screen, FindingsScreen)
        await watched.press("q")
        await watched.until(lambda: not watched.app.is_running)

    watch(source, act)
    assert not source.closed.is_set()  # the reader is still in its read, and nobody waited for it
    source.answering.set()
    assert source.closed.wait(30)


@pytest.mark.parametrize("view", ["1", "2", "3", "4", "5"])
def test_the_header_is_silent_in_the_same_frame_as_its_sentence(view: str) -> None:
    """`SILENT` stood there a frame before the line had room that says why, and a frame after it was gone."""
    source = Fixed(STRAGGLER)
    silent = replace(STRAGGLER, link=Link("silent", "the store does not answer"))

    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        await watched.press(view)
        await watched.until_shown("RUNNING")
        for source.shown, state in ((silent, "SILENT"), (STRAGGLER, "RUNNING"), (silent, "SILENT")):
            watched.app.shown = replace(source.shown, taken_monotonic=time.monotonic())
            watched.app.redraw()
            while state not in (text := _head_of(watched)):
                assert ("SILENT" in text) is ("the store does not answer" in text)
                await watched.pilot.pause(0.01)
            assert ("SILENT" in text) is ("the store does not answer" in text)

    watch(source, act)


def _head_of(watched: Watched) -> str:
    return "\n".join(text_of(watched.app.screen.query_one("#head", Canvas).lines))


def test_a_store_that_no_longer_answers_for_a_finished_run_is_not_missed() -> None:
    assert STRAGGLER.run is not None
    source = Fixed(replace(STRAGGLER, run=replace(STRAGGLER.run, state="finished", step_age_s=0.3)))

    async def act(watched: Watched) -> None:
        await watched.until_shown("FINISHED")
        source.answering.clear()
        watched.app._latest = replace(watched.app._latest, taken_monotonic=time.monotonic() - 12)
        await watched.press("5")
        await watched.until(lambda: isinstance(watched.app.screen, FindingsScreen) and watched.app.screen.ready)
        watched.app.redraw()
        assert "no answer from the store" not in watched.text()
        assert "SILENT" not in watched.text()
        source.answering.set()

    watch(source, act)


def test_a_source_that_breaks_ends_the_app_with_the_error() -> None:
    class Broken(Fixed):
        def tick(self) -> Snapshot:
            raise ValueError("a defect of ours")

    async def act(watched: Watched) -> None:
        await watched.until(lambda: not watched.app.is_running)

    with pytest.raises(ValueError, match="a defect of ours"):
        watch(Broken(STRAGGLER), act)
