"""What each bucket takes: its rows below the timeline, and the words of its title, in as much room as there is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpmon.snapshot import BucketView, Snapshot
from ddpmon.tui.draw.timeline_view import bucket_lines, timeline_lines
from ddpmon.tui.view_state import ViewState
from ddpmon.tui.widgets.virtual_table import RankTable
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.test_views import SHOWN, timed
from tests.tui.watched import Fixed, Watched, watch


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (100, "steps 1,096-1,115, ms, █ hidden, ▒ exposed"),
        (56, "steps 1,096-1,115, ms, █ hidden, ▒ exposed"),
        (54, "ms, █ hidden, ▒ exposed"),
        (40, "ms, █ hidden, ▒ exposed"),
    ],
)
def test_the_title_of_the_buckets_says_what_their_shades_mean(width: int, said: str) -> None:
    """In 160 columns and fewer only the documents told that hatched is exposed."""
    buckets = BucketView((1 << 20, 1 << 20), np.array([4.69, 2.0]), np.array([1.8, 0.0]), 1096, 1115)
    assert text_of(bucket_lines(buckets, width, 6, LOOKS["colour"]))[0].rstrip(" ─").endswith(f"─ {said}")
    assert "ms of the fastest rank" in text_of(bucket_lines(buckets, width, 6, LOOKS["colour"]))[1], (
        "whose times these are"
    )
    in_ascii = said.replace("█", "=").replace("▒", "#")
    assert text_of(bucket_lines(buckets, width, 6, LOOKS["ascii"]))[0].rstrip(" -").endswith(f"- {in_ascii}")


def test_what_is_unknown_or_below_the_unit_is_no_0() -> None:
    """A small bucket stood there as `0.0 MiB` and `0`, and an unknown duration ended the dashboard."""
    nan = np.nan
    sizes = (25 << 20, 200 << 10, 10 << 10)
    buckets = BucketView(sizes, np.array([3.0, 0.0, nan]), np.array([nan, 0.0, nan]), 1096, 1115)
    for look in (LOOKS["colour"], LOOKS["ascii"]):
        rows = [row.split() for row in text_of(bucket_lines(buckets, 80, 6, look))[2:5]]
        hatched = f"{'#' if look.ascii_only else '▒'}{look.unknown}"
        assert [row[1] for row in rows] == ["25.0", "0.2", "<0.1"]
        assert rows[0][-2:] == ["3.00", hatched]
        assert rows[1][-1] == "<0.001"
        assert rows[2][-2:] == [look.unknown, hatched]


def with_buckets(count: int) -> Snapshot:
    """A run of 4 ranks with so many buckets, of which the last one is exposed."""
    ms, exposed = np.full(count, 2.0), np.zeros(count)
    exposed[-1] = 1.5
    made = timed(snapshot(Made(ranks=4)), buckets=True)
    assert made.timeline is not None
    view = BucketView((25 << 20,) * count, ms, exposed, 684, 703)
    return replace(made, timeline=replace(made.timeline, buckets=view))


def test_all_buckets_have_their_rows_up_to_half_of_the_height() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("2")
        await watched.until_shown("─ buckets")
        assert watched.text().count(" 25.0 MiB ") == 20
        assert "more bucket" not in watched.text()
        assert "v buckets" not in watched.text()

    watch(Fixed(with_buckets(20)), act, (160, 50))


def test_without_room_the_exposed_bucket_is_shown_and_the_key_that_shows_all() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("2")
        await watched.until_shown("more buckets: v")
        assert "   29    25.0 MiB " in watched.text()
        assert "▒" in watched.text()
        assert "v buckets" in watched.text()
        await watched.press("v")
        await watched.until(lambda: watched.text().count(" 25.0 MiB ") == 30)
        assert "more bucket" not in watched.text()
        await watched.press("v")
        await watched.until_shown("─ ranks")

    watch(Fixed(with_buckets(30)), act, (160, 50))


@pytest.mark.parametrize(("size", "offered"), [((160, 50), False), ((80, 24), True)])
def test_the_key_of_the_buckets_is_offered_where_it_does_something(size: tuple[int, int], offered: bool) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("2")
        await watched.until_shown("all-reduce")
        assert ("v buckets" in watched.text().split("\n")[-1]) == offered
        before = watched.text().count("─ ranks"), watched.text().count("─ buckets")
        await watched.press("v")
        now = watched.text().count("─ ranks"), watched.text().count("─ buckets")
        keys = watched.text().split("\n")[-1]
        assert (now, "v ranks" in keys, "enter rank" in keys) == (
            ((0, 1), True, False) if offered else (before, False, True)
        )

    watch(Fixed(timed(SHOWN, buckets=True)), act, size)


@pytest.mark.parametrize("size", [(40, 12), (60, 20), (80, 24), (160, 50)])
def test_without_bucket_detail_the_ranks_stay_and_the_key_of_the_buckets_says_why(size: tuple[int, int]) -> None:
    """A panel that said only that there are no buckets took the place of the ranks."""

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("2")
        await watched.until_shown("─ ranks")
        await watched.press("v")
        await watched.until_shown("bucket detail is off")
        assert watched.app.screen.query_one(RankTable).display
        assert "─ buckets" not in watched.text()

    watch(Fixed(timed(SHOWN)), act, size)


@pytest.mark.parametrize("size", [(40, 12), (60, 20), (80, 24)])
def test_the_ranks_come_first_in_a_small_terminal(size: tuple[int, int]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("2")
        await watched.until_shown("─ ranks")
        assert "─ buckets" not in watched.text()

    watch(Fixed(with_buckets(30)), act, size)


def test_rows_of_one_line_have_their_values() -> None:
    shown = ViewState(timed(SHOWN), LOOKS["colour"])
    for height, named in ((8, "step 170 ms"), (16, "170 ms")):
        names = [line[:15].strip() for line in text_of(timeline_lines(shown, 80, height))]
        assert named in names
    assert shown.snapshot.timeline is not None
    step_ms = shown.snapshot.timeline.step_ms.copy()
    step_ms[100] = 9_000.0
    long = replace(shown, snapshot=replace(shown.snapshot, timeline=replace(shown.snapshot.timeline, step_ms=step_ms)))
    assert " step 170 ms " in text_of(timeline_lines(long, 80, 8))[2], "the value comes before what lies beyond"
