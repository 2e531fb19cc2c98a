"""Zoom in time: one number of steps for all views, around the moment that is shown."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ddpmon.recording.travel import Replay
from ddpmon.simulate.plan import Plan
from ddpmon.snapshot import Finding, MarkView, Snapshot
from ddpmon.tui.draw.detail import detail_lines
from ddpmon.tui.draw.heat import heat_lines
from ddpmon.tui.draw.run_plots import plots_stacked
from ddpmon.tui.draw.timeline_view import timeline_lines
from ddpmon.tui.draw.zoom import zoomed
from ddpmon.tui.screens.base import BaseScreen
from ddpmon.tui.screens.rank_screen import RankScreen
from ddpmon.tui.theme import make_look
from ddpmon.tui.view_state import ViewState
from tests.recording.made_recordings import record
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import text_of
from tests.tui.test_views import LATE, SHOWN, made_timeline, timed
from tests.tui.watched import Fixed, Watched, watch


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "run.ddpmon"
    record(Plan(ranks=4, hosts=2, scenario="straggler"), 70, path).close()
    return path


def span(watched: Watched, name: str) -> tuple[int, int, int]:
    """The steps that the title of a panel names, and of how many."""
    found = re.search(rf"─ {re.escape(name)}, steps (\d+)-(\d+) of (\d+) ─", watched.text())
    assert found is not None, watched.text()
    first, last, newest = map(int, found.groups())
    return first, last, newest


def drawn_steps(watched: Watched) -> list[int]:
    """The steps of the table that the view writes."""
    assert isinstance(watched.app.screen, BaseScreen)
    return [int(line.partition(",")[0]) for line in watched.app.screen.csv().splitlines()[1:]]


def test_all_views_show_the_steps_that_were_zoomed_in_on_in_one_of_them(recorded: Path) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("REPLAY running")
        await watched.until_shown("late +")
        await watched.press("2")
        await watched.until_shown("─ timeline ─")
        whole = drawn_steps(watched)
        await watched.press("z", "z")
        await watched.until_shown("─ timeline, steps")
        first, last, newest = span(watched, "timeline")
        assert last == newest == whole[-1]
        assert last - first + 1 == len(whole) // 2 // 2
        assert drawn_steps(watched) == [*range(first, last + 1)]
        axis = next(
            line for line in watched.text().split("\n") if " step " in line and line.rstrip().endswith(f" {last}")
        )
        assert f" step {first} " in axis
        await watched.press("enter")
        await watched.until(lambda: isinstance(watched.app.screen, RankScreen))
        await watched.until_shown("─ work, ms, steps")
        first, last, _ = span(watched, "work, ms")
        assert last - first + 1 == len(whole) // 2 // 2
        await watched.press("1")
        await watched.until_shown("─ step time, ms, steps")
        first, last, _ = span(watched, "step time, ms")
        assert last - first + 1 == len(whole) // 2 // 2
        await watched.press("Z", "Z")
        await watched.until(lambda: "─ step time, ms, steps" not in watched.text())
        await watched.press("2")
        await watched.until_shown("─ timeline ─")
        assert drawn_steps(watched) == whole

    watch(Replay(recorded), act, (160, 50))


def test_in_the_past_the_steps_lie_around_the_moment_and_follow_it(recorded: Path) -> None:
    async def go_to(watched: Watched, step: str) -> int:
        """Go to about that step; returns the one that the picture is of."""
        before = watched.app.picture.snapshot.taken_at
        await watched.press("t", *step, "enter")
        await watched.until(lambda: watched.app.picture.snapshot.taken_at != before)
        run = watched.app.picture.snapshot.run
        assert run is not None
        assert run.step is not None
        return run.step

    async def act(watched: Watched) -> None:
        await watched.until_shown("REPLAY running")
        await watched.until_shown("late +")
        await watched.press("2")
        at = await go_to(watched, "50")
        await watched.press("z", "z")
        await watched.until_shown("─ timeline, steps")
        first, last, newest = span(watched, "timeline")
        assert abs((first + last) / 2 - at) <= 1
        assert last < newest, "the recording goes on behind the axis"
        assert drawn_steps(watched) == [*range(first, last + 1)]
        later = await go_to(watched, "70")
        await watched.until(lambda: span(watched, "timeline")[0] > first)
        first, last, _ = span(watched, "timeline")
        assert abs((first + last) / 2 - later) <= 1
        assert later > at

    watch(Replay(recorded), act, (160, 50))


def test_there_are_no_fewer_steps_than_ten_and_no_more_than_all(recorded: Path) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("REPLAY running")
        await watched.press("2")
        await watched.until_shown("─ timeline ─")
        await watched.press("Z")
        assert watched.app.picture.zoom == 0
        await watched.press(*"zzzzzzzzz")
        assert watched.app.picture.zoom == 10
        assert len(drawn_steps(watched)) == 10
        await watched.press(*"ZZZZZZZZZ")
        assert watched.app.picture.zoom == 0

    watch(Replay(recorded), act, (120, 34))


def test_zooming_out_shows_all_that_the_run_has_added_meanwhile() -> None:
    """It showed 500 steps, which is twice the half of 500, while 507 were on record by then."""
    half = zoomed(0, 500, 1)
    assert half == 250
    assert zoomed(half, 507, -1) == 0
    assert zoomed(half, 1_000, -1) == 500


def test_the_vertical_scale_and_the_events_are_those_of_the_steps_shown() -> None:
    run, timeline = SHOWN.run, made_timeline()
    assert run is not None
    spike = np.where((timeline.step > 800) & (timeline.step < 900), 9000.0, 170.0)
    began: list[Finding] = [replace(LATE, ranks=(place,), since_step=since) for place, since in enumerate((1150, 1190))]
    over = replace(LATE, ranks=(2,), since_step=1100, cleared_at_step=1195)
    timeline = replace(timeline, step_ms=spike, marks=(MarkView(1191, "save", 3.0),))
    shown = replace(SHOWN, timeline=timeline, findings=(*began, over))
    whole, part = (text_of(timeline_lines(ViewState(shown, make_look(), zoom=zoom), 160, 24)) for zoom in (0, 100))
    assert any("10k┤" in line for line in whole)
    assert not any("10k┤" in line for line in part)
    past = ViewState(replace(shown, run=replace(run, step=1160)), make_look(), zoom=50, whole=shown)
    lines = text_of(timeline_lines(past, 160, 24))
    assert "steps 1,135-1,184 of 1,204" in lines[0]
    text = "\n".join(lines)
    assert "rank 0 late" in text
    assert "rank 2 late +80 ms, backward since 1,100" in text, "which was not over then"
    assert "rank 1 late" not in text, "it begins behind the axis"
    assert "save" not in text
    assert "over" not in text


@pytest.mark.parametrize("zoom", [0, 40])
def test_plots_and_heat_map_show_the_newest_steps(zoom: int) -> None:
    made = ViewState(timed(snapshot(Made(straggler=5, focus=5))), make_look(), zoom=zoom)
    plots = text_of(plots_stacked(made, 5, 80, 40, lateness=True))
    detail = text_of(detail_lines(made, 5, 80, 40))
    heat = text_of(heat_lines(made, 80, 12))
    for lines in (plots, detail, heat):
        axes = [line for line in lines if line.rstrip().endswith(" 1,204") and "steps" not in line]
        assert any("1,165 " in line for line in axes) is bool(zoom)
    named = [line for line in (*plots, *detail) if "steps 1,165-1,204 of 1,204 ─" in line]
    assert len(named) == (5 if zoom else 0)


class Rung:
    """Counts the bell of a running app."""

    def __init__(self, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        monkeypatch.setattr(watched.app, "bell", self._ring)

    def _ring(self) -> None:
        self.times += 1


HOST, COMPARE, FINDINGS = ("3", "enter"), ("m", "j", "m", "c"), ("5",)


@pytest.mark.parametrize(("keys", "zoom"), [(HOST, 300), (COMPARE, 602), (FINDINGS, 602), (("4",), 602)], ids=str)
def test_one_press_in_any_view_with_plots_halves_what_they_have_on_record(
    keys: tuple[str, ...], zoom: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's plots have 1,205 steps on record, the heat-map 600, a rank 500."""

    async def act(watched: Watched) -> None:
        await watched.until_shown("% of base")
        await watched.press(*keys)
        await watched.until_shown("z Z zoom")
        await watched.until(lambda: "reading rank" not in watched.text())
        before, rung = watched.text(), Rung(watched, monkeypatch)
        await watched.press("z")
        assert watched.app.picture.zoom == zoom
        assert watched.text() != before
        await watched.press("Z")
        assert (watched.app.picture.zoom, rung.times) == (0, 0)
        await watched.press("Z")
        assert (watched.app.picture.zoom, rung.times) == (0, 1), "there are no more steps"

    watch(Fixed(timed(SHOWN)), act, (160, 50), interval=60.0)


