"""The views as a reader goes through them: keys in, what is open and what it says out."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ddpmon.diagnose.kinds import KindName
from ddpmon.snapshot import BucketView, Finding, Link, MarkView, Snapshot, Timeline
from ddpmon.tui.lines import Line
from ddpmon.tui.screens.compare_screen import CompareScreen
from ddpmon.tui.screens.findings_screen import FindingsScreen
from ddpmon.tui.screens.host_screens import HostScreen, HostsScreen
from ddpmon.tui.screens.overview import Overview
from ddpmon.tui.screens.rank_screen import RankScreen
from ddpmon.tui.screens.run_screen import RunScreen
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


@pytest.mark.parametrize("keys", [(), *VIEWS], ids="".join)
def test_every_view_without_room_has_the_state_and_the_verdict_and_can_be_left(keys: tuple[str, ...]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press(*keys)
        opened = len(watched.app.screen_stack)
        await watched.pilot.resize_terminal(20, 5)
        await watched.until_shown("needs 40x12")
        said = [line.strip() for line in watched.text().split("\n") if line.strip()]
        assert said == ["RUNNING · 00:12:31", "CRIT rank 11: late", "+41 ms, input", "q quit · needs 40x12"]
        await watched.pilot.resize_terminal(10, 2)
        await watched.until(lambda: watched.text().split("\n") == ["RUNNING   ", "▲ rank 11…"])
        await watched.pilot.resize_terminal(1, 1)
        await watched.until(lambda: watched.text() == "…")
        await watched.pilot.resize_terminal(80, 24)
        await watched.until_shown("q quit")
        assert len(watched.app.screen_stack) == opened
        assert "needs 40x12" not in watched.text()

    watch(Fixed(timed(SHOWN)), act, (80, 24))


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ((20, 4), ["STALLED · 00:12:31", "HANG rank 2: stuck", "in input", "q quit · needs 40x12"]),
        ((20, 3), ["STALLED · 00:12:31", "HANG rank 2: stuck", "in input"]),
        ((20, 2), ["STALLED · 00:12:31", "HANG rank 2: stuck …"]),
        ((30, 1), ["HANG rank 2: stuck in input"]),
    ],
)
def test_the_facts_come_before_how_to_quit(size: tuple[int, int], said: list[str]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until(lambda: [line.strip() for line in watched.text().split("\n")] == said)

    assert SHOWN.run is not None
    stalled = replace(SHOWN, run=replace(SHOWN.run, state="stalled"), findings=(HANG,))
    watch(Fixed(stalled), act, size)


def test_before_a_run_is_there_the_smallest_terminal_says_what_it_waits_for() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("waiting for a run")
        await watched.until_shown("q quit")

    watch(Fixed(replace(SHOWN, run=None, ranks=None, findings=(), link=Link("waiting"))), act, (20, 5))


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
        source.shown = replace(SHOWN, findings=(SHOWN.findings[0], replace(LATE, cost_pct=37.0), *SHOWN.findings[1:]))
        await watched.until_shown("37 % of the run's time")
        text = watched.text()
        for part in ("Measured  work 200 ms, others 120 ms, +80.0 ms", "Since     step 1,000", "Costs     37 %",
                     "Cause     a shared GPU: pid 4242 (bob)", "Do        ask bob", "GPU-h lost so far"):  # fmt: skip
            assert part in text
        assert "4,242" not in text

    watch(source, act, (160, 50))


@pytest.mark.parametrize(
    ("kind", "plot"),
    [
        ("gpu_memory_growth", "torch memory, GiB"),
        ("gpu_shared", "GPU, %"),
        ("gpu_throttled", "GPU clock, MHz"),
        ("loss_jump", "loss"),
    ],
)
def test_what_a_finding_is_about_is_plotted_below_it(kind: KindName, plot: str) -> None:
    found = Finding(kind, "warning", "something of rank 3", (3,), ("node0",), "backward", since_step=1_000)

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("5")
        await watched.until_shown(f"rank 3: {plot}")

    watch(Fixed(replace(SHOWN, findings=(found,))), act, (160, 50))


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
    over = replace(LATE, cleared_at_step=1_100, summary="rank 3 was late (from step 900 to 1,100).")

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("5")
        await watched.until_shown("─ over ")
        lines = watched.text().split("\n")
        title = next(place for place, line in enumerate(lines) if line.startswith("─ over "))
        row = next(line for line in lines[title:] if "rank 3 " in line)
        assert "✓" in row
        assert re.search(r" \d\d:\d\d(-\d\d:\d\d)? ", row[:60]), "from when to when"
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


def test_v_plots_the_next_metric_of_a_rank_and_f_shows_the_figures_and_then_the_plot_alone() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("enter")
        await watched.until_shown("─ work, ms")
        await watched.press("v")
        await watched.until_shown("─ lateness, ms")
        assert "─ work, ms" not in watched.text(), "80 columns have one plot"
        await watched.press("f")
        await watched.until(lambda: "─ lateness, ms" not in watched.text())
        assert "20 steps" in watched.text()
        await watched.press("f")
        await watched.until(lambda: "20 steps" not in watched.text())
        assert "─ lateness, ms" in watched.text()
        await watched.press("f")
        await watched.until_shown("20 steps")
        await watched.press("f", "v")
        await watched.until_shown("─ GPU power, W")

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


def test_the_run_says_how_it_was_set_up() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("4")
        assert isinstance(watched.app.screen, RunScreen)
        await watched.until_shown("tcp://127.0.0.1:29480")
        assert "GPU-h used and lost" in watched.text()
        assert "lost: rank 11" in watched.text()

    watch(Fixed(SHOWN), act, (160, 50))


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
