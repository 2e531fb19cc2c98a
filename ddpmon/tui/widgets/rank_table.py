"""The rank table: how it is sorted and filtered, and which rank was chosen."""

from __future__ import annotations

from textual.message import Message

from ddpmon.snapshot import Ints
from ddpmon.tui.draw.columns import GPU_COLUMNS, SORTS
from ddpmon.tui.draw.order import ordered
from ddpmon.tui.draw.table import TableView, table_lines
from ddpmon.tui.lines import Line
from ddpmon.tui.picture import Picture
from ddpmon.tui.widgets.rows import Rows


class RankTable(Rows):
    """One row a rank."""

    class Opened(Message):
        """A rank was chosen."""

        def __init__(self, rank: int) -> None:
            super().__init__()
            self.rank = rank

    def arranged(self, picture: Picture) -> Ints:
        """The ranks in row order."""
        return ordered(picture.snapshot, self.view.sort, self.view.reverse, self.view.wanted)

    def drawn(self, picture: Picture, view: TableView, width: int, height: int) -> list[Line]:
        """The table's lines."""
        return table_lines(picture, view, width, height)

    def opened(self, number: int) -> None:
        """Say that a rank was chosen."""
        self.post_message(self.Opened(number))

    @property
    def rank(self) -> int | None:
        """The rank under the cursor."""
        return self.chosen

    def next_sort(self) -> None:
        """Sort by the next column that has anything to show."""
        ranks = self.picture.snapshot.ranks if self.picture else None
        bare = ranks is not None and not any(ranks.gpu)
        names = [name for name in SORTS if not (bare and name in GPU_COLUMNS)]
        place = names.index(self.view.sort) if self.view.sort in names else -1
        self.rearrange(sort=names[(place + 1) % len(names)], reverse=False)
