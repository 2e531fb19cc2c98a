"""In ASCII mode every character of every screen is ASCII: of our own drawings, and of what Textual draws."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ddpmon.recording.travel import Replay
from ddpmon.simulate.plan import Plan
from ddpmon.tui.preferences import UserCommand
from tests.recording.made_recordings import record
from tests.tui.made_runs import NOTES, Made, snapshot
from tests.tui.watched import Fixed, Watched, watch

SIZES = ((80, 24), (160, 50))
MACHINES = Made(ranks=16, per_node=4, straggler=5, gpu=True, troubled=(1,), hidden=(2,), findings=NOTES)
SAID = (UserCommand("f5", "µ", (sys.executable, "-c", "print('\\u2581 µs')")),)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "run.ddpmon"
    record(Plan(ranks=4, hosts=2, scenario="straggler"), 70, path).close()
    return path


def check(watched: Watched, where: str) -> None:
    """Every character on the screen is ASCII."""
    others = [line for line in watched.text().splitlines() if not line.isascii()]
    assert not others, f"{where}: {others}"


async def check_help(watched: Watched, where: str) -> None:
    """The whole help of the view that is open."""
    watched.app.clear_notifications()  # a message would cover the line that counts those below
    await watched.press("question_mark")
    await watched.until_shown("Keys: ")
    while "more lines below" in watched.text():
        check(watched, f"help of {where}")
        await watched.press("pagedown")
    check(watched, f"help of {where}")
    assert "How to find the straggler" in watched.text()
    await watched.press("escape")


@pytest.mark.parametrize("size", SIZES)
def test_every_view_and_its_help(recorded: Path, size: tuple[int, int]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("REPLAY running")
        for keys in (["1"], ["tab"], ["v"], ["2"], ["v"], ["3"], ["enter"], ["4"], ["5"], ["1", "enter"], ["v"]):
            await watched.press(*keys)
            check(watched, str(keys))
            await check_help(watched, str(keys))
        await watched.press("1", "escape", "m", "down", "m", "c")
        await watched.until_shown("diff")
        check(watched, "compare")

    watch(Replay(recorded), act, size, ascii_only=True)


@pytest.mark.parametrize(
    "made", [MACHINES, Made(ranks=8, stuck=3), Made(ranks=8, failed=3, lost=(4,)), Made(ranks=256, per_node=8)]
)
@pytest.mark.parametrize("size", SIZES)
def test_every_view_of_a_run_with_gpus_of_a_hang_and_of_a_failure(made: Made, size: tuple[int, int]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("8/8" if made.ranks == 8 and not made.lost else "/")
        for key in ("1", "3", "v", "enter", "4", "5", "1", "enter"):
            await watched.press(key)
            check(watched, key)

    watch(Fixed(snapshot(made)), act, size, ascii_only=True)


@pytest.mark.parametrize("size", SIZES)
def test_every_line_that_is_typed_and_every_toast(
    recorded: Path, size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def act(watched: Watched) -> None:
        await watched.until_shown("REPLAY running")
        check(watched, "a complaint about the settings")
        await watched.press("slash", "l", "a")
        await watched.until_shown("tab:")
        check(watched, "candidates of a filter")
        await watched.press("µ", "enter")
        check(watched, "a filter that is not understood")
        await watched.press("escape", "t")
        check(watched, "the line that asks for a moment")
        await watched.press("²", "1", "enter")
        await watched.until_shown("is not understood")
        check(watched, "a moment that is not understood")
        await watched.press("escape", "ctrl+s")
        await watched.until_shown("esc nothing")
        check(watched, "the line that asks for a form")
        await watched.press("escape", "y")
        await watched.until_shown("copied:")
        check(watched, "what was copied")
        await watched.press("f5")
        await watched.until_shown("done")
        check(watched, "output of a command")

    watch(Replay(recorded), act, size, ascii_only=True, commands=SAID, complaints=("config.toml, line 2: µ",))


@pytest.mark.parametrize("size", SIZES)
def test_the_palette_and_its_scroll_bar(size: tuple[int, int]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("ctrl+p")
        await watched.until_shown("Copy the finding as text")
        for _ in range(30):
            check(watched, "the palette")
            await watched.press("down")
        await watched.press(*"µ zzz")
        await watched.until_shown("No matches")
        check(watched, "a palette without matches")

    name = "rank µ"
    shown = snapshot(MACHINES)
    assert shown.run is not None
    watch(Fixed(replace(shown, run=replace(shown.run, name=name))), act, size, ascii_only=True, commands=SAID)
