"""A frozen display: all views show that moment, and the keys that change its picture work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ddpmon.recording.travel import Request
from ddpmon.report.frozen import as_of
from ddpmon.snapshot import Metric, Snapshot
from ddpmon.tui.screens.rank_screen import RankScreen
from tests.tui.made_runs import Made, Playing, snapshot
from tests.tui.watched import Watched, watch


class Coloured(Playing):
    """A run that carries the metric it is asked for: the number of the step in every cell."""

    def rebuild(self) -> Snapshot:
        return with_metric(super().rebuild(), self.metric)


def with_metric(made: Snapshot, metric: Metric) -> Snapshot:
    if metric == "lateness" or made.heat is None:
        return made
    values = np.broadcast_to(made.heat.step.astype(np.float32), made.heat.values.shape)
    return replace(made, chosen_heat=replace(made.heat, values=values, metric=metric))


def test_a_rank_and_a_metric_that_are_asked_for_later_are_of_the_frozen_moment() -> None:
    source = Coloured(Made(ranks=8, straggler=5))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("space")
        await watched.until_shown("FROZEN")
        run = watched.app.picture.snapshot.run
        assert run is not None
        assert run.step is not None
        frozen, seen = run.step, source.made.step
        await watched.until(lambda: source.made.step > seen + 12)
        await watched.press("enter")
        await watched.until_shown("last 20 steps")
        await watched.until(lambda: watched.app.picture.snapshot.detail is not None)
        detail = watched.app.picture.snapshot.detail
        assert detail is not None
        assert {int(course.step[-1]) <= frozen for course in detail.courses.values()} == {True}
        assert int(detail.courses["work"].step[-1]) == frozen
        assert f"{frozen:,}" in watched.text().split("\n")[-2], "the axis ends at the moment"
        await watched.press("j")
        assert isinstance(watched.app.screen, RankScreen)
        await watched.until_shown(f"rank {watched.app.screen.rank} of 8")
        await watched.until_shown("work, ms")
        await watched.press("1", "v")
        await watched.until_shown("─ work, rank x step")
        heat = watched.app.picture.snapshot.chosen_heat
        assert heat is not None
        assert heat.step[-1] == frozen
        assert np.nanmax(heat.values) == frozen
        await watched.press("space")
        await watched.until(lambda: (watched.app.picture.snapshot.run or run).step != frozen)

    watch(source, act)


class Asked:
    """Stands in for time travel: keeps what is asked for."""

    is_under_way, moving_s = False, None

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def ask(self, request: Request) -> None:
        self.requests.append(request)


def test_a_report_is_on_the_frozen_moment() -> None:
    source = Playing(Made(ranks=8, straggler=5))
    travel = source.travel = Asked()  # type: ignore[attr-defined]

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("w", "space")
        await watched.until_shown("FROZEN")
        frozen, seen = watched.app.picture.snapshot.run, source.made.step
        await watched.until(lambda: source.made.step > seen + 4)
        await watched.press("w")
        live, then = (request.shown for request in travel.requests)
        assert live is None, "what is shown then is made next"
        assert then is not None
        assert then.run == frozen
        await watched.press("5", "w")
        await watched.until_shown("report of the run")
        await watched.press("r")
        await watched.until(lambda: len(travel.requests) == 3)

    watch(source, act)


def test_a_step_back_from_a_frozen_moment_goes_back_from_there() -> None:
    """It went back from the newest moment, so that the screen showed a later one than before."""
    source = Playing(Made(ranks=8, straggler=5))
    travel = source.travel = Asked()  # type: ignore[attr-defined]

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("space")
        await watched.until_shown("FROZEN")
        frozen = watched.app.picture.snapshot.taken_at - watched.app.picture.interval / 2
        await watched.press("left_square_bracket", "left_square_bracket")
        asked = [(request.move, request.amount) for request in travel.requests]
        assert asked == [("to_wall", frozen), ("step", -1), ("step", -1)]

    watch(source, act)


def test_what_is_not_on_record_any_more_is_unknown_and_a_restarted_rank_has_no_past() -> None:
    moment = snapshot(Made(ranks=8, step=1_000))
    later = with_metric(snapshot(Made(ranks=8, step=1_500, focus=3)), "wait")
    shown = as_of(moment, later)
    assert shown.run is moment.run
    assert shown.chosen_heat is not None
    assert shown.heat is not None
    np.testing.assert_array_equal(shown.chosen_heat.step, shown.heat.step)
    known = np.isfinite(shown.chosen_heat.values[0])
    assert shown.chosen_heat.step[known].tolist() == [*range(901, 1_001)], "both have these on record"
    assert not known[:-100].any()
    assert later.ranks is not None
    restarted = replace(later, ranks=replace(later.ranks, pid=later.ranks.pid + 1))
    soon = snapshot(Made(ranks=8, step=1_100, focus=3))
    restarted = replace(soon, ranks=restarted.ranks)
    for newer in (later, restarted):
        detail = as_of(moment, newer).detail
        assert detail is not None
        assert not len(detail.courses["work"].step)
    near = as_of(moment, soon)
    assert near.detail is not None
    assert near.detail.courses["work"].step[-1] == 1_000
    assert len(near.detail.courses["work"].others[1]) == len(near.detail.courses["work"].step)
    assert as_of(near, snapshot(Made(ranks=8, step=1_300, focus=3))).detail is near.detail, "what is known stays"


def test_another_run_changes_nothing() -> None:
    moment, other = snapshot(Made(ranks=8)), snapshot(Made(ranks=8, focus=3))
    assert other.run is not None
    assert as_of(moment, replace(other, run=replace(other.run, id="r2"))) is moment
