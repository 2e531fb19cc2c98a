"""Heat-map, plots, header, findings and layout: what they say, not just how large they are."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ddpmon.format import local_time, time_of_day
from ddpmon.report.step_clock import seconds_since
from ddpmon.report.summary_line import summary_line
from ddpmon.report.wording import on_host
from ddpmon.snapshot import Coverage, Finding, Link, ReplayView, RunState
from ddpmon.tui.draw.findings import all_findings, finding_lines
from ddpmon.tui.draw.header import header_line, notice_line, waiting_lines
from ddpmon.tui.draw.help import WHY
from ddpmon.tui.draw.panel import footer_line
from ddpmon.tui.draw.panel_sizes import fold, plan
from ddpmon.tui.draw.verdict_lines import verdict_lines
from ddpmon.tui.view_state import NOTHING_YET, ViewState, notice
from tests.tui.made_runs import HANG, NOTES, Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

COLOUR, ASCII = LOOKS["colour"], LOOKS["ascii"]


def picture(made: Made, look: object = ASCII, **changes: object) -> ViewState:
    return ViewState(snapshot(made), look, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("halves", [True, False])
def test_folding_uses_every_rank_once_and_fits(halves: bool) -> None:
    for ranks in (1, 2, 7, 8, 9, 64, 100, 1024, 4096, 100_000):
        for room in (1, 3, 8, 20, 32):
            folding = fold(ranks, room, halves=halves)
            assert folding.lines <= room
            assert (folding.bands - 1) * folding.size < ranks <= folding.bands * folding.size


# words


def test_the_verdict_names_who_what_since_and_cost_and_counts_the_rest() -> None:
    made = picture(Made(straggler=5, findings=NOTES))
    wide, usual, narrow = (text_of(verdict_lines(made, width)) for width in (160, 120, 80))
    for lines in (wide, usual, narrow):
        assert lines[0].startswith("  CRIT   rank 5")
        assert "late +41 ms" in lines[0]
        assert "costs 24 %" in lines[0]
        assert "step 812" in lines[0]
        assert "812" in lines[0]
        assert any("2 more [5]" in line for line in lines)
    assert "(+31 % of base)" in wide[0]
    assert "-> Look at the data loader of this rank" in wide[1]


def test_the_headline_says_when_it_began_and_what_it_has_cost() -> None:
    made = snapshot(Made(straggler=5, gpu=True))
    assert made.run is not None
    timed = replace(made, run=replace(made.run, step_age_s=0.0))
    began = seconds_since(timed, 812)
    assert began is not None
    assert began == pytest.approx((1204 - 812) * 0.172, rel=0.02), "each step since then took 172 ms"
    line = text_of(verdict_lines(ViewState(timed, ASCII), 200))[0]
    assert time_of_day(timed.taken_at - began) in line
    cost = timed.findings[0].cost_pct
    assert cost is not None
    hours = cost / 100 * 8 * began / 3600
    assert f"{hours:.2f} GPU-h lost so far, {cost / 100 * 8 * 24:.0f} a day" in line


def test_severity_is_told_without_colour() -> None:
    for severity, word in (("critical", "CRIT"), ("warning", "WARN"), ("info", "INFO")):
        found = Finding("straggler", severity, "rank 3 is late", (3,))  # type: ignore[arg-type]
        made = replace(snapshot(Made()), findings=(found,))
        for look in LOOKS.values():
            assert text_of(verdict_lines(ViewState(made, look), 80))[0].split()[0] == word
    hang = replace(snapshot(Made()), findings=(HANG,))
    assert text_of(verdict_lines(ViewState(hang, ASCII), 80))[0].split()[0] == "HANG"


def test_the_likely_cause_stands_with_the_command() -> None:
    found = Finding(
        "straggler", "critical", "rank 5 is late", (5,), ("node1",), "backward",
        "a shared GPU: pid 4242 (bob) uses it (likely)", 764, False, 22.0, {"excess_ms": 150.0},
        ("ask its owner to move it. Run ", on_host("node1", "nvidia-smi -i 1")),
    )  # fmt: skip
    made = ViewState(replace(snapshot(Made()), findings=(found,)), ASCII)
    assert "likely cause: a shared GPU; pid 4242 (bob) uses it" in text_of(verdict_lines(made, 160))[1]
    assert "-> ask its owner to move it" in text_of(verdict_lines(made, 160))[1]
    narrow = text_of(verdict_lines(made, 80))
    assert "pid 4242" in narrow[1]
    assert "ssh node1 nvidia-smi -i 1" in narrow[1]


def test_a_finished_run_is_not_red() -> None:
    made = snapshot(Made())
    assert made.run is not None
    over = replace(made, run=replace(made.run, state="finished"), link=Link("gone", "the run has ended"))
    shown = ViewState(over, COLOUR)
    assert not shown.faded
    assert COLOUR.broken not in {segment.style for segment in notice_line(shown, 80)}
    assert text_of([notice_line(shown, 80)])[0].split()[0] == COLOUR.glyphs.finished
    lost = ViewState(replace(over, run=replace(made.run, state="lost")), COLOUR)
    assert lost.faded
    assert COLOUR.broken in {segment.style for segment in notice_line(lost, 80)}


def test_further_findings_are_in_full_where_there_is_room_and_the_run_has_ended() -> None:
    """They shrank to clipped lines although the screen was empty (review of the screen, B7)."""
    made = snapshot(Made(straggler=5, findings=NOTES))
    assert made.run is not None
    over = replace(made, run=replace(made.run, state="finished"), link=Link("gone", "the run has ended"))
    for shown in (made, over):
        text = "\n".join(text_of(finding_lines(ViewState(shown, COLOUR), 90, 30)))
        assert "work ratio 1.35" in text
        assert "data loader" in text, "its advice"
        assert "…" not in text


ALSO_FOUND = (
    Finding(
        "straggler",
        "critical",
        "",
        (21,),
        ("node2",),
        "backward",
        None,
        60,
        cost_pct=14.2,
        evidence={"excess_ms": 137.0},
    ),
    Finding("gpu_shared", "warning", "", (42,), ("node5",), since_step=58, evidence={"pid": 4242, "sm_pct": 38.0}),
    Finding("job_slower", "warning", "the run takes longer", since_step=1_000, since_is_bound=True, cost_pct=8.0),
    Finding(
        "rank_lost",
        "info",
        "ranks 8, 9 were silent (from step 140 to 145)",
        (8, 9),
        since_step=140,
        cleared_at_step=145,
    ),
)


def test_further_findings_take_a_line_each_in_one_form() -> None:
    """They mixed whole sentences with short rows, and repeated their words (what viewers of the pictures found)."""
    shown = ViewState(replace(snapshot(Made(straggler=5)), findings=(HANG, *ALSO_FOUND)), COLOUR)
    heading, *rows = text_of(finding_lines(shown, 80, 5))
    assert heading.replace("─", "").split() == ["also", "found,", "1", "over", "step", "costs"]
    assert [" ".join(row.split()) for row in rows] == [
        "▲ rank 21: late +137 ms, backward since 60 14 %",
        "▲ node5: shared GPU, pid 4242, SM use 38.0 % since 58",
        "▲ the run: slower than before before 1,000 8.0 %",
        "✓ ranks 8-9: lost until 145",
    ]
    assert len({row.index(end) + len(end) for row, end in zip(rows, ("60", "58", "1,000", "145"), strict=True)}) == 1


def test_a_further_finding_is_cut_behind_a_word_and_never_before_its_cost() -> None:
    advice = Finding(
        "advice", "info", "", advice="load batches in more worker processes of the data loader", cost_pct=9.0
    )
    shown = ViewState(replace(snapshot(Made(straggler=5)), findings=(HANG, advice)), COLOUR)
    (row,) = text_of(finding_lines(shown, 60, 2))[1:]
    assert row.rstrip().endswith("9.0 %")
    said = row[5:].partition(" …")[0]
    assert f"the run: {advice.advice}".startswith(f"{said} ")
    assert "costs" in text_of(finding_lines(shown, 60, 2))[0]
    assert "since" not in text_of(finding_lines(shown, 60, 2))[0], "none of them has an onset"


def test_a_calm_run_says_what_waiting_costs_in_one_line() -> None:
    made = snapshot(Made(ranks=8, gpu=True))
    (line,) = text_of(verdict_lines(ViewState(made, COLOUR), 120))
    share = made.job.lost_to_waiting_pct or 0.0
    assert re.search(rf"work · waiting costs {share / 100 * 8 * 24:.0f} GPU-h a day", line)


def test_the_calm_sentence_is_measured() -> None:
    made = snapshot(Made(ranks=8))
    assert made.ranks is not None
    work = np.full(8, 100.0)
    work[3] = 102.6
    calm = replace(made, ranks=replace(made.ranks, work_ms=work))
    assert text_of(verdict_lines(ViewState(calm, ASCII), 80))[0].split(maxsplit=1)[1].strip() == (
        "healthy: 8 ranks within 3 % of their median work"
    )
    work[3] = np.nan
    assert text_of(verdict_lines(ViewState(calm, ASCII), 80))[0].split(maxsplit=1)[1].strip() == (
        "7 of 8 ranks within 1 % of their median work; 1 cannot be compared"
    )
    work[4] = 160.0
    assert "no single rank" in text_of(verdict_lines(ViewState(calm, ASCII), 80))[0]
    young = picture(Made(ranks=8, step=7))
    assert "not enough evidence yet" in text_of(verdict_lines(young, 80))[0]


def test_coverage_is_quiet_when_good_and_loud_when_not() -> None:
    def styles(coverage: Coverage) -> dict[str, object]:
        made = ViewState(replace(snapshot(Made()), coverage=coverage), COLOUR)
        return {segment.text: segment.style for segment in header_line(made, 140)}

    good, bad = styles(Coverage(8, 8, 0.4)), styles(Coverage(8, 7, 14.0))
    assert good["8/8 ranks"] == good["heard 0.4 s ago"] == COLOUR.dim
    assert bad["7/8 ranks"] == bad["heard 14 s ago"] == COLOUR.accent


def test_a_run_has_ended_when_its_last_rank_fell_silent() -> None:
    made = snapshot(Made(ranks=8))

    def said(state: RunState, newest: float) -> str:
        assert made.run is not None
        assert made.ranks is not None
        ages = np.full(8, 3600.0)
        ages[5] = newest
        ranks, run = replace(made.ranks, age_s=ages), replace(made.run, state=state)
        shown = ViewState(replace(made, ranks=ranks, run=run, coverage=Coverage(8, 8, 3600.0)), COLOUR)
        line = header_line(shown, 140)
        (found,) = [each for each in line if each.text.startswith(("ended", "heard"))]
        return f"{found.text}{' !' if found.style == COLOUR.accent else ''}"

    assert said("failed", 1.0) == "heard 60 min ago !", "other ranks still report"
    assert said("failed", 30.0) == "ended 30 s ago"
    assert said("finished", 1.0) == "ended 1.0 s ago"


def test_the_monitors_cost_is_always_told_and_its_drops_when_there_are_any() -> None:
    made = snapshot(Made())
    for width, said in ((120, "probe 12.3 us/step"), (48, None)):
        text = text_of([header_line(ViewState(made, ASCII), width)])[0].replace("|", ".")
        assert (said in text) if said else ("us/step" not in text)
        assert "dropped" not in text
    dropping = ViewState(replace(made, job=replace(made.job, dropped=1204)), COLOUR)
    styles = {segment.text: segment.style for segment in header_line(dropping, 160)}
    assert styles[", 1,204 dropped"] == COLOUR.accent


def test_findings_that_are_over_come_last_and_dim() -> None:
    over, first, second = NOTES[2], NOTES[0], NOTES[1]
    made = replace(snapshot(Made()), findings=(over, first, second))
    lines = all_findings(ViewState(made, COLOUR), 100)
    text = text_of(lines)
    places = [next(i for i, line in enumerate(text) if finding.summary in line) for finding in (first, second, over)]
    assert places == sorted(places)
    assert {segment.style for segment in lines[places[2]] if segment.text.strip()} == {COLOUR.dim}


def test_a_finding_in_full_has_evidence_advice_onset_and_cost() -> None:
    text = "\n".join(text_of(all_findings(picture(Made(straggler=5)), 100)))
    for part in ("work ratio 1.35", "high in 20 of 20", "data loader", "since step 812", "costs 24 %", "phase input"):
        assert part in text


def test_the_help_explains_the_straggler_in_three_lines() -> None:
    assert len(WHY) == 3
    assert "waits least" in WHY[2]


def test_the_key_line_always_says_how_to_quit() -> None:
    keys = (("enter", "detail"), ("5", "findings"), ("/", "filter"), ("?", "help"), ("q", "quit"))
    for width in (8, 20, 40, 200):
        assert text_of([footer_line(keys, width, ASCII)])[0].rstrip().endswith("q quit")


@pytest.mark.parametrize(
    ("link", "said"),
    [
        (Link("gone", "the run's store at tcp://h:1 has ended"), "the run's store at tcp://h:1 has ended"),
        (Link("silent", "tcp://h:1 does not answer"), "tcp://h:1 does not answer"),
        (Link("live"), ""),
    ],
)
def test_the_notice_tells_how_the_store_is(link: Link, said: str) -> None:
    assert notice(ViewState(replace(snapshot(Made()), link=link), ASCII)) == said


def test_another_run_in_the_old_ones_place_is_told() -> None:
    link = Link("live", "another run has started here: second")
    assert notice(ViewState(replace(snapshot(Made()), link=link), ASCII)) == link.message
    assert notice(ViewState(replace(NOTHING_YET, link=link), ASCII)) == ""


def test_an_answer_that_does_not_come_is_told_with_its_age() -> None:
    assert notice(picture(Made(), stuck_s=12.3)) == "no answer from the store for 12 s; the screen shows the last state"
    nothing = ViewState(NOTHING_YET, ASCII, stuck_s=12.3)
    assert notice(nothing) == "no answer from the store for 12 s; nothing has been read yet"


def test_short_and_long_findings_begin_in_one_column() -> None:
    made = snapshot(Made(straggler=5))
    long = Finding("cpu_contention", "info", "pid 4242 (root, python x.py) takes 78 % of a core " + "of the host " * 12)
    short = Finding("cpu_pinned", "info", "too many threads")
    shown = replace(made, findings=(made.findings[0], short, long))
    lines = [line for line in text_of(finding_lines(ViewState(shown, COLOUR), 90, 8)) if line.startswith(" •")]
    assert [len(line) - len(line[2:].lstrip()) for line in lines] == [5, 5]


def test_no_age_is_less_than_the_silence_of_the_store() -> None:
    late = replace(picture(Made()), stuck_s=12.3)
    assert "heard 12 s ago" in text_of([header_line(late, 140)])[0]


def test_waiting_is_told_with_the_sentence_of_the_link() -> None:
    waiting = replace(NOTHING_YET, link=Link("waiting", "no run on this host yet"))
    text = "\n".join(text_of(waiting_lines(ViewState(waiting, ASCII), 80, 20)))
    assert "waiting for a run" in text
    assert "no run on this host yet" in text


def test_the_summary_is_one_line() -> None:
    made = snapshot(Made(straggler=5, name="a\nb\x1b[1m"))
    line = summary_line(made)
    assert line.isprintable()
    assert "running, step 1,204" in line
    assert made.findings[0].summary in line
    assert "no run" in summary_line(NOTHING_YET)
    past = replace(made, replay=ReplayView(40.0, 300.0, 1_790_000_000.0, False, 1.0, False, True))
    assert f" at {local_time(1_790_000_000.0)}: running, " in summary_line(past)


# layout


@pytest.mark.parametrize("findings", [0, 1, 4])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 64, 1024, 4096])
def test_panels_fill_the_terminal_exactly(ranks: int, findings: int) -> None:
    for width in (40, 80, 109, 110, 160, 300):
        for height in range(12, 81):
            for head in (3, 5):
                shares = plan(width, height, ranks, findings, head=head)
                parts = (
                    shares.head,
                    shares.body,
                    shares.heat,
                    shares.plots,
                    shares.findings,
                    shares.chosen,
                    shares.foot,
                )
                assert shares.fits
                assert min(parts) >= 0
                assert sum(parts) == height
                assert shares.body >= min(ranks, 3) + 2
                assert shares.side < width // 2


def test_the_sizes_that_people_have() -> None:
    small, usual, large = plan(80, 24, 8, 1), plan(120, 34, 8, 3), plan(160, 50, 1024, 3)
    assert small.heat >= 6
    assert small.body >= 8
    assert usual.side >= 34
    assert usual.body >= 10
    assert usual.heat >= 10
    assert large.body >= 15
    assert large.heat >= 15
    assert not plan(39, 24, 8, 0).fits
    assert not plan(80, 11, 8, 0).fits


def test_cleared_findings_make_no_headline() -> None:
    over = Finding("straggler", "critical", "it was late", (3,), cleared_at_step=900)
    made = replace(snapshot(Made()), findings=(over,))
    assert "within" in text_of(verdict_lines(ViewState(made, ASCII), 80))[0]
