"""One rank in detail: the table beside the others, and the plots over their band."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ddpmon.machine import ProcessFigures
from ddpmon.report.peers import compare
from ddpmon.snapshot import Course, Finding, Snapshot
from ddpmon.tui.draw.courses import METRICS, RankPlots, rank_plots, span_of
from ddpmon.tui.draw.detail import detail_lines
from ddpmon.tui.draw.finding_view import evidence_lines
from ddpmon.tui.draw.host_courses import host_courses
from ddpmon.tui.draw.plot import GUTTER
from ddpmon.tui.lines import Line
from ddpmon.tui.theme import make_look
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import HANG, Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

ASCII = LOOKS["ascii"]
BY_KEY = {metric.key: metric for metric in METRICS}


def picture(made: Made) -> ViewState:
    return ViewState(snapshot(made), ASCII)


def test_the_detail_says_who_what_and_with_what() -> None:
    made = picture(Made(straggler=5, focus=5, gpu=True))
    text = "\n".join(text_of(detail_lines(made, 5, 120, 40)))
    parts = ("rank 5 of 8", "node1", "pid 4305", "local rank 1", "NVIDIA H200", "late by 41 ms", "1,755")
    for part in (*parts, "CPUs 12-23 | 12 compute threads | 4 workers (180 % CPU)", "GPU power, W"):
        assert part in text
    other = "\n".join(text_of(detail_lines(made, 2, 120, 40)))
    assert "no findings for this rank" in other
    assert "reading rank 2" in other


def without_lateness(made: Snapshot, ranks: list[int], *, work: bool = True) -> Snapshot:
    """The same run, but these ranks cannot be compared; without `work` nothing of them has been read."""
    assert made.ranks is not None
    late, own = made.ranks.lateness_ms.copy(), made.ranks.work_ms.copy()
    late[ranks] = np.nan
    own[[] if work else ranks] = np.nan
    return replace(made, ranks=replace(made.ranks, lateness_ms=late, work_ms=own))


def test_a_rank_that_cannot_be_compared_has_no_tick() -> None:
    made = snapshot(Made(ranks=8))
    alone = without_lateness(made, [2])
    assert detail_of(made, 2)[2] == " v no findings for this rank"
    assert detail_of(alone, 2)[2] == " * not compared yet: it is in other steps than the rest"
    assert detail_of(alone, 3)[2] == " v no findings for this rank"
    unread = without_lateness(made, [2], work=False)
    assert detail_of(unread, 2)[2] == " * not compared yet: no step of it has been read"
    none = without_lateness(made, [*range(8)])
    assert detail_of(none, 2)[2] == " * no findings for this rank", "there is no rest that it could be compared with"


def test_the_detail_tells_the_cause_and_what_limits_the_process() -> None:
    made = snapshot(Made(straggler=5, focus=5))
    assert made.ranks is not None
    because = "because of CPU contention: pid 9001 (eve, ffmpeg) takes a core"
    late = replace(made.findings[0], summary=f"rank 5 is late, {because}.")
    process = ProcessFigures(quota_cpus=1.5, throttled_pct=12.0, oom_kills=2)
    ranks = replace(made.ranks, process=(*made.ranks.process[:5], process, None, None))
    lines = detail_of(replace(made, findings=(late,), ranks=ranks), 5)
    assert any(because in line for line in lines)
    assert " quota 1.5 CPUs | throttled 12.0 % of the time | 2 killed for memory" in lines
    assert not any("quota" in line for line in detail_of(replace(made, findings=(late,), ranks=ranks), 6))


def detail_of(made: Snapshot, rank: int) -> list[str]:
    return [line.rstrip() for line in text_of(detail_lines(ViewState(made, ASCII), rank, 120, 40))]


def row_of(lines: list[str], name: str) -> list[str]:
    return next(line for line in lines if line.startswith(f" {name} "))[:54].removeprefix(f" {name}").split()


def test_the_table_has_this_rank_the_others_and_the_difference() -> None:
    lines = detail_of(snapshot(Made(straggler=5, focus=5, gpu=True, extra_ms=50.0)), 5)
    for name, sign in (("input ms", "!"), ("work ms", "!"), ("forward ms", "")):
        own, others, more, *mark = row_of(lines, name)
        assert float(own) - float(others) == pytest.approx(float(more), abs=1.1)
        assert mark == ([sign] if sign else [])
    assert float(row_of(lines, "input ms")[2]) == pytest.approx(50, abs=1)
    assert row_of(lines, "GPU clock MHz")[2] == "0"


def test_a_rank_that_cannot_be_compared_and_that_no_finding_names_has_no_sign() -> None:
    made = snapshot(Made(focus=2, extra_ms=50.0))
    assert made.ranks is not None
    longer = made.ranks.input_ms.copy()
    longer[2] += 50.0
    shown = replace(made, ranks=replace(made.ranks, input_ms=longer))
    assert row_of(detail_of(shown, 2), "input ms")[3:] == ["!"]
    assert row_of(detail_of(without_lateness(shown, [2]), 2), "input ms")[3:] == []


def test_a_gpu_that_is_not_read_yet_is_no_missing_gpu() -> None:
    """A rank that had come back had no GPU until its sensors were read again."""
    made = snapshot(Made(focus=2, gpu=True))
    assert made.ranks is not None
    unread = replace(made, ranks=replace(made.ranks, gpu=(*made.ranks.gpu[:2], None, *made.ranks.gpu[3:])))
    assert "no GPU" not in detail_of(unread, 2)[0]
    assert f"GPU {ASCII.glyphs.more}" in detail_of(unread, 2)[0]
    assert "no GPU" in detail_of(snapshot(Made(focus=2)), 2)[0]


def test_in_80_columns_there_are_the_table_and_one_plot() -> None:
    made = picture(Made(straggler=5, focus=5, gpu=True))
    for metric in ("work", "gpu_power_w"):
        lines = text_of(detail_lines(made, 5, 80, 22, metric))
        assert any(line.startswith(" input ms ") for line in lines)
        titles = [line for line in lines if line.startswith("- ") and "others" in line and "20 steps" not in line]
        assert len(titles) == 1
        assert re.match(rf"- {BY_KEY[metric].name}, {BY_KEY[metric].unit}(, median per 7 steps)? -", titles[0])


def test_what_is_unknown_is_a_dash_and_has_no_plot() -> None:
    lines = detail_of(snapshot(Made(focus=1)), 1)
    assert not any("GPU" in line for line in lines[1:]), "this run has no GPUs"
    made = snapshot(Made(ranks=1, focus=0))
    assert row_of(detail_of(made, 0), "input ms")[1:] == ["-", "-"], "nobody to compare with"


def test_in_40x12_the_phases_come_before_the_process() -> None:
    lines = [line.rstrip() for line in text_of(detail_lines(picture(Made(straggler=5, focus=5)), 5, 40, 10))]
    assert sum("late by 41 ms" in line for line in lines) == 1
    heading = next(line for line in lines if "20 steps" in line)
    assert heading.split()[-3:] == ["this", "others", "diff"]
    assert any(line.startswith(" input ms") for line in lines)
    assert any(line.startswith(" wait ms") for line in lines)
    plot = text_of(detail_lines(picture(Made(straggler=5, focus=5)), 5, 40, 10, alone="plot"))
    assert any("work, ms" in line for line in plot)


def test_in_80x24_figures_that_have_no_room_below_each_other_stand_in_two_columns() -> None:
    """Eight of 18 figures had room there, in half of the width."""
    lines = text_of(detail_lines(picture(Made(straggler=5, focus=5, gpu=True)), 5, 80, 22))
    (first,) = (at for at, line in enumerate(lines) if line.split()[-3:] == ["this", "others", "diff"])
    assert lines[first].split().count("diff") == 2
    rows = lines[first + 1 : first + 9]
    (left, right) = ([row[side].split()[0] for row in rows] for side in (slice(40), slice(40, None)))
    assert left[:3] == ["input", "forward", "backward"]
    assert {"GPU", "CPU", "run-queue", "resident"} <= {*right}
    assert not any("more figure" in line for line in lines)
    assert "run-queue wait % " in " ".join(lines)
    (heads,) = (
        line
        for line in text_of(detail_lines(picture(Made(straggler=5, focus=5, gpu=True)), 5, 80, 20))
        if line.count("diff") == 2
    )
    assert len({*re.findall(r"ms:? [a-z ]*20 steps", heads)}) == 1, "both columns say alike which steps they are of"


def test_figures_without_room_are_counted() -> None:
    """At 80x24 the detail of a rank left out some figures and did not say so."""
    made = picture(Made(straggler=5, focus=5, gpu=True))
    for size in ((79, 22), (80, 20)):  # in one column, in two
        lines = text_of(detail_lines(made, 5, *size))
        assert any(re.fullmatch(r" \d+ more figures?  \[f\] *", line[:40]) for line in lines)
    assert not any("more figure" in line for line in text_of(detail_lines(made, 5, 160, 50)))


def test_who_a_rank_is_is_told_in_whole_words() -> None:
    made = picture(Made(straggler=5, focus=5, gpu=True))
    said = [text_of(detail_lines(made, 5, width, 24))[0].rstrip() for width in (100, 70, 55, 45, 30)]
    whole = " rank 5 of 8 | node1 | pid 4305 | local rank 1 | GPU 1"
    assert said == [
        f"{whole} NVIDIA H200, 66.1 GiB used", f"{whole} NVIDIA H200", whole,
        " rank 5 of 8 | node1 | pid 4305 | GPU 1", " rank 5 of 8 | node1 | GPU 1",
    ]  # fmt: skip


def test_where_a_rank_is_stuck_is_not_called_slower_than_the_others() -> None:
    made = picture(Made(focus=2, stuck=2, findings=(HANG,)))
    row = next(line for line in text_of(detail_lines(made, 2, 120, 40)) if line.startswith(" input ms"))
    assert "!" not in row[:54]


def test_a_lost_rank_does_not_speak_of_now() -> None:
    lines = detail_of(snapshot(Made(lost=(3,), focus=3)), 3)
    assert not any("now" in line.split() for line in lines)
    assert any("lost" in line for line in lines[:3])


def plotted(course: Course, key: str = "gpu_power_w", width: int = 80) -> list[str]:
    """The cells of a plot, without title, labels and axis."""
    detail = snapshot(Made(focus=5, gpu=True)).detail
    assert detail is not None
    shown = replace(detail, courses={**detail.courses, key: course})
    return [line[7:] for line in text_of(RankPlots(shown, ASCII).plot(BY_KEY[key], width, 12))[1:-1]]


def test_sparse_readings_are_a_line_and_no_stripes() -> None:
    step = np.linspace(705, 1204, 21).astype(np.int64)
    power = 500.0 + 50.0 * np.sin(step / 90)
    rows = plotted(Course(step, power, np.empty((0, len(step)))))
    columns = [[row[at] for row in rows].count("*") for at in range(72)]
    assert max(columns) <= 3, "no column is filled from the bottom up"
    assert min(columns) >= 1, "and the line has no gaps"


def test_the_plots_of_a_rank_have_one_axis_also_where_its_machine_was_read_later() -> None:
    """Steps 705 and 1,100 stood above each other, and nobody could go straight down from one plot to the next."""
    step = np.arange(1004, 1205, 4)
    own = np.where(step >= 1100, 500.0, np.nan)
    course = Course(step, own, np.empty((0, len(step))))
    detail = snapshot(Made(focus=5, gpu=True)).detail
    assert detail is not None
    shown = replace(detail, courses={**detail.courses, "gpu_power_w": course})
    plots = RankPlots(shown, ASCII)
    work, power = (text_of(plots.plot(BY_KEY[key], 80, 12)) for key in ("work", "gpu_power_w"))
    assert work[-1].split() == power[-1].split() == ["step", "705", "1,204"]
    first = min(line.index("*") for line in power[1:-1] if "*" in line)
    assert first == GUTTER + round((1100 - 705) / (1204 - 705) * (80 - GUTTER - 2))
    assert "not known before step 1,100" in "\n".join(power)


def test_readings_are_plotted_where_no_step_is_on_record() -> None:
    """As of a rank that is opened long after the display was frozen."""
    detail = snapshot(Made(focus=5, gpu=True)).detail
    assert detail is not None
    power = detail.courses["gpu_power_w"]
    none = Course(power.step[:0], power.own[:0], power.others[:, :0])
    bare = replace(detail, courses={**detail.courses, "work": none})
    assert span_of(bare, power) == (power.step[0], power.step[-1])
    assert span_of(bare, none) is None


def test_the_band_of_the_others_lies_below_the_line() -> None:
    steps = np.arange(705, 1205)
    course = Course(steps, np.full(500, 160.0), np.outer([100.0, 110.0, 120.0], np.ones(500)))
    rows = plotted(course, "work")
    line = next(place for place, row in enumerate(rows) if "*" in row)
    band = next(place for place, row in enumerate(rows) if ":" in row)
    assert line < band
    assert "*" not in rows[band]


def test_while_a_rank_is_being_read_what_is_known_of_it_stands_there() -> None:
    made = picture(Made(stuck=2, findings=(HANG,), gpu=True))
    for width, height in ((80, 24), (120, 40), (240, 60)):
        text = "\n".join(text_of(detail_lines(made, 2, width, height)))
        assert "reading rank 2" in text
        assert "shards.py:19" in text
        assert " work ms " in text


def test_what_stands_below_a_finding_and_a_host_says_that_it_is_being_read() -> None:
    made = picture(Made(straggler=5, gpu=True))
    found = made.snapshot.findings[0]
    for lines in (evidence_lines(made, found, 160, 40), host_courses(made, 1, 160, 40)):
        assert "reading rank 5" in "\n".join(text_of(lines))


def test_what_stands_for_the_plots_of_a_rank_that_cannot_be_read_says_so() -> None:
    """`reading rank 5` stood for a rank that had never been heard, and while the store did not answer."""
    made = picture(Made(straggler=5, gpu=True))
    ranks = made.snapshot.ranks
    assert ranks is not None
    unheard = replace(ranks, state=(*ranks.state[:5], "unknown", *ranks.state[6:]))
    said = {
        "rank 5 has not been heard yet: none of its steps is known": replace(
            made, snapshot=replace(made.snapshot, ranks=unheard)
        ),
        "rank 5 is read as soon as the store answers": replace(made, stuck_s=12.0),
    }
    for words, shown in said.items():
        found = shown.snapshot.findings[0]
        drawn = (
            evidence_lines(shown, found, 160, 40),
            host_courses(shown, 1, 160, 40),
            detail_lines(shown, 5, 120, 40),
        )
        for lines in drawn:
            text = "\n".join(text_of(lines))
            assert words in text
            assert "reading rank" not in text


def test_the_title_of_a_plot_has_the_numbers_of_the_table() -> None:
    made = ViewState(snapshot(Made(straggler=5, focus=5, gpu=True)), make_look())
    lines = text_of(detail_lines(made, 5, 240, 70))
    compared = {f"{row.quantity.name} {row.quantity.unit}".strip(): row for row in compare(made.snapshot, [5]).rows}
    titles = {"resident memory, GiB": "resident GiB"}
    lines = [re.sub(", median[^─]* steps ", " ─ ", line) for line in lines]  # of the steps that a column stands for
    shown = {name: row for name, row in compared.items() if any(f"─ {_titled(name)} ─" in line for line in lines)}
    assert {"work ms", "wait ms", "GPU power W", "CPU %"} <= {*shown}
    titles |= {_titled(name): name for name in shown}
    for title, name in titles.items():
        (line,) = [line for line in lines if f"─ {title} ─" in line]
        own, others, _ = row_of(lines, name)[:3]
        assert line.partition(f"─ {title} ─")[2].lstrip("─ ").startswith(f"{own}, others {others} ─")


def _titled(name: str) -> str:
    """What the plot of a row of the table is called."""
    return ", ".join(name.rsplit(" ", 1))


@pytest.mark.parametrize(("late", "said"), [(131.0, "+131"), (0.3, "±0"), (np.nan, "–")])
def test_the_title_of_the_lateness_has_the_number_of_the_other_views(late: float, said: str) -> None:
    made = snapshot(Made(focus=5))
    assert made.ranks is not None
    made = replace(made, ranks=replace(made.ranks, lateness_ms=np.full(8, late)))
    assert made.detail is not None
    drawn = rank_plots(ViewState(made, make_look()), made.detail)
    assert f" {said} ─" in text_of(drawn.plot(BY_KEY["lateness"], 80, 12))[0]


@pytest.mark.parametrize(("width", "height"), [(120, 36), (160, 46)])
def test_what_a_finding_blames_is_plotted(width: int, height: int) -> None:
    made = picture(Made(ranks=8, straggler=5, phase="backward", gpu=True, focus=5))
    titles = [line for line in text_of(detail_lines(made, 5, width, height)) if "backward, ms" in line]
    assert len(titles) == 1
    assert titles[0].index("backward, ms") > 54, "among the plots at the right, before those of less worth"


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 46)])
def test_the_large_plot_is_of_what_the_worst_finding_is_about_until_another_is_chosen(width: int, height: int) -> None:
    grows = Finding("gpu_memory_growth", "warning", "rank 5 takes more and more", ranks=(5,), id=1)
    healthy, made = (picture(Made(ranks=8, gpu=True, focus=5, findings=found)) for found in ((), (grows,)))
    assert large(detail_lines(healthy, 5, width, height)) == "work"
    assert large(detail_lines(made, 5, width, height)) == "torch memory"
    assert large(detail_lines(made, 5, width, height, "work")) == "work"


def large(lines: list[Line]) -> str:
    """What the first of the plots of work and of torch's memory is of."""
    found = re.search("- (torch memory, GiB|work, ms)", "\n".join(text_of(lines)))
    assert found is not None
    return found[1].partition(",")[0]


