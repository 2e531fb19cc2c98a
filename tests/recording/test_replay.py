"""A recording replayed: the same verdicts at the same steps as live, whole, cut off, or begun in its midst."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from msgspec import structs

from ddpmon.commands.export import export
from ddpmon.diagnose.alert import Alert
from ddpmon.recording.bounds import Bounds
from ddpmon.recording.facts import AlertRows
from ddpmon.recording.layout import APPLICATION, VERSION, RecordingError, create
from ddpmon.recording.player import Player
from ddpmon.recording.reader import Recording
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.story import report_of_file
from ddpmon.recording.travel import SPEEDS, Replay, Request
from ddpmon.simulate.plan import Plan
from ddpmon.snapshot import Link
from ddpmon.watcher.tap import Tick
from tests.recording.made_recordings import Said, record, simulated

NEAR = 40
PLANS = {
    "mixed": (Plan(ranks=24, hosts=3, scenario="mixed"), 70),
    "churn": (Plan(ranks=8, hosts=2, scenario="churn"), 90),
    "hang": (Plan(ranks=8, hosts=2, scenario="hang"), 60),
    "no host frames": (Plan(ranks=4, hosts=4, scenario="straggler"), 60),
    "a past": (Plan(ranks=8, hosts=2, scenario="straggler", hours=1.0), 60),
}


@pytest.fixture(scope="module")
def straggler(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Said]:
    """A run in which rank 2 becomes slow, and what was said of it live."""
    path = tmp_path_factory.mktemp("recorded") / "straggler.ddpmon"
    recorder = record(Plan(ranks=8, hosts=2, scenario="straggler"), 120, path)
    recorder.close()
    return path, recorder


@pytest.fixture(scope="module", autouse=True)
def short_chunks() -> Iterator[None]:
    """Chunks of half a minute, so that a short recording has several."""
    with patch("ddpmon.recording.recorder.LOOKS_A_CHUNK", 30), patch("ddpmon.recording.player.NEAR", NEAR):
        yield


@pytest.mark.parametrize("name", PLANS)
def test_replay_comes_to_the_same_verdicts_at_the_same_looks(name: str, tmp_path: Path) -> None:
    plan, seconds = PLANS[name]
    recorder = record(plan, seconds, tmp_path / "run.ddpmon")
    recorder.close()
    recording = Recording(tmp_path / "run.ddpmon")
    player, played = Player(recording), []
    while player.step():
        played.append((player.alerts, player.findings))
    assert player.is_exact
    assert played == [(alerts, findings) for _, alerts, findings in recorder.said]
    assert len(played) == seconds
    assert name == "a past" or any(alerts for alerts, _ in played)
    assert recording.notes == []


@pytest.mark.parametrize("speed", [1.0, 64.0])
def test_playing_fast_says_the_same_at_the_same_moment(
    straggler: tuple[Path, Said], speed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, recorder = straggler
    now = [100.0]
    monkeypatch.setattr("ddpmon.recording.travel.time.monotonic", lambda: now[0])
    replay = Replay(path)
    for request in (Request("start"), Request("speed", SPEEDS.index(speed) - 2), Request("play")):
        replay.travel.ask(request)
    seen: dict[float, object] = {}
    while not seen or replay.travel.playing:
        now[0] += 0.5 if speed > 1 else 1.0
        shown = replay.tick()
        assert shown.replay is not None
        assert shown.replay.is_exact
        seen[shown.replay.t] = shown.findings
    live = {at - recorder.said[0][0]: findings for at, _, findings in recorder.said}
    assert seen == {t: live[t] for t in seen}
    assert len(seen) >= (4 if speed > 1 else 100)
    assert max(seen) == max(live)


@pytest.mark.parametrize("seconds", [73, 78])
def test_the_end_of_a_recording_has_the_figures_of_the_last_word(seconds: int, tmp_path: Path) -> None:
    """Figures that change alone are written every ten seconds: the file said 55.9 ms, its recorder 53.8 ms."""
    path = tmp_path / "run.ddpmon"
    recorder = record(Plan(ranks=8, hosts=2, scenario="straggler"), seconds, path)
    recorder.close()
    replay = Replay(path)
    findings, live = replay.travel.player.findings, recorder.said[-1][2]
    assert not replay.travel.player.is_exact
    assert any(finding.kind == "straggler" for finding in live)
    assert findings == live
    replay.close()


def test_a_jump_shows_what_was_said_then_and_plays_on(straggler: tuple[Path, Said]) -> None:
    path, recorder = straggler
    recording = Recording(path)
    player = Player(recording)
    place = recording.at(110.0)
    assert place is not None
    assert place.look > NEAR
    player.go(place)
    assert not player.is_exact
    said = [(f.kind, f.ranks, f.since_step) for f in player.findings]
    assert said == [(f.kind, f.ranks, f.since_step) for f in recorder.said[place.look - 1][2]]
    assert any(kind == "straggler" and ranks == (2,) for kind, ranks, _ in said)
    picture = player.picture(2)
    assert picture is not None
    assert picture.ranks is not None
    assert picture.series is not None
    assert picture.heat is not None
    assert (picture.ranks.step == place.step).all(), "every rank is there"
    assert picture.series.step[0] == 0, "the curve of the whole run"
    assert picture.heat.step[-1] - picture.heat.step[0] > 80, "and the steps before"
    exact = Player(recording)
    while exact.place is None or exact.place.look < place.look:
        exact.step()
    whole = exact.picture(2)
    assert whole is not None
    assert replace(whole.job, allreduce_ms=None) == replace(picture.job, allreduce_ms=None)
    assert picture.job.allreduce_ms == pytest.approx(whole.job.allreduce_ms, rel=0.1), "of the steps since the chunk"
    assert whole.run == picture.run
    player.go(recording.at(10.0) or place)
    assert player.is_exact, "what is near the beginning is played from there"


@pytest.mark.parametrize("version", [VERSION, 3])
def test_after_a_jump_the_timeline_knows_the_all_reduce_as_long_as_the_step_time(
    straggler: tuple[Path, Said], version: int, tmp_path: Path
) -> None:
    """The table of steps had no all-reduce times: after a jump only the looks that were played told of them."""
    path = tmp_path / "run.ddpmon"
    shutil.copy(straggler[0], path)
    if version == 3:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as book:
            book.execute("ALTER TABLE steps DROP COLUMN allreduce_ms")
            book.execute("PRAGMA user_version = 3")
    with contextlib.closing(Replay(path)) as replay:
        timeline = replay.tick().timeline
        assert replay.travel.recording.notes == []
    assert not replay.travel.player.is_exact, "it has jumped"
    assert timeline is not None
    known, timed = (int(np.isfinite(column).sum()) for column in (timeline.allreduce_ms, timeline.step_ms))
    assert 0 < known < timed if version == 3 else 0 < known == timed


def test_it_is_sought_by_step_clock_and_finding(straggler: tuple[Path, Said]) -> None:
    path, recorder = straggler
    travel = Replay(path).travel

    def make(*requests: Request) -> int:
        for request in requests:
            travel.ask(request)
        travel.tick()
        assert travel.player.place is not None
        return travel.player.place.step

    end = make()
    assert end == make(Request("end"))
    begin = make(Request("start"))
    assert begin <= 2
    assert make(Request("step", 1)) > begin
    assert make(Request("step", -1)) == begin
    assert 100 <= make(Request("to_step", 100)) <= 103
    at = make(Request("seconds", 60))
    assert make(Request("seconds", -60)) < at
    make(Request("start"), Request("finding", 1))
    first = next(i for i, (_, alerts, _) in enumerate(recorder.said) if any(a.kind == "straggler" for a in alerts))
    assert travel.player.place is not None
    assert travel.player.place.look == first + 1
    make(Request("end"), Request("finding", -1))
    assert first < travel.player.place.look < len(recorder.said)


def test_what_is_too_much_is_thinned_and_the_alerts_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "small.ddpmon"
    bounds = Bounds(bytes=320_000)
    recorder = record(Plan(ranks=2, scenario="straggler"), 300, path, bounds)
    recorder.close()
    assert path.stat().st_size <= bounds.bytes
    recording = Recording(path)
    first, last = recording.first(), recording.last()
    assert first is not None
    assert last is not None
    assert first.t > 30, "old frames are gone"
    assert last.t > 298
    steps = [step for (step,) in recording.rows("SELECT DISTINCT step FROM steps ORDER BY step")]
    apart = [b - a for a, b in itertools.pairwise(steps)]
    assert steps[0] <= 64, "old steps are thinned, and not dropped"
    assert set(apart[-32:]) == {1}
    assert max(apart[:10]) >= 4
    assert ("straggler", "[0]") in [*recording.rows("SELECT kind, ranks FROM alerts")]
    player = Player(recording)
    assert player.step()
    assert not player.is_exact
    assert player.findings, "what was said is said from the first look on"


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9])
def test_what_is_cut_off_opens_up_to_the_damage(straggler: tuple[Path, Said], share: float, tmp_path: Path) -> None:
    path, _ = straggler
    cut = tmp_path / "cut.ddpmon"
    cut.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    said = what_it_says(cut)
    assert "damaged" in said or "without any content" in said


def what_it_says(path: Path) -> str:
    try:
        shown = Replay(path).tick()
    except RecordingError as error:
        return str(error)
    return " ".join(shown.replay.notes) if shown.replay is not None else shown.link.message


def test_single_damaged_bytes_never_raise(straggler: tuple[Path, Said], tmp_path: Path) -> None:
    path, _ = straggler
    whole = path.read_bytes()
    for place in range(101, len(whole), len(whole) // 12):
        broken = tmp_path / "broken.ddpmon"
        broken.write_bytes(
            whole[:place] + bytes(byte ^ 0x5A for byte in whole[place : place + 64]) + whole[place + 64 :]
        )
        try:
            replay = Replay(broken)
            replay.tick()
            replay.travel.ask(Request("to_step", 50))
            replay.tick()
            replay.close()
        except RecordingError:
            pass


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE steps SET loss = 'text' WHERE step % 7 = 3",
        "UPDATE steps SET rank = 9e999 WHERE step % 7 = 3",
        "UPDATE job SET throughput = x'00'",
        "UPDATE chunks SET key = 1 << 62",
        "UPDATE runs SET description = 1 << 62",
        "UPDATE alerts SET since_step = 9e999, first_at = 'text'",
        "UPDATE alerts SET cost_pct = 9e999",
        "UPDATE steps SET duration_ms = 9e999, exposed_ms = 9e999 WHERE step = 90",
        "DELETE FROM chunks WHERE chunk > 2",
        "DELETE FROM chunks WHERE chunk = 2",
    ],
)
def test_cells_that_hold_something_else_never_raise(straggler: tuple[Path, Said], damage: str, tmp_path: Path) -> None:
    path = tmp_path / "foreign.ddpmon"
    shutil.copy(straggler[0], path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as book:
        book.execute(damage)
    with contextlib.closing(Replay(path)) as replay:
        moves = [Request("to_step", 100), Request("finding", -1), Request("step", 1), Request("end"), Request("play")]
        for request in [Request("start"), Request("finding", 1), *moves]:
            replay.travel.ask(request)
            replay.tick()
    for csv, perfetto in ((str(tmp_path / "x.csv"), None), (None, str(tmp_path / "x.json"))):
        assert export(str(path), csv, perfetto, None) in (0, 2)
    with contextlib.suppress(RecordingError):
        report_of_file(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a recording of ddpmon: it is empty"),
        (b"step,rank\n0,0\n" * 50, "no SQLite database"),
        (b"SQLite format 3\0" + bytes(20), "cut off after 36 bytes"),
    ],
)
def test_what_is_no_recording_says_what_it_is(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.ddpmon"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=words):
        Recording(path)


def test_a_foreign_a_newer_and_an_empty_database_say_so(straggler: tuple[Path, Said], tmp_path: Path) -> None:
    foreign, newer, empty = tmp_path / "foreign.ddpmon", tmp_path / "newer.ddpmon", tmp_path / "empty.ddpmon"
    book = sqlite3.connect(foreign)
    book.execute("CREATE TABLE t (x)")
    book.close()
    shutil.copy(straggler[0], newer)
    book = sqlite3.connect(newer)
    book.execute(f"PRAGMA user_version = {VERSION + 1}")
    book.close()
    create(empty).close()
    for path, words in ((foreign, "another program"), (newer, "newer ddpmon"), (empty, "without any content")):
        with pytest.raises(RecordingError, match=words):
            Recording(path)
    assert APPLICATION.to_bytes(4, "big") == b"ddmn"


def test_a_recording_is_never_overwritten(straggler: tuple[Path, Said]) -> None:
    before = straggler[0].read_bytes()
    with pytest.raises(RecordingError, match="exists already"):
        Said(straggler[0])
    assert straggler[0].read_bytes() == before


def test_what_a_full_disk_rolls_back_is_not_counted(tmp_path: Path) -> None:
    made: list[Said] = []

    def make() -> Recorder:
        made.append(Said(tmp_path / "run.ddpmon", Bounds(bytes=1 << 20)))
        return made[0]

    with simulated(Plan(ranks=4, hosts=2), make=make) as run:
        run.go(20)
        (recorder,) = made
        (pages,) = recorder.book.execute("PRAGMA page_count").fetchone()
        recorder.book.execute(f"PRAGMA max_page_count = {pages}")
        run.go(200)
        assert recorder.missed > 150
        recorder.book.execute("PRAGMA max_page_count = 1000000")
        run.go(20)
    recorder.close()
    recording = Recording(tmp_path / "run.ddpmon")
    assert [chunk.kind for chunk in recording.chunks][:2] == ["first", ""], "no chunk was dropped for what was not kept"
    assert [*recording.rows("SELECT count(*) FROM looks")] == [(recorder.looks,)]
    assert [*recording.rows("SELECT count(*) FROM ranks")] == [(4,)]
    recording.close()


def test_an_alert_that_ends_while_the_disk_is_full_is_ended_later(straggler: tuple[Path, Said]) -> None:
    _, recorder = straggler
    alerts, findings = next((alerts, findings) for _, alerts, findings in recorder.said if alerts)
    book, rows = create(None), AlertRows(1)

    def tick(wall: float, alert: Alert) -> Tick:
        return Tick(wall, wall, True, True, Link("live", ""), None, "", [alert], findings[:1])

    lasts, over = (structs.replace(alerts[0], cleared_at_step=step) for step in (None, 90))
    rows.write(book, tick(1.0, lasts), 80)
    mark = rows.mark()
    book.execute("BEGIN")
    rows.write(book, tick(2.0, over), 91)
    book.execute("ROLLBACK")
    rows.go_back(mark)
    for wall in (3.0, 4.0):
        rows.write(book, tick(wall, over), 92)
    assert [*book.execute("SELECT cleared_at_step, ended_at FROM alerts")] == [(90, 3.0)]
    book.close()


def test_a_full_disk_leaves_a_gap_and_the_recording_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run.ddpmon"
    made: list[Said] = []

    def make() -> Recorder:
        made.append(Said(path))
        return made[0]

    with simulated(Plan(ranks=4, hosts=2, scenario="straggler"), make=make) as run:
        run.go(20)
        (recorder,) = made
        (pages,) = recorder.book.execute("PRAGMA page_count").fetchone()
        recorder.book.execute(f"PRAGMA max_page_count = {pages}")
        run.go(20)
        assert "full" in recorder.trouble
        assert recorder.missed > 5
        recorder.book.execute("PRAGMA max_page_count = 1000000")
        run.go(30)
        assert not recorder.trouble
    recorder.close()
    recording = Recording(path)
    first, last, steps = next(recording.rows("SELECT min(step), max(step), count(DISTINCT step) FROM steps"))
    assert steps == last - first + 1, "steps are written later"
    assert [*recording.rows("SELECT ranks FROM alerts WHERE kind = 'straggler'")] == [("[1]",)]
    assert [chunk.kind for chunk in recording.chunks].count("after a gap") >= 1
    player = Player(recording)
    while player.step():
        pass
    assert not player.is_exact
    assert recording.notes == []
    assert [f.summary for f in player.findings if f.kind == "straggler"], "what was said then is shown"
    shown = player.picture(None)
    assert shown is not None
    assert shown.ranks is not None
    assert shown.run is not None
    assert (shown.ranks.step == shown.run.step).all()
