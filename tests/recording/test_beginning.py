"""What is said of the time before a record begins: where it begins, and which recording of the run shows it."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ddpmon.recording import beginning
from ddpmon.recording.reader import Recording
from ddpmon.recording.travel import Move, Request, Travel
from ddpmon.simulate.plan import Plan
from ddpmon.tui.draw.header import notice_line
from ddpmon.tui.theme import make_look
from ddpmon.tui.view_state import NOTHING_YET, ViewState
from tests.recording.made_recordings import record
from tests.tui.test_drawing import text_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recording of a run, and with one that begins later, as that of a dashboard does."""
    folder = tmp_path_factory.mktemp("recorded")
    record(Plan(ranks=2), 40, folder / "whole.ddpmon").close()
    shutil.copy(folder / "whole.ddpmon", folder / "late.db")
    with closing(sqlite3.connect(folder / "late.db")) as book, book:
        book.execute("DELETE FROM looks WHERE chunk = (SELECT min(chunk) FROM chunks)")
        book.execute("DELETE FROM chunks WHERE chunk = (SELECT min(chunk) FROM chunks)")
    return folder


def said(folder: Path, move: Move, amount: float, times: int = 1) -> str:
    travel = Travel(Recording(folder / "late.db"), folder)
    travel.go(travel.recording.last())
    for _ in range(times):
        travel.ask(Request(move, amount))
    travel.tick()
    return travel.finish(NOTHING_YET).told


@pytest.mark.parametrize("other", ["none", "of another run", "no recording"])
@pytest.mark.parametrize(("move", "amount"), [("seconds", -60.0), ("to_step", 0.0), ("to_wall", 1.0), ("step", -1.0)])
def test_where_it_begins_is_said_however_one_goes_before_it(
    made: Path, tmp_path: Path, other: str, move: Move, amount: float
) -> None:
    shutil.copy(made / "late.db", tmp_path / "late.db")
    if other == "of another run":
        shutil.copy(made / "whole.ddpmon", tmp_path / "x.ddpmon")
        with closing(sqlite3.connect(tmp_path / "x.ddpmon")) as book, book:
            book.execute("UPDATE runs SET run_id = 'another'")
    elif other == "no recording":
        (tmp_path / "x.ddpmon").write_text("SQLite")
    assert said(tmp_path, move, amount, times=200).startswith("what was seen here begins at step ")


def test_nothing_is_said_within_it(made: Path) -> None:
    assert said(made, "seconds", -5.0) == said(made, "step", -1.0) == ""


def test_the_recordings_are_read_once_however_many_keys_were_pressed(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[Path]()

    def noted(source: Path) -> Recording:
        opened.append(source)
        return Recording(source)

    for name in ("late.db", "whole.ddpmon"):
        shutil.copy(made / name, tmp_path / name)
    monkeypatch.setattr(beginning, "Recording", noted)
    travel = Travel(Recording(tmp_path / "late.db"), tmp_path)
    for _ in range(30):
        travel.ask(Request("seconds", -60.0))
    travel.tick()
    assert travel.finish(NOTHING_YET).told.startswith("ddpmon watch whole.ddpmon has the run before ")
    travel.ask(Request("seconds", 5.0))
    travel.tick()
    assert travel.finish(NOTHING_YET).told == "", "a move to a moment that is on record"
    assert [path.name for path in opened] == ["whole.ddpmon"]


@pytest.mark.parametrize("width", [80, 160])
def test_a_recording_that_shows_the_time_before_is_named_with_its_command(
    made: Path, tmp_path: Path, width: int
) -> None:
    shutil.copy(made / "late.db", tmp_path / "late.db")
    shutil.copy(made / "whole.ddpmon", tmp_path / "recording-20261125-181003.ddpmon")
    shutil.copy(made / "late.db", tmp_path / "my late.ddpmon")
    travel = Travel(Recording(tmp_path / "late.db"), tmp_path)
    travel.go(travel.recording.last())
    travel.ask(Request("seconds", -3600.0))
    travel.tick()
    shown = ViewState(travel.finish(NOTHING_YET), make_look(ascii_only=True))
    (line,) = text_of([notice_line(shown, width)])
    assert line.startswith(" = ddpmon watch recording-20261125-181003.ddpmon has the run before ")
    assert re.search(r"before \d\d:\d\d:\d\d( ~|;)", line), "a whole sentence at 80 columns"
    assert ("what was seen here begins at step" in line) is (width == 160)
