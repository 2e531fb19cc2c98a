"""Replaces by ASCII what Textual draws by itself: its palette, borders, scroll bars, toasts, and what is typed."""

from __future__ import annotations

from functools import lru_cache

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from ddpmon.format import clean
from ddpmon.tui.lines import cells_of

# As many cells as the character has: the magnifier of the palette, the sides of borders, the ends of scroll bars.
_SIGNS = {"🔎": "> ", "▔": "-", "▁": "_", "…": "~"} | dict.fromkeys("▂▃▄▅▆▇█▉▊▋▍▎▏", " ")
_SIGNS |= dict.fromkeys("▌▐│┃║", "|") | dict.fromkeys("─━═", "-") | dict.fromkeys("╭╮╯╰┌┐└┘├┤┬┴┼", "+")


class AsciiOnly(LineFilter):
    """Replaces every other character by ASCII of the same width; canvases draw in ASCII by themselves."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 (Textual's)
        """The same segments, with the same styles and widths."""
        return [
            segment if segment.control or segment.text.isascii() else Segment(_in_ascii(segment.text), segment.style)
            for segment in segments
        ]


@lru_cache(maxsize=1024)
def _in_ascii(text: str) -> str:
    """ASCII for a text, in as many cells. Several characters may be one sign, such as a letter and its accents."""
    return set_cell_size("".join(map(_sign, text)), cell_len(text))


def _sign(char: str) -> str:
    """ASCII for a character, in as many cells."""
    if char.isascii():
        return char
    cells = cells_of(char)
    return _SIGNS.get(char, clean(char, ascii_only=True))[:cells].ljust(cells, "?")
