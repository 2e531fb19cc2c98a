"""The findings: a list with a cursor, the one under it with its evidence, and the way to its rank and its host."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from ddpmon.report.see_also import see_also
from ddpmon.report.verdicts import firing, same_among
from ddpmon.snapshot import Finding
from ddpmon.tui.draw.finding_view import calm_rows, evidence_lines
from ddpmon.tui.draw.panel import Keys
from ddpmon.tui.draw.panel_sizes import finding_plan
from ddpmon.tui.lines import Line
from ddpmon.tui.screens.base import ViewScreen
from ddpmon.tui.view_tables import TableName, findings_csv
from ddpmon.tui.widgets.canvas import Canvas, ScrollText
from ddpmon.tui.widgets.filter_bar import FilterBar
from ddpmon.tui.widgets.finding_list import FindingList


class Evidence(ScrollText, can_focus=False):
    """The evidence beside the list, which keeps the keys."""


class FindingsScreen(ViewScreen):
    """Every finding; `enter` goes to its rank, of one about the run to what it says to see also; `h` to its host.

    Attributes:
        sought: the finding that the cursor goes to when the view is drawn next, None to leave it where it is, or on
            the finding to which the reader has just gone in time.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("h", "host", "Its host", show=False),
        Binding("w", "write_finding", "Write the finding", show=False),
        Binding("J", "read_on(1)", "The evidence: down", show=False),
        Binding("K", "read_on(-1)", "The evidence: up", show=False),
    ]
    AUTO_FOCUS = "FindingList"
    shows_steps = True  # wherever the key line has room to say so
    view: ClassVar[str] = "findings"
    exported: ClassVar[TableName] = "findings"
    panels: ClassVar[tuple[str, ...]] = ("table", "evidence")
    sought: Finding | None = None
    _reached: Finding | None = None  # the finding to which the reader went in time last, as far as the cursor knows

    def follow(self) -> None:
        """Put the cursor on the worst finding that lasts and names the rank that another view has chosen since.

        The cursor stays where it is if its finding lasts and names that rank. A finding that a link has asked for, or
        that the reader has just gone to in time, comes first.
        """
        chosen, here, found = self.dashboard.links.chosen, self.finding, firing(self.picture.found)
        is_reached = self.picture.snapshot.reached is not self._reached
        if chosen is None or chosen == self.listing.followed or self.sought is not None or is_reached:
            return
        about = [finding for finding in found if chosen in finding.ranks]
        if about:
            self.listing.followed = chosen
            is_there = here is not None and here.cleared_at_step is None and chosen in here.ranks
            self.sought = None if is_there else about[0]

    def compose(self) -> ComposeResult:
        """Header, the list beside the evidence or above it, the keys."""
        yield Canvas(self.head, id="head")
        with Container(id="pair"):
            yield FindingList()
            yield Evidence(self._evidence, id="evidence", hint=": J and K scroll")
        yield FilterBar()
        yield self.foot()

    @property
    def listing(self) -> FindingList:
        """The list."""
        return self.query_one(FindingList)

    @property
    def finding(self) -> Finding | None:
        """The finding under the cursor."""
        return self.listing.finding

    @property
    def finding_here(self) -> Finding | None:
        """The finding under the cursor."""
        return self.listing.finding

    def tells(self, finding: Finding) -> bool:
        """Whether it is in the list, because the filter fits it."""
        return finding in self.picture.found

    @property
    def detailed_rank(self) -> int | None:
        """The first rank that the finding under the cursor names: it is plotted."""
        finding = self.listing.finding if self.ready else None
        return finding.ranks[0] if finding is not None and finding.ranks else None

    def share_out(self, room: int) -> None:
        """The list beside the evidence in wide terminals, above it in others and where there is nothing to choose."""
        found = self.picture.found
        lasting = sum(finding.cleared_at_step is None for finding in found)
        calm = 0 if lasting else calm_rows(self.picture, self.size.width, room)
        lines = len(found) + 1 + calm + (lasting < len(found))  # a title for what lasts, and one for what is over
        wide, share = finding_plan(self.size.width, room, lines) if found else (False, calm + 2)
        pair, table = self.query_one("#pair"), self.listing
        pair.styles.layout = "horizontal" if wide else "vertical"
        table.styles.width, table.styles.height = (share, "1fr") if wide else ("1fr", share)
        table.show(self.picture)
        reached = self.picture.snapshot.reached
        if reached is not self._reached:
            self._reached, self.sought = reached, self.sought or reached
        if self.sought is not None:
            table.find(self.sought)
            self.sought, self.evidence.top = None, 0

    @property
    def evidence(self) -> Evidence:
        """The evidence of the finding under the cursor."""
        return self.query_one(Evidence)

    def _evidence(self, width: int) -> list[Line]:
        return evidence_lines(self.picture, self.listing.finding, width, self.evidence.size.height)

    def action_write_finding(self) -> None:
        """Ask how to write the finding under the cursor; without one do what `w` does elsewhere."""
        if self.finding is None:
            self.dashboard.action_write()
        else:
            self.dashboard.habits.ask_how_to_write(self.finding)

    def action_read_on(self, lines: int) -> None:
        """Scroll the evidence by some lines."""
        self.evidence.action_scroll_by(lines)

    def on_virtual_table_moved(self) -> None:
        """Another finding is under the cursor."""
        if self.is_current:
            self.dashboard.read_detail_of(self.detailed_rank)
        self.evidence.top = 0
        self.evidence.redraw()

    def on_finding_list_opened(self) -> None:
        """Open the chosen rank if the finding names it, else its first, else what it says to see also, or its host."""
        finding, related = self.listing.finding, self._related
        rank = None if finding is None else self.listing.rank_of(finding)
        if rank is not None:
            self.dashboard.links.open_rank(rank)
        elif related is not None:
            self.sought = related
            self.show()
        else:
            self.action_host()

    @property
    def _related(self) -> Finding | None:
        """The first finding that the one under the cursor, if it is about the whole run, says to see also."""
        finding = self.listing.finding
        if finding is None or finding.ranks or finding.nodes:
            return None
        return next(iter(see_also(finding, self.picture.snapshot)), None)

    def action_host(self) -> None:
        """Open the host of the finding."""
        rank = self._rank_of(self.listing.finding)
        if rank is None:
            self.app.bell()
        else:
            self.dashboard.links.open_host(rank)

    def _rank_of(self, finding: Finding | None) -> int | None:
        """The first rank that it names, or one on the first host that it names."""
        if finding is None or finding.ranks:
            return None if finding is None else finding.ranks[0]
        here = [node for node in self.picture.snapshot.nodes if node.host in finding.nodes and node.ranks]
        return here[0].ranks[0] if here else None

    def csv(self) -> str:
        """The findings that the filter fits, in the order of the list."""
        listed = [same_among(self.dashboard.shown.findings, finding) for finding in self.listing.findings]
        return findings_csv(self.dashboard.shown, listed)

    def keys(self) -> Keys:
        """Along the list, to the rank, to the host."""
        if self.is_typing:
            return self.typing_keys
        many = len(self.picture.found)
        to = "rank" if self._related is None else "see also"
        links: Keys = (("enter", to), ("h", "host"), ("j k", "move"))[: 0 if not many else 2 if many == 1 else 3]
        return (
            *self.back_keys, *links, ("y Y", "copy"), ("w", "save"), ("/", "filter"), ("?", "help"),
            ("1-5", "views"), *self.pause, *self.zoom_keys, ("q", "quit"),
        )  # fmt: skip
