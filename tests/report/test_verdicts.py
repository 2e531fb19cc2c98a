"""Which finding the first line speaks of, and what it says when there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ddpmon.diagnose.alert import Severity
from ddpmon.diagnose.kinds import KindName
from ddpmon.diagnose.pending import Pending
from ddpmon.report.verdicts import (
    about_host,
    calm_sentence,
    headline,
    is_broken,
    is_even,
    marked_hosts,
    marked_ranks,
    onsets,
)
from ddpmon.snapshot import Finding, Link, NodeView, Snapshot
from ddpmon.tui.draw.findings import all_findings, one_line
from ddpmon.tui.draw.key_figures import figures_line
from ddpmon.tui.draw.verdict_lines import verdict_lines
from ddpmon.tui.view_state import NOTHING_YET, ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

COLOUR, ASCII = LOOKS["colour"], LOOKS["ascii"]
NOTES: tuple[KindName, ...] = (
    "monitor_degraded",
    "pause",
    "advice",
    "uneven_work",
    "gc_pauses",
    "job_slower",
    "slow_network",
    "port_clash",
)


def found(kind: KindName, severity: Severity = "critical", *ranks: int) -> Finding:
    return Finding(kind, severity, f"{severity} {kind}", ranks)


@pytest.mark.parametrize(
    ("kind", "severity"),
    [("hang", "warning"), ("rank_lost", "critical"), ("rank_failed", "warning"), ("uneven_inputs", "warning")],
)
def test_what_stops_the_job_comes_before_what_slows_it(kind: KindName, severity: Severity) -> None:
    stop, slow = found(kind, severity, 2), found("straggler", "critical", 5)
    assert headline([slow, stop]) is stop
    assert headline([replace(stop, cleared_at_step=9), slow]) is slow


def test_a_silent_rank_that_takes_part_does_not_stop_the_job() -> None:
    silent, slow = found("rank_lost", "warning", 2), found("straggler", "critical", 5)
    assert headline([silent, slow]) is slow


def test_a_rank_that_the_others_go_on_without_does_not_hide_a_warning() -> None:
    left, slow = found("uneven_inputs", "info", 2), found("straggler", "warning", 5)
    assert headline([left, slow]) is slow
    assert headline([left]) is left


def test_an_interrupted_run_is_told_before_what_slowed_it() -> None:
    interrupted, slow = found("rank_failed", "info"), found("disk_low", "warning", 5)
    assert headline([slow, interrupted]) is interrupted


@pytest.mark.parametrize("kind", NOTES)
def test_a_note_is_no_headline_and_a_warning_of_the_same_kind_is(kind: KindName) -> None:
    note, faint = found(kind, "info", 1), found("straggler", "info", 5)
    assert headline([note]) is None
    assert headline([note, faint]) is faint
    assert headline([found(kind, "warning")]) is not None


def test_pauses_and_advice_mark_no_rank() -> None:
    notes = [found("pause", "info", 1), found("advice", "info", 2), found("monitor_degraded", "info", 3)]
    assert marked_ranks([*notes, found("uneven_work", "info", 4)]).keys() == {4}


def test_red_is_for_what_is_broken_and_critical() -> None:
    broken: tuple[KindName, ...] = ("hang", "rank_failed", "rank_lost", "uneven_inputs", "nonfinite_loss", "gpu_errors")
    for kind in broken:
        assert is_broken(found(kind, "critical"))
        assert not is_broken(found(kind, "warning"))
        assert not is_broken(found(kind, "info"))
    assert not is_broken(found("loss_jump", "critical"))


def even(spread: float = 0.0) -> Snapshot:
    made = snapshot(Made(ranks=8))
    assert made.ranks is not None
    return replace(made, ranks=replace(made.ranks, work_ms=np.array([100.0] * 7 + [100 * (1 + spread)])))


def glyph(shown: Snapshot) -> str:
    return text_of(verdict_lines(ViewState(shown, ASCII), 80))[0].split()[0]


def test_a_tick_is_for_a_run_that_is_known_to_be_even() -> None:
    assert glyph(even()) == ASCII.glyphs.finished
    assert glyph(even(0.09)) == ASCII.glyphs.finished
    assert glyph(even(0.2)) == ASCII.glyphs.note
    assert glyph(even(float("nan"))) == ASCII.glyphs.note, "a rank is missing"
    assert glyph(snapshot(Made(ranks=1))) == ASCII.glyphs.note, "nothing to compare it with"
    assert glyph(snapshot(Made(ranks=8, step=7))) == ASCII.glyphs.note, "not enough evidence"
    assert not is_even(NOTHING_YET)


def test_a_run_that_stands_still_gets_no_tick() -> None:
    run = even().run
    assert run is not None
    assert glyph(replace(even(), run=replace(run, state="stalled"))) == ASCII.glyphs.note


def test_ranks_that_restarted_alone_are_not_called_healthy() -> None:
    """They work as long as the others, in steps that the others have not come to."""
    ranks = even().ranks
    assert ranks is not None
    late = ranks.lateness_ms.copy()
    late[6:] = np.nan
    shown = replace(even(), ranks=replace(ranks, lateness_ms=late))
    assert calm_sentence(shown) == "6 of 8 ranks within 1 % of their median work; 2 cannot be compared"
    assert glyph(shown) == ASCII.glyphs.note
    note = replace(found("monitor_degraded", "info", 6, 7), evidence={"restarted_alone": 2})
    named = replace(shown, findings=(note,))
    lead, even_words = "ranks 6, 7 have restarted alone: restart the whole run", "6 of 8 ranks within 1 %"
    assert calm_sentence(named) == f"{lead}; {even_words} of their median work"
    for width, said in ((160, f"{lead}; {even_words} of their median work"), (80, lead)):
        (line,) = text_of(verdict_lines(ViewState(named, ASCII), width))
        assert line.split("*", 1)[1].split("   ")[0].strip().removesuffix(" ~") == said
    assert shown.run is not None
    over = replace(named, run=replace(shown.run, state="finished"))
    assert calm_sentence(over).startswith("ranks 6, 7 have restarted alone; 6 of 8"), "nothing is left to do"
    noted = replace(shown, findings=(found("monitor_degraded", "info"),))
    (line,) = text_of(verdict_lines(ViewState(noted, ASCII), 80))
    assert line.split("8 ranks")[1].split("   ")[0] == " within 1 %; 2 cannot be compared", "no word is cut"


def test_a_run_of_which_some_ranks_have_fallen_silent_is_not_called_healthy() -> None:
    coverage = even().coverage
    assert coverage is not None
    shown = replace(even(), coverage=replace(coverage, reporting=6))
    assert calm_sentence(shown) == "6 of 8 ranks within 1 % of their median work; 2 are silent"
    assert glyph(shown) == ASCII.glyphs.note
    run = even().run
    assert run is not None
    assert is_even(replace(shown, run=replace(run, state="finished"))), "who has ended may be silent"


@pytest.mark.parametrize(("silent", "even"), [(range(8, 16), 8), (range(4, 12), 4), (range(0), 8)])
def test_the_calm_sentence_counts_each_rank_once(silent: range, even: int) -> None:
    """Of 64 ranks 8 were compared, 8 were silent and 56 could not be compared: 72 (seen in a picture)."""
    made, everyone = snapshot(Made(ranks=64, per_node=8)), np.arange(64)
    assert made.ranks is not None
    assert made.coverage is not None
    late, age = np.where(everyone < 8, 0.0, np.nan), np.where(np.isin(everyone, silent), 14.0, 0.4)
    ranks = replace(made.ranks, work_ms=np.full(64, 100.0), lateness_ms=late, age_s=age)
    shown = replace(made, ranks=ranks, coverage=replace(made.coverage, reporting=64 - len(silent)))
    missing = [f"{len(silent)} are silent"] if silent else []
    said = ", ".join([*missing, f"{64 - even - len(silent)} cannot be compared"])
    assert calm_sentence(shown) == f"{even} of 64 ranks within 1 % of their median work; {said}"


def test_ranks_that_restarted_alone_are_marked_and_are_no_headline() -> None:
    note = replace(found("monitor_degraded", "info", 1), evidence={"restarted_alone": 1})
    node = NodeView(0, "node0", (0, 1))
    assert headline([note]) is None
    assert marked_ranks([note]) == {1: note}
    assert marked_hosts([note], [node, NodeView(1, "node1", (2, 3))]) == {0: note}
    assert about_host([note], node) == [note]


def test_the_findings_screen_ticks_no_more_than_the_headline_does() -> None:
    said = "no findings: 8 ranks within 1 % of their median work over 20 steps"
    for shown, words in ((even(), said), (even(0.2), calm_sentence(even(0.2)))):
        line = text_of(all_findings(ViewState(shown, ASCII), 100))[1]
        assert line.split() == [glyph(shown), *words.split()]


@pytest.mark.parametrize("kind", [*NOTES, "loss_jump"])
def test_information_has_one_glyph_whatever_its_kind(kind: KindName) -> None:
    assert text_of([one_line(found(kind, "info"), 80, ASCII)])[0].split()[0] == ASCII.glyphs.note
    assert text_of([one_line(found(kind, "warning"), 80, ASCII)])[0].split()[0] == ASCII.glyphs.mark


def test_of_two_hosts_of_one_name_the_one_with_the_rank_is_meant() -> None:
    nodes = (NodeView(0, "worker", (0, 1)), NodeView(1, "worker", (2, 3)))
    found = Finding("gpu_shared", "warning", "rank 0 shares its GPU.", (0,), ("worker",))
    assert marked_hosts([found], nodes) == {0: found}
    assert [about_host([found], node) for node in nodes] == [[found], []]


def test_a_rank_that_seems_late_is_named_before_it_is_confirmed() -> None:
    """A watcher that had just come said that nobody was late, under a glowing heat-map (B18)."""
    pending = (Pending("straggler", (7,), (), 3, 2.0),)
    assert calm_sentence(replace(even(0.3), pending=pending)) == (
        "not confirmed yet: rank 7 seems to be late; the work of 8 ranks differs by up to 30 %"
    )
    assert calm_sentence(even(0.3)).startswith("no single rank is late so far")
    assert calm_sentence(replace(even(), pending=pending)).startswith("healthy")
    ended = replace(even(), pending=(Pending("rank_failed", (), (), 3, 2.0),))
    assert calm_sentence(ended).endswith("which one is known within some seconds")
    assert calm_sentence(replace(ended, link=Link("silent"))).endswith("which one could not be read")


def test_a_run_of_which_one_rank_alone_tells_its_steps_is_not_called_too_young() -> None:
    made = snapshot(Made(ranks=2, step=435))
    assert made.ranks is not None
    work = made.ranks.work_ms.copy()
    work[1] = np.nan
    assert calm_sentence(replace(made, findings=(), ranks=replace(made.ranks, work_ms=work))) == (
        "not enough evidence yet: 1 of 2 ranks can be compared"
    )


def test_an_information_marks_no_onset_on_the_axes() -> None:
    """A foreign process of severity info had an orange sign on every axis."""
    note = Finding("gpu_shared", "info", "somebody else is on GPU 3", (3,), since_step=60)
    late = Finding("straggler", "warning", "rank 5 is late", (5,), since_step=90)
    assert onsets([note]) == []
    assert onsets([note, late]) == [90]


def waited(seconds: float, **changes: Any) -> Snapshot:
    """A healthy run with steps of 0.5 s whose last one ended so long ago."""
    made = snapshot(Made())
    job = replace(made.job, step_ms=503.0, throughput=510.0, tokens_per_s=9e4, eta_s=600.0, job_step=60, job_total=90)
    return replace(made, job=job, **{"run": replace(made.run, step_age_s=seconds), **changes})  # type: ignore[type-var]


def test_a_run_whose_next_step_is_overdue_is_not_called_healthy() -> None:
    """Long before the finding: it had a tick and a throughput for the first ten seconds of a hang."""
    soon, late = waited(2.9), waited(7.0)
    assert is_even(soon)
    assert calm_sentence(soon).startswith("healthy: ")
    assert not is_even(late)
    assert calm_sentence(late) == "no step for 7.0 s, usually 503 ms"
    top = text_of([*verdict_lines(ViewState(late, COLOUR), 160), figures_line(ViewState(late, COLOUR), 200)])
    assert top[0].rstrip() == " • no step for 7.0 s, usually 503 ms"
    assert "last step 7.0 s ago" in top[1]
    assert "503 ms/step" in top[1]
    assert "510" not in top[1], "what the run does in a second is not that of now"
    assert "left" not in top[1]
    assert "510 samples/s" in text_of([figures_line(ViewState(soon, COLOUR), 200)])[0]


@pytest.mark.parametrize(
    ("changes", "is_said"),
    [({}, True), ({"link": Link("silent", "no answer")}, False), ({"link": Link("gone", "no store")}, False)],
)
def test_only_of_a_run_that_is_heard_is_it_said_that_no_step_ends(changes: dict[str, Any], is_said: bool) -> None:
    assert calm_sentence(waited(7.0, **changes)).startswith("no step for") is is_said


def test_a_long_step_is_overdue_after_four_usual_ones_and_a_named_phase_is_told() -> None:
    slow = replace(waited(7.0), job=replace(waited(7.0).job, step_ms=2000.0))
    assert is_even(slow)
    ranks = slow.ranks
    assert ranks is not None
    assert slow.run is not None
    away = replace(ranks, phase=tuple("eval" if rank else "exposed" for rank in range(len(ranks))))
    said = calm_sentence(replace(slow, ranks=away, run=replace(slow.run, step_age_s=8.1)))
    assert said == "no step for 8.1 s, usually 2 s: 7 ranks are in eval"
