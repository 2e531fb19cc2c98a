"""Time travel as a reader uses it: keys in, the moment on the screen out."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import pytest

from ddpmon.recording.looks import Look
from ddpmon.recording.reader import Chunk, Place, Recording
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.rewindable import Rewindable
from ddpmon.recording.travel import Move, Replay, Request, Travel
from ddpmon.simulate.plan import Plan
from ddpmon.tui.screens.go_to import moment as go_to
from ddpmon.tui.view_state import NOTHING_YET
from ddpmon.tui.widgets.finding_list import FindingList
from tests.recording.made_recordings import record, simulated
from tests.tui.test_key_order import send
from tests.tui.watched import Watched, watch

PLAN = Plan(ranks=4, hosts=2, scenario="straggler")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "[bold]run.ddpmon"
    record(PLAN, 70, path).close()
    return path


Moved = tuple[Move, float]
BACK: Moved = ("step", -1.0)
ON: Moved = ("step", 1.0)
MINUTE_BACK: Moved = ("seconds", -60.0)
MINUTE_ON: Moved = ("seconds", 60.0)
FINDING_BACK: Moved = ("finding", -1.0)
END: Moved = ("end", 0.0)
MASHED = (*[BACK] * 4, MINUTE_BACK, MINUTE_ON, ON, BACK, FINDING_BACK, MINUTE_ON, BACK, BACK)


class Counted(Recording):
    """A recording that counts the looks that are read of it."""

    read = 0

    def look(self, place: Place, chunk: Chunk) -> Look:
        self.read += 1
        return super().look(place, chunk)


def test_many_keys_lead_where_each_would_and_cost_one_way(recorded: Path) -> None:
    slow, fast = Travel(Counted(recorded)), Travel(Counted(recorded))
    for travel in (slow, fast):
        travel.go(travel.recording.last())
    counted = fast.recording
    assert isinstance(counted, Counted)
    to_the_end, counted.read = counted.read, 0
    for move in MASHED:
        slow.ask(Request(*move))
        slow.tick()
        fast.ask(Request(*move))
    fast.tick()
    assert fast.player.place == slow.player.place != fast.recording.last()
    assert 0 < counted.read < 2 * to_the_end
    for travel in (slow, fast):
        travel.recording.close()


def test_a_moment_that_arrives_in_one_packet_is_gone_to(recorded: Path) -> None:
    async def act(watched: Watched) -> None:
        def step() -> int | None:
            run = watched.app.picture.snapshot.run
            return None if run is None else run.step

        await watched.until_shown("REPLAY running")
        end = step()
        await watched.press("t", *"step", "space", *"50", "enter")
        await watched.until(lambda: step() != end)
        asked = step()
        await watched.press("end")
        await watched.until(lambda: step() == end)
        send(watched, "tstep 59<0\n2")
        await watched.until_shown("─ timeline")
        await watched.until(lambda: step() == asked)

    watch(Replay(recorded), act)


def test_a_click_on_the_timeline_goes_to_the_step_that_is_drawn_there(recorded: Path) -> None:
    async def act(watched: Watched) -> None:
        def step() -> int:
            run = watched.app.picture.snapshot.run
            assert run is not None
            assert run.step is not None
            return run.step

        await watched.until_shown("REPLAY running")
        end = step()
        await watched.press("2")
        await watched.until_shown("─ timeline")
        rows = watched.app.screen.query_one("#timeline").region
        for share in (2, 3):
            before, column = step(), rows.x + rows.width // share
            await watched.pilot.click(offset=(column, rows.y + 3))
            await watched.until(lambda: step() < before)  # noqa: B023
            bar = watched.app.picture.look.glyphs.bar
            await watched.until(lambda: watched.text().split("\n")[rows.y + 3][column] == bar)  # noqa: B023
        await watched.press("end")
        await watched.until(lambda: step() == end)

    watch(Replay(recorded), act)


def test_end_is_live_at_once_whatever_was_asked_before() -> None:
    recorder = Recorder(None)
    with simulated(PLAN, recorder) as run:
        run.go(30)
        source = Rewindable(run.observer, recorder)
        counted = Counted(recorder.book)
        source.travel = Travel(counted)
        for move in (*MASHED, END):
            source.travel.ask(Request(*move))
        assert source.rebuild().replay is None
        assert counted.read == 0
        for move in (END, BACK):
            source.travel.ask(Request(*move))
        assert source.rebuild().replay is not None, "a step back from the end is in the past"
        source.close()


def test_a_picture_of_the_past_knows_the_findings_of_now() -> None:
    recorder = Recorder(None)
    with simulated(PLAN, recorder) as run:
        run.go(30)
        source = Rewindable(run.observer, recorder)
        source.travel.ask(Request(*BACK))
        for _ in range(40):
            run.clock.now += 1.0
            run.publish()
            shown = source.tick()
        assert shown.replay is not None
        assert shown.findings == ()
        assert [finding.kind for finding in shown.findings_now] == ["straggler"]
        source.close()


def moment(watched: Watched) -> float:
    replay = watched.app.picture.snapshot.replay
    assert replay is not None
    return replay.t


def test_a_recording_opens_at_its_end_and_is_travelled_in(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def act(watched: Watched) -> None:
        await watched.until_shown("REPLAY running")
        await watched.until_shown("late +")
        end = moment(watched)
        await watched.press("left_square_bracket")
        await watched.until(lambda: moment(watched) < end)
        await watched.press("left_curly_bracket")
        await watched.until(lambda: moment(watched) < end - 60)
        await watched.press("3")
        await watched.until_shown("node0001")
        await watched.press("1", "n")
        await watched.until(lambda: any(f.kind != "advice" for f in watched.app.picture.snapshot.findings))
        await watched.press("home")
        await watched.until(lambda: moment(watched) == 0)
        assert not watched.app.picture.snapshot.findings, "nothing was known then"
        await watched.press("t", "2", "0", "enter")
        await watched.until(lambda: (watched.app.picture.snapshot.run or pytest.fail("no run")).step in (20, 21, 22))
        await watched.press("t", "²", "enter")
        await watched.until_shown("'²' is not understood")
        await watched.press("escape", "w")
        await watched.until_shown("the report is in")
        (page,) = (each.read_text() for each in Path().glob("report-simulated-straggler-step-*.html"))
        assert "simulated-straggler" in page
        await watched.press("plus", "plus", "space")
        await watched.until(lambda: (watched.app.picture.snapshot.replay or pytest.fail("live")).speed == 4.0)
        await watched.press("end")
        await watched.until(lambda: moment(watched) == end)
        await watched.press("t", "3", "0", "s", "enter")
        await watched.until(lambda: end - 31 <= moment(watched) <= end - 29)
        await watched.press("t", "9", "9", "h", "enter")
        await watched.until_shown("what was seen here begins at step 0")
        assert moment(watched) == 0

    watch(Replay(recorded), act)


def test_n_says_to_which_finding_it_goes_and_puts_the_cursor_of_the_findings_on_it(tmp_path: Path) -> None:
    path = tmp_path / "run.ddpmon"
    record(Plan(ranks=8, hosts=2, scenario="mixed"), 50, path).close()

    async def act(watched: Watched) -> None:
        await watched.until_shown("REPLAY running")
        await watched.press("5", "home")
        await watched.until(lambda: moment(watched) == 0)
        listing = watched.app.screen.query_one(FindingList)
        for key, said, kind in (
            ("n", "ranks 4-7: silent; ", "monitor_degraded"),
            ("n", "ranks 4-7: lost, since step ", "rank_lost"),
            ("n", "ranks 4-7: restarted alone, since step ", "monitor_degraded"),
            ("n", "node0001: shared GPU, since step ", "gpu_shared"),
            ("n", "rank 2: late +", "straggler"),
            ("N", "node0001: shared GPU, since step ", "gpu_shared"),
        ):
            await watched.press(key)
            await watched.until_shown(f"‖ {said}")
            assert "; space plays; [ ] step" in watched.text(), "and how to go on"
            assert listing.finding is not None
            assert listing.finding.kind == kind
        await watched.press("g")
        await watched.pilot.pause(0.3)
        assert listing.view.cursor == 0, "the reader may leave it"
        await watched.press("left_square_bracket")
        await watched.until_shown("; space plays")

    watch(Replay(path), act, (160, 40))


def test_what_the_record_does_not_reach_is_said(recorded: Path) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("REPLAY running")
        assert "every 0.25 s" not in watched.text(), "nothing is read from a store"
        assert " end last moment " in watched.text().split("\n")[-1]
        end, at = moment(watched), watched.app.picture.snapshot.taken_at
        await watched.press("n")
        await watched.until_shown("no finding begins after this moment")
        assert re.search(r"no finding begins after this moment; \S+.* of 00:01:\d\d", watched.text()), "where we are"
        await watched.press("home", "N")
        await watched.until_shown("no finding begins before this moment")
        assert moment(watched) == 0
        await watched.press("t", *"99999", "enter")
        await watched.until_shown("what was seen here ends at step ")
        assert moment(watched) == end
        await watched.press("home")
        await watched.until(lambda: moment(watched) == 0)
        later = datetime.fromtimestamp(at + 3 * 3600).strftime("%H:%M")
        await watched.press("t", *later, "enter")
        await watched.until_shown("; it begins at ")
        assert moment(watched) == end

    watch(Replay(recorded), act, (160, 40))


@pytest.mark.parametrize("key", [Request("speed", 1.0), Request("play"), Request("step", -1.0)])
def test_the_next_key_ends_what_is_said_of_the_last_one(recorded: Path, key: Request) -> None:
    travel = Travel(Recording(recorded))
    travel.go(travel.recording.last())
    travel.ask(Request("finding", 1.0))
    travel.tick()
    assert travel.finish(NOTHING_YET).told == "no finding begins after this moment"
    travel.ask(key)
    travel.tick()
    assert travel.finish(NOTHING_YET).told == ""
    travel.recording.close()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2 min ago", 120.0),
        ("-90s", 90.0),
        ("1h", 3600.0),
        ("0.5 m", 30.0),
        ("2 minutes", 120.0),
        ("2 min back", 120.0),
        ("2 min earlier", 120.0),
    ],
)
def test_how_long_ago_is_a_moment(text: str, seconds: float) -> None:
    assert go_to(text, 5000.0) == Request("to_wall", 5000.0 - seconds)


@pytest.mark.parametrize("text", ["1200", "1,200", "step 1,200", "Step 1200"])
def test_a_step_is_a_moment(text: str) -> None:
    assert go_to(text, 5000.0) == Request("to_step", 1200.0)


@pytest.mark.parametrize("text", ["step", "abc", "2 weeks", "min", "--3s", "1e9s", "25:00", "²:30", ""])
def test_what_is_no_moment(text: str) -> None:
    assert go_to(text, 5000.0) is None
