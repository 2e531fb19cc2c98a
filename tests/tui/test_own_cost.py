"""The view of the run says what the dashboard itself takes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ddpmon.tui.draw.run_view import run_lines
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.watched import Fixed, Watched, watch


@pytest.mark.parametrize("size", [(80, 50), (160, 50)])
def test_the_run_says_what_the_dashboard_takes(size: tuple[int, int]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("4")
        await watched.until(lambda: _said(watched) is not None)
        found = _said(watched)
        assert found is not None
        assert float(found[1]) > 10, "a Python with Textual has more"

    watch(Fixed(snapshot(Made(ranks=4))), act, size)


def _said(watched: Watched) -> re.Match[str] | None:
    return re.search(r"dashboard +\d+\.\d % of a core over [\d.]+ (?:s|min|h), (\d+) MiB", watched.text())


def test_the_link_of_a_store_that_does_not_answer_is_not_called_live() -> None:
    picture = ViewState(snapshot(Made(ranks=4)), LOOKS["ascii"])
    for shown, state in ((picture, "live"), (replace(picture, stuck_s=5.9), "silent")):
        (row,) = [line.split() for line in text_of(run_lines(shown, 80)) if line.split()[:1] == ["link"]]
        assert row[1] == state
