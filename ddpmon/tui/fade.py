"""Fades colours towards the background, as far as what carries meaning can still be read."""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from textual.constants import DIM_FACTOR

LEAST = 3.0  # contrast (WCAG 2.2, 1.4.11) that what had it keeps
_SHARES = (DIM_FACTOR, *(share / 20 for share in range(20) if share / 20 > DIM_FACTOR), 1.0)  # of a colour that remains
_DIM = Style(dim=True)
_STYLES = 4096  # more than the pairs of colours that a heat-map has


def contrast(one: ColorTriplet, other: ColorTriplet) -> float:
    """The ratio of their luminances, from 1 to 21 (WCAG 2.2, "contrast ratio")."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def faded(part: Segment, ground: ColorTriplet) -> Segment:
    """A part of a line in colours that are nearer to the ground; without colours the terminal dims it."""
    has_words = part.style is not None and part.style.bgcolor is not None and any(map(str.isalnum, part.text))
    return Segment(part.text, _style(part.style, ground, has_words))


@lru_cache(maxsize=_STYLES)
def _style(style: Style | None, ground: ColorTriplet, has_words: bool) -> Style:
    """Of a cell of two colours both come nearer to the ground; words stay legible on the one behind them."""
    if style is None or style.color is None:
        return (style or Style.null()) + _DIM
    front = style.color.get_truecolor()
    if style.bgcolor is None:
        return style + Style(color=Color.from_triplet(_shade(front, ground, ground)))
    back = _shade(style.bgcolor.get_truecolor(), ground, ground)
    colours = (_shade(front, ground, back if has_words else ground), back)
    return style + Style.from_color(*map(Color.from_triplet, colours))


def _shade(colour: ColorTriplet, ground: ColorTriplet, behind: ColorTriplet) -> ColorTriplet:
    """The colour nearer to the ground, as far as it keeps its contrast to what is `behind` it, if it has that."""
    shades = [_mixed(ground, colour, share) for share in _SHARES]
    return next((shade for shade in shades if contrast(shade, behind) >= LEAST), shades[0])


def _mixed(ground: ColorTriplet, colour: ColorTriplet, share: float) -> ColorTriplet:
    """The ground with this share of the colour."""
    return ColorTriplet(*(round(under + (over - under) * share) for under, over in zip(ground, colour, strict=True)))


def _luminance(colour: ColorTriplet) -> float:
    """Relative luminance (WCAG 2.2, "relative luminance")."""
    parts = (part / 255 for part in colour)
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
