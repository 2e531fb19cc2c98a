"""The timeline: its rows, its events, its cursor, and what stands below it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpmon.diagnose.alert import Severity
from ddpmon.simulate.plan import Plan
from ddpmon.snapshot import Finding, Link, MarkView, ReplayView, RunState, Timeline
from ddpmon.tui.draw.plot import GUTTER
from ddpmon.tui.draw.timeline_view import timeline_lines
from ddpmon.tui.screens.timeline_screen import TimelineScreen
from ddpmon.tui.theme import make_look
from ddpmon.tui.view_state import ViewState
from tests.recording.made_recordings import simulated
from tests.tui.made_runs import HANG, snapshot
from tests.tui.test_drawing import text_of
from tests.tui.test_overview import hanging
from tests.tui.test_views import LATE, MADE, SHOWN, made_timeline, timed
from tests.tui.watched import Fixed, Watched, watch

ARRAYS = ("step", "late_pct", "late_rank", "step_ms", "allreduce_ms", "busbw_gb_s", "loss")


def test_in_a_few_lines_each_row_rises_and_falls() -> None:
    timeline = made_timeline()
    at = np.arange(len(timeline.step))
    timeline = replace(timeline, step_ms=np.where(at // 25 % 2 == 0, 100.0, 200.0))
    picture = ViewState(replace(timed(SHOWN), timeline=timeline), make_look())
    for height in (8, 17):
        row = next(line for line in text_of(timeline_lines(picture, 78, height)) if line.startswith(" step "))
        heights = {max(dot for dot in range(4) if ord(sign) - 0x2800 & BITS[dot]) for sign in row if sign > "\u2800"}
        assert len(heights) > 1, row


def test_a_simulated_run_is_not_told_how_to_turn_bucket_detail_on() -> None:
    with simulated(Plan(ranks=4, hosts=2, scenario="healthy")) as run:
        run.go(30)
        source = Fixed(run.observer.tick())

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("2", "v")
        await watched.until_shown("this simulated run has no bucket detail")
        await watched.press("4")
        await watched.until_shown("none in this simulated run")
        assert "DDPMON_BUCKETS" not in watched.text()

    watch(source, act, (80, 50))


@pytest.mark.parametrize(("state", "said"), [("running", "90 s ago"), ("finished", "90 s before the end")])
def test_a_moment_of_the_past_has_an_age_until_the_run_is_over(state: RunState, said: str) -> None:
    live = timed(SHOWN)
    assert live.run is not None
    replay = ReplayView(110.0, 200.0, 1.79e9, False, 1.0, True, True)
    whole = replace(live, run=replace(live.run, state=state))
    picture = ViewState(replace(live, replay=replay), make_look(), whole=whole)
    assert said in text_of(timeline_lines(picture, 120, 24))[0]
    recorded = replace(picture, snapshot=replace(live, replay=replace(replay, is_live=False)))
    assert "90 s before the end" in text_of(timeline_lines(recorded, 120, 24))[0]


def test_the_timeline_has_a_cursor_on_the_moment_that_is_shown() -> None:
    live = timed(SHOWN, buckets=True)
    source = Fixed(live)
    run = SHOWN.run
    assert run is not None

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("2")
        await watched.until_shown("most late")
        assert isinstance(watched.app.screen, TimelineScreen)
        text = watched.text()
        shown = (
            "rank 11",
            "▲ rank 11 late +41 ms, input",
            "• eval",
            "170 ms",
            "24.0 ms",
            "25.0 MiB",
            "step 705",
            "1,204",
        )
        assert [part for part in shown if part not in text] == []
        assert "▒" in text, "the exposed part of the last bucket"
        assert "steps 684-703" in text, "which the buckets are medians over"
        past = replace(run, step=800)
        replay = ReplayView(110.0, 200.0, 1.79e9, False, 1.0, True, True)
        source.shown = replace(live, run=past, replay=replay, timeline=made_timeline(800))
        await watched.until_shown("step 800, 90 s ago")
        assert "130 ms" in watched.text()
        row = next(line for line in watched.text().split("\n") if " most late" in line)
        assert row.rstrip()[-1] != "│"
        assert "│" in row[25:], "the cursor stands in the middle of what is known"
        await watched.press("v", "f")
        await watched.until(lambda: "─ ranks" not in watched.text())

    watch(source, act, (160, 50))


@pytest.mark.parametrize("scenario", ["hang", "straggler", "churn"])
def test_the_timeline_shows_the_beginning_of_what_lasts_wherever_its_axis_ends(scenario: str) -> None:
    with simulated(Plan(ranks=16, hosts=4, scenario=scenario)) as run:
        run.go(60)
        shown = run.observer.tick()
    picture = ViewState(shown, make_look())
    lines = text_of(timeline_lines(picture, 120, 24))
    said = {"hang": "rank 5 stuck in input ✕", "straggler": "▲ rank 5 ", "churn": " restarted"}[scenario]
    (found,) = [line for line in lines if said in line]
    if scenario == "hang":
        assert found.rstrip().endswith(said), "at the right end, behind the last step"
    timeline = shown.timeline
    assert timeline is not None
    cut = replace(timeline, **{name: getattr(timeline, name)[90:] for name in ARRAYS})
    if scenario == "straggler":
        lines = text_of(timeline_lines(replace(picture, snapshot=replace(shown, timeline=cut)), 120, 24))
        (found,) = [line for line in lines if said in line]
        assert f"since {shown.findings[0].since_step}" in found
        assert found[22:].startswith("▲"), "at the left end"


BITS = (0x09, 0x12, 0x24, 0xC0)  # the dots of each quarter of a braille pattern, from the top


@pytest.mark.parametrize("width", [80, 120])
def test_the_sign_of_an_event_stands_over_its_step_and_what_has_no_room_is_counted(width: int) -> None:
    began = (1190, 950, 1204, 812, 830, 835, 840, 1199)
    findings = tuple(replace(LATE, ranks=(place,), since_step=step) for place, step in enumerate(began))
    picture = ViewState(timed(replace(SHOWN, findings=findings)), make_look())
    lines = text_of(timeline_lines(picture, width, 12))
    first, last = lines[-1].index("step"), len(lines[-1].rstrip()) - 1
    places = {first + round((step - 705) / (1204 - 705) * (last - first)) for step in began}
    events = lines[-3:-1]
    signs = [place for line in events for place, char in enumerate(line) if char == "▲"]
    assert len(signs) >= 3
    assert set(signs) <= places
    assert any("rank 0 late +80 ms, backward" in line for line in events), "the first finding, left of its sign"
    shown = len(signs) + "".join(events).count("•")
    assert f"{len(began) + 1 - shown} more" in events[-1]


def test_events_that_have_room_beside_their_count_are_not_counted() -> None:
    began = (947, 1104)
    findings = tuple(replace(LATE, ranks=(place,), since_step=step) for place, step in enumerate(began))
    made = replace(SHOWN, findings=findings, timeline=replace(made_timeline(), marks=()))
    picture = ViewState(made, make_look())
    narrow = 16 + GUTTER + 51  # cells where the words of both have no room, and where they are cut beside a count
    events = "".join(text_of(timeline_lines(picture, narrow, 7))[-2:-1])
    assert events.count("▲") == 2
    assert "more" not in events


@pytest.mark.parametrize(("height", "rows"), [(14, 4), (26, 4), (48, 8)])
def test_what_happened_is_said_before_to_whom_and_tall_terminals_have_more_rows(height: int, rows: int) -> None:
    """`ranks 64-71 …` did not say that they were lost (what viewers of the pictures found)."""
    shared = Finding("gpu_shared", "warning", "")
    began = (1190, 950, 1204, 812, 830, 835, 840, 1199)
    findings = tuple(
        replace(shared, ranks=(*range(100 * at, 100 * at + 8),), since_step=step) for at, step in enumerate(began)
    )
    picture = ViewState(timed(replace(SHOWN, findings=findings)), make_look())
    lines = text_of(timeline_lines(picture, 70, height))
    axis = next(at for at, line in enumerate(lines) if "step 705" in line)
    events = [line for line in lines[:axis] if "▲" in line or "more" in line]
    assert len(events) >= (rows if height > 30 else 2)
    signs = sum(line.count("▲") for line in events)
    assert signs >= rows
    assert sum(line.count("shared GPU") for line in events) == signs, "each says what happened"
    assert not any("…" in line for line in events)


@pytest.mark.parametrize("many", [1, 40])
@pytest.mark.parametrize("found", [(), (LATE,)])
def test_phases_without_room_are_counted_and_leave_no_empty_row(found: tuple[Finding, ...], many: int) -> None:
    marks = tuple(MarkView(710 + 12 * place, "checkpoint", 900.0) for place in range(many))
    made = replace(SHOWN, findings=found, timeline=replace(made_timeline(), marks=marks))
    lines = text_of(timeline_lines(ViewState(made, make_look()), 80, 12))
    at = next(place for place, line in enumerate(lines) if "step 705" in line)
    events = lines[at - 1 - bool(found) : at]
    assert lines[at - 2 - bool(found)].startswith(" 2.000 "), "the last row of the loss"
    shown = sum(line.count("•") for line in events)
    assert 1 <= shown <= many
    assert ("".join(events).count(f"{many - shown} more") == 1) is (many > 1)
    assert any("▲" in line for line in events) is bool(found)


@pytest.mark.parametrize(("key", "chosen"), [("j", 0), ("G", 15)])
def test_the_ranks_open_with_the_worst_one_first_wherever_the_chosen_one_is(key: str, chosen: int) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press(key, "2")
        await watched.until_shown("─ timeline")
        assert isinstance(watched.app.screen, TimelineScreen)
        rows = [line for line in watched.text().split("\n")[2:] if "node" in line]  # below the headline
        assert rows[0].startswith(" ▲     11 node1")
        assert [row.split()[1] for row in rows if row.startswith("▸")] == [str(chosen)]

    watch(Fixed(timed(SHOWN)), act, (80, 24), interval=10.0)  # no other picture comes, as of a run that is over


def test_the_figures_of_the_timeline_are_of_one_step_that_all_have_told() -> None:
    step, ms = np.arange(100, 110), np.arange(100.0, 110.0)
    told = np.where(step < 107, 30.0, np.nan)
    timeline = Timeline(
        step, told, np.where(step < 107, 11, -1), 1.0 * ms, 2.0 * ms, np.full(10, np.nan), 3.0 * ms
    )  # fmt: skip
    assert SHOWN.run is not None
    shown = replace(SHOWN, timeline=timeline, run=replace(SHOWN.run, step=109))
    for height in (24, 14):
        text = "\n".join(text_of(timeline_lines(ViewState(shown, make_look()), 120, height)))
        assert [
            part for part in ("step 106,", "rank 11", "30.0 %", "106 ms", "212 ms", "318") if part not in text
        ] == []
    calm = replace(shown, timeline=replace(timeline, late_pct=told / 100))
    text = "\n".join(text_of(timeline_lines(ViewState(calm, make_look()), 120, 24)))
    assert "±0 %" in text
    assert "rank 11" not in text.replace("rank 11 late +41 ms, input ▲", ""), "but for the event"


def test_while_the_run_hangs_its_stacks_stand_below_the_timeline() -> None:
    run = SHOWN.run
    assert run is not None
    stuck = snapshot(replace(MADE, straggler=None, stuck=2, findings=(HANG,)))
    stuck = timed(replace(stuck, run=replace(run, state="stalled", step_age_s=14.0)))

    async def act(watched: Watched) -> None:
        await watched.press("2")
        await watched.until_shown("stack of rank 2")
        assert "shards.py:19" in watched.text()

    watch(Fixed(stuck), act, (240, 70))


def test_while_the_run_hangs_its_stacks_have_the_room_of_the_buckets() -> None:
    """The buckets beside the places left the lines below these empty, and the stacks had no room."""

    async def act(watched: Watched) -> None:
        await watched.press("2")
        await watched.until_shown("stack of rank 2")
        assert "─ buckets" not in watched.text()
        await watched.press("v")
        await watched.until_shown("─ buckets")
        await watched.press("v")
        await watched.until_shown("stack of rank 2")

    watch(Fixed(timed(hanging(8), buckets=True)), act, (160, 50))


def test_while_no_step_is_heard_of_the_timeline_does_not_call_itself_live() -> None:
    run = SHOWN.run
    assert run is not None
    stuck = timed(replace(SHOWN, findings=(HANG,), run=replace(run, step_age_s=14.0)))
    gone = timed(replace(SHOWN, link=Link("gone", "no store"), run=replace(run, state="lost", step_age_s=14.0)))
    for shown in (stuck, gone):
        head = text_of(timeline_lines(ViewState(shown, make_look()), 120, 24))[0]
        assert "step 1,204, 14 s ago" in head
        assert "live" not in head


def test_a_frozen_timeline_does_not_call_itself_live() -> None:
    shown = timed(SHOWN)
    live, frozen = (text_of(timeline_lines(ViewState(shown, make_look(), paused_s=s), 120, 24))[0] for s in (None, 3.0))
    assert "step 1,204, live ─" in live
    assert "step 1,204 ─" in frozen


@pytest.mark.parametrize(("told", "said"), [(1_184, "live"), (1_100, "18 s ago")])
def test_a_step_that_only_some_have_left_long_behind_is_not_live(told: int, said: str) -> None:
    """Ranks that have restarted alone leave what all have told of where they fell out."""
    made = timed(SHOWN)
    assert made.timeline is not None
    known = made.timeline.step <= told
    rank, ms = np.where(known, made.timeline.late_rank, -1), np.where(known, made.timeline.step_ms, np.nan)
    timeline = replace(made.timeline, late_rank=rank.astype(made.timeline.late_rank.dtype), step_ms=ms)
    head = text_of(timeline_lines(ViewState(replace(made, timeline=timeline), make_look()), 120, 24))[0]
    assert f"step {told:,}, {said} " in head


def test_what_began_before_its_bound_and_before_the_axis_says_so_in_words() -> None:
    """It said `too many threads, or before since 12`."""
    found = Finding("cpu_pinned", "info", "too many threads", (), ("vm",), since_step=12, since_is_bound=True)
    shown = ViewState(timed(replace(SHOWN, findings=(found,))), make_look(), zoom=200)
    text = "\n".join(text_of(timeline_lines(shown, 120, 24)))
    assert " since before 12" in text
    assert "or before" not in text


def test_while_the_store_does_not_answer_no_step_is_live() -> None:
    head = text_of(timeline_lines(ViewState(timed(SHOWN), make_look(), stuck_s=8.0), 120, 24))[0]
    assert "live" not in head


def test_what_says_that_the_store_is_gone_is_not_dim_at_any_size() -> None:
    run = SHOWN.run
    assert run is not None
    gone = timed(replace(SHOWN, link=Link("gone", "no store"), run=replace(run, state="lost")))

    async def act(watched: Watched) -> None:
        await watched.until_shown("GONE")
        await watched.press("2")
        await watched.until_shown("─ timeline")
        await watched.pilot.resize_terminal(120, 34)
        await watched.until(lambda: len(watched.text().split("\n")[0]) == 120)
        await watched.pilot.pause()
        strips = watched.app.screen._compositor.render_strips()
        styles = {segment.text: segment.style for strip in strips for segment in strip}
        assert styles["GONE"] is not None
        assert styles["GONE"].color == watched.app.picture.look.broken.color
        assert styles["─ "] is not None
        assert styles["─ "].color != watched.app.picture.look.faint.color, "the rest is dim"

    watch(Fixed(gone), act, (80, 24), interval=10.0)


def test_a_longer_step_is_seen_in_two_lines() -> None:
    shown = timed(SHOWN)
    assert shown.timeline is not None
    longer = np.where(shown.timeline.step >= 812, 630.0, 490.0)
    picture = ViewState(replace(shown, timeline=replace(shown.timeline, step_ms=longer)), make_look())
    rows = text_of(timeline_lines(picture, 80, 12))[3:5]
    assert rows[0].startswith(" step ")

    def height(column: int) -> int:
        """The line's, in dots of a quarter of a cell, from the top of the two lines."""
        patterns = [ord(row[column]) - 0x2800 if row[column] >= "\u2800" else 0 for row in rows]
        return next(4 * at + dot for at, pattern in enumerate(patterns) for dot in range(4) if pattern & BITS[dot])

    assert height(22) - height(78) >= 3, "of eight"


