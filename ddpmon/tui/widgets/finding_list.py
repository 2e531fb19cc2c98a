"""The list of findings: the cursor stays on its finding while others come and go."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
from textual.message import Message

from ddpmon.report.verdicts import firing
from ddpmon.snapshot import Finding, Ints
from ddpmon.tui.draw.finding_view import calm_rows, list_lines, list_room
from ddpmon.tui.draw.table import HEAD, TableView
from ddpmon.tui.lines import Line
from ddpmon.tui.view_state import ViewState
from ddpmon.tui.widgets.virtual_table import VirtualTable

if TYPE_CHECKING:
    from ddpmon.tui.app import WatchApp
    from ddpmon.tui.links import Links


def _name(finding: Finding) -> Hashable:
    """What a finding has in common with itself a second later: its life, else its kind and whom it names."""
    return (finding.kind, finding.id) if finding.id else (finding.kind, frozenset(finding.ranks), finding.nodes)


class FindingList(VirtualTable):
    """One row a finding that the filter fits: those that last, the worst first, then those that are over.

    Attributes:
        followed: the chosen rank of all views when the reader moved the cursor last, or when the cursor was put on a
            finding of that rank.
    """

    class Opened(Message):
        """A finding was chosen: the reader wants its rank."""

    opens_at_first: ClassVar[bool] = False  # the evidence below is of the finding under the cursor

    def __init__(self) -> None:
        super().__init__()
        self.findings: list[Finding] = []
        self.followed: int | None = None
        self._numbers: dict[Hashable, int] = {}  # what a finding is called -> the number that the cursor follows
        self._at: dict[int, int] = {}  # that number -> its place among the findings
        self._next = 0

    @property
    def finding(self) -> Finding | None:
        """The finding under the cursor."""
        return None if self.chosen is None else self.findings[self._at[self.chosen]]

    def find(self, finding: Finding) -> None:
        """Put the cursor on this finding, if it is in the list."""
        number = self._numbers.get(_name(finding))
        if number is not None:
            self.hold(number)

    def keep(self, number: int | None) -> None:
        """Follow this finding from now on; the rank that `rank_of` gives is the chosen one of all views."""
        super().keep(number)
        finding, links = None if number is None else self.findings[self._at[number]], self._links
        if finding is not None and finding.ranks:
            links.choose(self.rank_of(finding))
        self.followed = links.chosen

    def rank_of(self, finding: Finding) -> int | None:
        """The chosen rank of all views if the finding names it, else the one that it names first; None of no rank."""
        chosen = self._links.chosen
        return chosen if chosen in finding.ranks else next(iter(finding.ranks), None)

    @property
    def _links(self) -> Links:
        return cast("WatchApp", self.app).links

    def adopt(self, number: int | None) -> None:
        """Follow a finding; the chosen rank stays as it is."""
        self._held = number

    def arranged(self, picture: ViewState, wanted: str) -> Ints:  # noqa: ARG002  # `found` is what it fits
        """The findings' numbers in row order."""
        lasting = firing(picture.found)
        over = [finding for finding in picture.found if finding.cleared_at_step is not None]
        over.sort(key=lambda finding: -(finding.cleared_at_step or 0))
        self.findings = [*lasting, *over]
        known, self._numbers, self._at = self._numbers, {}, {}
        for place, finding in enumerate(self.findings):
            self._at[self._number(_name(finding), known)] = place
        return np.array([*self._at], np.int64)

    def _number(self, name: Hashable, known: dict[Hashable, int]) -> int:
        """The number of a finding: the one that it had, or a new one."""
        number = known.get(name, -1)
        if number < 0 or name in self._numbers:
            number, self._next = self._next, self._next + 1
        self._numbers.setdefault(name, number)
        return number

    @property
    def _room(self) -> int:
        if self.picture is None:
            return 1
        return list_room(self.picture, self.findings, self.size.width, self.size.height)

    def drawn(self, picture: ViewState, view: TableView, width: int, height: int) -> list[Line]:
        """The list's lines."""
        return list_lines(picture, self.findings, view, width, height)

    def opened(self, number: int) -> None:  # noqa: ARG002  # the cursor is on it
        """Say that a finding was chosen."""
        self.post_message(self.Opened())

    def row_at(self, line: int) -> int | None:
        """The row that is drawn in this line; the title of what is over is none."""
        lasting = len(firing(self.findings))
        above = 1 if lasting or self.picture is None else 1 + calm_rows(self.picture, *self.size)
        row = line - above + self.view.top
        if row >= lasting:
            row -= 1
        return row if row >= self.view.top and line >= HEAD - 1 else None
