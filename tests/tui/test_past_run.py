"""A run that is over: how it ended comes first, the cursor is seen, and nothing calls for attention."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import numpy as np
import pytest
from rich.color import Color
from rich.segment import Segment

from ddpmon.report.finding_text import finding_text
from ddpmon.report.report_markdown import markdown, text
from ddpmon.report.run_report import RunReport
from ddpmon.report.summary_line import summary_line
from ddpmon.run.model import Run
from ddpmon.snapshot import Finding, Link, LinkState, RunState, Snapshot
from ddpmon.tui.draw.courses import METRICS, rank_plots
from ddpmon.tui.draw.detail import detail_lines
from ddpmon.tui.draw.finding_view import evidence_lines, list_lines
from ddpmon.tui.draw.findings import finding_lines
from ddpmon.tui.draw.header import header_line, notice_lines
from ddpmon.tui.draw.heat import heat_lines
from ddpmon.tui.draw.host_detail import host_page
from ddpmon.tui.draw.host_table import host_table_lines
from ddpmon.tui.draw.key_figures import figures_line
from ddpmon.tui.draw.order import ordered
from ddpmon.tui.draw.peer_table import marked_lines
from ddpmon.tui.draw.run_plots import plots_below
from ddpmon.tui.draw.run_view import run_lines
from ddpmon.tui.draw.table import HEAD, TableView, table_lines
from ddpmon.tui.draw.timeline_view import timeline_lines
from ddpmon.tui.draw.verdict_lines import verdict_lines
from ddpmon.tui.lines import Line
from ddpmon.tui.theme import DARK
from ddpmon.tui.view_state import ViewState
from ddpmon.watcher.picture import Moment, take_picture
from tests.made_frames import MadeJob, healthy_phases, rank_frame, run_info
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.test_key_words import foot
from tests.tui.test_views import timed
from tests.tui.watched import Fixed, Watched, watch

LOOK = LOOKS["colour"]
WHY = "the run was killed or crashed: rank 0 ended without a message (pid 77 on node0)"
LATE = snapshot(Made(ranks=8, straggler=5))
SHADES = (shade for each in fields(DARK) for shade in np.atleast_1d(getattr(DARK, each.name)))
BRIGHT = {Color.parse(str(shade)) for shade in SHADES}  # the colours of what is not faded


def over(state: RunState, link: LinkState = "gone", age_s: float = 30.0) -> Snapshot:
    """The run with a late rank once it is over, and nobody has spoken for a while."""
    assert LATE.run is not None
    assert LATE.ranks is not None
    run = replace(LATE.run, state=state, step_age_s=age_s)
    ranks = replace(LATE.ranks, age_s=np.full(8, age_s))
    return replace(LATE, run=run, ranks=ranks, link=Link(link, WHY if state == "killed" else ""))


def test_how_a_run_was_killed_is_the_first_of_its_findings() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("KILLED")
        await watched.press("5")
        await watched.until_shown("rank 0: killed or crashed")
        lines = watched.text().split("\n")
        (first, second) = [line for line in lines if " CRIT " in line or " WARN " in line]
        assert first.split()[:7] == ["▸", "CRIT", "rank", "0", "killed", "or", "crashed"]
        assert "rank 5" in second
        assert WHY[:60] in watched.text().split("rank 0: killed or crashed")[1], "its evidence says how"
        assert "dmesg" in watched.text()

    watch(Fixed(over("killed")), act, (80, 24))


def test_the_overview_marks_the_rank_that_was_killed_and_says_what_to_do() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown(f"✕ {WHY}")
        await watched.until_shown("→ read the launcher's output, and the kernel's log (dmesg)")
        row = next(line for line in watched.text().split("\n") if line[3:].split()[:2] == ["0", "node0"])
        assert "✕" in row[:4]
        assert watched.rows()[0] == 0

    watch(Fixed(over("killed")), act, (120, 34))


def test_all_views_of_a_killed_run_mark_rank_0_and_say_why() -> None:
    """The table and the list of findings alone did: no event, no sign beside the heat-map, no line below figures."""
    killed = ViewState(over("killed"), LOOK)
    found, nodes = killed.snapshot.findings, np.array([node.node for node in killed.snapshot.nodes])
    shown = {
        "timeline": timeline_lines(replace(killed, snapshot=timed(killed.snapshot)), 120, 20),
        "heat-map": heat_lines(killed, 100, 12),
        "hosts": host_table_lines(killed, TableView(nodes, focused=False), 120, 12),
        "rank": detail_lines(killed, 0, 120, 40),
        "comparison": marked_lines(killed.snapshot, [5, 0], 120, 40, LOOK, found),
    }
    signs = {
        "timeline": "✕ rank 0 killed or crashed|rank 0 killed or crashed ✕",
        "heat-map": "^ +0✕",
        "hosts": "✕ *node0",
        "rank": "✕ killed or crashed → read the launcher's output",
        "comparison": "✕ +rank 0: killed or crashed",
    }
    missing = [view for view, sign in signs.items() if not re.search(sign, "\n".join(text_of(shown[view])), re.M)]
    assert missing == []


def test_the_rank_that_was_killed_comes_before_one_that_is_late() -> None:
    assert ordered(ViewState(over("killed"), LOOK).snapshot, "worst", False, "").tolist()[:2] == [0, 5]


def test_the_overview_tells_the_kill_once() -> None:
    killed = ViewState(over("killed"), LOOK)
    assert [finding.ranks for finding in replace(killed, zoom=3).snapshot.findings] == [(0,), (5,)]
    verdict, below = text_of(verdict_lines(killed, 120))[0], text_of(finding_lines(killed, 120, 12))
    assert "rank 5" in verdict
    assert "more" not in verdict
    assert not any("killed" in line for line in below)
    frozen = text_of(verdict_lines(replace(killed, paused_s=3.0), 120))
    assert "killed" in frozen[0], "the notice says that the display is frozen"


def test_a_killed_run_keeps_the_figures_of_its_last_steps() -> None:
    last, killed = (text_of([figures_line(ViewState(over(state), LOOK), 160)])[0] for state in ("failed", "killed"))
    assert "ms/step" in killed
    assert re.findall(r"[\d.]+ ms/step", killed) == re.findall(r"[\d.]+ ms/step", last)


@pytest.mark.parametrize(("state", "verb"), [("running", "costs"), ("finished", "cost")])
def test_what_a_finding_costs_is_said_in_one_tense(state: RunState, verb: str) -> None:
    """The headline of a run that was over said `cost 18 %`, and the lists `costs 18 %`."""
    made = over(state, "live")
    second = replace(LATE.findings[0], ranks=(3,), kind="uneven_work")
    picture = ViewState(replace(made, findings=(*made.findings, second)), LOOK)
    drawn = [
        *verdict_lines(picture, 120),
        *finding_lines(picture, 120, 4),
        *finding_lines(picture, 120, 40),
        *list_lines(picture, picture.found, TableView(np.arange(2), focused=False), 120, 6),
        *evidence_lines(picture, picture.found[0], 120, 40),
        *marked_lines(picture.snapshot, [3, 5], 120, 40, LOOK, picture.found),
    ]
    words = "\n".join([*text_of(drawn), finding_text(picture.snapshot, picture.found[0])])
    said = re.findall(r"\b[Cc]osts?\b", words.replace("Costs 24 % of the run's time.", ""))
    assert len(said) >= 7
    assert {word.lower() for word in said} == {verb}


def test_signs_of_a_finding_have_one_colour_in_the_last_values_of_hosts() -> None:
    """They were grey beside the host's own sign."""
    made = over("finished")
    nodes = np.array([node.node for node in made.nodes])
    shown = ViewState(made, LOOK)
    for lines in (
        host_table_lines(shown, TableView(nodes, focused=False), 160, 30),
        host_page(shown, 1, 160, named_first=True).lines,
    ):
        signs = [part.style for line in lines for part in line if LOOK.glyphs.mark in part.text]
        assert len(signs) > 1
        assert set(signs) == {LOOK.accent}


