"""The terms of a filter: a comparison of a number, of a word, ranks, and a word without a field."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Sequence
from difflib import get_close_matches

from ddpmon.tui.filter.filter_fields import MOST_USED, NAMES, NUMBERS, SHARE, TEXTS, NumberField, TextField
from ddpmon.tui.filter.tree import Either, FilterError, Interval, Like, Node, Not, Word

_NUMBER = re.compile(r"([+-]?(?:\d+(?:\.\d+)?|\.\d+))([^\d.]*)", re.ASCII)
_DASHED = re.compile(r"(\d+)-(\d*)", re.ASCII)
_RANKS = re.compile(r"\d+(?:-\d*|\.\.\d*)?", re.ASCII)
_RANK = NUMBERS["rank"]
_BEGUN_LEAST = 3  # letters that a name and the beginning of another one have in common at least
_LONGEST = 15  # digits of a number: a float64 holds them


def near_field(name: str) -> str:
    """The field that may have been meant; empty if none is called like that."""
    return next(iter(get_close_matches(name, NAMES, n=1, cutoff=0.75)), "")


def closest(name: str) -> str:
    """Which field may have been meant, or which there are, to go on with behind an unknown field.

    All are named, the most used first: a line shows as many as have room.
    """
    found = near_field(name) or _longer_or_shorter(name)
    return f": did you mean {found}?" if found else f"; there are {', '.join(dict.fromkeys((*MOST_USED, *NAMES)))}"


def _longer_or_shorter(name: str) -> str:
    """The field of which `name` is the beginning, or which is the beginning of it: `memory` is `mem`, and so `rss`."""
    fields: dict[str, NumberField | TextField] = {**NUMBERS, **TEXTS}
    like = [each for each in fields if min(len(each), len(name)) >= _BEGUN_LEAST
            and (name.startswith(each) or each.startswith(name))]  # fmt: skip
    return fields[max(like, key=len)].name if like else ""


def is_ranks(word: str) -> bool:
    """Whether it is a rank or a range of ranks: 3, 3-7, 8-, 3..7."""
    return _RANKS.fullmatch(word) is not None


def ranks_term(words: Sequence[str]) -> Node:
    """Any of these ranks."""
    return number_term(_RANK, "=", words)


def number_term(field: NumberField, sign: str, values: Sequence[str]) -> Node:
    """A comparison of a figure; with several values any of them.

    Raises:
        FilterError: a value or the sign makes no sense for this field.
    """
    if sign in ("~", "!~"):
        raise FilterError(f"{field.name} is a number: compare it with < <= = >= > or a range, {field.name}=3..7")
    if sign in ("<", "<=", ">", ">="):
        if len(values) > 1:
            raise FilterError(f"{field.name}{sign} takes one value")
        value, of_step, _ = _number(field, values[0])
        low, high = (value, math.inf) if sign[0] == ">" else (-math.inf, value)
        return Interval(field.name, low, high, sign != ">", sign != "<", of_step)
    parts = tuple(_interval(field, value) for value in values)
    found = parts[0] if len(parts) == 1 else Either(parts)
    return Not(found) if sign == "!=" else found


def _interval(field: NumberField, text: str) -> Node:
    """A range, or a number as precise as it was typed: 2.3 is anything that is rounded to 2.3."""
    dashed = _DASHED.fullmatch(text)
    first, dots, last = (dashed[1], "-", dashed[2]) if dashed else text.partition("..")
    if not dots:
        value, of_step, half = _number(field, text)
        return Interval(field.name, value - half, value + half, True, half == 0, of_step)
    if not (first or last):
        raise FilterError(f"{field.name}=.. needs a number on one side of the dots")
    unit = "".join(_NUMBER.sub(r"\2", last)) if last and first and first[-1].isdigit() else ""
    low, low_of_step, _ = _number(field, first + unit) if first else (-math.inf, False, 0.0)
    high, of_step, _ = _number(field, last) if last else (math.inf, low_of_step, 0.0)
    if low > high:
        raise FilterError(f"{text} ends before it begins")
    if first and low_of_step != of_step:
        raise FilterError(f"{text} mixes a share of a step with a time")
    return Interval(field.name, low, high, of_step=of_step)


def _number(field: NumberField, text: str) -> tuple[float, bool, float]:
    """A number in the field's unit, whether it is percent of a step, and half of its last digit."""
    match = _NUMBER.fullmatch(text)
    if match is None or len(match[1]) > _LONGEST:
        raise FilterError(f"{text!r} is not a number; {field.name} is {field.meaning}")
    unit = match[2].strip().lower()
    if unit == SHARE and field.shares:
        factor, of_step = 1.0, True
    else:
        sizes = {name.lower(): size for name, size in field.units.items()}
        if unit and unit not in sizes:
            raise FilterError(f"{unit!r} is no unit of {field.name}, which is {field.meaning}{_units(field)}")
        factor, of_step = sizes[unit] if unit else 1.0, False
    digits = len(match[1].partition(".")[2])
    half = 0.0 if _is_whole(field) else 0.5 * 10.0**-digits * factor
    return float(match[1]) * factor, of_step, half


