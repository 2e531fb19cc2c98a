"""The views as a reader goes through them: keys in, what is open and what it says out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpmon.simulate.plan import Plan
from ddpmon.snapshot import BucketView, Finding, MarkView, ReplayView, Snapshot, Timeline
from ddpmon.tui.draw.timeline_view import timeline_lines
from ddpmon.tui.lines import Line
from ddpmon.tui.screens.compare_screen import CompareScreen
from ddpmon.tui.screens.findings_screen import FindingsScreen
from ddpmon.tui.screens.host_screens import HostScreen, HostsScreen
from ddpmon.tui.screens.overview import Overview
from ddpmon.tui.screens.rank_screen import RankScreen
from ddpmon.tui.screens.run_screen import RunScreen
from ddpmon.tui.screens.timeline_screen import TimelineScreen
from ddpmon.tui.theme import make_look
from ddpmon.tui.view_state import ViewState
from tests.recording.made_recordings import simulated
from tests.tui.made_runs import HANG, NOTES, Made, snapshot
from tests.tui.watched import Fixed, Watched, watch

MADE = Made(ranks=16, per_node=8, straggler=11, gpu=True, findings=NOTES)
MADE_RUN = snapshot(MADE)
assert MADE_RUN.run is not None
SHOWN = replace(MADE_RUN, run=replace(MADE_RUN.run, step_age_s=0.3))
LATE = Finding(
    "straggler", "critical",
    "rank 3 (node0) is late by 80 ms a step, mostly in backward. Costs 30 % of the run's time.",
    (3,), ("node0",), "backward", "a shared GPU: pid 4242 (bob)", 1_000, cost_pct=30.0, advice="ask bob",
    evidence={"work_ms": 200.0, "others_work_ms": 120.0, "excess_ms": 80.0, "cause_pid": 4242,
              "cause_strength": "likely"}, id=7,
)  # fmt: skip
ARRAYS = ("step", "late_pct", "late_rank", "step_ms", "allreduce_ms", "busbw_gb_s", "loss")
FULL = snapshot(Made(ranks=4096, per_node=8, straggler=7, gpu=True))


def made_timeline(newest: int = 1204, buckets: bool = False) -> Timeline:
    step = np.arange(705, newest + 1)
    late = np.where(step >= 812, 30.0, 1.0)
    return Timeline(
        step, late, np.full(len(step), 11), np.where(step >= 812, 170.0, 130.0), np.full(len(step), 24.0),
        np.full(len(step), np.nan), np.linspace(3, 2, len(step)), (MarkView(900, "eval", 900.0),),
        BucketView((25 << 20, 9 << 20), np.array([3.0, 1.5]), np.array([0.0, 1.2]), 684, 703) if buckets else None,
    )  # fmt: skip


def timed(made: Snapshot, *, buckets: bool = False) -> Snapshot:
    return replace(made, timeline=made_timeline(buckets=buckets))


def text_of(lines: list[Line]) -> list[str]:
    return ["".join(segment.text for segment in line) for line in lines]


def screens(watched: Watched) -> list[type]:
    return [type(screen) for screen in watched.app.screen_stack]


VIEWS = [("2",), ("3",), ("3", "enter"), ("4",), ("5",), ("enter",), ("m", "j", "c"), ("question_mark",)]


@pytest.mark.parametrize("keys", VIEWS, ids="".join)
def test_every_view_without_room_says_so_in_one_sentence_and_can_be_left(keys: tuple[str, ...]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press(*keys)
        await watched.pilot.resize_terminal(20, 5)
        assert len(watched.app.screen_stack) == 2 + (keys == ("3", "enter"))
        await watched.until_shown("needs 40x12")
        said = [line.strip() for line in watched.text().split("\n") if line.strip()]
        assert said == ["too small", "20x5, needs 40x12", "q quits"]
        await watched.pilot.resize_terminal(80, 24)
        await watched.until(lambda: "too small" not in watched.text())
        await watched.until_shown("q quit")

    watch(Fixed(timed(SHOWN)), act, (80, 24))


@pytest.mark.parametrize(
    ("size", "shown"), [((40, 12), SHOWN), ((80, 24), SHOWN), ((240, 70), SHOWN), ((160, 50), FULL)]
)
def test_every_view_fills_every_size(size: tuple[int, int], shown: Snapshot) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        for keys in VIEWS:
            await watched.press(*keys)
            await watched.until(lambda: "q quit" in watched.text().split("\n")[-1])
            lines = watched.text().split("\n")
            assert len(lines) == size[1]
            assert {len(line) for line in lines} == {size[0]}, keys
            await watched.press("1")

    watch(Fixed(timed(shown)), act, size)


def test_a_finding_leads_to_its_rank_and_its_host_and_esc_one_level_back() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("5")
        await watched.until_shown("CRIT")
        assert "rank 11: late +41 ms, input" in watched.text(), "the evidence of the one under the cursor"
        await watched.press("enter")
        await watched.until_shown("last 20 steps")
        assert screens(watched)[1:] == [FindingsScreen, RankScreen]
        await watched.press("h")
        await watched.until_shown("─ node1 · ranks 8-15")
        await watched.press("j", "j", "enter")
        assert isinstance(watched.app.screen, RankScreen)
        assert watched.app.screen.rank == 13, "the cursor was on the rank it came from"
        for left in (3, 2, 1):
            await watched.press("escape")
            assert len(watched.app.screen_stack) == left + 1
        assert isinstance(watched.app.screen, FindingsScreen)
        await watched.press("h")
        assert isinstance(watched.app.screen, HostScreen)
        await watched.press("escape", "escape")
        assert isinstance(watched.app.screen, Overview)
        assert watched.app.screen.table.rank == 11, "the rank that was chosen last is under the cursor here, too"

    watch(Fixed(SHOWN), act, (160, 50))


def test_the_cursor_stays_on_its_finding_and_its_evidence_has_every_row() -> None:
    source = Fixed(SHOWN)

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("5")
        await watched.until_shown("rank 11: late +41 ms, input")
        source.shown = replace(SHOWN, findings=(LATE, *SHOWN.findings))
        await watched.until_shown("late +80 ms, backward")
        await watched.press("down", "up")
        await watched.until_shown("rank 3: late +80 ms, backward")
        source.shown = replace(SHOWN, findings=(SHOWN.findings[0], replace(LATE, cost_pct=31.0), *SHOWN.findings[1:]))
        await watched.until_shown("31 % of the run's time")
        text = watched.text()
        for part in ("Measured  work 200 ms, others 120 ms, +80.0 ms", "Since     step 1,000", "Costs     31 %",
                     "Cause     a shared GPU: pid 4242 (bob)", "Do        ask bob", "GPU-h lost so far"):  # fmt: skip
            assert part in text
        assert "4,242" not in text

    watch(source, act, (160, 50))


@pytest.mark.parametrize(("size", "keys"), [((120, 34), ("5", "f", "f", "f")), ((80, 30), ("2", "v", "v"))])
def test_a_list_that_was_hidden_takes_the_keys_again(size: tuple[int, int], keys: tuple[str, ...]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        for key in keys:
            await watched.press(key)
        focused = watched.app.screen.focused
        assert focused is not None
        assert focused.display

    watch(Fixed(SHOWN), act, size)


def test_a_hang_has_one_badge_in_the_headline_and_in_the_list() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown(" HANG ")
        await watched.press("5")
        await watched.until_shown("─ now")
        rows = [line for line in watched.text().split("\n") if " HANG " in line or " CRIT " in line]
        assert any(" HANG " in row and "rank 2" in row for row in rows)
        assert not any(" CRIT " in row for row in rows)

    watch(Fixed(snapshot(Made(ranks=8, stuck=2, findings=(HANG,)))), act, (120, 34))


def test_what_is_over_comes_below_with_the_times_of_day() -> None:
    over = replace(LATE, cleared_at_step=1_100, summary="over since step 1,100: rank 3 was late.")

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("5")
        await watched.until_shown("─ over ")
        lines = watched.text().split("\n")
        title = next(place for place, line in enumerate(lines) if line.startswith("─ over "))
        row = next(line for line in lines[title:] if "rank 3 " in line)
        assert "✓" in row
        assert row[:60].count(":") == 2, "from when to when"
        await watched.press("end")
        await watched.until_shown("Over      step 1,100")

    watch(Fixed(replace(SHOWN, findings=(SHOWN.findings[0], over))), act, (120, 34))


def test_3_goes_to_the_host_of_the_chosen_rank() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("end", "enter")
        assert isinstance(watched.app.screen, RankScreen)
        host = watched.app.screen.rank // 8
        await watched.press("3")
        assert isinstance(watched.app.screen, HostsScreen)
        assert watched.app.screen.table.chosen == host
        await watched.press("v")
        await watched.until_shown("GPU power, % of its limit")

    watch(Fixed(snapshot(Made(ranks=64, per_node=8, straggler=11, gpu=True))), act, (160, 50))


def test_v_plots_the_next_metric_of_a_rank_and_f_the_plot_alone() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("enter")
        await watched.until_shown("─ work, ms")
        await watched.press("v")
        await watched.until_shown("─ lateness, ms")
        assert "─ work, ms" not in watched.text(), "80 columns have one plot"
        await watched.press("f")
        await watched.until(lambda: "last 20 steps" not in watched.text())
        await watched.press("f")
        await watched.until_shown("last 20 steps")

    watch(Fixed(SHOWN), act, (80, 24))


def test_marked_ranks_are_compared() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("c")
        assert isinstance(watched.app.screen, Overview), "nothing is marked"
        await watched.until_shown("mark two ranks with m first")
        await watched.press("m", "j", "m", "c")
        assert isinstance(watched.app.screen, CompareScreen)
        assert watched.app.screen.ranks[0] == 11
        assert len(watched.app.screen.ranks) == 2
        await watched.until_shown("rank 11")
        await watched.press("escape")
        assert watched.text().count("+ ") >= 2, "marks stand before the ranks"
        await watched.press("enter", "m", "escape", "c")
        assert isinstance(watched.app.screen, CompareScreen), "one marked rank and the one under the cursor"

    watch(Fixed(SHOWN), act, (120, 34))


def test_the_timeline_has_a_cursor_on_the_moment_that_is_shown() -> None:
    live = timed(SHOWN, buckets=True)
    source = Fixed(live)
    run = SHOWN.run
    assert run is not None

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("2")
        await watched.until_shown("latest rank")
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
        await watched.until_shown("step 800, 90 s before the end")
        assert "130 ms" in watched.text()
        row = next(line for line in watched.text().split("\n") if " latest rank" in line)
        assert row.rstrip()[-1] != "│"
        assert "│" in row[25:], "the cursor stands in the middle of what is known"
        await watched.press("v", "f")
        await watched.until(lambda: "─ ranks" not in watched.text())

    watch(source, act, (160, 50))


@pytest.mark.parametrize("scenario", ["hang", "straggler", "churn"])
def test_the_timeline_shows_the_beginning_of_what_lasts_wherever_its_axis_ends(scenario: str) -> None:
    with simulated(Plan(ranks=16, hosts=2, scenario=scenario)) as run:
        run.go(60)
        shown = run.observer.tick()
    picture = ViewState(shown, make_look())
    lines = text_of(timeline_lines(picture, 120, 24))
    said = {"hang": "✕ rank 5 stuck in input", "straggler": "▲ rank 5 ", "churn": " restarted"}[scenario]
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
    assert "rank 11" not in text.replace("▲ rank 11 late", ""), "but for the event"


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


def test_the_run_says_how_it_was_set_up() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("4")
        assert isinstance(watched.app.screen, RunScreen)
        await watched.until_shown("tcp://127.0.0.1:29480")
        assert "GPU-h used and lost" in watched.text()
        assert "lost: rank 11" in watched.text()

    watch(Fixed(SHOWN), act, (160, 50))


def test_while_no_step_finishes_the_timeline_does_not_call_itself_live() -> None:
    run = SHOWN.run
    assert run is not None
    stuck = timed(replace(SHOWN, findings=(HANG,), run=replace(run, step_age_s=14.0)))

    async def act(watched: Watched) -> None:
        await watched.press("2")
        await watched.until_shown("step 1,204, 14 s ago")
        assert ", live" not in watched.text()

    watch(Fixed(stuck), act, (120, 34))


def test_a_host_that_is_cut_says_how_much_is_missing() -> None:
    async def act(watched: Watched) -> None:
        await watched.press("3")
        await watched.until_shown("more lines: enter")
        await watched.pilot.resize_terminal(120, 70)
        await watched.until(lambda: "more lines" not in watched.text())

    watch(Fixed(snapshot(Made(ranks=16, per_node=8, gpu=True))), act, (80, 24))


def test_a_list_of_findings_without_room_says_which_part_is_shown() -> None:
    many = tuple(replace(SHOWN.findings[0], ranks=(rank,)) for rank in range(9))

    async def act(watched: Watched) -> None:
        await watched.press("5")
        await watched.until_shown("1-3 of 9")
        await watched.press("end")
        await watched.until_shown("7-9 of 9")
        await watched.pilot.resize_terminal(120, 40)
        await watched.until(lambda: " of 9" not in watched.text())

    watch(Fixed(replace(SHOWN, findings=many)), act, (40, 12))


def test_evidence_without_room_says_how_much_is_below_and_scrolls() -> None:
    advice = " ".join(f"check thing {number}," for number in range(60)) + " and the last thing"
    long = replace(SHOWN, findings=(replace(SHOWN.findings[0], advice=advice), *SHOWN.findings[1:]))

    async def act(watched: Watched) -> None:
        await watched.press("5")
        await watched.until_shown("more lines below: J and K scroll")
        assert "last thing" not in watched.text()
        while "more lines below" in watched.text():
            await watched.press("J")
        assert "last thing" in watched.text()
        await watched.press("K")
        assert "more lines below" in watched.text()
        await watched.press("J", "down", "up")
        assert "check thing 0," in watched.text(), "another finding is read from its first line on"

    watch(Fixed(long), act, (80, 24))
