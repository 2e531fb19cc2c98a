"""What may come next while a filter is typed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddpmon.snapshot import Snapshot
from ddpmon.tui.filter.filter_fields import NAMES, NUMBERS, STATES, TEXTS, finding_words

_LAST = re.compile(r'(?:(?P<field>[\w%-]+)\s*(?:!=|==?)\s*(?:[^\s,()&|"=]*,)*)?(?P<begun>[^\s,<>=!~()&|"]*)\Z')
_TERM_BEGINS = re.compile(r"(?:\A|\(|(?<![\s<>=!~,])\s)\s*\Z")  # not behind an operator, which wants a value
_FIELDS = tuple(f"{name}=" if name in TEXTS else name for name in NAMES)  # behind which its words are offered at once
_ALONE = (*_FIELDS, *STATES, "restarted")  # what a term begins with; the last is the usual form of `RESTARTED`


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the words that the word under the cursor can become, while the reader goes through them.

    Attributes:
        typed: the filter before that.
        words: all of them.
        place: which one is taken.
    """

    typed: str
    words: tuple[str, ...]
    place: int

    @property
    def text(self) -> str:
        """The filter with that word."""
        return completed(self.typed, self.words[self.place])

    def moved(self, by: int) -> Choice:
        """The next one, or the one before; behind the last comes the first."""
        return Choice(self.typed, self.words, (self.place + by) % len(self.words))


def completions(text: str, snapshot: Snapshot) -> list[str]:
    """What the word under the cursor can become, in the order in which it is offered.

    Where a term may begin and nothing is typed of it yet, these are the fields first; those of words with their `=`.
    """
    match = _LAST.search(text)
    if match is None or (not match["begun"] and not match["field"] and not _TERM_BEGINS.search(text)):
        return []
    begun, field = match["begun"].lower(), (match["field"] or "").lower()
    if field in NUMBERS:
        return []
    known = _words_of(TEXTS[field].name, snapshot) if field in TEXTS else (*_ALONE, *_hosts(snapshot))
    return [word for word in dict.fromkeys(known) if word.lower().startswith(begun) and word.lower() != begun]


def is_unfinished(text: str) -> bool:
    """Whether the word under the cursor may become the name of a field, so that it means nothing yet."""
    match = _LAST.search(text)
    begun = match["begun"].lower() if match is not None and not match["field"] else ""
    return bool(begun) and any(name.startswith(begun) for name in NAMES)


def as_far_as_common(text: str, words: Sequence[str]) -> str:
    """The filter with the word under the cursor completed as far as all of `words` begin alike, as shells do."""
    columns = itertools.takewhile(lambda letters: len({*letters}) == 1, zip(*map(str.lower, words), strict=False))
    common = sum(1 for _ in columns)
    match = _LAST.search(text)
    begun = "" if match is None else match["begun"]
    return completed(text, words[0][:common]) if common > len(begun) else text


def completed(text: str, word: str) -> str:
    """The filter with the word under the cursor completed."""
    match = _LAST.search(text)
    return text if match is None else text[: match.start("begun")] + word


def _words_of(field: str, snapshot: Snapshot) -> Iterable[str]:
    if field == "host":
        return _hosts(snapshot)
    if field == "finding":  # those that there are come first
        return (*(word for finding in snapshot.findings for word in finding_words(finding)), *TEXTS[field].words)
    return TEXTS[field].words


def _hosts(snapshot: Snapshot) -> Iterable[str]:
    return snapshot.run.nodes if snapshot.run else ()