def _is_whole(field: NumberField) -> bool:
    """Whether the figure counts or names something, so that = means just this number."""
    return field.name in ("rank", "step", "pid")


def _units(field: NumberField) -> str:
    known = [*field.units, *([f"{SHARE} of a step"] if field.shares else [])]
    return f" ({', '.join(known)})" if known else ""


def text_term(field: TextField, sign: str, values: Sequence[str]) -> Node:
    """A comparison of a word; with several values any of them.

    Raises:
        FilterError: a value or the sign makes no sense for this field.
    """
    if sign in ("<", "<=", ">", ">="):
        raise FilterError(f"{field.name} is a word: compare it with = != ~ !~")
    for value in values if field.words and sign in ("", "=", "==", "!=") and field.name != "phase" else ():
        if "*" not in value and _plain(value) not in field.words:
            raise FilterError(f"there is no {field.name} {value!r}{_known(field.words, value)}")
    make = _regular if sign in ("~", "!~") else _whole
    parts = tuple(Like(field.name, make(field, value)) for value in values)
    found: Node = parts[0] if len(parts) == 1 else Either(parts)
    return Not(found) if sign in ("!=", "!~") else found


def _known(words: Sequence[str], value: str) -> str:
    """Which words there are, to go on with behind an unknown one: of many those first that are like it."""
    if len(words) <= 6:
        return f": it is one of {', '.join(words)}"
    near = get_close_matches(_plain(value), words, n=3, cutoff=0.4)
    return f"; there are {', '.join(dict.fromkeys((*near, *words)))}"


def _plain(value: str) -> str:
    return value.lower().replace("-", "_") if value else value


def _whole(field: TextField, value: str) -> re.Pattern[str]:
    """The whole word, in which * stands for anything; of a host's name the part before its domain is enough."""
    spelled = {"host": value, "phase": value.replace("-", "[-_]")}  # a phase can have any name that the job gives it
    glob = fnmatch.translate(spelled.get(field.name) or _plain(value))
    body = glob.removesuffix(r"\Z").removesuffix(r"\z")
    domain = r"(?:\..*)?" if field.name == "host" else ""
    return re.compile(rf"\A{body}{domain}\Z", re.IGNORECASE)


def _regular(field: TextField, value: str) -> re.Pattern[str]:
    try:
        return re.compile(value, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        raise FilterError(f"{field.name}~{value} is not a regular expression: {error}") from None


def named(text: str, *, is_pattern: bool = False) -> Word:
    """A word without a field: part of a host's name, or the beginning of a state or of a finding's kind.

    Raises:
        FilterError: a regular expression makes no sense.
    """
    if is_pattern:
        host = TextField("host", "")
        pattern = _regular(host, text)
        return Word(f"~{text}", (Like("host", pattern), Like("state", pattern), Like("finding", pattern)))
    begins = re.compile(rf"\A{re.escape(_plain(text))}")
    host_part = re.compile(re.escape(text), re.IGNORECASE)
    return Word(text, (Like("host", host_part), Like("state", begins), Like("finding", begins)))
