"""Cuts a filter into tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ddpmon.tui.filter.tree import FilterError

Kind = Literal["word", "quoted", "sign", "comma", "open", "close", "and", "or", "not", "end"]
_TOKEN = re.compile(
    r"""(?P<comma>,) | (?P<sign><=|>=|==|!=|!~|<|>|=|~) | (?P<open>\() | (?P<close>\)) | (?P<and>&&?) | (?P<or>\|\|?)
    | (?P<not>!) | (?P<quoted>"[^"]*"?) | (?P<word>[^\s,<>=!~()&|"]+)""",
    re.VERBOSE,
)
_SPELLED: dict[str, Kind] = {"and": "and", "or": "or", "not": "not"}
LONGEST = 500  # letters of a filter: nobody types more, and it bounds how deep brackets can be


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a filter and what it is."""

    kind: Kind
    text: str


def tokens(text: str) -> list[Token]:
    """The pieces of a filter, with one of kind "end" last.

    What follows `~` is one piece up to the next blank, or to a bracket that closes one outside of it.

    Raises:
        FilterError: the text is too long.
    """
    if len(text) > LONGEST:
        raise FilterError(f"a filter has {LONGEST} letters at most")
    found: list[Token] = []
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        match = None if found and found[-1].text in ("~", "!~") else _TOKEN.match(text, place)
        token = _token(match) if match else Token("quoted", _pattern(text, place))
        place = match.end() if match else place + len(token.text)
        found.append(_unquoted(token))
    return [*found, Token("end", "")]


def _token(match: re.Match[str]) -> Token:
    kind, text = match.lastgroup, match[0]
    assert kind is not None
    return Token(_SPELLED.get(text.lower(), "word") if kind == "word" else kind, text)  # type: ignore[arg-type]


def _unquoted(token: Token) -> Token:
    if token.kind == "quoted" and token.text.startswith('"'):
        return Token("quoted", token.text.strip('"'))
    return token


def _pattern(text: str, place: int) -> str:
    """The regular expression that begins here."""
    if text[place] == '"':
        end = text.find('"', place + 1)
        return text[place:] if end < 0 else text[place : end + 1]
    depth, end = 0, place
    while end < len(text) and not text[end].isspace():
        depth += (text[end] == "(") - (text[end] == ")")
        if depth < 0:
            break
        end += 2 if text[end] == "\\" else 1
    return text[place : max(min(end, len(text)), place + 1)]
