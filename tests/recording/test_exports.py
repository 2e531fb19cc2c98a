"""What comes out of a recording: the report, the table, the comparison, the trace."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import re
import shutil
import sqlite3
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from ddpmon.commands.compare import compare_files
from ddpmon.commands.diagnose import diagnose
from ddpmon.commands.export import export
from ddpmon.commands.record import record as record_command
from ddpmon.commands.report import report
from ddpmon.commands.status import status
from ddpmon.parts import Attempt
from ddpmon.recording.bounds import Bounds
from ddpmon.recording.reader import Recording
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.rewindable import Rewindable
from ddpmon.recording.story import report_of, report_of_file
from ddpmon.recording.travel import Replay, Request
from ddpmon.report.report_html import page
from ddpmon.report.report_markdown import markdown
from ddpmon.simulate.plan import Plan
from ddpmon.snapshot import Link, Snapshot
from tests.recording.made_recordings import record, simulated

HOSTILE = "<script>alert(1)</script>|`x`\x1b[31m"
STRAGGLER = 2


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which rank 2 becomes slow."""
    path = tmp_path_factory.mktemp("recorded") / "run.ddpmon"
    record(Plan(ranks=8, hosts=2, scenario="straggler"), 100, path).close()
    return path


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "healthy.ddpmon"
    record(Plan(ranks=4, hosts=2), 60, path).close()
    return path


COMMANDS: dict[str, Callable[..., int]] = {
    "status": lambda target, as_json=False, fail_on=None, goes_on=False: status(
        target, as_json, fail_on, goes_on=goes_on
    ),
    "diagnose": lambda target: diagnose(target, True, None),
    "report": report,
    "record": lambda target, out=None: record_command(target, out, 256),
    "export": lambda target, csv=None, perfetto=None, steps=None: export(target, csv, perfetto, steps),
    "compare": lambda a, b, most=None, as_json=True: compare_files(a, b, most, as_json),
}


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


