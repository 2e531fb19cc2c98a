"""Heat-map, plots, header, findings and layout: what they say, not just how large they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpmon.report.summary import summary_line
from ddpmon.snapshot import Coverage, Finding, Heat, Link
from ddpmon.tui.draw.findings import all_findings
from ddpmon.tui.draw.header import header_line, verdict_lines, waiting_lines
from ddpmon.tui.draw.heat import MISSING, heat_lines, quantise, share_out
from ddpmon.tui.draw.help import WHY
from ddpmon.tui.draw.layout import fold, plan
from ddpmon.tui.draw.panel import footer_line
from ddpmon.tui.draw.plot import Curve, decimate, plot_lines, scale_of
from ddpmon.tui.theme import LEVELS
from ddpmon.tui.view_state import NOTHING_YET, ViewState, notice
from tests.tui.made_runs import NOTES, Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

COLOUR, ASCII = LOOKS["colour"], LOOKS["ascii"]


def picture(made: Made, look: object = ASCII, **changes: object) -> ViewState:
    return ViewState(snapshot(made), look, **changes)  # type: ignore[arg-type]


# the heat-map


def test_a_straggler_glows_from_its_onset_on_and_the_rest_is_calm() -> None:
    lines = text_of(heat_lines(picture(Made(straggler=5, onset=812, step=1004, ranks=8)), 120, 10))
    rows = [line[7:] for line in lines[1:9]]
    assert lines[6].startswith("    5!")
    onset = lines[9].index("! 812") - 7
    assert set(rows[5][:onset]) == {"."}
    assert set(rows[5][onset + 1 :].rstrip()) == {"@"}
    assert {char for row in rows[:5] + rows[6:] for char in row.rstrip()} == {"."}


def test_an_onset_older_than_the_map_is_told_at_its_edge() -> None:
    lines = text_of(heat_lines(picture(Made(straggler=5, onset=100, step=1204)), 120, 10))
    assert lines[9].strip().startswith("! since 100")


def test_what_was_not_measured_is_a_gap() -> None:
    work = np.full((2, 10), 50.0, np.float32)
    work[1, 4:] = np.nan
    grid = quantise(Heat(np.arange(10), work), 20, share_out(np.arange(2), (), 4, halves=False))
    assert grid.levels[1].tolist() == [0] * 4 + [MISSING] * 6
    assert grid.levels[0].tolist() == [0] * 10


def test_a_group_of_ranks_shows_its_worst_and_noise_stays_calm() -> None:
    rng = np.random.default_rng(1)
    work = (100 * rng.normal(1, 0.01, (4096, 50))).astype(np.float32)
    work[1234, 20:] = 150
    grid = quantise(Heat(np.arange(50), work), 60, share_out(np.arange(4096), (), 20, halves=True))
    row = 1234 // grid.bands.size
    assert grid.bands.size % 8 == 0
    assert grid.levels[row, 20:].tolist() == [LEVELS - 1] * 30
    assert (np.delete(grid.levels, row, axis=0) <= 1).all()


def test_an_evaluation_does_not_wash_the_map_out() -> None:
    rng = np.random.default_rng(2)
    step = np.arange(300)
    work = (100 * rng.normal(1, 0.01, (8, 300))).astype(np.float32)
    work[5, 100:] = 140
    work[:, :20] = 900
    work[:, 200] = 5000
    usual = (step >= 20) & (step != 200)
    plain = quantise(Heat(step, work, usual), 320, share_out(np.arange(8), (), 8, halves=False))
    assert (plain.low, plain.high, plain.clipped) == (100.0, 140.0, True)
    assert plain.levels[5, 100:].tolist() == [LEVELS - 1] * 200
    assert plain.levels[:, 200].tolist() == [LEVELS - 1] * 8
    assert (np.delete(plain.levels[:, 20:], 180, axis=1)[:5] <= 1).all()
    folded = quantise(Heat(step, work, usual), 60, share_out(np.arange(8), (), 8, halves=False))
    assert (folded.low, folded.high, folded.clipped) == (100.0, 140.0, True), "whatever shares a column with them"


def test_a_lone_spike_is_cut_off_and_said_to_be() -> None:
    work = np.full((8, 300), 100, np.float32)
    calm = text_of(heat_lines(_map(work), 120, 10))[0]
    assert calm.rstrip(" -").endswith("typical 100 .. 130 ms")
    work[3, 150] = 4000
    spiky = text_of(heat_lines(_map(work), 120, 10))[0]
    assert spiky.rstrip(" -").endswith("typical 100 .. >= 130 ms")


def test_a_run_that_is_all_warm_up_still_has_a_scale() -> None:
    heat = Heat(np.arange(15), np.full((2, 15), 50, np.float32), np.zeros(15, dtype=bool))
    grid = quantise(heat, 40, share_out(np.arange(2), (), 4, halves=False))
    assert (grid.low, grid.high, grid.clipped) == (50.0, 65.0, False)


def _map(work: np.ndarray) -> ViewState:
    return ViewState(replace(snapshot(Made()), heat=Heat(np.arange(work.shape[1]), work)), ASCII)


def test_where_ranks_do_not_fit_each_row_is_a_node_and_shows_its_worst() -> None:
    made = picture(Made(ranks=64, per_node=8, straggler=43, onset=100))
    lines = text_of(heat_lines(made, 120, 12))
    assert "work, node x step, the worst rank of each" in lines[0]
    assert [line[:7].split() for line in lines[1:9]] == [["5!"] if n == 5 else [str(n)] for n in range(8)]
    many = text_of(heat_lines(picture(Made(ranks=1024, per_node=8)), 120, 12))
    assert "work, node x step, the worst of 16 nodes a cell" in many[0]
    zoomed = text_of(heat_lines(made, 120, 12, wanted="40-47"))
    assert "work, rank x step, 8 of 64 ranks" in zoomed[0]
    assert [line[:5].strip() for line in zoomed[1:9]] == [str(rank) for rank in range(40, 48)]


def test_nodes_whose_ranks_lie_apart_are_kept_together() -> None:
    hosts = [f"n{rank % 4}" for rank in range(64)]
    bands = share_out(np.arange(64), hosts, 10, halves=False)
    assert (bands.unit, bands.labels) == ("node", ("0", "1", "2", "3"))
    assert bands.ranks(2).tolist() == list(range(2, 64, 4))


@pytest.mark.parametrize("halves", [True, False])
def test_folding_uses_every_rank_once_and_fits(halves: bool) -> None:
    for ranks in (1, 2, 7, 8, 9, 64, 100, 1024, 4096, 100_000):
        for room in (1, 3, 8, 20, 32):
            folding = fold(ranks, room, halves=halves)
            assert folding.lines <= room
            assert (folding.bands - 1) * folding.size < ranks <= folding.bands * folding.size


# plots


def test_spikes_survive_decimation() -> None:
    value = np.ones(5000)
    value[3210] = 9.0
    value[777] = -4.0
    low, high = decimate(np.arange(5000.0), value, 40, (0.0, 4999.0))
    assert high.max() == 9.0
    assert low.min() == -4.0


def test_missing_data_is_a_gap_and_sparse_data_is_not() -> None:
    step = np.arange(100.0)
    hole = np.where((step > 40) & (step < 60), np.nan, 1.0)
    assert np.isnan(decimate(step, hole, 100, (0.0, 99.0))[0][42:59]).all()
    sparse = np.where(step % 10 == 0, 1.0, np.nan)
    assert np.isfinite(decimate(step, sparse, 91, (0.0, 90.0))[0]).all()


def test_ticks_are_round_numbers_within_the_range() -> None:
    for low, high in ((0.0, 1.0), (2.17, 4.1), (1380.0, 2010.0), (5.0, 5.0), (-3.0, 8.0), (0.0, 0.0), (1e9, 1.1e9)):
        scale = scale_of(Curve("x", "", np.array([0.0, 1.0]), np.array([low, high])), 8)
        assert scale is not None
        assert scale.low <= low <= high <= scale.high
        assert len(scale.ticks) >= 1
        gaps = np.diff(scale.ticks)
        if len(gaps):
            assert np.allclose(gaps, gaps[0])
            assert f"{gaps[0]:.0e}"[0] in "125"


def test_the_line_of_a_constant_is_flat_and_the_plot_of_nothing_a_dash() -> None:
    curve = Curve("loss", "", np.arange(50.0), np.full(50, 2.0))
    rows = [line for line in text_of(plot_lines(curve, 40, 9, ASCII)) if "*" in line]
    assert len(rows) == 1
    assert rows[0].count("*") == 33
    nothing = Curve("loss", "", np.arange(50.0), np.full(50, np.nan))
    assert text_of(plot_lines(nothing, 40, 9, ASCII))[1].strip() == "-"


# words


def test_the_verdict_is_the_worst_finding_and_counts_the_rest() -> None:
    lines = text_of(verdict_lines(picture(Made(straggler=5, findings=NOTES)), 120))
    assert lines[0].startswith(" ! rank 5 (node1) is late by 41 ms a step in input (since step 812).")
    assert lines[0].rstrip().endswith("2 more [5]")


def test_a_long_verdict_takes_a_second_line_and_loses_nothing() -> None:
    made = picture(Made(straggler=5))
    lines = text_of(verdict_lines(made, 60))
    assert len(lines) == 2
    assert " ".join(" ".join(lines).lstrip(" !").split()) == made.snapshot.findings[0].summary


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
    assert "healthy: 7 of 8 ranks within 1 %" in text_of(verdict_lines(ViewState(calm, ASCII), 80))[0]
    work[4] = 160.0
    assert "no single rank" in text_of(verdict_lines(ViewState(calm, ASCII), 80))[0]
    young = picture(Made(ranks=8, step=7))
    assert "not enough evidence yet" in text_of(verdict_lines(young, 80))[0]


def test_coverage_is_quiet_when_good_and_loud_when_not() -> None:
    def styles(coverage: Coverage) -> dict[str, object]:
        made = ViewState(replace(snapshot(Made()), coverage=coverage), COLOUR)
        return {segment.text: segment.style for segment in header_line(made, 140)}

    good, bad = styles(Coverage(8, 8, 0.4)), styles(Coverage(8, 7, 14.0))
    assert good["8/8"] == good["0.4 s"] == COLOUR.dim
    assert bad["7/8"] == bad["14 s"] == COLOUR.accent


def test_the_monitors_cost_is_always_told_and_its_drops_when_there_are_any() -> None:
    made = snapshot(Made())
    for width, said in ((120, "monitor 12.3 us/step"), (80, ". 12.3 us/step"), (48, None)):
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
    assert notice(picture(Made(), stuck_s=12.3)) == "no answer from the store for 12 s; what is shown is that old"
    nothing = ViewState(NOTHING_YET, ASCII, stuck_s=12.3)
    assert notice(nothing) == "no answer from the store for 12 s; nothing has been read yet"


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


# layout


@pytest.mark.parametrize("findings", [0, 1, 4])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 64, 1024, 4096])
def test_panels_fill_the_terminal_exactly(ranks: int, findings: int) -> None:
    for width in (40, 80, 109, 110, 160, 300):
        for height in range(12, 81):
            for head in (3, 5):
                shares = plan(width, height, ranks, findings, head=head)
                parts = (shares.head, shares.body, shares.heat, shares.plots, shares.findings, shares.foot)
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
