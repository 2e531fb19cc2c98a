"""Reads a filter: `late>10 host=n3 gpu<50 not lost`, with `and`, `or`, `not` and brackets."""

from __future__ import annotations

from functools import lru_cache

from ddpmon.tui.filter.filter_fields import NUMBERS, TEXTS
from ddpmon.tui.filter.terms import closest, is_ranks, named, number_term, ranks_term, text_term
from ddpmon.tui.filter.tree import Either, Every, FilterError, Node, Not
from ddpmon.tui.filter.words import Token, tokens

_LISTED = 16  # values of one field: a list that is longer is a mistake
_EXAMPLE = "as in late>10"


@lru_cache(maxsize=64)
def parse(text: str) -> Node | None:
    """The tree of a filter, None for an empty one.

    Raises:
        FilterError: something in it is not understood; the message names it in one sentence.
    """
    pieces = tokens(text)
    if len(pieces) == 1:
        return None
    parser = _Parser(pieces)
    node = parser.either()
    if parser.here.kind != "end":
        raise FilterError(f"{parser.here.text!r} closes nothing" if parser.here.text == ")" else _stray(parser.here))
    return node


def _stray(token: Token) -> str:
    if token.kind == "sign":
        return f"{token.text!r} needs a field before it, {_EXAMPLE}"
    if token.kind == "end":
        return f"the filter ends where a word or a comparison is expected, {_EXAMPLE}"
    return f"{token.text!r} stands where a word or a comparison is expected, {_EXAMPLE}"


class _Parser:
    """Goes through the tokens once; each method reads one form and returns what it means."""

    def __init__(self, pieces: list[Token]) -> None:
        self._pieces, self._place = pieces, 0

    @property
    def here(self) -> Token:
        return self._pieces[self._place]

    def _take(self) -> Token:
        token = self.here
        self._place += token.kind != "end"
        return token

    def either(self) -> Node:
        """Parts with `or` between them."""
        parts = [self._every()]
        while self.here.kind == "or":
            self._take()
            parts.append(self._every())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _every(self) -> Node:
        """Parts with `and` between them, or with nothing."""
        parts = [self._one()]
        while self.here.kind not in ("or", "close", "end"):
            if self.here.kind == "and":
                self._take()
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def _one(self) -> Node:
        token = self._take()
        if token.kind == "not":
            return Not(self._one())
        if token.kind == "open":
            inside = self.either()
            if self._take().kind != "close":
                raise FilterError("a bracket is not closed")
            return inside
        if token.text == "~":
            return named(self._value("~", "host").text, is_pattern=True)
        if token.kind not in ("word", "quoted"):
            raise FilterError(_stray(token))
        return self._term(token)

    def _term(self, token: Token) -> Node:
        """A comparison, ranks, or a word without a field."""
        name = token.text.lower()
        if token.kind == "word" and (name in NUMBERS or name in TEXTS):
            return self._comparison(name)
        if self.here.kind == "sign":
            raise FilterError(f"there is no field {token.text!r}{closest(name)}")
        if token.kind == "word" and is_ranks(token.text):
            return self._ranks(token.text)
        parts = [named(token.text)]
        while self.here.kind == "comma":
            self._take()
            parts.append(named(self._value(",", token.text).text))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _ranks(self, first: str) -> Node:
        """Numbers and ranges of ranks in a row: any of them."""
        words = [first]
        while self.here.kind == "comma" or (self.here.kind == "word" and is_ranks(self.here.text)):
            token = self._take()
            words.append(self._value(",", first).text if token.kind == "comma" else token.text)
        return ranks_term(words)

    def _comparison(self, name: str) -> Node:
        sign = self._take().text if self.here.kind == "sign" else "" if self.here.kind in ("word", "quoted") else None
        if sign is None:
            example = f"{name}>10" if name in NUMBERS else f"{name}=..."
            raise FilterError(f"{name} needs a comparison, such as {example}")
        values = [self._value(sign, name).text]
        while self.here.kind == "comma":
            self._take()
            values.append(self._value(",", name).text)
        if len(values) > _LISTED:
            raise FilterError(f"{name} has more than {_LISTED} values: use a range, as in {name}=3..70")
        if name in TEXTS:
            return text_term(TEXTS[name], sign, values)
        field = NUMBERS[name]
        if self.here.kind == "word" and values[-1][-1:].isdigit() and self.here.text.lower() in _units(name):
            values[-1] += self._take().text
        return number_term(field, sign, values)

    def _value(self, sign: str, name: str) -> Token:
        token = self._take()
        if token.kind not in ("word", "quoted"):
            raise FilterError(f"{name}{sign or ' '} needs a value behind it")
        return token


def _units(name: str) -> set[str]:
    return {unit.lower() for unit in NUMBERS[name].units} | ({"%"} if NUMBERS[name].shares else set())
