"""With `--ascii` what Textual draws by itself is ASCII, in as many cells as it was."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color

from ddpmon.tui.ascii_only import AsciiOnly

TEXTS = (
    "plain",
    "é",
    "e\u0301",
    "漢字",
    "👨‍👩‍👧",
    "❤️",
    "🇩🇪",
    "\u200b",
    "…",
    "│ x │",
    "╭──╮",
    "█▌",
    "µs",
    "☁️x",
    "\u202eabc",
)


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_becomes_ascii_of_the_same_width(text: str) -> None:
    (drawn,) = AsciiOnly().apply([Segment(text)], Color(0, 0, 0))
    assert drawn.text.isascii()
    assert len(drawn.text) == cell_len(text)


def test_borders_stay_borders() -> None:
    (drawn,) = AsciiOnly().apply([Segment("╭─╮│┃")], Color(0, 0, 0))
    assert drawn.text == "+-+||"
