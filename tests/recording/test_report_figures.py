"""A report says the same as the screen of the same moment: how long the run took, what a rank has cost, who is late."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpmon.format import local_time
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.rewindable import Rewindable
from ddpmon.recording.story import report_of, report_of_file, report_of_snapshot
from ddpmon.recording.travel import Replay
from ddpmon.report.report_html import page
from ddpmon.report.report_markdown import MOST_RANKS, markdown, worst_ranks
from ddpmon.report.run_about import about
from ddpmon.report.run_report import facts
from ddpmon.report.step_clock import wall_of
from ddpmon.report.verdicts import marked_ranks
from ddpmon.simulate.plan import Plan
from ddpmon.snapshot import Snapshot
from tests.recording.made_recordings import record, simulated

NOW_AND_THEN = 12  # the rank of the scenario `mixed` that is late in one step of five


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "mixed.ddpmon"
    record(Plan(ranks=64, hosts=8, scenario="mixed"), 110, path).close()
    return path


@pytest.fixture(scope="module")
def shown(mixed: Path) -> Iterator[Snapshot]:
    """What the dashboard shows at the end of it."""
    replay = Replay(mixed)
    yield replay.tick()
    replay.close()


def test_the_time_of_a_run_that_has_ended_does_not_grow() -> None:
    """`w` counted the time since the end as run time, as long as the dashboard stayed open."""
    recorder = Recorder(None)
    with simulated(Plan(ranks=2), recorder) as run:
        run.go(40)
        run.finish()
        source, times = Rewindable(run.observer, recorder), list[str]()
        for _ in range(2):
            pictures = source.tick()
            run.clock.now += 300
            info = run.observer.run.info if run.observer.run is not None else None
            assert info is not None
            recorded = report_of(source.travel.recording, source.tick(), "x")
            for told in (recorded, report_of_snapshot(source.tick(), info, "x")):
                times.append(dict(facts(told))["time"])
        assert pictures.run is not None
        assert pictures.run.state == "finished"
    assert times[:2] == times[2:], "however long the dashboard stays open"
    assert all(re.match(r"00:00:[34]\d ", time) for time in times)


def test_a_report_has_the_hours_of_the_screen_and_the_time_of_the_onset(mixed: Path, shown: Snapshot) -> None:
    """It counted from when the trouble was seen first, some steps after its onset."""
    said = markdown(report_of_file(mixed))
    lost = {name: words for section in about(shown) for name, words in section.pairs if name.startswith("lost: rank")}
    assert len(lost) >= 3
    for name, words in lost.items():
        event = next(part for part in said.split("\n### ") if name.removeprefix("lost: ") in part.split("\n")[0])
        assert f"% of the run's time, {words.split(' since ')[0]}\n" in event
    (late,) = [finding for finding in shown.findings if finding.ranks == (42,) and finding.kind == "straggler"]
    assert late.since_step is not None
    assert f"began {local_time(wall_of(shown, late.since_step) or math.nan)}; seen " in said


def test_the_ranks_that_findings_name_come_first_with_the_lateness_of_every_table(mixed: Path, shown: Snapshot) -> None:
    report = report_of_file(mixed)
    named = [*marked_ranks(shown.findings)]
    assert NOW_AND_THEN in named
    assert worst_ranks(report)[: len(named)] == named
    words, html = markdown(report), page(report)
    (row,) = [line for line in words.splitlines() if line.startswith(f"| {NOW_AND_THEN} |")]
    assert re.search(r"\| \+\d+ 1/5 \|", row)
    assert re.search(rf"<td>{NOW_AND_THEN}</td>.*?<td>\+\d+ 1/5</td>", html)
    assert f">rank {NOW_AND_THEN}</text>" in html, "among the bars, too"
    some = f"{MOST_RANKS} of 64 ranks: those that findings name, then those that work longest; medians"
    assert some in words
    assert some in html


def test_a_finding_that_is_over_is_as_severe_in_the_report_as_on_the_screen(mixed: Path, shown: Snapshot) -> None:
    """`y` and the table said `info`, the report `warning, over`."""
    severities = {(event.kind, event.finding_id): event.severity for event in report_of_file(mixed).events}
    over = [finding for finding in shown.findings if finding.cleared_at_step is not None]
    assert "rank_lost" in {finding.kind for finding in over}
    assert [finding.severity for finding in over] == [severities[finding.kind, finding.id] for finding in over]