def test_more_metrics_come_with_more_room() -> None:
    detail = snapshot(Made(focus=5, gpu=True)).detail
    assert detail is not None
    few, many = (RankPlots(detail, ASCII).beside(METRICS[0], 100, height, None, 0) for height in (12, 40))
    assert (len(few[0]), len(many[0])) == (12, 40)
    assert len(few[1]) > len(many[1])


@pytest.mark.parametrize(
    ("since", "said", "plain"),
    [
        (900, "! 900 or before ", "! 900 "),
        (705, "! step 705 or before ", "! step 705 "),
        (60, "step 705 | ! since before 60 ", "step 705 | ! since 60 "),
    ],
)
def test_an_onset_that_is_a_bound_is_marked_as_one(since: int, said: str, plain: str) -> None:
    """The timeline said `or before`, and the mark of the rank's plots did not."""
    made = snapshot(Made(straggler=5, focus=5))
    assert made.detail is not None
    for is_bound, words in ((True, said), (False, plain)):
        found = replace(made.findings[0], since_step=since, since_is_bound=is_bound)
        shown = ViewState(replace(made, findings=(found,)), ASCII)
        axis = text_of(rank_plots(shown, made.detail, [found]).plot(METRICS[0], 80, 12))[-1]
        assert words in axis


def test_a_rank_that_attached_late_has_the_axis_of_the_run() -> None:
    """Its plots began at step 805, and those of the run at 605."""
    made = snapshot(Made(focus=5))
    assert made.detail is not None
    assert made.series is not None
    names = ("step", "loss", "loss_low", "loss_high", "throughput", "step_ms")
    newest = made.series.step >= 605
    series = replace(made.series, **{name: getattr(made.series, name)[newest] for name in names})
    for first, begin in ((805, "605"), (1_105, "1,105")):
        courses = {
            name: Course(course.step[at:], course.own[at:], course.others[:, at:])
            for name, course in made.detail.courses.items()
            for at in [int(np.searchsorted(course.step, first))]
        }
        detail = replace(made.detail, courses=courses)
        plots = rank_plots(ViewState(replace(made, series=series, detail=detail), ASCII), detail)
        assert text_of(plots.plot(METRICS[0], 80, 12))[-1].split() == ["step", begin, "1,204"]
