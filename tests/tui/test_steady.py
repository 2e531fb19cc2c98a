"""Figures of the last steps stand still while only chance changes them, and JSON has them as they are."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddpmon.snapshot import Finding, Link, ReplayView, Snapshot
from ddpmon.tui.draw.key_figures import figures_line
from ddpmon.tui.draw.order import ordered
from ddpmon.tui.draw.table import HEAD, TableView, table_lines
from ddpmon.tui.draw.verdict_lines import verdict_lines
from ddpmon.tui.steady import steady
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.test_views import made_timeline
from tests.tui.watched import Fixed, Watched, watch

LATE = snapshot(Made(ranks=8, straggler=5))
CALM = snapshot(Made(ranks=8))
BASE_MS = 132.0  # what a step takes there if nobody is late


def later(made: Snapshot, ms: float) -> Snapshot:
    """The same run with all times longer by so many ms, the lateness of rank 5 too, and what follows from that."""
    assert made.ranks is not None
    job, ranks = made.job, made.ranks
    assert job.step_ms is not None
    assert job.throughput is not None
    longer = job.step_ms + ms
    moved = {name: getattr(ranks, name) + ms for name in ("work_ms", "step_ms", "backward_ms")}
    late = ranks.lateness_ms + np.where(np.arange(len(ranks)) == 5, ms, 0.0)
    return replace(
        made,
        job=replace(job, step_ms=longer, throughput=job.throughput * job.step_ms / longer),
        ranks=replace(ranks, **moved, lateness_ms=late),
        findings=tuple(told_later(finding, ms) for finding in made.findings),
    )


def told_later(finding: Finding, ms: float) -> Finding:
    excess = finding.evidence["excess_ms"]
    assert isinstance(excess, float)
    evidence = {**finding.evidence, "excess_ms": excess + ms}
    summary = finding.summary.replace("late by 41", f"late by {41 + ms:.0f}")
    return replace(finding, evidence=evidence, summary=summary, cost_pct=(finding.cost_pct or 0.0) + ms / 4)


def drawn(shown: Snapshot) -> list[str]:
    """The overview's figures, headline and table, without the courses."""
    picture = ViewState(shown, LOOKS["colour"])
    view = TableView(ordered(shown, "worst", False, ""))
    return text_of(
        [figures_line(picture, 60), *verdict_lines(picture, 160), *table_lines(picture, view, 120, HEAD + 8)]
    )


@pytest.mark.parametrize("made", [LATE, CALM])
def test_what_changes_by_chance_alone_is_drawn_as_before(made: Snapshot) -> None:
    """Of 60 pictures of a healthy run nearly all had other figures than the one before."""
    shown = made
    for ms in (0.5, -0.5, 0.6, 0.2):
        assert drawn(later(made, ms)) != drawn(made), "it does change"
        shown = steady(shown, later(made, ms))
        assert drawn(shown) == drawn(made)


@pytest.mark.parametrize("ms", [9.0, -9.0])
def test_what_changes_by_more_is_drawn_at_once(ms: float) -> None:
    now = later(LATE, ms)
    assert drawn(steady(LATE, now)) == drawn(now)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("because ranks 3, 4 are late, too", "because ranks 3, 9 are late, too"),
        ("work on 9 other ranks", "work on 21 other ranks"),
        ("py-spy dump --pid 4242", "py-spy dump --pid 9999"),
    ],
)
@pytest.mark.parametrize("words", ["summary", "advice", "cause"])
def test_a_number_without_a_unit_is_shown_as_it_is(words: str, before: str, now: str) -> None:
    was: dict[str, Any] = {words: before}
    finding = replace(LATE.findings[0], **was)
    later_on = told_later(replace(finding, **{**was, words: now}), 0.5)
    shown = steady(replace(LATE, findings=(finding,)), replace(LATE, findings=(later_on,))).findings[0]
    assert getattr(shown, words) == now


def test_a_cost_stands_still_while_other_figures_of_its_finding_do_not() -> None:
    """Pictures in a row of a steady run had costs of 12, 12, 13, 12, 13 and 13 %."""
    (late,) = LATE.findings
    shown, seen = LATE, list[tuple[object, ...]]()
    for hits, cost in enumerate((24.4, 24.6, 24.4, 24.6, 24.8)):
        evidence = {**late.evidence, "hit_steps": 10 + 2 * hits, "cost_pct": cost}
        summary = late.summary.replace("Costs 24 %", f"Costs {cost:.0f} %")
        now = replace(late, evidence=evidence, summary=summary, cost_pct=cost)
        shown = steady(shown, replace(LATE, findings=(now,)))
        (told,) = shown.findings
        said = re.findall(r"Costs \d+ %", told.summary)
        seen.append((told.cost_pct, told.evidence["cost_pct"], *said, told.evidence["hit_steps"]))
    assert seen == [(late.cost_pct, late.cost_pct, "Costs 24 %", 10 + 2 * hits) for hits in range(5)]


