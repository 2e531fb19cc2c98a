"""Reports on runs that were killed or recorded late: no open question is left, and all figures are of one time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from ddpmon.commands.status_text import status_lines
from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.coverage import CoverageMeasures, DuplicateRanksMeasures, Losses, Publisher
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.story import events_of, report_of, report_of_file
from ddpmon.recording.travel import Replay
from ddpmon.report.cost import hours_words
from ddpmon.report.report_html import page
from ddpmon.report.report_markdown import markdown
from ddpmon.report.run_report import cost_words
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from ddpmon.simulate.plan import Plan
from ddpmon.simulate.scenarios import Scenario
from ddpmon.snapshot import Snapshot
from ddpmon.watcher.tap import Tick
from ddpmon.watcher.way import Fate
from tests.recording.made_recordings import SimulatedRun, record, simulated

READ = "read the launcher's output, and the kernel's log (dmesg)"


def fall_silent(run: SimulatedRun, seconds: int) -> None:
    """Let so many seconds pass without a word from any rank; the store goes on answering."""
    for _ in range(seconds):
        run.clock.now += 1.0
        run.observer.tick()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a run that is killed after a minute."""
    path = tmp_path_factory.mktemp("recorded") / "killed.ddpmon"
    made: list[Recorder] = []

    def make() -> Recorder:
        made.append(Recorder(path))
        return made[0]

    with simulated(Plan(ranks=8, hosts=2, scenario="straggler"), make=make) as run:
        run.go(60)
        with patch("ddpmon.watcher.run_end.fate_here", lambda _run: Fate("killed")):
            fall_silent(run, 6)
    made[0].close()
    return path


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording that begins after two hours, of a run whose straggler recovers during it."""
    path, made = tmp_path_factory.mktemp("recorded") / "passed.ddpmon", list[Recorder]()

    def make() -> Recorder:
        made.append(Recorder(path))
        return made[0]

    with simulated(Plan(ranks=8, hosts=2, scenario="straggler"), make=make) as run:
        run.clock.now = 7200.0
        run.go(60)
        with patch.object(Scenario, "extra", return_value={}):
            run.go(90)
    made[0].close()
    return path


@pytest.fixture
def shown(killed: Path) -> Iterator[Snapshot]:
    """What the dashboard shows at the end of it."""
    replay = Replay(killed)
    yield replay.tick()
    replay.close()


def test_what_nobody_knew_before_the_end_is_no_open_question_behind_it(killed: Path, shown: Snapshot) -> None:
    """A report on a killed run said `every rank has been silent` until the end, and advised to wait."""
    assert shown.run is not None
    assert shown.run.state == "killed"
    replay = Replay(killed)
    assert "monitor_degraded" in {event.kind for event in events_of(replay.travel.recording, 1)}, "it was said"
    replay.close()
    report = report_of_file(killed)
    for said in (markdown(report), page(report), "\n".join(status_lines(shown))):
        assert "every rank has been silent" not in said
        assert "wait: ddpmon" not in said


class AlsoSays(Recorder):
    """A recorder of a run of which these alerts are said at every look, too."""

    def __init__(self, path: Path, alerts: Sequence[Alert]) -> None:
        super().__init__(path)
        self._alerts = alerts

    def tick(self, run: Run, tick: Tick) -> None:
        alerts, findings = (*tick.alerts, *self._alerts), (*tick.findings, *in_words(self._alerts))
        super().tick(run, replace(tick, alerts=alerts, findings=findings))


def holes(silent: tuple[int, ...], unheard: tuple[int, ...], dropped: int) -> Alert:
    measures = CoverageMeasures(8, silent, 6.0, unheard, Losses(dropped, 0, 0, 0, 0), 60.0, 0)
    return Alert("monitor_degraded", "warning", measures, (*silent, *unheard))


def test_what_the_end_of_a_run_does_not_explain_stays_in_its_report(tmp_path: Path) -> None:
    """A report on a killed run left out that two processes published as one rank, and who never reported."""
    twice = DuplicateRanksMeasures((Publisher(7, "node0"), Publisher(8, "node0")))
    stays = [
        Alert("monitor_degraded", "warning", twice, (3,)),
        holes((), (6, 7), 0),
        holes((5,), (6,), 0),
        holes((), (), 4),
        holes((4,), (), 4),
    ]
    path, made = tmp_path / "holes.ddpmon", list[Recorder]()

    def make() -> Recorder:
        made.append(AlsoSays(path, [*stays, holes((1, 2), (), 0)]))
        return made[0]

    with simulated(Plan(ranks=8, hosts=2), make=make) as run:
        run.go(20)
        with patch("ddpmon.watcher.run_end.fate_here", lambda _run: Fate("killed")):
            fall_silent(run, 6)
    made[0].close()
    report = report_of_file(path)
    assert report.snapshot.run is not None
    assert report.snapshot.run.state == "killed"
    told = [tuple(event.ranks) for event in report.events if event.kind == "monitor_degraded"]
    assert sorted(told) == sorted(alert.ranks for alert in stays)


def test_the_advice_on_a_kill_is_about_the_kill(killed: Path, shown: Snapshot) -> None:
    report = report_of_file(killed)
    said = markdown(report)
    assert said.count("The run was killed or crashed") + said.count("the run was killed or crashed") == 1
    assert said.index(READ.capitalize()[:24]) < said.index("### critical: at the end: rank")
    lines = list(status_lines(shown))
    (at,) = [at for at, line in enumerate(lines) if line.startswith("not live: the run was killed or crashed")]
    assert lines[at + 1].strip().startswith(READ)


def test_what_is_lost_and_what_is_used_are_counted_from_the_beginning_of_the_recording(tmp_path: Path) -> None:
    """Of a recording that begins late, what a finding lost since its onset exceeded what the run had used."""
    path, made = tmp_path / "late.ddpmon", list[Recorder]()

    def make() -> Recorder:
        made.append(Recorder(path))
        return made[0]

    plan = Plan(ranks=64, hosts=8, scenario="straggler")
    with simulated(plan, make=make) as run:
        run.clock.now = 7200.0
        run.go(60)
    made[0].close()
    report = report_of_file(path)
    (late,) = [event for event in report.troubles if event.kind == "straggler"]
    used, _ = report.device_hours
    assert late.began_before_report
    assert late.cost_pct is not None
    assert late.hours == pytest.approx(late.cost_pct / 100 * used, rel=0.05)
    said = markdown(report)
    assert " GPU-h since the recording began\n" in said
    assert "00:00:59 since the recording began (" in said
    assert "at least" not in cost_words(late, report), "the onset does not matter here"


def test_what_began_before_the_recording_and_was_over_before_its_end_is_counted_since_it_began(passed: Path) -> None:
    """Its hours were counted from when it was seen first, and the report did not say since when."""
    report = report_of_file(passed)
    (late,) = [event for event in report.troubles if event.kind == "straggler"]
    assert not late.lasts
    assert late.began_before_report
    assert late.cost_pct is not None
    assert late.last_at is not None
    assert late.hours is not None
    assert late.hours == pytest.approx(late.cost_pct / 100 * 8 * (late.last_at - report.began_at) / 3600)
    assert cost_words(late, report).endswith(f", about {hours_words(late.hours)} GPU-h since the recording began")


def test_what_is_over_without_a_word_from_its_rule_is_told_in_the_past_too(tmp_path: Path) -> None:
    """The report said `have restarted on their own and cannot be compared` of ranks that were compared again."""
    path = tmp_path / "churn.ddpmon"
    record(Plan(ranks=8, hosts=4, scenario="churn"), 80, path).close()
    over = [each for each in report_of_file(path).troubles if not each.lasts and each.kind == "monitor_degraded"]
    (again,) = [each for each in over if "restarted_alone" in each.evidence]
    assert "restarted on their own and could not be compared with the others, which were at other" in again.summary
    assert f" (from step {again.since_step} to " in again.summary
    (silent, *_) = [each for each in over if "not_reporting" in each.evidence]
    assert silent.summary.startswith("the monitor did not see the whole run: ranks 2, 3 were silent for ")
    assert [each.to_do for each in over] == [""] * len(over)


def test_what_lasted_until_its_run_ended_is_to_be_mended_before_the_next(killed: Path) -> None:
    report = report_of_file(killed)
    (late,) = [each for each in report.troubles if each.kind == "straggler"]
    assert late.lasts
    assert late.to_do.startswith("before the next run, check the GPU of this rank")
    assert f"to do: {late.to_do}" in markdown(report)


def test_what_is_over_is_told_in_the_past_by_the_report_and_by_the_screen(passed: Path) -> None:
    """The report said `is late` of what was over long before."""
    replay = Replay(passed)
    recording, shown = replay.travel.recording, replay.tick()
    (over,) = [each for each in shown.findings if each.cleared_at_step is not None and each.kind == "straggler"]
    (written,) = [each for each in events_of(recording, 1) if each.kind == "straggler"]
    report = report_of_file(passed)
    (told,) = [each for each in report.troubles if each.kind == "straggler"]
    assert " was late by " in over.summary
    assert {written.summary, told.summary} == {over.summary}
    assert not told.lasts
    assert over.summary.endswith(" of the run's time while it lasted.")
    assert " of the run's time while it lasted, " in cost_words(told, report)
    assert f"(over): {over.summary}" in markdown(report)
    assert "; waited " in markdown(report)
    assert "to do:" not in markdown(report) + page(report), "its advice was for while it lasted"
    assert told.last_at is not None
    replay.travel.go(recording.at_wall(told.last_at - 60.0))
    before = report_of(recording, replay.tick(), "x", replay.travel.until)
    replay.close()
    (lasting,) = [each for each in before.troubles if each.kind == "straggler"]
    assert " is late by " in lasting.summary
    assert "to do: check the GPU of this rank" in markdown(before)
    assert cost_words(lasting, before).partition(",")[0].endswith(" of the run's time")
