"""Time travel as a reader uses it: keys in, the moment on the screen out."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpmon.recording.recorder import Recorder
from ddpmon.recording.travel import Replay, Rewindable
from ddpmon.simulate.plan import Plan
from tests.recording.made_recordings import record, simulated
from tests.tui.watched import Watched, watch

PLAN = Plan(ranks=4, hosts=2, scenario="straggler")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "[bold]run.ddpmon"
    record(PLAN, 70, path).close()
    return path


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
        await watched.until_shown("backward +")
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
        await watched.press("w")
        await watched.until_shown("the report is in")
        (page,) = (each.read_text() for each in Path().glob("report-simulated-straggler-step-*.html"))
        assert "simulated-straggler" in page
        await watched.press("plus", "plus", "space")
        await watched.until(lambda: (watched.app.picture.snapshot.replay or pytest.fail("live")).speed == 4.0)
        await watched.press("end")
        await watched.until(lambda: moment(watched) == end)

    watch(Replay(recorded), act)


def test_a_live_run_is_rewound_while_reading_goes_on() -> None:
    recorder = Recorder(None)
    with simulated(PLAN, recorder) as run:
        run.go(30)
        source = Rewindable(run.observer, recorder)

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
