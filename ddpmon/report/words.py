"""What a sentence function returns, and the phrases that several of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ddpmon.diagnose.alert import Alert
from ddpmon.parts import NO_HOST

Evidence = Mapping[str, float | int | str]


@dataclass(frozen=True, slots=True)
class Words:
    """What is said of one alert.

    Attributes:
        said: the sentence, without its full stop if nothing follows it. The cause stands behind it.
        rest: whole sentences behind it and its cause, such as what it costs; empty if there are none.
        advice: what to do or look at next; empty for none.
        evidence: the numbers that the alert rests on, by the names of the JSON contract.
        because: what follows "because of" where these measures are the cause of something: a noun, then the details.
        cause: what the rank itself tells of the reason, where `said` names it already.
    """

    said: str
    rest: str = ""
    advice: str = ""
    evidence: Evidence = field(default_factory=dict)
    because: str = ""
    cause: str | None = None


Sentence = Callable[[Any, Alert], Words]  # of measures of one class, and the alert that carries them


def in_brackets(host: str) -> str:
    """The host behind the name of a rank: " (node0)"; "" where it is unknown."""
    return "" if host in ("", NO_HOST) else f" ({host})"