@pytest.mark.parametrize(
    ("state", "link", "is_offered"),
    [("running", "live", True), ("lost", "gone", True), ("killed", "gone", False), ("finished", "live", False)],
)
def test_no_key_is_offered_for_what_comes_no_more(state: RunState, link: LinkState, is_offered: bool) -> None:
    async def act(watched: Watched) -> None:
        for keys in ("1", "3", "4", "5"):
            await watched.press(keys)
            await watched.until(lambda: "q quit" in foot(watched))
            offered = {words for words in ("space freeze", "+ - rate") if words in foot(watched)}
            assert offered == ({"space freeze"} | ({"+ - rate"} if keys == "1" else set()) if is_offered else set())
        await watched.press("space")
        await watched.until(lambda: "space resume" in foot(watched))

    watch(Fixed(over(state, link)), act, (240, 34))


@pytest.mark.parametrize("width", range(60, 160))
def test_the_state_stands_apart_from_the_name(width: int) -> None:
    """`8 hosts KILLED` in 120 columns."""
    (line,) = text_of([header_line(ViewState(over("killed"), LOOK), width)])
    assert re.search(r"\S {2,}KILLED", line)


def test_what_to_do_after_a_kill_stands_below_the_kill_alone() -> None:
    killed = ViewState(over("killed"), LOOKS["ascii"])
    advised, frozen, told, silent = (
        text_of(notice_lines(picture, 120))
        for picture in (
            killed,
            replace(killed, paused_s=3.0),
            replace(killed, snapshot=replace(killed.snapshot, told="no finding begins before this moment")),
            replace(killed, stuck_s=12.0),
        )
    )
    assert len(advised) == 2
    assert "dmesg" in advised[1]
    assert [len(lines) for lines in (frozen, told, silent)] == [1, 1, 1]