@pytest.mark.parametrize(("keys", "view"), [(("4",), "run"), (HOST, "host")])
def test_a_view_without_plots_rings_the_bell_and_leaves_the_zoom(
    keys: tuple[str, ...], view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("% of base")
        await watched.press("z")
        assert watched.app.picture.zoom == 300, "half of the heat-map, since no plot has room"
        await watched.press(*keys)
        await watched.until(lambda: isinstance(found := watched.app.screen, BaseScreen) and found.view == view)
        await watched.until(lambda: "RUNNING" in watched.text() and "─ ranks" not in watched.text())
        rung = Rung(watched, monkeypatch)
        await watched.press("z", "Z")
        assert (watched.app.picture.zoom, rung.times) == (300, 2)
        assert "z Z" not in watched.text().split("\n")[-1]

    watch(Fixed(SHOWN), act, (80, 24), interval=60.0)


def test_while_a_rank_is_being_read_the_zoom_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Fixed):
        """Never has the detail of a rank."""

        def rebuild(self) -> Snapshot:
            return replace(self.shown, taken_monotonic=self.taken_monotonic)

    async def act(watched: Watched) -> None:
        await watched.until_shown("% of base")
        await watched.press("z", "enter")
        await watched.until_shown("reading rank")
        rung = Rung(watched, monkeypatch)
        await watched.press("Z", "z")
        assert (watched.app.picture.zoom, rung.times) == (602, 2)

    watch(Slow(SHOWN), act, (120, 34), interval=60.0)