@pytest.mark.parametrize(("severity", "sign"), [("info", "•"), ("warning", "▲"), ("critical", "▲")])
def test_an_event_has_the_sign_of_its_severity(severity: Severity, sign: str) -> None:
    made = replace(SHOWN, findings=(replace(LATE, severity=severity),), timeline=replace(made_timeline(), marks=()))
    lines = text_of(timeline_lines(ViewState(made, make_look()), 160, 12))
    assert [sign in line for line in lines if "rank 3 late +80 ms" in line] == [True]


def test_what_ended_a_step_behind_the_newest_one_on_the_axis_is_over() -> None:
    """The verdict can be of a newer step than the newest one that all ranks have told of."""
    over = replace(LATE, cleared_at_step=made_timeline().step[-1] + 1)
    made = replace(SHOWN, findings=(over,), timeline=replace(made_timeline(), marks=()))
    text = "\n".join(text_of(timeline_lines(ViewState(made, make_look()), 160, 24)))
    assert "rank 3 over ✓" in text


@pytest.mark.parametrize("height", [12, 24])
def test_one_long_stall_leaves_the_other_steps_of_its_row_their_room(height: int) -> None:
    timeline = made_timeline()
    step_ms = np.where(timeline.step == 800, 15_200.0, timeline.step_ms)
    loss = np.where(timeline.step == 800, 500.0, timeline.loss)
    made = replace(SHOWN, timeline=replace(timeline, step_ms=step_ms, loss=loss), findings=())
    lines = text_of(timeline_lines(ViewState(made, make_look()), 160, height))
    text = "\n".join(lines)
    assert "▴ 15.2 s" in text
    assert "15k┤" not in text
    assert any("▴" in line[15 + GUTTER :] for line in lines), "over its step"
    assert "500┤" in text or "400┤" in text, "a loss is never cut"


