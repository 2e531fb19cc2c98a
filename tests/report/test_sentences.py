"""Every class of measures has a sentence, and what can be a cause has words for that."""

from __future__ import annotations

from collections.abc import Iterator

import ddpmon.diagnose.judge  # noqa: F401 (it imports all rules)
from ddpmon.diagnose.alert import Measures
from ddpmon.report.sentences import SENTENCES


def leaves(kind: type[Measures]) -> Iterator[type[Measures]]:
    """The classes of measures below this one that rules make: those that nothing is derived from."""
    below = [each for each in kind.__subclasses__() if each.__module__.startswith("ddpmon.")]
    for each in below:
        yield from leaves(each)
    if not below and kind is not Measures:
        yield kind


def name_of(kind: type[Measures]) -> str:
    """Slots make a dataclass a new class, and its forerunner may still be there: both have one name."""
    return f"{kind.__module__}.{kind.__qualname__}"


def test_every_class_of_measures_has_a_sentence_and_every_sentence_has_measures() -> None:
    assert {*map(name_of, leaves(Measures))} == {*map(name_of, SENTENCES)}
