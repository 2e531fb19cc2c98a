"""What things look like: one accent, quiet greys, one hue in shades for the phases, red for what is broken.

Colour never speaks alone: every glyph here says the same in ASCII and without any colour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from rich.style import Style
from textual.theme import Theme

from ddpmon.format import clean
from ddpmon.schema import PHASES


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The signs drawn; each one cell wide."""

    mark: str = "▲"
    lost: str = "✕"
    failed: str = "✕"
    finished: str = "✓"
    stalled: str = "‖"
    restarted: str = "↻"
    note: str = "•"
    cursor: str = "▸"
    up: str = "▴"
    rule: str = "─"
    dot: str = "·"
    unknown: str = "–"
    more: str = "…"
    tick: str = "┤"
    bar: str = "│"
    swatch: str = "■"
    phases: str = "▆▆▆▆▆"  # input, forward, backward, optimizer, other
    hot: str = "▆"  # lateness
    rare: str = "▃"  # lateness of some of the steps
    wait: str = "╌"
    levels: str = "██████"
    block: str = "▆"
    here: str = "◆"
    spark: str = "▁▂▃▄▅▆▇█"
    median: str = "─"
    grid: str = "┈"  # behind plots, and from a bar to its number


ASCII = Glyphs(
    mark="!", lost="x", failed="x", finished="v", stalled="=", restarted="r", note="*", cursor=">", up="^", rule="-",
    dot="|", unknown="-", more="~", tick="|", bar="|", swatch="#", phases="#+=~:", hot="%", rare="*", wait=".",
    levels=".:=+#@", block="#", here="X", spark="_.-=+*#@", median="-", grid=".",
)  # fmt: skip
MONO = Glyphs(phases="▓▒░▞▚", hot="█", levels="·:░▒▓█")


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours as hex; the phases go from the strongest shade to the faintest, the ramp from calm to hot.

    Whatever carries meaning has a contrast of 3:1 or more to the background: all but `faint`, `raised` and the calm end
    of the ramp.
    """

    background: str
    text: str
    strong: str
    dim: str
    faint: str
    accent: str
    broken: str
    raised: str
    phases: tuple[str, ...]
    ramp: tuple[str, ...]
    band: str
    line: str


DARK = Palette(
    background="#0f1318", text="#bcc5cf", strong="#f2f5f8", dim="#76818d", faint="#39434e", accent="#ffb347",
    broken="#ff6b63", raised="#1b222b", phases=("#c7e1f6", "#93bfe5", "#6a9dcd", "#4b7eae", "#5d6e80"),
    ramp=("#2c4158", "#5b7690", "#9a8f68", "#cfa844", "#f7cf4a", "#fff6d0"), band="#4a7199",
    line="#a9d0f2",
)  # fmt: skip
LIGHT = Palette(
    background="#fbfbf9", text="#30363d", strong="#0b0d0f", dim="#6b747d", faint="#c3cad1", accent="#b45309",
    broken="#c81e1e", raised="#eceff2", phases=("#0f3353", "#245a87", "#3f79aa", "#5a8db8", "#7b8b99"),
    ramp=("#d3dee8", "#8093a0", "#94803f", "#9a6a26", "#7a4510", "#3d1500"), band="#7393b0",
    line="#1d5c92",
)  # fmt: skip
# Blue and yellow are told apart with every kind of colour blindness; what is broken is a light pink, and never a red
# beside a green (Okabe and Ito, "Color Universal Design", 2008).
COLOUR_BLIND = replace(
    DARK, accent="#f0e442", broken="#ff8fc7", ramp=("#1f3a5f", "#4b7ba8", "#7c8a94", "#b5a65f", "#dccb3c", "#fff8b0"),
)  # fmt: skip
GREYS = Palette(
    background="#121212", text="#c8c8c8", strong="#ffffff", dim="#8a8a8a", faint="#444444", accent="#ffffff",
    broken="#ffffff", raised="#262626", phases=("#dcdcdc", "#b4b4b4", "#969696", "#7d7d7d", "#6e6e6e"),
    ramp=("#3a3a3a", "#757575", "#9a9a9a", "#bcbcbc", "#dedede", "#ffffff"), band="#6c6c6c", line="#e0e0e0",
)  # fmt: skip
LEVELS = 6  # of the heat-map: below its first stop, and one from each stop on


@dataclass(frozen=True, slots=True)
class Look:
    """Everything that a drawing needs to know of colours and signs."""

    glyphs: Glyphs
    ascii_only: bool
    colour: bool
    text: Style
    strong: Style
    dim: Style
    faint: Style
    accent: Style
    broken: Style
    selected: Style
    band: Style
    line: Style
    phases: tuple[str | None, ...]
    hot: str | None
    raised: str | None
    ramp: tuple[str | None, ...]
    braille: bool = True  # whether lines may be drawn with braille, else with blocks

    @property
    def unknown(self) -> str:
        """The dash that stands for what is not known."""
        return self.glyphs.unknown

    @property
    def cut(self) -> str:
        """What stands for the beginning of a path that was cut off: in ASCII `~` would be a home."""
        return "..." if self.ascii_only else self.glyphs.more

    @property
    def smooth(self) -> bool:
        """Whether colours tell levels and phases apart, so that two may share a cell; in greys their glyphs do."""
        return self.colour and len(set(self.glyphs.levels)) == 1

    def clean(self, text: str) -> str:
        """Foreign text, made printable for this terminal; `±0` is `0` in ASCII."""
        return clean(text.replace("±0", "0") if self.ascii_only else text, self.ascii_only)


def make_look(
    *,
    dark: bool = True,
    colour: bool = True,
    few: bool = False,
    ascii_only: bool = False,
    theme: str = "",
    braille: bool = True,
) -> Look:
    """The look for a theme and a terminal; `theme` is the name of one in `THEMES`, else it is the dark or light one.

    With `few` colours, 16, phases and levels have shades as in greys: most of their colours are the same there.
    """
    palette = PALETTES.get(theme, DARK if dark else LIGHT)
    grey = not colour or palette is GREYS
    glyphs = ASCII if ascii_only else MONO if grey or few else Glyphs()
    look = _coloured(palette, glyphs, ascii_only) if colour else _plain(glyphs, ascii_only)
    return replace(look, braille=braille and not ascii_only)


def _coloured(p: Palette, glyphs: Glyphs, ascii_only: bool) -> Look:
    return Look(
        glyphs, ascii_only, True,
        text=Style(color=p.text), strong=Style(color=p.strong, bold=True), dim=Style(color=p.dim),
        faint=Style(color=p.faint), accent=Style(color=p.accent), broken=Style(color=p.broken, bold=True),
        selected=Style(bgcolor=p.raised), band=Style(color=p.band), line=Style(color=p.line),
        phases=p.phases, hot=p.accent, raised=p.raised, ramp=_ramp(p.ramp),
    )  # fmt: skip


def _plain(glyphs: Glyphs, ascii_only: bool) -> Look:
    plain, bold, dim = Style(), Style(bold=True), Style(dim=True)
    return Look(
        glyphs, ascii_only, False, text=plain, strong=bold, dim=dim, faint=dim, accent=bold,
        broken=Style(bold=True, underline=True), selected=bold, band=dim, line=plain,
        phases=(None,) * len(PHASES), hot=None, raised=None, ramp=(None,) * LEVELS,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def ink(color: str | None, back: str | None = None, bold: bool = False) -> Style:
    """A style of two colours, made once."""
    return Style(color=color, bgcolor=back, bold=bold or None)


def _ramp(stops: tuple[str, ...]) -> tuple[str, ...]:
    """`LEVELS` colours, evenly spaced along the stops."""
    colours = []
    for level in range(LEVELS):
        place = level / (LEVELS - 1) * (len(stops) - 1)
        left = min(int(place), len(stops) - 2)
        colours.append(_mix(stops[left], stops[left + 1], place - left))
    return tuple(colours)


def _mix(one: str, other: str, share: float) -> str:
    channels = [(int(one[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in channels)


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
THEMES: Mapping[str, Theme] = {  # by the names that users know
    "dark": DARK_THEME,
    "light": LIGHT_THEME,
    "colour-blind": _theme("ddpmon-colour-blind", COLOUR_BLIND, dark=True),
    "mono": _theme("ddpmon-mono", GREYS, dark=True),
}
PALETTES: Mapping[str, Palette] = {
    "ddpmon": DARK,
    "ddpmon-light": LIGHT,
    "ddpmon-colour-blind": COLOUR_BLIND,
    "ddpmon-mono": GREYS,
}
