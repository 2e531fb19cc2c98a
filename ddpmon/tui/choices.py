"""The words that a user can choose from. The command line loads this file for its help, and no other of the screen."""

from __future__ import annotations

from typing import Literal, get_args

ThemeName = Literal["auto", "dark", "light", "colour-blind", "mono"]
GlyphSet = Literal["full", "blocks", "ascii"]
ViewName = Literal["overview", "timeline", "hosts", "run", "findings"]
Notify = Literal["off", "bell", "desktop"]
THEMES: tuple[ThemeName, ...] = get_args(ThemeName)
GLYPHS: tuple[GlyphSet, ...] = get_args(GlyphSet)
VIEWS: tuple[ViewName, ...] = get_args(ViewName)
NOTIFY: tuple[Notify, ...] = get_args(Notify)
