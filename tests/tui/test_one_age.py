"""Ages on one screen: of one moment there is one number in all of its parts."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ddpmon.snapshot import Link, LinkState, RunState, Snapshot
from ddpmon.tui.draw.detail import detail_lines
from ddpmon.tui.draw.header import header_line
from ddpmon.tui.draw.host_detail import host_page
from ddpmon.tui.draw.host_table import host_table_lines
from ddpmon.tui.draw.key_figures import figures_line
from ddpmon.tui.draw.order import ordered_hosts
from ddpmon.tui.draw.table import TableView
from ddpmon.tui.draw.timeline_view import timeline_lines
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import HANG, Made, snapshot
from tests.tui.test_drawing import text_of
from tests.tui.test_hosts import ASCII
from tests.tui.test_views import timed


def past(link: LinkState, state: RunState) -> Snapshot:
    """Rank 0 was heard 40.2 s ago, the others 41.3 s ago, rank 7 fell silent before; the hosts were read in between."""
    made = snapshot(Made(ranks=8, per_node=4, focus=1))
    assert made.run is not None
    assert made.ranks is not None
    assert made.coverage is not None
    ages = np.where(np.arange(8) == 0, 40.2, 41.3)
    ages[7], ages[6] = 60.0, np.nan
    nodes = tuple(replace(node, age_s=40.7 + node.node) for node in made.nodes)
    coverage = replace(made.coverage, reporting=0, oldest_age_s=60.0)
    ranks, run = replace(made.ranks, age_s=ages), replace(made.run, state=state)
    return replace(made, link=Link(link, "no store"), run=run, ranks=ranks, nodes=nodes, coverage=coverage)


@pytest.mark.parametrize(("link", "state"), [("gone", "lost"), ("gone", "running"), ("live", "finished")])
def test_once_nothing_comes_any_more_the_last_word_has_one_age(link: LinkState, state: RunState) -> None:
    shown = past(link, state)
    picture = ViewState(shown, ASCII)
    view = TableView(ordered_hosts(shown, "worst", False), focused=False)
    lines = [
        header_line(picture, 160), host_table_lines(picture, view, 160, 20)[0], host_page(picture, 0, 160).lines[0],
        host_page(picture, 1, 160).lines[0], *detail_lines(picture, 1, 160, 40)[:2],
    ]  # fmt: skip
    ages = re.findall(r"(?:heard|ended|values,) (\d+ s)", " ".join(text_of(lines)))
    assert ages == ["40 s"] * 5
    assert "heard 60 s ago" in " ".join(text_of(detail_lines(picture, 7, 160, 40)[:2])), "it fell silent before"
    assert "heard - ago" in " ".join(text_of(detail_lines(picture, 6, 160, 40)[:2])), "it was never heard"


@pytest.mark.parametrize(("told", "said"), [(42.0, "42 s ago"), (46.0, "41 s ago")])
def test_the_last_step_is_as_old_as_the_standstill_unless_they_are_not_of_one_moment(told: float, said: str) -> None:
    made = timed(snapshot(Made(ranks=8, stuck=2, findings=(replace(HANG, evidence={"seconds": told}),))))
    assert made.run is not None
    picture = ViewState(replace(made, run=replace(made.run, step_age_s=41.4)), ASCII)
    assert f"last step {said}" in text_of([figures_line(picture, 160)])[0]
    assert said in text_of(timeline_lines(picture, 160, 30))[0]
