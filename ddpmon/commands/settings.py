"""The user's settings file: TOML, read when a dashboard opens; what is wrong in it is said, and the rest counts."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddpmon.commands.user_folders import settings_file
from ddpmon.tui.choices import GLYPHS, NOTIFY, THEMES, VIEWS
from ddpmon.tui.draw.columns import SORT_WORDS
from ddpmon.tui.filter.parse import parse
from ddpmon.tui.filter.tree import FilterError
from ddpmon.tui.preferences import Preferences, UserCommand

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LEAST_INTERVAL_S, MOST_INTERVAL_S = 0.25, 10.0
PLACES = ("rank", "host", "pid", "gpu")
_KEY = re.compile(r"f([1-9]|1[0-2])|(ctrl|alt)\+[a-z]")
_TAKEN = {
    "ctrl+c",
    "ctrl+p",
    "ctrl+q",
    "ctrl+s",
    "ctrl+z",
    "ctrl+h",
    "ctrl+i",
    "ctrl+j",
    "ctrl+m",
}  # ours, or other keys' bytes
_LARGEST = 1 << 20


class WrongValueError(ValueError):
    """A value that cannot be used; the message says what is expected."""


def preferences(chosen: Mapping[str, Any] | None = None) -> Preferences:
    """What holds: what the command line and the environment have chosen, before the settings file.

    Args:
        chosen: settings by name; None where nothing is chosen.
    """
    found = read_settings(settings_file())
    return replace(found, **{name: value for name, value in (chosen or {}).items() if value is not None})


def read_settings(path: Path | None) -> Preferences:
    """The settings of a file; what is wrong in it is in `complaints`, one sentence each."""
    if path is None or not path.exists():
        return Preferences()
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST).decode()
        table = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        return Preferences(complaints=(f"{path} is not read: {why}",))
    values, complaints = dict[str, Any](), list[str]()
    for name, value in table.items():
        if name == "keys":
            values["commands"], wrong = _commands(value)
        else:
            wrong = _take(values, name, value)
        complaints += [f"{path}, line {_line(text, key)}: {why}" for key, why in wrong]
    return Preferences(**values, complaints=tuple(complaints))


def _take(values: dict[str, Any], name: str, value: object) -> list[tuple[str, str]]:
    """Check a setting and keep it; else what is wrong, with its key."""
    if name not in _SETTINGS:
        return [(name, f"there is no setting {name!r}; there are {', '.join(_SETTINGS)} and [keys]")]
    try:
        values[name] = _SETTINGS[name](value)
    except WrongValueError as error:
        return [(name, f"{name} = {value!r}: {error}")]
    return []


def _line(text: str, key: str) -> int:
    """The line on which a key stands first."""
    found = re.search(rf"^[ \t\[]*[\"']?{re.escape(key)}\b", text, re.MULTILINE)
    return 1 if found is None else text.count("\n", 0, found.start()) + 1


def _one_of(words: Sequence[str]) -> Callable[[object], str]:
    def check(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise WrongValueError(f"it has to be one of {', '.join(words)}")

    return check


def sort_key(word: object) -> str:
    """The column of that heading.

    Raises:
        WrongValueError: there is none.
    """
    if isinstance(word, str) and word.lower() in SORT_WORDS:
        return SORT_WORDS[word.lower()]
    raise WrongValueError(f"it has to be one of {', '.join(SORT_WORDS)}")


def a_filter(value: object) -> str:
    """A filter that is understood.

    Raises:
        WrongValueError: it is not; the message says what of it.
    """
    try:
        parse(value if isinstance(value, str) else "(")
    except FilterError as error:
        raise WrongValueError(str(error) if isinstance(value, str) else "it has to be a text") from None
    return str(value)


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise WrongValueError("it has to be true or false")


def _interval(value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if is_number and LEAST_INTERVAL_S <= float(value) <= MOST_INTERVAL_S:  # type: ignore[arg-type]
        return float(value)  # type: ignore[arg-type]
    raise WrongValueError(f"it has to be a number from {LEAST_INTERVAL_S} to {MOST_INTERVAL_S:g}, in seconds")


_SETTINGS: Mapping[str, Callable[[object], Any]] = {
    "theme": _one_of(THEMES),
    "glyphs": _one_of(GLYPHS),
    "mouse": _flag,
    "view": _one_of(VIEWS),
    "sort": sort_key,
    "filter": a_filter,
    "interval": _interval,
    "notifications": _one_of(NOTIFY),
}


def _commands(table: object) -> tuple[tuple[UserCommand, ...], list[tuple[str, str]]]:
    """The user's commands, and what is wrong with others, with their keys."""
    found, wrong = list[UserCommand](), list[tuple[str, str]]()
    for key, value in table.items() if isinstance(table, dict) else [("keys", table)]:
        try:
            found.append(_command(key, value))
        except WrongValueError as error:
            wrong.append((key, f"key {key!r}: {error}"))
    return tuple(found), wrong


def _command(key: str, value: object) -> UserCommand:
    if not _KEY.fullmatch(key) or key in _TAKEN:
        raise WrongValueError("a command's key is f1 to f12, ctrl+LETTER or alt+LETTER, and none that ddpmon uses")
    given: dict[str, Any] = value if isinstance(value, dict) else {}
    words, name = given.get("run") or [], given.get("name", "")
    are_texts = isinstance(words, list) and all(isinstance(word, str) for word in (name, *words))
    if not words or not are_texts or given.keys() - {"name", "run"}:
        raise WrongValueError('it has to be { name = "...", run = ["program", "argument"] }')
    unknown = {name for word in words for name in re.findall(r"\{(\w*)\}", word)} - {*PLACES}
    if unknown:
        known = ", ".join(f"{{{name}}}" for name in PLACES)
        raise WrongValueError(f"{{{min(unknown)}}} is not known: there are {known}")
    return UserCommand(key, name or words[0], tuple(words))
