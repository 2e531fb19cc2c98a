"""Contrast: whatever carries meaning stands out from the background by 3:1 or more, in both palettes."""

from __future__ import annotations

import pytest

from ddpmon.tui.theme import DARK, LIGHT, Palette


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2, "relative luminance")."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=["dark", "light"])
def test_what_carries_meaning_has_a_contrast_of_3(palette: Palette) -> None:
    texts = (palette.text, palette.strong, palette.dim, palette.accent, palette.broken, palette.line, palette.band)
    for colour in (*texts, *palette.phases, *palette.ramp[1:]):
        assert contrast(colour, palette.background) >= 3.0, colour
    for colour in texts[:-1]:
        assert contrast(colour, palette.raised) >= 3.0, f"{colour} in the row under the cursor"


@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=["dark", "light"])
def test_the_ramp_stands_out_more_with_every_level(palette: Palette) -> None:
    steps = [contrast(colour, palette.background) for colour in palette.ramp]
    assert steps == sorted(steps)
    assert all(contrast(one, other) >= 1.2 for one, other in zip(palette.ramp, palette.ramp[1:], strict=False))
    assert contrast(palette.ramp[0], palette.background) < 2.0, "what is calm is quiet"
