"""The exception that ends a rank travels to the watcher, and goes its way in the process as it would have gone."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("torch")
from ddpmon.parts import Failure
from ddpmon.schema import RankFrame
from tests.probe.probe_pair import two_ranks, until
from tests.probe.probe_ranks import Played, Reader, grouped, play, private_runs, started
from tests.probe.probe_stage import HELD

SCENES = (
    "leaves_by_an_exception",
    "leaves_by_one_that_cannot_be_shown",
    "exits",
    "exits_because",
    "exits_with_words",
    "exits_well",
    "is_interrupted",
    "is_closed",
)
HERE = str(Path(__file__).with_name("scenes_failures.py"))


def over(frame: RankFrame) -> bool:
    return frame.phase == HELD if frame.rank == 0 else frame.state != "running"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(tmp_path_factory.mktemp("failures"), "scenes_failures", 2, watch=SCENES, ready=over)


@pytest.fixture(scope="module")
def ended(played: Played) -> dict[str, RankFrame]:
    """Rank 1's last frame by scene."""
    return {scene: seen.ranks[1].frame for scene, seen in played.runs.items()}


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_child_of_multiprocessing_has_its_last_word(tmp_path: Path, method: str) -> None:
    """Its interpreter may end without the usual hooks, and its exceptions never meet `sys.excepthook`."""
    reader, command = Reader("children"), [sys.executable, "-m", "tests.probe.children", str(tmp_path), method]

    def states() -> list[str]:
        seen = reader.look(3)
        return [rank.frame.state for rank in seen.ranks] if seen else []

    with private_runs(tmp_path), started(command, tmp_path / "log.0", DDPMON="1"):
        until(tmp_path, lambda: len(states()) == 3)
        (tmp_path / "on").touch()
        until(tmp_path, lambda: states()[1:] == ["finished", "failed"])
        assert reader.store is not None
        assert reader.seen is not None
        reader.store.close()
    told = reader.seen.ranks[2].frame.failure
    assert told is not None
    assert (told.kind, told.message) == ("ValueError", "a child's own")


def failure(frame: RankFrame) -> Failure:
    assert frame.state == "failed"
    assert frame.failure is not None
    assert frame.failure.step == frame.step == 4
    return frame.failure


def test_an_exception_is_told_with_the_end_of_its_traceback(ended: dict[str, RankFrame]) -> None:
    told = failure(ended["leaves_by_an_exception"])
    assert (told.kind, told.message) == ("ValueError", "the loss is ? too low")
    assert told.traceback[-1] == "ValueError: the loss is ? too low"
    assert HERE in told.traceback[-3]
    assert told.traceback[-2].strip() == 'raise ValueError("the loss is \\udcff too low")'
    assert len(told.traceback) <= 32


def test_an_exception_that_cannot_be_shown_is_told_all_the_same(ended: dict[str, RankFrame]) -> None:
    told = failure(ended["leaves_by_one_that_cannot_be_shown"])
    assert (told.kind, told.message) == ("UnspeakableError", "")
    assert "ValueError: the loss is ? too low" in told.traceback
    assert any(line.strip() == "raise UnspeakableError from error" for line in told.traceback)


@pytest.mark.parametrize(
    ("scene", "kind", "message"),
    [
        ("exits", "SystemExit", "3"),
        ("exits_because", "ValueError", "the loss is ? too low"),
        ("exits_with_words", "SystemExit", "no data"),
        ("is_interrupted", "KeyboardInterrupt", "SIGTERM"),
    ],
)
def test_leaving_early_is_a_failure(ended: dict[str, RankFrame], scene: str, kind: str, message: str) -> None:
    told = failure(ended[scene])
    assert (told.kind, told.message) == (kind, message)


@pytest.mark.parametrize("scene", ["exits_well", "is_closed"])
def test_leaving_well_is_none(ended: dict[str, RankFrame], scene: str) -> None:
    assert (ended[scene].state, ended[scene].failure) == ("finished", None)


def test_the_hook_that_was_there_is_back_and_the_exception_went_its_way(played: Played) -> None:
    notes = [played.notes(scene, 1) for scene in SCENES if scene != "is_closed"]
    assert [note["hook"] for note in notes] == [True] * 7
    caught = ["ValueError", "UnspeakableError", *["SystemExit"] * 4, "KeyboardInterrupt"]
    assert [note["caught"] for note in notes] == caught


def test_what_nobody_catches_is_told_and_the_users_hooks_run(tmp_path: Path) -> None:
    reader = Reader("nobody_catches")

    def last_word(state: str) -> RankFrame | None:
        seen = reader.look(2)
        return seen.ranks[1].frame if seen and seen.ranks[1].frame.state == state else None

    with two_ranks(tmp_path, "scenes_failures", "nobody_catches", DDPMON="1") as (_, other):
        until(tmp_path, lambda: (tmp_path / "ready.1").exists() and last_word("running") is not None)
        (tmp_path / "on").touch()
        until(tmp_path, lambda: last_word("failed") is not None)
        until(tmp_path, lambda: other.poll() is not None)
        told = last_word("failed")
        assert reader.store is not None
        with closing(reader.store):
            assert told is not None
    assert other.returncode == 1
    assert told.failure is not None
    assert (told.failure.kind, told.failure.step) == ("ValueError", 6)
    played = Played(tmp_path)
    for hook in ("before", "behind"):
        assert played.notes("nobody_catches", 1)[hook] == ["ValueError", True, True]
    assert "ValueError: the loss is" in (tmp_path / "log.1").read_text(errors="replace")


def test_the_store_stays_while_watchers_have_the_time_to_read_why_rank_0_failed(tmp_path: Path) -> None:
    def states() -> list[str]:
        reader = Reader("fails_with_the_store")
        seen = reader.look(1)
        if reader.store is not None:
            reader.store.close()
        return [rank.frame.state for rank in seen.ranks] if seen else []

    scene, log = "fails_with_the_store", tmp_path / "log.0"
    with private_runs(tmp_path), grouped("scenes_failures", 1, log, str(tmp_path), scene):
        until(tmp_path, lambda: "ValueError: the loss is" in log.read_text(errors="replace"))
        until(tmp_path, lambda: states() == ["failed"])
        time.sleep(2.5)  # by then a rank that does not stay has ended
        assert states() == ["failed"]
