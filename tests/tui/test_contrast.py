"""Contrast: whatever carries meaning stands out from what is behind it by 3:1 or more, in every palette."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from rich.color import Color

from ddpmon.snapshot import Link, Snapshot
from ddpmon.tui.choices import THEMES
from ddpmon.tui.draw.host_table import host_table_lines
from ddpmon.tui.draw.table import TableView
from ddpmon.tui.theme import PALETTES, Palette, make_look
from ddpmon.tui.view_state import ViewState
from ddpmon.tui.widgets.canvas import Canvas
from tests.tui.made_runs import Made, snapshot
from tests.tui.watched import Fixed, Watched, watch

LEAST = 3.0  # WCAG 2.2, 1.4.11: graphics that carry meaning
QUIET = {"background", "faint", "raised"}  # rules between panels, and the ground under the cursor


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2, "relative luminance")."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def colours(palette: Palette) -> dict[str, str]:
    """Those that carry meaning; the calm end of the ramp says that there is nothing to see."""
    found: dict[str, str] = {}
    for field in fields(palette):
        value = getattr(palette, field.name)
        if field.name not in QUIET:
            shades = [value] if isinstance(value, str) else list(value)[field.name == "ramp" :]
            found |= {f"{field.name} {place}": shade for place, shade in enumerate(shades)}
    return found


@pytest.mark.parametrize("name", PALETTES)
def test_what_carries_meaning_has_a_contrast_of_3(name: str) -> None:
    palette = PALETTES[name]
    poor = {
        what: round(contrast(colour, palette.background), 2)
        for what, colour in colours(palette).items()
        if contrast(colour, palette.background) < LEAST
    }
    assert not poor
    texts = (palette.text, palette.strong, palette.dim, palette.accent, palette.broken, palette.line)
    assert not [colour for colour in texts if contrast(colour, palette.raised) < LEAST], "in the row under the cursor"
    assert contrast(palette.text, palette.raised) >= 4.5


@pytest.mark.parametrize("name", PALETTES)
def test_the_ramp_stands_out_more_with_every_level(name: str) -> None:
    palette = PALETTES[name]
    steps = [contrast(colour, palette.background) for colour in palette.ramp]
    assert steps == sorted(steps)
    assert all(contrast(one, other) >= 1.2 for one, other in zip(palette.ramp, palette.ramp[1:], strict=False))
    assert contrast(palette.ramp[0], palette.background) < 2.0, "what is calm is quiet"


@pytest.mark.parametrize("name", PALETTES)
def test_a_number_can_be_read_on_its_heat(name: str) -> None:
    made, palette = snapshot(Made(ranks=64, per_node=8)), PALETTES[name]
    assert made.ranks is not None
    made.ranks.lateness_ms[:] = np.linspace(0, 140, 64)  # through all levels
    view = TableView(np.arange(8), focused=False)
    lines = host_table_lines(ViewState(made, make_look(theme=name)), view, 160, 12, "late")
    pairs = {
        (segment.style.color.name, segment.style.bgcolor.name)
        for line in lines
        for segment in line
        if segment.style and segment.style.color and segment.style.bgcolor
    }
    assert {back for _, back in pairs} <= {*palette.ramp[1:]}
    assert len(pairs) == 4, "a level from each stop on"
    assert {pair: ratio for pair in pairs if (ratio := round(contrast(*pair), 2)) < LEAST} == {}


def heated() -> Snapshot:
    """A run whose ranks are late by everything from nothing to a whole step."""
    made = snapshot(Made(ranks=64, per_node=8, straggler=5))
    assert made.ranks is not None
    made.ranks.lateness_ms[:] = np.linspace(0, 140, 64)
    return made


@pytest.mark.parametrize("theme", [theme for theme in THEMES if theme != "auto"])
def test_the_words_of_a_faded_picture_have_a_contrast_of_3(theme: str) -> None:
    """They had 2.7: titles, headings, numbers of axes and legends could not be read."""
    source = Fixed(replace(heated(), link=Link("gone", "no store at tcp://127.0.0.1:29480")))

    async def act(watched: Watched) -> None:
        await watched.until_shown("GONE")
        strong = watched.app.picture.look.strong.color
        for view in "1235":
            await watched.press(view)
            await watched.until_shown("GONE")
            drawn = [canvas for canvas in watched.app.screen.query(Canvas) if canvas.display and canvas.size]
            parts = [part for canvas in drawn for strip in canvas.render_lines(canvas.size.region) for part in strip]
            styles = {part.style for part in parts if part.style and any(map(str.isalnum, part.text))}
            ratios = {(shade(each.color), shade(each.bgcolor)) for each in styles}
            assert len(ratios) > 5
            assert [pair for pair in ratios if contrast(*pair) < LEAST] == [], view
            quiet = [canvas for canvas in drawn if canvas.id not in ("head", "foot")]
            styles = {part.style for canvas in quiet for line in canvas.lines for part in line if part.style}
            assert not [each for each in styles if each.color == strong and not each.bgcolor], "but under the cursor"

    watch(source, act, (160, 50), theme=theme)


def shade(colour: Color | None) -> str:
    assert colour is not None
    return colour.get_truecolor().hex
