"""The two themes, one for dark and one for light terminals; any other Textual theme works too."""

from __future__ import annotations

from textual.theme import Theme

from ddpmon.tui.look import DARK, LIGHT, Palette


def _theme(name: str, palette: Palette, *, dark: bool) -> Theme:
    return Theme(
        name=name,
        primary=palette.phases[2],
        accent=palette.accent,
        warning=palette.accent,
        error=palette.broken,
        foreground=palette.text,
        background=palette.background,
        surface=palette.raised,
        panel=palette.raised,
        dark=dark,
    )


DARK_THEME = _theme("ddpmon", DARK, dark=True)
LIGHT_THEME = _theme("ddpmon-light", LIGHT, dark=False)
