"""Every class of measures has a sentence, and no sentence is on a class that there is not."""

from __future__ import annotations

from collections.abc import Iterator

import ddpmon.diagnose.judge  # noqa: F401 (it imports all rules)
from ddpmon.diagnose.alert import Measures
from ddpmon.report.sentences import SENTENCES
from ddpmon.report.wording import does, format_ranks


def name_of(kind: type[Measures]) -> str:
    """Slots make a dataclass a new class, and its forerunner may still be there: both have one name."""
    return f"{kind.__module__}.{kind.__qualname__}"


def below(kind: type[Measures]) -> Iterator[type[Measures]]:
    """All classes derived from this one, of the package."""
    for each in kind.__subclasses__():
        if each.__module__.startswith("ddpmon."):
            yield each
            yield from below(each)


def test_every_class_of_measures_has_a_sentence_and_every_sentence_has_measures() -> None:
    classes = [*below(Measures)]
    derived_from = {name_of(each) for each in classes if [*below(each)]}
    assert {*map(name_of, classes)} - derived_from == {*map(name_of, SENTENCES)}


def test_ranks_in_a_sentence_have_one_order_whatever_order_they_come_in() -> None:
    """The worst first: the same four ranks stood in another order every second (review of the screen, B11)."""
    assert format_ranks((2, 3, 0, 1)) == format_ranks((1, 0, 2, 3)) == "ranks 0, 1, 2, 3"
    assert format_ranks(tuple(range(11, -1, -1))) == "ranks 0-11"
    assert format_ranks(tuple(range(0, 24, 2))) == "12 ranks (0, 2, 4, ...)"
    assert does((5, 4), "wait") == "ranks 4, 5 wait"
