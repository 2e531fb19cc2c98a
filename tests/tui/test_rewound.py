"""A live run that is rewound: reading goes on, the way back and to now, and what is said of the past."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ddpmon.recording.reader import Place
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.rewindable import Rewindable
from ddpmon.recording.travel import Request
from ddpmon.simulate.plan import Plan
from tests.recording.made_recordings import SimulatedRun, simulated
from tests.tui.test_travel import moment
from tests.tui.watched import Watched, watch

PLAN = Plan(ranks=4, hosts=2, scenario="straggler")


@contextmanager
def live(seconds: int) -> Iterator[tuple[SimulatedRun, Recorder, Rewindable]]:
    """A simulated run that has been read for so many seconds, its recorder, and what the dashboard reads."""
    recorder = Recorder(None)
    with simulated(PLAN, recorder) as run:
        run.go(seconds)
        yield run, recorder, Rewindable(run.observer, recorder)


def test_a_live_run_is_rewound_while_reading_goes_on() -> None:
    with live(30) as (run, recorder, source):

        async def act(watched: Watched) -> None:
            await watched.until_shown("RUNNING")
            assert watched.app.picture.snapshot.replay is None
            await watched.press("left_square_bracket")
            await watched.until_shown("REWOUND")
            before = moment(watched)
            run.clock.now += 1.0
            run.publish()
            looks = recorder.looks
            await watched.until(lambda: recorder.looks > looks)
            assert moment(watched) == before, "the moment stays while reading goes on"
            await watched.press("right_square_bracket", "right_square_bracket")
            await watched.until(lambda: watched.app.picture.snapshot.replay is None or moment(watched) > before)
            await watched.press("left_curly_bracket")
            await watched.until_shown("REWOUND")
            await watched.press("end")
            await watched.until_shown("RUNNING")

        watch(source, act)
    assert source.closed.wait(30)


def test_while_the_way_back_is_being_read_end_leads_back_and_the_store_is_not_called_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`end` was the table's until the moment stood on the screen: the picture of the past came after it, and stayed."""
    reading, may_go_on = threading.Event(), threading.Event()
    with live(30) as (_run, _recorder, source):
        go = source.travel.go

        def slowly(place: Place | None) -> None:
            if place is not None:
                reading.set()
                assert may_go_on.wait(60)
            go(place)

        monkeypatch.setattr(source.travel, "go", slowly)

        async def act(watched: Watched) -> None:
            await watched.until_shown("RUNNING")
            await watched.press("left_curly_bracket")
            await watched.until(reading.is_set)
            shown = watched.app.picture.snapshot
            await watched.until(lambda: time.monotonic() - shown.taken_monotonic > 4.0)
            await watched.until_shown("another moment is being read; until then")
            assert "SILENT" not in watched.text()
            await watched.press("end")
            assert source.travel.is_asked, "it waits for its turn"
            may_go_on.set()
            await watched.until(lambda: not source.travel.is_under_way)
            await watched.until_shown("RUNNING")
            await watched.until(lambda: watched.app.shown.replay is None)
            await watched.until(lambda: "another moment" not in watched.text())

        watch(source, act)


def test_a_key_that_is_held_is_no_long_way_to_one_moment() -> None:
    with live(30) as (_run, _recorder, source):
        source.travel.ask(Request("step", -1))
        source.rebuild()
        source.travel.ask(Request("step", -1))
        assert source.travel.moving_s is None, "the moment of the key before is there"
        assert source.travel.is_under_way


def test_in_the_past_an_onset_is_so_much_earlier_than_the_moment_shown() -> None:
    """Beside the title of the timeline, which counts from now, `43 s ago` was counted from the moment shown."""
    with live(80) as (_run, _recorder, source):

        async def act(watched: Watched) -> None:
            for view, most in (("1", 1), ("2", 2), ("5", 1)):  # `heard 0.0 s ago`, and how far the timeline lies back
                await watched.press(view, "end")
                await watched.until_shown("RUNNING")
                await watched.until(lambda: bool(re.search(r"\d s ago", watched.text().split("\n", 1)[1])))
                assert " earlier" not in watched.text()
                await watched.press(*["left_square_bracket"] * 3)
                await watched.until_shown(" s earlier")
                assert ("─ at this moment ─" in watched.text()) is (view == "5")
                assert len(re.findall(r"\d s ago", watched.text())) <= most

        watch(source, act, (160, 40))


@pytest.mark.parametrize(("key", "line"), [("t", "go to a step"), ("ctrl+s", "esc nothing"), ("ctrl+p", "Compare the")])
def test_the_picture_is_renewed_below_a_line_that_is_open(key: str, line: str) -> None:
    with live(30) as (run, _recorder, source):

        async def act(watched: Watched) -> None:
            await watched.until_shown("RUNNING")
            await watched.press(key)
            await watched.until_shown(line)
            before = shown_step(watched)
            run.clock.now += 1.0
            run.publish()
            await watched.until(lambda: shown_step(watched) > before)
            assert line in watched.text(), "it is still open"
            await watched.press("escape")
            await watched.until_shown("RUNNING")

        watch(source, act)


def shown_step(watched: Watched) -> int:
    """The step in the line of figures."""
    found = re.search(r"^ *step +([\d,]+) ", watched.text(), re.MULTILINE)
    assert found is not None
    return int(found[1].replace(",", ""))
