"""A memory that grows: the plots of the rank show it, with its limit and when it is full."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpmon.report.leak import Leak, leak_of
from ddpmon.snapshot import Course, Finding, Snapshot
from ddpmon.tui.draw.detail import detail_lines
from ddpmon.tui.draw.host_courses import host_courses
from ddpmon.tui.draw.run_plots import lateness_plot, plots_beside
from ddpmon.tui.screens.overview import Overview
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.watched import Fixed, Watched, watch

GIB = 1 << 30
GPU_LEAK = Finding(
    "gpu_memory_growth", "warning", "the tensors of rank 5 (node1) have grown by 3.0 GiB in 5 min", (5, 6), ("node1",),
    evidence={"growth_bytes": 3 * GIB, "over_s": 300.0, "allocated_bytes": 74 * GIB, "left_s": 600.0},
)  # fmt: skip
HOST_LEAK = Finding(
    "memory_pressure", "warning", "rank 5 (node1) grows by 64 MiB/s, so the memory is full in 64 s", (5,), ("node1",),
    evidence={"growth_bytes_s": 64 << 20, "left_s": 64.0, "rss_bytes": 12 * GIB, "pid": 4305},
)  # fmt: skip
SHORT = Finding(
    "memory_pressure", "warning", "node1 is short of memory", (5,), ("node1",), evidence={"memory_used": 98.0}
)


def leaking(finding: Finding, first: float, last: float, others: float | None = None) -> Snapshot:
    """A run whose rank 5 is read in detail: its memory has grown from `first` to `last` GiB.

    That of the others is `others` GiB, `first` if that is None.
    """
    made = snapshot(Made(ranks=8, gpu=True, focus=5, findings=(finding,)))
    assert made.detail is not None
    assert made.ranks is not None
    key = "gpu_allocated" if finding is GPU_LEAK else "rss_bytes"
    course = made.detail.courses[key]
    own = np.linspace(first, last, len(course.step)) * GIB
    grown = Course(course.step, own, np.full_like(course.others, (first if others is None else others) * GIB))
    now = np.where(np.arange(8) == 5, last, first) * GIB
    return replace(
        made,
        detail=replace(made.detail, courses={**made.detail.courses, key: grown}),
        ranks=replace(made.ranks, figures={**made.ranks.figures, key: now}),
    )


def test_a_leak_is_that_of_the_worst_finding_on_a_rank_with_the_level_at_which_the_memory_is_full() -> None:
    assert leak_of([GPU_LEAK], 5) == Leak("gpu_allocated", 80 * GIB, 600.0)
    assert leak_of([HOST_LEAK], 5) == Leak("rss_bytes", 16 * GIB, 64.0)
    assert leak_of([GPU_LEAK], 6) == Leak("gpu_allocated"), "the time is that of the first rank alone"
    unknown = replace(GPU_LEAK, evidence={"growth_bytes": 3 * GIB, "over_s": 300.0})
    assert leak_of([unknown], 5) == Leak("gpu_allocated")
    late = Finding("straggler", "warning", "rank 5 is late", (5,))
    for findings in ([SHORT], [late, GPU_LEAK], [replace(GPU_LEAK, cleared_at_step=9)], []):
        assert leak_of(findings, 5) is None
    assert leak_of([GPU_LEAK], 4) is None


@pytest.mark.parametrize(
    ("finding", "name"), [(GPU_LEAK, "torch memory"), (HOST_LEAK, "resident memory")], ids=["GPU", "host"]
)
def test_the_plots_of_one_rank_are_about_what_leaks(finding: Finding, name: str) -> None:
    """The finding said how a memory grew, and no panel of the overview drew a memory."""
    look, whole = LOOKS["colour"], leaking(finding, 8.0, 14.0)
    picture = ViewState(whole, look)
    when = "full within 10 min" if finding is GPU_LEAK else "full within 64 s"
    for title in (text_of(lateness_plot(picture, 5, 90, 12))[0], text_of(plots_beside(picture, 5, 180, 12))[0]):
        assert f"rank 5: {name}, GiB, {when} " in title
    assert "lateness of rank 4" in text_of(lateness_plot(picture, 4, 90, 12))[0]
    assert "lateness of rank 5" in text_of(lateness_plot(ViewState(replace(whole, detail=None), look), 5, 90, 12))[0]
    detail = "\n".join(text_of(detail_lines(picture, 5, 160, 50)))
    assert f"─ {name}, GiB, {when} " in detail
    assert f" of {'80.0' if finding is GPU_LEAK else '16.0'}, others " in detail
    on_host = text_of(host_courses(picture, 1, 160, 40))
    first = next(place for place, line in enumerate(on_host) if "rank 5 and its machine" in line) + 1
    assert on_host[first].startswith(f"─ {name}, GiB"), "before what is read of the machine besides"


@pytest.mark.parametrize("look", ["colour", "ascii"])
def test_the_limit_is_a_line_once_the_course_still_rises_by_an_eighth_below_it(look: str) -> None:
    for first, last, has_limit in ((72.0, 74.0, True), (72.0, 72.5, False)):
        lines = text_of(lateness_plot(ViewState(leaking(GPU_LEAK, first, last), LOOKS[look]), 5, 90, 16))
        rule = LOOKS[look].glyphs.rule * 40
        drawn = [line for line in lines[1:] if rule in line]
        assert len(drawn) == has_limit
        assert all(line.lstrip().startswith("80") for line in drawn)


def test_the_limit_stays_beyond_the_axis_of_a_course_that_is_flat_however_far_the_others_are() -> None:
    """The band of the others counted as if the course itself rose by that much."""
    lines = text_of(lateness_plot(ViewState(leaking(GPU_LEAK, 45.0, 45.1, others=10.0), LOOKS["colour"]), 5, 90, 16))
    assert not any(LOOKS["colour"].glyphs.rule * 40 in line for line in lines[1:])


def test_a_memory_of_a_thousand_gib_is_told_whole_beside_its_limit() -> None:
    """`1,024, others 1,000` became `1 of 80.0,024, others 1,000`."""
    detail = "\n".join(text_of(detail_lines(ViewState(leaking(GPU_LEAK, 1000.0, 1024.0), LOOKS["colour"]), 5, 160, 50)))
    assert " 1,024 of 80.0, others 1,000 " in detail


def test_the_overview_reads_the_course_of_a_rank_that_leaks_and_of_no_other() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("rank 5: torch memory, GiB")
        assert source.focus == 5
        overview = watched.app.screen
        assert isinstance(overview, Overview)
        await watched.press("down", "down")
        assert overview.rank not in GPU_LEAK.ranks
        await watched.until_shown(f"lateness of rank {overview.rank}")
        assert source.focus is None

    source = Fixed(leaking(GPU_LEAK, 70.0, 74.0))
    watch(source, act, (160, 50))
