"""Toasts: what they say is there in full, at every width."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets._toast import Toast

from ddpmon.commands.settings import preferences
from tests.tui.watched import STRAGGLER, Fixed, Watched, watch


def said(watched: Watched) -> str:
    """The newest toast as it is on the screen, which ends above its lower padding, in one line."""
    box = list(watched.app.screen.query(Toast))[-1].region
    assert box.y >= 0
    lines = watched.text().split("\n")[box.y : box.bottom]
    return " ".join(" ".join(line[box.x + 1 : box.right] for line in lines).split())


@pytest.mark.parametrize("environment", ["tmux", "terminal"])
@pytest.mark.parametrize(("size", "most"), [((60, 30), 4), ((80, 24), 3), ((160, 50), 3)])
def test_what_was_copied_is_said_in_full_and_in_few_lines(
    size: tuple[int, int], most: int, environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    if environment == "tmux":
        monkeypatch.setenv("TMUX", "/tmp/tmux-1/default,1,0")
    ends = {"tmux": "and OSC 52 in the terminal.", "terminal": "5, then w, writes a finding to a file."}

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("y")
        await watched.until_shown("copied: rank 5")
        assert said(watched).startswith("copied: rank 5, late +41 ms, input, as text (")
        assert said(watched).endswith(ends[environment])
        assert environment == "terminal" or "`set -g set-clipboard on`" in watched.text(), "in one line, to copy it"
        assert watched.app.screen.query_one(Toast).content_size.height <= most
        await watched.press("y")
        await watched.until(lambda: said(watched).endswith("characters)"))  # what to do has been said

    watch(Fixed(STRAGGLER), act, size, interval=10)


def test_a_file_is_named_in_full_however_long_its_path_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("long" * 30) / ("longer" * 30)
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("w", "t")
        await watched.until_shown("written: ")
        (written,) = folder.iterdir()
        assert said(watched).replace(" ", "") == f"written:{written}"

    watch(Fixed(STRAGGLER), act, (80, 24))


def names_the_file(watched: Watched) -> bool:
    """Whether the toast on the settings file is there: how long its folder's name is decides where lines break."""
    return bool(watched.app.screen.query(Toast)) and "config.toml" in said(watched).replace(" ", "")


MISTAKES = {
    "theme =\n": ["config.toml is not read: Invalid value (at line 1"],
    'colour = "red"': ["line 1: there is no setting 'colour'", "notifications and [keys]"],
    'interval = "2"': ["line 1: interval = '2': it has to be a number from 0.25 to 10, in seconds"],
    'theme = "[bold]"\nmouse = 1': ["line 1: theme = '[bold]': it has to be one of auto,", "line 2: mouse = 1"],
    '[keys]\nf5 = { run = "true" }\nf6 = { run = ["x", "{gpus}"] }': ["line 2: key 'f5'", "line 3: key 'f6': {gpus}"],
}


@pytest.mark.parametrize("text", MISTAKES)
@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_what_is_wrong_in_the_settings_is_on_the_screen_from_the_start(
    text: str, size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = mistakes(text, tmp_path, monkeypatch)

    async def act(watched: Watched) -> None:
        await watched.until(lambda: names_the_file(watched))
        whole = said(watched).replace(" ", "")
        for words in MISTAKES[text]:
            assert words.replace(" ", "") in whole
        assert whole == "".join(wrong).replace(" ", "")

    watch(Fixed(STRAGGLER), act, size, complaints=wrong)


def test_of_many_mistakes_those_are_said_that_have_room_and_how_many_there_are_besides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = mistakes("\n".join(f"wrong{number} = 1" for number in range(12)), tmp_path, monkeypatch)

    async def act(watched: Watched) -> None:
        await watched.until(lambda: names_the_file(watched))
        shown = said(watched).count("there is no setting")
        assert 2 <= shown < 12
        assert "'wrong0'" in said(watched), "the first one is not cut off"
        assert said(watched).endswith(f"{12 - shown} more mistakes: the terminal says all after q")

    watch(Fixed(STRAGGLER), act, (80, 24), complaints=wrong)


def mistakes(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """What is wrong in a settings file of this text."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    path = folder / "ddpmon" / "config.toml"
    path.parent.mkdir()
    path.write_text(text)
    return preferences().complaints
