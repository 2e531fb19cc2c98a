"""When a trouble began by the clock, what it has cost, and the headline's facts and command."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpmon.machine import GpuFigures
from ddpmon.report.cost import hour_unit, hours_words, lost_hours
from ddpmon.report.finding_rows import badge
from ddpmon.report.headline import command, facts
from ddpmon.report.run_about import about
from ddpmon.report.run_report import Event, RunReport
from ddpmon.report.run_report import facts as report_facts
from ddpmon.report.step_clock import seconds_since, wall_of
from ddpmon.report.wording import on_host, stack_command
from ddpmon.snapshot import Finding, Series, Snapshot
from tests.made_frames import run_info
from tests.tui.made_runs import HANG, Made, snapshot


def timed(made: Made) -> Snapshot:
    made_up = snapshot(made)
    assert made_up.run is not None
    steps = np.arange(made.step + 1.0)
    nothing = np.full(len(steps), np.nan)
    series = Series(steps, nothing, nothing, nothing, nothing, np.full(len(steps), 200.0))
    return replace(made_up, run=replace(made_up.run, step_age_s=0.5), series=series)


def test_a_steps_time_is_what_the_steps_since_have_taken() -> None:
    shown = timed(Made(straggler=5))
    assert seconds_since(shown, 1204) == pytest.approx(0.5)
    assert seconds_since(shown, 1104) == pytest.approx(20.5)
    assert seconds_since(shown, 1205) is None, "it has not ended"
    assert shown.series is not None
    thinned = Series(*(getattr(shown.series, name)[::4] for name in Series.__dataclass_fields__))
    assert seconds_since(replace(shown, series=thinned), 1104) == pytest.approx(20.5)


def test_hours_are_all_ranks_times_how_long() -> None:
    shown = timed(Made(straggler=5, gpu=True))
    finding = replace(shown.findings[0], cost_pct=50.0, since_step=204)
    assert lost_hours(finding, shown) == pytest.approx(0.5 * 8 * 200 / 3600)
    assert shown.run is not None
    later = replace(shown, run=replace(shown.run, step_age_s=86_400.0, state="finished"))
    assert lost_hours(finding, later) == pytest.approx(0.5 * 8 * 200 / 3600), "what is over costs nothing more"
    assert hour_unit(shown) == "GPU-h"
    assert hour_unit(timed(Made())) == "rank-h"
    hang = replace(HANG, evidence={"seconds": 90.0, "waiting": 7})
    assert lost_hours(hang, shown) == pytest.approx(8 * 90 / 3600)
    assert [hours_words(hours) for hours in (0.001, 0.118, 4.62, 78.2, 12_345.0)] == [
        "<0.01",
        "0.12",
        "4.6",
        "78",
        "12,345",
    ]


def test_findings_that_overlap_are_said_to_and_bounded_together() -> None:
    made = timed(Made(straggler=5))
    other = Finding("slow_node", "warning", "node1 is late", nodes=("node1",), since_step=812, cost_pct=10.0)
    both = replace(made, findings=(*made.findings, other))
    one, two = (lost_hours(finding, both) or 0.0 for finding in both.findings)
    words = dict(about(both)[-1].pairs)["lost together"]
    assert words.startswith(f"at least {hours_words(max(one, two))}, at most {hours_words(one + two)} rank-h; ")
    assert "overlap" in words
    assert "lost together" not in dict(about(made)[-1].pairs)
    events = [Event(kind, "warning", "", ranks=(rank,), cost_pct=50.0, first_at=0.0, last_at=3600.0)
              for kind, rank in (("straggler", 5), ("slow_node", 4))]  # fmt: skip
    facts_of = [dict(report_facts(RunReport(made, run_info(8), some, 0.0, 3600.0, "a file")))
                for some in (events, events[:1])]  # fmt: skip
    assert facts_of[0]["lost by all findings"].startswith("at least 4.0, at most 8.0 rank-h; ")
    assert "lost by all findings" not in facts_of[1]


def test_dashboard_and_report_have_one_unit_of_hours() -> None:
    """A run on GPUs whose sensors nobody reads had rank-h on the screen and GPU-hours in its report."""
    made = timed(Made(straggler=5))
    assert made.run is not None
    for device, gpu, unit in (("cuda", False, "GPU-h"), ("cpu", False, "rank-h"), ("cpu", True, "GPU-h")):
        ranks = snapshot(Made(straggler=5, gpu=gpu)).ranks
        shown = replace(made, run=replace(made.run, info=run_info(8, device=device)), ranks=ranks)
        report = RunReport(shown, run_info(8, device=device), (), 0.0, 3600.0, "a file")
        assert hour_unit(shown) == unit
        assert report.device_hours == (8.0, unit)
        assert f"(8.0 {unit})" in dict(report_facts(report))["time"]


def test_what_matters_survives_in_few_words() -> None:
    shown = timed(Made(straggler=5, gpu=True))
    ways = list(facts(shown.findings[0], shown, "·"))
    lengths = [sum(map(len, way)) for way in ways]
    assert lengths == sorted(lengths, reverse=True)
    assert "costs 24 % of the run's time" in ways[0]
    assert " ".join(ways[-6][:-1]) == "rank 5 node1 late +41 ms, input costs 24 %"
    assert ways[-6][-1].startswith("step 812 (")
    assert lengths[-6] + 2 * len(ways[-6]) <= 70, "it fits 80 columns"
    assert " ".join(ways[-5]) == "rank 5 node1 late +41 ms, input costs 24 % since 812", "the host before the age"
    assert " ".join(ways[-1]) == "rank 5 +41 ms costs 24 %"
    gpu = shown.ranks.gpu[5] if shown.ranks is not None else None
    assert isinstance(gpu, GpuFigures)
    assert f"GPU {gpu.index}" in ways[0][0]


def test_badges_and_commands() -> None:
    assert [badge(Finding("straggler", severity, "")) for severity in ("critical", "warning", "info")] == [
        "CRIT", "WARN", "INFO",
    ]  # fmt: skip
    assert badge(HANG) == "HANG"


def test_the_command_is_for_the_host_of_the_reader() -> None:
    shown = snapshot(Made())
    hang = Finding("hang", "critical", "", advice=("see: ", stack_command("n2", 7), ", `then` ", on_host("n3", "top")))
    assert command(hang, shown) == "ssh n2 py-spy dump --pid 7"
    assert command(hang, replace(shown, own_host="n2")) == "py-spy dump --pid 7"
    assert not command(replace(hang, advice="wrap it in `with monitor.phase(name)`"), shown)


def test_a_step_has_no_time_of_day_before_the_run_began() -> None:
    """Ranks that had restarted alone gave steps times before the start of the run."""
    shown = timed(Made())
    assert shown.run is not None
    young = replace(shown, run=replace(shown.run, elapsed_s=60.0, step_age_s=0.0))
    assert wall_of(young, 1_204) is not None
    assert wall_of(young, 204) is None
