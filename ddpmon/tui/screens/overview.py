"""The overview: the verdict, the picture that proves it, and what else is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from ddpmon.report.leak import leak_of
from ddpmon.report.rank_places import is_hanging
from ddpmon.report.verdicts import headline, naming
from ddpmon.snapshot import Finding, Metric, ReplayView
from ddpmon.tui.draw.against import against_height, against_lines
from ddpmon.tui.draw.columns import LETTERS, heading
from ddpmon.tui.draw.findings import also_found_height, finding_at, finding_lines
from ddpmon.tui.draw.grid import METRICS
from ddpmon.tui.draw.header import header_line, notice_lines, waiting_lines
from ddpmon.tui.draw.heat import is_known
from ddpmon.tui.draw.key_figures import figures_line
from ddpmon.tui.draw.panel import Keys
from ddpmon.tui.draw.panel_sizes import WIDE, Plan, alone, plan
from ddpmon.tui.draw.place_table import stuck_height, stuck_lines
from ddpmon.tui.draw.run_plots import lateness_plot, plots_beside, plots_stacked
from ddpmon.tui.draw.too_small import too_small_lines
from ddpmon.tui.draw.verdict_lines import verdict_lines
from ddpmon.tui.filter.filter_fields import meaning
from ddpmon.tui.lines import Line
from ddpmon.tui.screens.base import DROP, BaseScreen
from ddpmon.tui.widgets.canvas import Canvas
from ddpmon.tui.widgets.filter_bar import FilterBar
from ddpmon.tui.widgets.heat_map import HeatMap
from ddpmon.tui.widgets.virtual_table import RankTable

AGAINST_LEAST = 7  # lines below which a stuck rank is not also compared with the others: all phases
OF_RANK = ("chosen", "under", "side", "plots")  # the panels that are about the rank under the table's cursor


def _replay_keys(replay: ReplayView) -> Keys:
    """What moves in time."""
    return (
        ("end", "live" if replay.is_live else "last moment"), ("space", "pause" if replay.playing else "play"),
        ("[ ]", "step"), ("{ }", "minute"), ("n N", "finding"), ("?", "help"), ("t", "go to"), ("+ -", "speed"),
    )  # fmt: skip


class Overview(BaseScreen):
    """Everything at a glance."""

    view = "overview"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("full_stop,s", "sort(1)", "Sort by the next column", show=False),
        Binding("comma", "sort(-1)", "Sort by the column before", show=False),
        Binding("0", "sort_by('worst')", "The worst first again", show=False),
        *(
            Binding(letter, f"sort_by('{key}')", f"Sort by {heading(key)}", show=False)
            for letter, key in LETTERS.items()
        ),
        Binding("v", "metric", "Show the next metric in the heat-map", show=False),
        Binding("r", "reverse", "Reverse the order", show=False),
        Binding("f", "maximise", "The next panel alone", show=False),
        Binding("escape", "all_ranks", "All panels, the table, all ranks", show=False),
    ]
    AUTO_FOCUS = "RankTable"
    panels: ClassVar[tuple[str, ...]] = ("table", "heat", "plots")
    _alone: str | None = None
    _drawn_rank = 0  # the one that the panels of one rank are about

    def compose(self) -> ComposeResult:
        """One widget a panel; sizes come from the plan."""
        yield Canvas(self._head, id="head")
        yield Canvas(self._calm, id="calm")
        with Horizontal(id="body"):
            with Vertical(id="left"):
                yield RankTable()
                yield Canvas(lambda w, h: finding_lines(self.picture, w, h), id="found")
                yield Canvas(self._chosen, id="chosen")
                yield Canvas(lambda w, h: lateness_plot(self.picture, self.rank, w, h), id="under")
            yield Canvas(self._side, id="side")
        yield HeatMap()
        yield Canvas(self._plots, id="plots")
        yield FilterBar()
        yield self.foot()

    @property
    def table(self) -> RankTable:
        """The rank table."""
        return self.query_one(RankTable)

    @property
    def rank(self) -> int:
        """The rank that the panels beside the table are about, under the table's cursor; -1 where none matches."""
        rank = self.table.rank
        return rank if rank is not None else -1 if self.table.view.wanted else 0

    @property
    def detailed_rank(self) -> int | None:
        """That rank, where its worst finding is about a memory that grows: its course is plotted."""
        ranks, rank = self.picture.snapshot.ranks, self.rank if self.ready else -1
        if ranks is None or not 0 <= rank < len(ranks):
            return None
        found = naming(self.picture.snapshot.findings, rank, ranks.host[rank])
        return None if leak_of(found, rank) is None else rank

    def _chosen(self, width: int, height: int) -> list[Line]:
        """The chosen rank against the others; while the run stands still first its stack."""
        hangs = is_hanging(self.picture.snapshot) and self.rank >= 0
        stuck = min(stuck_height(self.picture, self.rank), height) if hangs else 0
        stuck = height if height - stuck < AGAINST_LEAST else stuck
        stacks = stuck_lines(self.picture, self.rank, width, stuck) if hangs else []
        return [*stacks, *against_lines(self.picture, self.rank, width, height - len(stacks))]

    def _plots(self, width: int, height: int) -> list[Line]:
        """Two plots beside each other; all of them where they are alone."""
        if self._alone == "plots":
            return plots_stacked(self.picture, self.rank, width, height, lateness=True)
        return plots_beside(self.picture, self.rank, width, height)

    def _side(self, width: int, height: int) -> list[Line]:
        """The plots; the lateness is among them where it is not below the table."""
        return plots_stacked(self.picture, self.rank, width, height, lateness=not self.query_one("#under").display)

    def follow(self) -> None:
        """The cursor of the table is on the chosen rank."""
        self.table.hold(self.dashboard.links.to_hold)

    def on_virtual_table_moved(self) -> None:
        """Another rank is under the cursor: draw what is about it, unless the whole picture has been drawn with it."""
        if self.rank == self._drawn_rank:
            return
        self._drawn_rank = self.rank
        self.dashboard.read_detail_of(self.detailed_rank)
        for name in OF_RANK:
            self.query_one(f"#{name}", Canvas).redraw()

    def show(self) -> None:
        """Share out the room, then draw."""
        self.dashboard.habits.begin()
        self.table.show(self.picture)
        shares = self._arrange()
        self.query_one(HeatMap).look_at(self.picture, self.table.view.wanted, shares.heat)
        self._drawn_rank = self.rank
        super().show()
        if self.is_current:
            self.dashboard.read_detail_of(self.detailed_rank)

    def on_click(self, event: events.Click) -> None:
        """A click on a finding opens it in the list; a double click on what is about one rank opens the rank."""
        panel = self.panel_at(event)
        finding = self._finding_at(event.y) if panel == "head" else None
        if panel == "found":
            found = self.query_one("#found").size
            finding = finding_at(self.picture, found.width, found.height, event.y)
        if finding is not None:
            self.dashboard.links.open_finding(finding)
        elif panel in OF_RANK and event.chain == 2 and self.rank >= 0:
            self.dashboard.links.open_rank(self.rank)

    def _finding_at(self, y: int) -> Finding | None:
        """The headline, if line `y` of the head says it."""
        first, width = 1 + len(notice_lines(self.picture, self.size.width)), self.size.width
        is_said = first <= y < first + len(verdict_lines(self.picture, width))
        return headline(self.picture.below_notice) if is_said else None

    def on_resize(self, _event: events.Resize) -> None:
        """Another size is another plan."""
        if self.ready:
            self.show()

    def plan(self) -> Plan:
        """Which panels there is room for now."""
        snapshot = self.picture.snapshot
        ranks = len(snapshot.ranks) if snapshot.ranks is not None else 0
        size, look = self.size, self.picture.look
        found = also_found_height(self.picture)
        head, typing = self._head_height(), FilterBar.HEIGHT * int(self.query_one(FilterBar).display)
        if self._alone is not None:
            return alone(self._alone, size.width, size.height, head, typing)
        hangs = is_hanging(snapshot)
        rows = len(self.table.view.order) if hangs else ranks
        stacks = stuck_height(self.picture, self.rank) if hangs and self.rank >= 0 else 0

        grows = is_known(self.picture)

        def sized(chosen: int) -> Plan:
            return plan(
                size.width, size.height, ranks, found,
                head=head, halves=look.smooth, rows=max(rows, 1), typing=typing, chosen=chosen, grows=grows,
            )  # fmt: skip

        whole = sized(stacks + against_height(self.picture, self.rank))
        return sized(stacks) if hangs and whole.chosen < stacks + AGAINST_LEAST else whole

    def _head_height(self) -> int:
        return 2 + len(verdict_lines(self.picture, self.size.width)) + len(notice_lines(self.picture, self.size.width))

    def _arrange(self) -> Plan:
        shares = self.plan()
        drawn = shares.fits and self.picture.snapshot.run is not None and self.picture.snapshot.ranks is not None
        under = shares.plots if shares.side else 0
        body = shares.body + shares.findings + shares.chosen + under
        heights = {"head": shares.head if drawn else int(shares.fits), "body": body, "table": shares.body}
        heights |= {"found": shares.findings, "chosen": shares.chosen, "under": under, "heat": shares.heat}
        heights |= {"plots": shares.plots - under, "foot": int(shares.fits)}
        for name, height in heights.items():
            widget = self.query_one(f"#{name}")
            widget.display = height > 0 and (drawn or name in ("head", "foot"))
            widget.styles.height = max(height, 1)
        self.query_one("#head", Canvas).set_height(max(heights["head"], 1))
        self.query_one("#calm").display = not drawn
        side = self.query_one("#side")
        side.display = shares.side > 0
        side.styles.width = shares.side or 1
        return shares

    def _head(self, width: int, height: int) -> list[Line]:
        lines = [header_line(self.picture, width)]
        if height <= 1:
            return lines
        lines += notice_lines(self.picture, width)
        return [*lines, *verdict_lines(self.picture, width), figures_line(self.picture, width)]

    def _calm(self, width: int, height: int) -> list[Line]:
        if not self.plan().fits:
            return too_small_lines(self.picture, width, height)
        return waiting_lines(self.picture, width, height)

    def keys(self) -> Keys:
        """Few keys while there is nothing to see; how to end typing while a filter is typed."""
        if self.picture.snapshot.ranks is None:
            return (("?", "help"), ("q", "quit"))
        if self.is_typing:
            return self.typing_keys
        if self.query_one(HeatMap).has_focus:
            return self._heat_keys()
        drop = (("esc", DROP),) if self.picture.wanted else ()
        back = (("esc", "all panels"), *self.drop_keys) if self._alone else drop
        replay = self.picture.snapshot.replay
        if replay is not None:
            views = (("enter", "rank"), ("1-5", "views"), ("z Z", "zoom"))
            return (*back, *_replay_keys(replay), *views, ("q", "quit"))
        goes_on, is_frozen = not self.picture.is_complete, self.picture.paused_s is not None
        pause = (("space", "go on" if is_frozen else "freeze"),) if goes_on or is_frozen else ()
        rate = (("+ -", "rate"),) if goes_on else ()
        heat = (("tab v", "map"),) if self.query_one(HeatMap).can_focus else ()
        return (  # the most used first: as many as fit, in 160 columns up to the pause
            *back, ("enter", "rank"), *self._views(), ("/", "filter"), ("?", "help"), (", .", "sort"), ("y", "copy"),
            *heat, ("f", "full"), ("w", "save"), ("z Z", "zoom"), ("m c", "compare"), *pause, ("ctrl+s", "save view"),
            ("r", "reverse"), *rate, ("ctrl+p", "all commands"), ("q", "quit"),
        )  # fmt: skip

    def _heat_keys(self) -> Keys:
        """What can be done with the rank under the cursor of the heat-map, and the ways out."""
        ranks = self.query_one(HeatMap).ranks
        opened = "rank" if ranks is None or len(ranks) == 1 else "these ranks"
        return (
            ("arrows", "cell"), ("enter", opened), ("3", "host"), ("m", "mark"), ("y", "copy"), ("v", "metric"),
            ("tab", "table"), ("esc", "all panels" if self._alone else "table"), *self.drop_keys,
        )  # fmt: skip

    def _views(self) -> Keys:
        """The other views, in narrow terminals those that are needed most."""
        views = (("2", "timeline"), ("3", "hosts"), ("4", "run"), ("5", "findings"))
        return views if self.size.width >= WIDE else (views[1], views[3])

    @on(HeatMap.Chosen)
    def _zoom(self, event: HeatMap.Chosen) -> None:
        self.dashboard.filter_by(event.words)
        if self._alone is None:
            self.table.focus()

    def action_all_ranks(self) -> None:
        """One level back: show all panels again, else leave the heat-map, else drop the filter."""
        if self._alone is not None:
            self._show_alone(None)
        elif self.query_one(HeatMap).has_focus:
            self.table.focus()
        else:
            self.dashboard.filter_by("")

    @on(HeatMap.Opened)
    def _open(self, event: HeatMap.Opened) -> None:
        self.post_message(RankTable.Opened(event.rank))

    def action_maximise(self) -> None:
        """Show the first panel alone, then the next one, and after the last one all of them."""
        names = (None, *self.panels)
        self._show_alone(names[(names.index(self._alone) + 1) % len(names)])

    def _show_alone(self, panel: str | None) -> None:
        """Show this panel alone, and give it the keys; None: all panels."""
        self._alone = panel
        self.show()
        if self._alone != "plots":
            (self.query_one(HeatMap) if self._alone == "heat" else self.table).focus()

    def action_metric(self) -> None:
        """Show the next metric in the heat-map."""
        self.dashboard.choose_metric(self._metrics)

    def action_show_metric(self, key: str) -> None:
        """Show this metric in the heat-map."""
        self.dashboard.choose_metric([name for name in METRICS if name == key])

    @property
    def _metrics(self) -> list[Metric]:
        """Those of GPUs only where ranks have any."""
        ranks = self.picture.snapshot.ranks
        bare = ranks is None or not any(ranks.gpu)
        return [name for name in METRICS if not (bare and name in ("gpu", "power", "clock", "memory"))]

    @property
    def metrics(self) -> Sequence[tuple[str, str]]:
        """Those of the heat-map."""
        return [(name, f"Heat-map: {METRICS[name].name}") for name in self._metrics]

    @property
    def sorts(self) -> Sequence[tuple[str, str, str, str]]:
        """The columns of the table."""
        heads = {key: heading(key) for key in LETTERS.values()}
        words = {key: head if key in (head, "node") else f"{key} ({head})" for key, head in heads.items()}
        return [(letter, key, words[key], meaning(key)) for letter, key in LETTERS.items()]

    def action_sort(self, step: int) -> None:
        """Sort by the next column, or by the one before."""
        self.table.next_sort(step)

    def action_sort_by(self, key: str) -> None:
        """Sort by a column; again: the other way round."""
        self.table.sort_by(key)

    def action_reverse(self) -> None:
        """Turn the order round."""
        self.table.rearrange(reverse=not self.table.view.reverse)
