"""A run that was killed or crashed: all views have one step, one sign and one word for it, and what to do is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rich.style import Style

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.lost import LostMeasures
from ddpmon.report.finding_rows import rows
from ddpmon.report.finding_text import finding_text
from ddpmon.report.past import kill_of
from ddpmon.report.sentences import tell
from ddpmon.report.verdicts import headline, is_kill
from ddpmon.tui.draw.courses import METRICS, rank_plots
from ddpmon.tui.draw.detail import detail_lines
from ddpmon.tui.draw.finding_view import evidence_lines
from ddpmon.tui.draw.host_detail import host_page
from ddpmon.tui.draw.timeline_view import timeline_lines
from ddpmon.tui.draw.verdict_lines import verdict_lines
from ddpmon.tui.lines import Line
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import HANG, Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.test_past_run import WHY, over
from tests.tui.test_views import SHOWN, timed

LOOK = LOOKS["colour"]
CROSS, MARK = LOOK.glyphs.lost, LOOK.glyphs.mark
STEP = 1204  # the run's last one


def killed(seen: int = STEP) -> ViewState:
    """A killed run whose rank 0 was last seen in step `seen`."""
    made = replace(timed(over("killed")), detail=snapshot(Made(ranks=8, focus=0)).detail)
    assert made.ranks is not None
    step = np.full(len(made.ranks), STEP)
    step[0] = seen
    return ViewState(replace(made, ranks=replace(made.ranks, step=step)), LOOK)


def plot_of_rank_0(picture: ViewState) -> list[Line]:
    detail = picture.snapshot.detail
    assert detail is not None
    return rank_plots(picture, detail, picture.snapshot.findings[:1]).plot(METRICS[0], 80, 9)


def styles_of(lines: list[Line], sign: str) -> set[Style | None]:
    return {part.style for line in lines for part in line if sign in part.text}


def test_the_step_of_a_kill_is_the_one_in_which_its_rank_was_seen_last() -> None:
    """`Since step 123` stood beside `last seen in the all-reduce, step 122`."""
    picture = killed(seen=STEP - 1)
    kill, run = picture.snapshot.findings[0], picture.snapshot.run
    assert run is not None
    assert run.step == STEP
    assert dict(rows(kill, picture.snapshot))["Since"].startswith("step 1,203")
    assert f"1,203 {CROSS}" in text_of(plot_of_rank_0(picture))[-1]
    assert any("step 1,203" in line for line in text_of(detail_lines(picture, 0, 120, 40)))


def test_a_kill_has_the_same_sign_and_colour_on_axes_and_in_the_timeline() -> None:
    picture = killed()
    axis, timeline = plot_of_rank_0(picture)[-1:], timeline_lines(picture, 120, 20)
    assert styles_of(axis, CROSS) == {LOOK.broken}
    assert MARK not in text_of(axis)[0]
    assert styles_of(timeline, f"rank 0 killed or crashed {CROSS}") == {LOOK.broken}


def test_a_hang_is_red_in_the_timeline_and_a_late_rank_is_not() -> None:
    late = SHOWN.findings[0]
    picture = ViewState(replace(timed(SHOWN), findings=(replace(HANG, since_step=STEP), late)), LOOK)
    lines = timeline_lines(picture, 120, 20)
    assert styles_of(lines, CROSS) == {LOOK.broken}
    assert LOOK.accent in styles_of(lines, MARK)


def test_a_kill_is_called_by_one_word() -> None:
    """Its panel was titled `rank 0: killed or crashed ── rank lost`."""
    picture = killed()
    kill = picture.snapshot.findings[0]
    assert text_of(evidence_lines(picture, kill, 100, 20))[0].count("killed or crashed") == 1
    said = "\n".join([*text_of(evidence_lines(picture, kill, 100, 20)), finding_text(picture.snapshot, kill)])
    assert "rank lost" not in said
    assert "critical killed or crashed" in said


def test_the_first_finding_of_a_killed_run_is_its_kill_and_not_a_rank_that_was_lost_long_before() -> None:
    lost = tell(Alert("rank_lost", "critical", LostMeasures(3, "n0", 103, 900.0, 99, "forward"), (3,), ("n0",)))
    made = timed(over("killed"))
    picture = ViewState(replace(made, findings=(lost, *made.findings)), LOOK, paused_s=3.0)  # no notice tells it
    first = headline(picture.snapshot.findings)
    assert first is not None
    assert is_kill(first)
    assert "read the launcher's output" in " ".join(text_of(verdict_lines(picture, 200)))
    assert kill_of(picture.snapshot) == first


@pytest.mark.parametrize("view", ["rank", "host"])
def test_below_the_notice_on_a_kill_stands_what_to_do(view: str) -> None:
    """The sentence stood there twice, and what to do nowhere."""

    def lines(picture: ViewState) -> list[str]:
        return text_of(
            detail_lines(picture, 0, 120, 40) if view == "rank" else host_page(picture, 0, 120, named_first=True).lines
        )

    picture = killed()
    told = " ".join(line.strip() for line in lines(picture))
    assert f"{CROSS} killed or crashed → read the launcher's output" in told
    assert ": if memory ran out, it names what was killed" in told
    assert WHY not in told
    assert WHY in " ".join(lines(replace(picture, paused_s=3.0))), "the notice says that the display is frozen"