@pytest.mark.parametrize("cost", [22.0, 26.5])
def test_a_cost_that_differs_by_more_than_chance_is_shown_at_once(cost: float) -> None:
    (late,) = LATE.findings
    now = replace(late, cost_pct=cost, evidence={**late.evidence, "hit_steps": 99})
    assert steady(LATE, replace(LATE, findings=(now,))).findings == (now,)


def test_a_slow_drift_is_not_hidden() -> None:
    shown = CALM
    for ms in np.arange(0.0, 20.0, 0.5):
        shown = steady(shown, later(CALM, float(ms)))
        assert shown.job.step_ms == pytest.approx(later(CALM, float(ms)).job.step_ms, abs=0.011 * BASE_MS)


def test_a_rank_that_is_no_longer_late_goes_back_to_nothing() -> None:
    assert CALM.ranks is not None
    seen = []
    shown = CALM
    for late in (0.0, 1.2, 0.9, 1.6, 1.2, 0.9, 0.4, 0.9):
        now = CALM.ranks.lateness_ms * 0 + late
        shown = steady(shown, replace(CALM, ranks=replace(CALM.ranks, lateness_ms=now)))
        assert shown.ranks is not None
        seen.append(float(shown.ranks.lateness_ms[0]))
    assert seen == [0.0, 0.0, 0.0, 1.6, 1.6, 1.6, 0.0, 0.0]


def test_figures_of_other_ranks_than_before_are_shown_as_they_are() -> None:
    """`62,311 samples/s of 1,008 ranks` became `62,311 samples/s of 1,000 ranks`."""
    before, now = (replace(made, job=replace(made.job, throughput_ranks=8)) for made in (CALM, later(CALM, 0.2)))
    assert steady(before, now).job.throughput == before.job.throughput
    fewer = replace(now, job=replace(now.job, throughput_ranks=7))
    assert steady(before, fewer).job == fewer.job


def test_a_moment_of_the_past_and_another_run_are_shown_as_they_are() -> None:
    now = later(CALM, 0.5)
    past = replace(now, replay=ReplayView(1.0, 2.0, 3.0, False, 1.0, True, True))
    assert now.run is not None
    other = replace(now, run=replace(now.run, id="another"))
    over = replace(now, run=replace(now.run, state="finished"))
    gone = replace(now, link=Link("gone", "no store"))
    for each in (past, other, over, gone):
        assert steady(CALM, each) is each
    assert steady(past, now) is now


def test_the_screen_stands_still_and_json_is_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = replace(LATE, timeline=made_timeline())
    source = Fixed(made)

    async def act(watched: Watched) -> None:
        await watched.until_shown("late +41 ms")
        source.shown = later(made, 0.6)
        ticks = source.ticks
        await watched.until(lambda: source.ticks > ticks + 1 and watched.app.shown.job == source.shown.job)
        assert "late +41 ms" in watched.text()
        await watched.press("2")
        await watched.until_shown("timeline")
        assert "late +41" in watched.text()
        assert "late +42" not in watched.text(), "in the events as in the table"
        await watched.press("1")
        await watched.press("ctrl+s", "j")
        await watched.until(lambda: [*tmp_path.iterdir()] != [])
        (finding, *_) = json.loads(next(tmp_path.iterdir()).read_text())["findings"]
        assert finding["evidence"]["excess_ms"] == pytest.approx(41.6, abs=0.45)
        assert finding["summary"] == source.shown.findings[0].summary
        for view, keys in (("ranks", "1"), ("findings", "5"), ("rank", "1 enter"), ("hosts", "3")):
            await watched.press(*keys.split(), "ctrl+s", "c")
            await watched.until(lambda: [*tmp_path.glob(f"{view}-*.csv")] != [])  # noqa: B023
        exact = source.shown.ranks
        assert exact is not None
        written = list(csv.DictReader(next(tmp_path.glob("ranks-*.csv")).read_text().splitlines()))
        assert [float(row["work"]) for row in written] == pytest.approx(
            [exact.work_ms[int(row["rank"])] for row in written], abs=1e-3
        )
        (late, *_) = csv.DictReader(next(tmp_path.glob("findings-*.csv")).read_text().splitlines())
        assert late["summary"] == source.shown.findings[0].summary
        await watched.press("1", "space")
        await watched.until_shown("late +42 ms")
        assert "late +41" not in watched.text(), "a frozen display has the figures that are exported"

    watch(source, act, (160, 50))