def test_a_filter_that_hides_the_kill_says_that_no_finding_matches() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("KILLED")
        watched.app.filter_by("rank=3")
        await watched.press("5")
        await watched.until_shown("0 of 1 finding")
        assert "no finding matches" in watched.text()

    watch(Fixed(replace(over("killed"), findings=())), act)


@pytest.mark.parametrize("findings", [LATE.findings, ()])
def test_every_view_the_report_and_the_last_line_say_how_a_run_was_killed(findings: tuple[Finding, ...]) -> None:
    """Only the list of findings told of it (what viewers of the pictures found)."""
    killed = replace(over("killed"), findings=findings)
    assert killed.run is not None
    killed = replace(killed, run=replace(killed.run, info=run_info(8)))
    report = markdown(RunReport(killed, run_info(8), (), 0.0, 3600.0, "a file"))
    assert report.split("\n")[2].startswith(f"**{text(WHY)}")
    assert "no trouble was found" not in report.lower()
    assert all(finding.summary in summary_line(killed) for finding in findings)
    assert WHY in summary_line(killed)
    assert WHY in "\n".join(text_of(run_lines(ViewState(killed, LOOK), 240)))

    async def act(watched: Watched) -> None:
        for key in ("1", "2", "3", "4", "5"):
            await watched.press(key)
            await watched.until_shown(f"✕ {WHY}")

    watch(Fixed(killed), act, (120, 34))


@pytest.mark.parametrize("state", ["running", "failed", "finished"])
def test_a_run_that_was_not_killed_has_no_such_finding(state: RunState) -> None:
    assert ViewState(over(state), LOOK).found == LATE.findings


def test_the_row_under_the_cursor_is_not_dim_while_all_others_are() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("KILLED")
        raised = Color.parse(watched.app.current_theme.surface or "")
        for keys, who in (((), "node0"), (("3",), "node0"), (("5",), "rank 0")):
            await watched.press("1", *keys)
            await watched.until_shown("KILLED")
            lines = [line for canvas in watched.app.screen.query("Canvas, VirtualTable") for line in canvas.lines]  # type: ignore[attr-defined]
            rows = [line for line in lines if any(part.style and part.style.bgcolor == raised for part in line)]
            assert [who in text_of([row])[0] for row in rows] == [True], keys
            assert not any(is_dim(part) for part in rows[0] if part.style and part.style.bgcolor == raised)
            assert any(is_dim(part) for line in lines for part in line), "the rest is a memory"

    watch(Fixed(over("killed")), act, (120, 34))


def is_dim(part: Segment) -> bool:
    return bool(part.style and part.style.color and part.style.color not in BRIGHT)


@pytest.mark.parametrize(
    ("state", "link", "calls"),
    [
        ("running", "live", True), ("failed", "live", False), ("killed", "gone", False), ("finished", "gone", False),
    ],
)  # fmt: skip
def test_old_words_call_for_attention_only_while_a_run_lasts(state: RunState, link: LinkState, calls: bool) -> None:
    shown = ViewState(over(state, link), LOOK)
    row = table_lines(shown, TableView(np.arange(8), focused=False), 160, 12)[HEAD]
    (age,) = [part for part in row if part.text.strip() == "30.0"]
    assert (age.style == LOOK.accent) is calls
    assert ("last step 30 s ago" in text_of([figures_line(shown, 160)])[0]) is calls


def test_all_views_of_a_killed_run_call_the_same_step_its_last() -> None:
    """Not all ranks have told of the last step before they were killed."""
    job, run = MadeJob(healthy_phases(4, 80)), Run(run_info(4))
    for rank in range(4):
        run.add_rank(rank_frame(rank, 1, job.columns(rank, 0, 79 if rank else 80)), 0.0)
    run.settle(1.0)
    moment = Moment(30.0, 1.0, 1.79e9, Link("gone", WHY), "killed", "tcp://made")
    picture = ViewState(take_picture(run, moment, (), (), 2), LOOK)
    shown = {
        "header": figures_line(picture, 160),
        "heat-map": heat_lines(picture, 100, 10)[-1],
        "timeline": timeline_lines(picture, 100, 20)[0],
        "axis of the timeline": next(
            line for line in timeline_lines(picture, 100, 20) if "step 0" in text_of([line])[0]
        ),
        "run": [part for line in run_lines(picture, 100) for part in line if "steps 0 to" in part.text],
        "plot of the run": [part for line in plots_below(picture, 60, 9) for part in line],
        "plot of a rank": [part for line in _rank_plot(picture) for part in line],
    }
    assert [name for name, line in shown.items() if not re.search(r"\b79\b", text_of([line])[0])] == []
    assert [name for name, line in shown.items() if re.search(r"\b78\b", text_of([line])[0])] == ["timeline"]
    assert "step 78 of 79 " in text_of([shown["timeline"]])[0], "whose figures stand there"


def _rank_plot(picture: ViewState) -> list[Line]:
    detail = picture.snapshot.detail
    assert detail is not None
    return rank_plots(picture, detail, []).plot(METRICS[0], 60, 9)
