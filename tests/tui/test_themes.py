"""Themes and glyph sets: what carries meaning can be seen in all of them, and the terminal is asked which it needs."""

from __future__ import annotations

import os

import pytest

from ddpmon.tui.draw.cells import BRAILLE, QUARTERS
from ddpmon.tui.draw.plot import Curve, plot_lines
from ddpmon.tui.osc import Answers, is_dark, notification
from ddpmon.tui.terminal import TerminalBackground
from ddpmon.tui.theme import LIGHT, PALETTES, THEMES, make_look
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import text_of
from tests.tui.test_terminal import terminal
from tests.tui.watched import STRAGGLER, Fixed, Watched, watch


def test_every_theme_has_a_palette_and_looks_different() -> None:
    assert {theme.name for theme in THEMES.values()} == set(PALETTES)
    assert len({make_look(theme=name).text.color for name in PALETTES}) >= 3
    assert make_look(theme="ddpmon-mono").glyphs == make_look(colour=False).glyphs, "shades tell phases apart"


def test_blocks_draw_a_plot_without_braille() -> None:
    series = snapshot(Made(ranks=4)).series
    assert series is not None
    curve = Curve("loss", "", series.step, series.loss, series.loss_low, series.loss_high)
    full, blocks = (
        "".join(text_of(plot_lines(curve, 60, 12, make_look(braille=braille)))) for braille in (True, False)
    )
    assert {chr(sign) for sign in BRAILLE[1:]} & set(full)
    assert not {chr(sign) for sign in BRAILLE[1:]} & set(blocks)
    assert {chr(sign) for sign in QUARTERS[1:]} & set(blocks)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("rgb:0f0f/1313/1818", True),
        ("rgb:fb/fb/f9", False),
        ("rgba:ffff/ffff/dddd/ffff", None),
        ("rgb:f/f/f", False),
        ("#ffffff", None),
        ("", None),
    ],
)
def test_which_background_is_dark(answer: str, expected: bool | None) -> None:
    assert is_dark(answer) is expected


@pytest.mark.parametrize("end", ["\x1b\\", "\a"])
def test_an_answer_never_reaches_the_keys_however_it_is_cut(end: str) -> None:
    whole = f"j\x1b]11;rgb:ffff/ffff/ffff{end}k"
    for cut in range(1, len(whole)):
        answers = Answers()
        assert answers.take(whole[:cut]) + answers.take(whole[cut:]) + answers.release() == "jk", cut
        assert answers.background == "rgb:ffff/ffff/ffff"


@pytest.mark.parametrize(
    "report",
    [
        "\x1b[?62;4c",
        "\x1b[>84;0;0c",
        "\x1b[?0u",
        "\x1bP>|XTerm(390)\x1b\\",
        "\x1b]10;rgb:0/0/0\a",
        "\x1b_Gi=1;OK\x1b\\",
    ],
)
def test_what_a_terminal_tells_of_itself_never_reaches_the_keys_however_it_is_cut(report: str) -> None:
    """Its letters were keys: `[` went back in time, and `?` opened the help."""
    whole = f"j{report}k"
    for cut in range(1, len(whole)):
        answers = Answers()
        assert answers.take(whole[:cut]) + answers.take(whole[cut:]) + answers.release() == "jk", cut


@pytest.mark.parametrize(
    "keys", ["\x1b[A", "\x1b[<0;3;4M", "\x1b[?2026;2$y", "\x1b[97;5u", "\x1b[I", "[?62;4c", "\x1bPq\x1b]q"]
)
def test_keys_the_mouse_and_what_textual_asks_for_arrive(keys: str) -> None:
    answers = Answers()
    assert (answers.take(keys), answers.wait_s) == (keys, None)


@pytest.mark.parametrize("keys", ["\x1b", "\x1b[", "\x1b[?", "\x1b]", "\x1b]1", "\x1bP"])
def test_keys_that_begin_like_an_answer_arrive_if_nothing_follows(keys: str) -> None:
    answers = Answers()
    assert answers.take(keys) == ""
    assert answers.wait_s is not None
    assert answers.release() + answers.take("q") == f"{keys}q"
    assert answers.wait_s is None


@pytest.mark.parametrize("cut", ["\x1b[?62 ;4c", "\x1b]11;rgb:ff ff/ff/ff\a", "\x1bP>|XTerm (390)\x1b\\"])
def test_the_end_of_an_answer_may_come_late(cut: str) -> None:
    answers, (beginning, end) = Answers(), cut.split(" ")
    assert answers.take(beginning) + answers.release() + answers.take(f"{end}q") == "q"


def test_a_notification_is_one_line_without_control_characters() -> None:
    said = notification("a\x1b]52;c;AAAA\ab\nc", {"TERM": "xterm"})
    assert said == "\x1b]9;a ]52;c;AAAA b c\a"
    assert notification("a;b", {"VTE_VERSION": "7600"}) == "\x1b]777;notify;ddpmon;a,b\a"
    assert notification("a", {"TMUX": "x"}).endswith("\x1bPtmux;\x1b\x1b]9;a\a\x1b\\")


def test_a_light_terminal_gets_the_light_theme_unless_another_is_chosen() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        watched.app.post_message(TerminalBackground(None))
        watched.app.post_message(TerminalBackground(False))
        await watched.until(lambda: watched.app.theme == "ddpmon-light")
        assert watched.app.picture.look.accent.color == make_look(theme="ddpmon-light").accent.color
        await watched.app.run_action("choose_theme('mono')")
        watched.app.post_message(TerminalBackground(False))
        await watched.pilot.pause()
        assert watched.app.theme == "ddpmon-mono"

    watch(Fixed(STRAGGLER), act)


def test_a_theme_that_is_chosen_is_there_from_the_first_picture() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        assert watched.app.theme == "ddpmon-light"
        assert watched.app.picture.look.text.color is not None
        assert watched.app.picture.look.text.color.name == LIGHT.text

    watch(Fixed(STRAGGLER), act, theme="light")


def test_a_real_terminal_is_asked_and_its_answer_is_no_key() -> None:
    """The answer would go back in time ("]") and open findings ("5") if it were taken for keys."""
    with terminal() as term:
        term.until(b"\x1b]11;?\x1b\\")
        os.write(term.screen, b"\x1b]11;rgb:fbfb/fb")
        term.until(b"+41 ms")
        os.write(term.screen, b"fb/f5f5\x1b\\")
        term.until(b"38;2;11;13;15")  # the strong text of the light theme
        term.send(b"5")
        term.until(b"Measured")
        term.send(b"q")
        assert term.end() == 0


def test_with_a_theme_of_ones_own_the_terminal_is_not_asked() -> None:
    with terminal("--theme", "dark") as term:
        term.until(b"+41 ms")
        term.send(b"q")
        assert term.end() == 0
        assert b"\x1b]11;?" not in term.everything


@pytest.mark.parametrize(("terminal", "is_shaded"), [("linux", True), ("xterm-256color", False)])
def test_with_16_colours_shades_tell_phases_and_levels_apart(
    terminal: str, is_shaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forward, backward and the wait were drawn in one grey on the console of Linux."""
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.delenv("COLORTERM")

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        assert ("░" in watched.text()) is is_shaded
        glyphs = watched.app.picture.look.glyphs
        assert (len(set(glyphs.phases)) == 5, len(set(glyphs.levels)) == 6) == (is_shaded, is_shaded)
        assert watched.app.picture.look.accent.color is not None

    watch(Fixed(STRAGGLER), act)