class Shell:
    """Runs commands in this process, as the command line does."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, command: str, *words: Any, **options: Any) -> Done:
        words = tuple(str(word) if isinstance(word, Path) else word for word in words)
        options = {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}
        code = COMMANDS[command](*words, **options)
        return Done(code, *self._capsys.readouterr())


@pytest.fixture
def ddpmon(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def test_every_command_takes_a_recording(recorded: Path, healthy: Path, tmp_path: Path, ddpmon: Shell) -> None:
    told = json.loads(ddpmon("status", recorded, as_json=True).out)
    assert told["recorded"]["seconds"] == 99
    assert told["recorded"]["notes"] == []
    (finding,) = [each for each in told["findings"] if each["kind"] == "straggler"]
    assert finding["ranks"] == [STRAGGLER]
    assert ddpmon("status", recorded, fail_on="warning").code == 1

    page_file = tmp_path / "run.html"
    assert ddpmon("report", recorded, page_file).code == 0
    assert "rank 2 (node0000) is late by" in page_file.read_text()
    assert ddpmon("report", recorded, None).out.startswith("# simulated-straggler\n")
    assert ddpmon("report", recorded, tmp_path / "run.MD").code == 0
    assert (tmp_path / "run.MD").read_text().startswith("# simulated-straggler\n")

    slower = ddpmon("compare", healthy, recorded, 5.0)
    assert slower.code == 1
    compared = json.loads(slower.out)
    assert compared["regressed"]
    assert compared["slower_pct"] > 20
    assert compared["change_pct"]["backward_ms"] < 5, "the median rank works as before; it waits"
    assert compared["change_pct"]["wait_ms"] > 50
    assert any("8" in note for note in compared["notes"]), "two world sizes"
    assert ddpmon("compare", recorded, healthy, 5.0).code == 0
    assert "faster" in ddpmon("compare", recorded, healthy, as_json=False).out


def test_exported_steps_give_the_same_findings_again(recorded: Path, tmp_path: Path, ddpmon: Shell) -> None:
    csv = tmp_path / "steps.csv"
    assert ddpmon("export", recorded, csv=csv).code == 0
    mine, again = (json.loads(ddpmon("diagnose", file).out) for file in (recorded, csv))
    assert {**mine, "source": ""} == {**again, "source": ""}
    assert [each["ranks"] for each in mine["findings"]] == [[STRAGGLER]]
    same = json.loads(ddpmon("compare", recorded, csv, 0.01).out)
    assert max(map(abs, same["change_pct"].values())) < 0.001, "a recording has float32, a table what its text says"
    assert not same["regressed"]
    assert ddpmon("export", recorded, csv="-", steps="5:6").out.count("\n") == 1 + 2 * 8


def test_the_table_has_the_shortest_text_of_each_figure(ddpmon: Shell, recorded: Path) -> None:
    """Ranks tell float32, and 0.1 stood there as 0.10000000149011612."""
    said = ddpmon("export", recorded, csv="-", steps="5:9").out
    figures = re.findall(r"\d+\.\d+", said)
    assert len(figures) > 5 * 8
    assert max(len(figure.replace(".", "").lstrip("0")) for figure in figures) <= 9, "digits that tell float32 apart"
    with contextlib.closing(Recording(recorded)) as recording:
        rows = [*recording.rows("SELECT duration_ms FROM steps WHERE step = 5 ORDER BY id")]
    written = [line.split(",") for line in said.splitlines()]
    place = written[0].index("duration_ms")
    assert [np.float32(line[place]) for line in written[1:] if line[0] == "5"] == [row[0] for row in rows]


@pytest.mark.parametrize(
    ("command", "words", "options", "said"),
    [
        ("export", ("{file}",), {}, "--csv OUT.csv, --perfetto OUT.json.gz and --prometheus HOST:PORT"),
        ("status", ("{file}",), {"goes_on": True}, "leave --watch out"),
        ("export", ("{file}",), {"csv": "-", "steps": "9:3"}, "is not A:B"),
        ("export", ("{file}",), {"perfetto": "{out}", "steps": "900000:"}, "no step in that span"),
        ("export", ("{file}",), {"csv": "/no/such/folder/x.csv"}, "cannot be written"),
        ("compare", ("{file}", "/no/such/file.csv"), {}, "cannot be read"),
        ("report", ("/no/such/file.ddpmon", None), {}, "cannot be read"),
        ("report", ("{file}", "{out}"), {}, "ends with neither .html nor .md"),
        ("record", ("{file}",), {}, "is a recording already"),
        ("diagnose", ("/no/such/file.ddpmon",), {}, "cannot be read"),
    ],
)
def test_wrong_words_get_one_sentence(
    command: str,
    words: tuple[str | None, ...],
    options: dict[str, Any],
    said: str,
    recorded: Path,
    tmp_path: Path,
    ddpmon: Shell,
) -> None:
    def filled(word: Any) -> Any:
        return word.format(file=recorded, out=tmp_path / "out.json") if isinstance(word, str) else word

    done = ddpmon(command, *map(filled, words), **{name: filled(word) for name, word in options.items()})
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1


def test_the_report_holds_the_story_and_no_foreign_mark_up(recorded: Path, tmp_path: Path) -> None:
    path = tmp_path / "hostile.ddpmon"
    shutil.copy(recorded, path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as book:
        book.execute("UPDATE alerts SET summary = ?, advice = ?", (HOSTILE, HOSTILE))
    told = report_of_file(path)
    html, words = page(told), markdown(told)
    assert "<script" not in html
    assert "\x1b" not in html + words
    assert "<script" not in words.replace("\\<", "")
    assert "http://" not in re.sub(r'xmlns="[^"]*"', "", html), "nothing is loaded from anywhere"
    for picture in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ElementTree.fromstring(picture)
    assert html.count("<svg") == 4, "step time, loss, throughput, ranks"
    whole = report_of_file(recorded)
    event = next(event for event in whole.events if event.kind == "straggler")
    assert event.lasts
    assert event.first_at is not None
    assert event.first_at > whole.began_at + 20, "it began later than the run"
    assert event.since_step is not None
    assert f"since step {event.since_step}" in markdown(whole)
    assert " GPU-h)" in markdown(whole), "its ranks have GPUs, as the dashboard says"


def test_what_is_no_run_leaves_no_recording_behind(tmp_path: Path, ddpmon: Shell) -> None:
    path = tmp_path / "run.ddpmon"
    done = ddpmon("record", "tcp://127.0.0.1:99999", path)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert not done.out
    Recorder(path).close()
    assert not [*tmp_path.iterdir()]


def test_host_names_are_cleaned(recorded: Path, tmp_path: Path, ddpmon: Shell) -> None:
    path = tmp_path / "hostile.ddpmon"
    shutil.copy(recorded, path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as book:
        book.execute("UPDATE ranks SET host = ?", (HOSTILE,))
    said = ddpmon("export", path, csv="-", steps="5:6").out
    assert "<script>" in said
    assert "\x1b" not in said


def test_the_report_is_on_the_run_and_the_moment_that_are_shown(recorded: Path, tmp_path: Path) -> None:
    path = tmp_path / "restarted.ddpmon"
    shutil.copy(recorded, path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as book:
        last = "SELECT max(chunk) + 1, 2, 0, 'first', max(t) + 1, max(wall) + 1000, 0, x'' FROM chunks"
        book.execute(f"INSERT INTO chunks {last}")
    assert report_of_file(path).info.name == "simulated-straggler", "the newest run has no picture yet"
    with contextlib.closing(Replay(path)) as replay:
        for seconds, kinds in ((10.0, set()), (99.0, {"straggler"})):
            replay.travel.go(replay.travel.recording.at(seconds))
            told = report_of(replay.travel.recording, replay.tick(), "x", replay.travel.until)
            assert {event.kind for event in told.events if event.kind == "straggler"} == kinds


def test_the_report_says_how_earlier_attempts_ended(healthy: Path) -> None:
    told = report_of_file(healthy)
    attempt = Attempt(run_id="a", world_size=4, step=140, vanished=[1], vanished_count=1)
    again = replace(told, info=structs.replace(told.info, restart=1, max_restarts=2, attempts=[attempt]))
    for words in (markdown(again), page(again)):
        assert "Attempt 2 of 3, begun by its launcher" in words
        assert "Attempt 1 of 3 ended at step 140: rank 1 disappeared without a message." in words
        assert "No trouble was found in this attempt." in words


@pytest.mark.parametrize("version", [1, 2])
def test_the_report_on_a_moment_describes_a_finding_as_it_was_then(
    recorded: Path, tmp_path: Path, version: int
) -> None:
    path, later = tmp_path / "run.ddpmon", "ranks 2 and 5 are late"
    shutil.copy(recorded, path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as book:
        book.execute("UPDATE alerts SET summary = ? WHERE kind = 'straggler'", (later,))
        if version == 1:
            book.execute("ALTER TABLE alerts DROP COLUMN finding_id")
            book.execute("PRAGMA user_version = 1")
        else:
            book.execute("UPDATE alerts SET ranks = '[2, 5]' WHERE kind = 'straggler'")
    with contextlib.closing(Replay(path)) as replay:
        replay.travel.go(replay.travel.recording.at(80.0))
        shown = replay.tick()
        told = report_of(replay.travel.recording, shown, "x", replay.travel.until)
    (then,) = [finding for finding in shown.findings if finding.kind == "straggler"]
    (event,) = [event for event in told.events if event.kind == "straggler"]
    assert (event.summary, event.ranks) == (then.summary, (STRAGGLER,))
    whole = report_of_file(path)
    (lasting,) = [each.summary for each in whole.events if each.kind == "straggler"]
    assert lasting == whole.verdict != later, "one report has one number for one thing"


def test_a_live_run_that_is_too_large_to_be_recorded_has_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for most in (1, 2):
        recorder = Recorder(None, Bounds(ranks=most))
        with simulated(Plan(ranks=2), recorder) as run:
            run.go(5)
            source = Rewindable(run.observer, recorder)
            source.travel.ask(Request("write"))
            assert source.tick().told.startswith("the report is in")


def test_a_report_on_a_moment_that_was_frozen_knows_nothing_of_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recorder = Recorder(None)
    with simulated(Plan(ranks=4, scenario="straggler"), recorder) as run:
        run.go(20)
        source = Rewindable(run.observer, recorder)
        frozen = source.tick()
        run.go(60)
        assert frozen.run is not None
        for shown, is_told in ((frozen, False), (None, True)):
            source.travel.ask(Request("write", shown=shown))
            assert source.tick().told.startswith("the report is in")
            (path,) = tmp_path.glob("report-*.html")
            page_said = path.read_text()
            assert ("is late by" in page_said) is is_told
            assert (f"-step-{frozen.run.step}." in path.name) == (shown is frozen)
            path.unlink()


def events_of(path: Path) -> list[dict[str, Any]]:
    trace = json.loads(gzip.decompress(path.read_bytes()))
    assert "sync points" in trace["otherData"]["time"]
    found: list[dict[str, Any]] = trace["traceEvents"]
    return found


def test_the_trace_is_aligned_on_sync_points(recorded: Path, tmp_path: Path, ddpmon: Shell) -> None:
    out = tmp_path / "trace.json.gz"
    assert ddpmon("export", recorded, perfetto=out, steps="40:80").code == 0
    events = events_of(out)
    waits = [each for each in events if each["ph"] == "X" and each["name"] == "wait"]
    ends: dict[int, set[int]] = {}
    for each in waits:
        ends.setdefault(each["args"]["step"], set()).add(round(each["ts"] + each["dur"]))
    assert sorted(ends) == list(range(40, 81))
    assert all(max(found) - min(found) <= 1 for found in ends.values()), "all ranks leave a step together"
    late = {each["pid"] for each in events if each["ph"] == "s" and each["ts"] > max(ends[70]) - 1}
    assert late == {STRAGGLER}, "arrows begin at the rank that came last"
    assert {each["pid"] for each in events if each["ph"] == "i"} >= {STRAGGLER}
    slices: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for each in events:
        if each["ph"] == "X":
            slices.setdefault((each["pid"], each["tid"]), []).append((each["ts"], each["ts"] + each["dur"]))
    for spans in slices.values():
        spans.sort()
        assert all(end <= start + 0.01 for (_, end), (start, _) in itertools.pairwise(spans)), "they nest"


def test_an_export_replaces_a_file_only_once_it_is_whole(recorded: Path, tmp_path: Path, ddpmon: Shell) -> None:
    out, link = tmp_path / "steps.json", tmp_path / "link.json"
    out.write_text("of yesterday")
    out.chmod(0o640)
    link.symlink_to(out)
    assert ddpmon("export", recorded, perfetto=str(link), steps="900000:").code == 2
    assert out.read_text() == "of yesterday"
    for form in ("csv", "perfetto"):
        out.write_text("of yesterday")
        assert ddpmon("export", recorded, **{form: str(link)}, steps="5:6").code == 0
        assert "of yesterday" not in out.read_text()
        assert (out.stat().st_mode & 0o777, link.is_symlink()) == (0o640, True)
    assert {*tmp_path.iterdir()} == {out, link}, "nothing else is left behind"


def test_a_recording_is_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "run.ddpmon"
    recorder = record(Plan(ranks=2), 30, path)
    recording = Recording(path)
    first, last = recording.first(), recording.last()
    assert first is not None
    assert last is not None
    assert last.t - first.t == 29
    recording.close()
    recorder.close()
    assert [each.name for each in tmp_path.iterdir()] == ["run.ddpmon"], "the journal is gone"


def test_without_a_run_no_report_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recorder = Recorder(None)
    frozen = Snapshot(Link("waiting", "no run was found"), 0.0, 0.0)
    with simulated(Plan(ranks=2), recorder) as run:
        run.go(5)
        source = Rewindable(run.observer, recorder)
        source.travel.ask(Request("write", shown=frozen))
        assert source.tick().told == "no report was written: no run is shown"
        source.travel.ask(Request("write"))
        assert source.tick().told.startswith("the report is in")
    assert len([*tmp_path.iterdir()]) == 1
