"""What a filter means, as a small tree."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TypeAlias


class FilterError(ValueError):
    """A filter that is not understood; the message names what, in one sentence."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure between two values; an unknown figure lies in no interval.

    Attributes:
        field: the name of a number's field.
        low, high: the ends, in the field's own unit, or in percent of a step.
        with_low, with_high: whether the ends belong to it.
        of_step: whether the ends are percent of the run's step time.
    """

    field: str
    low: float = -math.inf
    high: float = math.inf
    with_low: bool = True
    with_high: bool = True
    of_step: bool = False


@dataclass(frozen=True, slots=True)
class Like:
    """A word of a text's field in which the pattern is found."""

    field: str
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Word:
    """A word without a field: part of a host's name, or the beginning of a state or of a finding's kind."""

    text: str
    parts: tuple[Like, ...]


@dataclass(frozen=True, slots=True)
class Every:
    """All parts fit."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """At least one part fits."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not fit."""

    part: Node


Node: TypeAlias = "Interval | Like | Word | Every | Either | Not"
