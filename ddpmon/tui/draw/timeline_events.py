"""The events of the timeline: findings that begin and end, restarts, phases; each sign stands over its step."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.style import Style

from ddpmon.format import count, plural
from ddpmon.report.finding_rows import what, who
from ddpmon.report.step_clock import step_at
from ddpmon.report.verdicts import is_kill, is_restart
from ddpmon.run.recent import RECENT
from ddpmon.snapshot import Finding, Snapshot, Timeline
from ddpmon.tui.draw.header import finding_style
from ddpmon.tui.draw.panel import APART, Mark
from ddpmon.tui.draw.zoom import Span, column_of
from ddpmon.tui.lines import clip_words
from ddpmon.tui.theme import Look

_LEAST_WORDS = 9  # cells of words that are cut: `garbage …`
_RHYTHM = re.compile(r" in one step of (\d+)")
Marks = list[Mark]


class Event(NamedTuple):
    """What happened in a step: the step, a sign for it, the words, their style where they stand out, what happened.

    The words say to whom as well; `fact` is what remains of them where there is little room.
    """

    step: float
    sign: str
    words: str
    style: Style | None = None
    fact: str = ""

    @property
    def forms(self) -> tuple[str, ...]:
        """The words, then shorter ones: without what stands behind a comma, not how late, only to whom or what.

        Before how late it is, what is late in some steps loses words on how often: `late +361 ms 1/5`.
        """
        words, fact = (_RHYTHM.sub(r" 1/\1", said) for said in (self.words, self.fact))
        brief = words.partition(",")[0]
        late = re.sub(r" late \+.*", " late", brief)
        numbers = late.removeprefix("ranks ")
        forms = [self.words, self.words.partition(",")[0], words, brief, late, numbers]
        return tuple(dict.fromkeys([*forms, fact.partition(",")[0] or numbers]))


def event_rows(whole: Snapshot, timeline: Timeline, span: Span, columns: int, room: int, look: Look) -> list[Marks]:
    """`room` rows of events at most: findings and restarts, and below them the phases that a user named.

    What began before the axis stands at its left end, and what no step has ended since at its right end. It is said how
    many have no room. What begins behind an axis that ends before the last step on record is left out.
    """
    end = span[1] if span[1] < timeline.step[-1] else math.inf
    lasting = (
        *_beginnings(whole, timeline, span, look),
        *_ends(whole, timeline, span, look),
        *_restarts(whole, timeline, span, look),
    )
    named = [Event(mark.step, look.glyphs.note, look.clean(mark.name)[:16]) for mark in timeline.marks[::-1]]
    found, named = (
        [each for each in lasting if each.step <= end],
        [each for each in named if span[0] <= each.step <= end],
    )
    return _Axis(span, columns, look.glyphs.more).rows(found, named, room)


class _Axis(NamedTuple):
    """Places labels over an axis of steps: its first and last step, its cells, and what stands for cut words."""

    span: Span
    columns: int
    more: str

    def rows(self, events: Sequence[Event], phases: Sequence[Event], most: int) -> list[Marks]:
        """As many rows as the events need, `most` at most, with the phases in the last one.

        Without room for all the last row says how many are left.
        """
        rows: list[Marks] = [[] for _ in range(most)]
        if self._fill(rows, events, phases):
            first, longest = [*events, *phases][0], len(f"{len(events) + len(phases):,} more")
            at_right = column_of(first.step, self.span, self.columns) < self.columns // 2
            start = self.columns - longest if at_right else 0
            rows = [*([] for _ in range(most - 1)), [(start, "." * longest, None)]]  # keeps the room
            left_out = self._fill(rows, events, phases)
            rows[-1][:1] = [(start, f"{left_out:,} more", None)] if left_out else []
        return [row for row in rows if row]

    def _fill(self, rows: Sequence[Marks], events: Sequence[Event], phases: Sequence[Event]) -> int:
        """Put the events into the rows and the phases into the last one; returns how many have no room."""
        return self.place(events, rows) + self.place(phases, rows[-1:])

    def place(self, events: Sequence[Event], rows: Sequence[Marks]) -> int:
        """Put each event into the first row with room for its words, else for some of them; returns how many have none.

        What happened is said in the shortest form, too, and only that one is cut.
        """
        left_out = 0
        for event in events:
            shortest = event.forms[-1]
            forms = (*((words, len(words)) for words in event.forms), (shortest, min(_LEAST_WORDS, len(shortest))))
            tries = (self._put(event._replace(words=words), least, row) for words, least in forms for row in rows)
            left_out += not any(tries)
        return left_out

    def _put(self, event: Event, least: int, row: Marks) -> bool:
        """Put a label of at least so many cells of words into a row, with its sign in its column; whether it has room.

        The words stand to the right of the sign, or to the left where they have more room there.
        """
        column = column_of(event.step, self.span, self.columns)
        before = max((start + len(text) + APART for start, text, _ in row if start <= column), default=0)
        after = min((start - APART for start, _, _ in row if start > column), default=self.columns)
        right, left = after - column - 2, column - before - 1
        room = right if right >= min(left, len(event.words)) else left
        if not before <= column < after or room < least:
            return False
        words = clip_words(event.words, room, self.more)
        text = f"{event.sign} {words}" if room == right else f"{words} {event.sign}"
        row.append((column if room == right else column + 1 - len(text), text, event.style))
        return True


def _is_hidden(step: float, timeline: Timeline, span: Span) -> bool:
    """Whether a step lies behind an axis that ends before the last step on record."""
    return step > span[1] and span[1] < timeline.step[-1]


def _beginnings(whole: Snapshot, timeline: Timeline, span: Span, look: Look) -> Iterator[Event]:
    for finding in whole.findings:
        if is_restart(finding):
            continue  # `_restarts` has each of them
        since, over = _began(whole, finding), finding.cleared_at_step
        lasts = over is None or _is_hidden(over, timeline, span)
        if since is not None and (lasts or span[0] <= since):
            sign, style = finding_style(finding, look) if lasts else (look.glyphs.mark, None)
            bound = "before " if finding.since_is_bound else ""
            when = f" since {bound}{count(since)}" if since < span[0] else ", or before" if bound else ""
            whom, fact = look.clean(_whom(finding)), look.clean(what(finding))
            style = None if finding.severity == "info" else style
            yield Event(since, sign, f"{whom} {fact}{when}".strip(), style, fact)


def _ended(whole: Snapshot, timeline: Timeline, span: Span) -> Iterator[tuple[Finding, int]]:
    """The findings whose end the axis shows, and the step at which each was over."""
    for finding in whole.findings:
        over = finding.cleared_at_step
        if over is not None and span[0] <= over and not _is_hidden(over, timeline, span):
            yield finding, over


def _ends(whole: Snapshot, timeline: Timeline, span: Span, look: Look) -> Iterator[Event]:
    for finding, over in _ended(whole, timeline, span):
        again = any(_is_back_by(finding, over, restart) for restart in timeline.restarts)
        fact = "restarted" if again else "back" if finding.kind == "rank_lost" else "over"
        whom = look.clean(_whom(finding) or what(finding))
        yield Event(min(over, span[1]), look.glyphs.finished, f"{whom} {fact}", fact=fact)


def _is_back_by(finding: Finding, over: int, restart: tuple[int, int, int]) -> bool:
    """Whether the ranks that were lost are those that restarted then: one event tells that they are back."""
    step, many, first = restart
    alike = finding.kind == "rank_lost" and (many, first) == (len(finding.ranks), min(finding.ranks, default=-1))
    return alike and abs(over - 1 - step) <= RECENT


def _restarts(whole: Snapshot, timeline: Timeline, span: Span, look: Look) -> Iterator[Event]:
    """The restarts that `_ends` does not tell."""
    ended = [*_ended(whole, timeline, span)]
    for restart in timeline.restarts:
        step, many, first = restart
        if span[0] <= step and not any(_is_back_by(*each, restart) for each in ended):
            whom = f"rank {first}" if many == 1 else plural(many, "rank")
            yield Event(step, look.glyphs.note, f"{whom} restarted", fact=f"{many:,} restarted")


def _began(whole: Snapshot, finding: Finding) -> int | None:
    """The step that the run was at when a trouble began; what a lost rank counts may be steps since its own restart."""
    away = finding.kind in ("rank_lost", "rank_failed") and finding.cleared_at_step is None
    if away and not is_kill(finding) and finding.ranks and whole.ranks is not None:
        heard_at = whole.taken_at - float(whole.ranks.age_s[finding.ranks[0]])
        return step_at(whole, heard_at) or finding.since_step
    return finding.since_step


def _whom(finding: Finding) -> str:
    """The ranks or hosts; empty for a finding on the whole run, whose kind says it all."""
    return who(finding) if finding.ranks or finding.nodes else ""