def test_in_two_lines_a_row_says_which_rank_is_late() -> None:
    """`latest 4,095` did not say that it is a rank (what viewers of the pictures found)."""
    made = timed(SHOWN)
    assert made.timeline is not None
    for rank in (11, 417, 4095):
        timeline = replace(made.timeline, late_rank=np.full(len(made.timeline.step), rank))
        lines = text_of(timeline_lines(ViewState(replace(made, timeline=timeline), make_look()), 80, 12))
        assert lines[1].startswith(f" rank {rank} late "), lines[1]
        assert lines[2].startswith(" 30.0 %")


NAMED = [(6.3, (), False), (10.0, (), True), (6.3, (LATE,), True), (4.0, (LATE,), False)]


@pytest.mark.parametrize(("late", "found", "is_named"), NAMED)
def test_a_rank_that_may_be_the_latest_by_chance_is_named_only_where_a_finding_does(
    late: float, found: tuple[Finding, ...], is_named: bool
) -> None:
    """Of 1,024 healthy ranks some rank is late by 4.7 % in the median step, and was named (what viewers found)."""
    made = made_timeline()
    many = len(made.step)
    timeline = replace(made, late_pct=np.full(many, late), late_rank=np.full(many, 3), marks=())
    shown = ViewState(replace(SHOWN, findings=found, timeline=timeline), make_look())
    for height, word in ((8, " rank 3 late"), (24, " rank 3 ")):
        names = [line[:16] for line in text_of(timeline_lines(shown, 120, height))]
        assert any(name.startswith(word) for name in names) is is_named, names


def test_a_restart_of_some_ranks_is_one_event_although_a_finding_tells_of_it_too() -> None:
    alone = Finding("monitor_degraded", "info", "", (8, 9), since_step=1000, evidence={"restarted_alone": 2})
    timeline = replace(made_timeline(), restarts=((1000, 2, 8),))
    picture = ViewState(replace(timed(SHOWN), timeline=timeline, findings=(alone,)), make_look())
    text = "\n".join(text_of(timeline_lines(picture, 160, 40)))
    assert text.count("restarted") == 1
