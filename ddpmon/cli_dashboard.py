"""The options of the dashboard, each of which the environment and the settings file have, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import click
from click.core import ParameterSource

from ddpmon.cli_options import F, completing, number, one_of
from ddpmon.tui.choices import GLYPHS, NOTIFY, THEMES, VIEWS

_FILTER = "Show only what fits, such as 'late>10 host=node1'; docs/screen.md explains the language."


class _Option(click.Option):
    """An option that the environment may set; an error names the variable where the value is the variable's."""

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """The name of the variable where the value is the variable's, else that of the option."""
        source = None if ctx is None or self.name is None else ctx.get_parameter_source(self.name)
        is_variable = source is ParameterSource.ENVIRONMENT
        return str(self.envvar) if is_variable else super().get_error_hint(ctx)


_option = partial(click.option, cls=_Option)


def _sort(word: str) -> str:
    from ddpmon.commands.settings import WrongValueError, sort_key

    try:
        return sort_key(word)
    except WrongValueError as error:
        raise click.BadParameter(f"{word!r}: {error}.") from None


def _filter(word: str) -> str:
    from ddpmon.commands.settings import WrongValueError, a_filter

    try:
        return a_filter(word)
    except WrongValueError as error:
        raise click.BadParameter(f"{word!r}: {error}.") from None


def _choice(name: str, words: Sequence[str], text: str) -> Callable[[F], F]:
    metavar = f"<{'|'.join(words)}>"
    return _option(
        f"--{name}", type=one_of(words), metavar=metavar, envvar=f"DDPMON_{name.upper()}", help=text,
        shell_complete=completing(lambda: words),
    )  # fmt: skip


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    _option(
        "--interval", type=number(float, 0.25, 10), metavar="SECONDS", envvar="DDPMON_INTERVAL",
        help="Seconds between two updates, 0.25 to 10. Default: 1.",
    ),
    _choice("view", VIEWS, "The view to begin with. Default: where the run was left last."),
    _option("--filter", type=_filter, metavar="WORDS", envvar="DDPMON_FILTER", help=_FILTER),
    _option("--sort", type=_sort, metavar="COLUMN", envvar="DDPMON_SORT", help="The column to sort ranks by."),
    _choice("theme", THEMES, "Colours. Default: auto, which asks the terminal whether it is light."),
    _choice("glyphs", GLYPHS, "Characters to draw with; blocks is without braille. Default: full."),
    click.option("--ascii", "ascii_only", is_flag=True, help="The same as --glyphs ascii."),
    _option(
        "--mouse/--no-mouse", default=None, envvar="DDPMON_MOUSE",
        help="Use the mouse, or leave it to the terminal. Default: use it.",
    ),
    _choice("notifications", NOTIFY, "What a new critical finding does. Default: off."),
)  # fmt: skip


def dashboard_options(command: F) -> F:
    """Give a command all of them."""
    return reduce(lambda made, option: option(made), reversed(_OPTIONS), command)


_NAMES = ("interval", "view", "filter", "sort", "theme", "glyphs", "mouse", "notifications")


def chosen_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Take the settings out of a command's options, by name; None where nothing is chosen."""
    chosen = {name: options.pop(name) for name in _NAMES}
    return {**chosen, "glyphs": "ascii"} if options.pop("ascii_only") else chosen
