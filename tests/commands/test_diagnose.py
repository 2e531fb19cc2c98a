"""`ddpmon diagnose` as a user meets it: text, JSON, exit codes, and one sentence where there is nothing to judge."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from device_job import Fault, Job, simulate

from ddpmon.report.status_json import finding_object
from tests import ranks
from tests.made_frames import MadeJob, healthy_phases
from tests.table.marks import rows_of as marks_of
from tests.table.tables import judged, rows_of, slow, text_of

ROWS = rows_of(slow(), ("duration", "exposed", "backward"))
OVER = rows_of(slow(until=110, steps=300), ("duration", "exposed", "backward"))
CALM = rows_of(MadeJob(healthy_phases(4, 200)))


def diagnose(*arguments: str, stdin: str | bytes | None = None) -> subprocess.CompletedProcess[str]:
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = ranks.run("ddpmon.cli", "diagnose", *arguments, stdin=data or b"")
    assert "Traceback" not in done.stderr + done.stdout
    return done


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "table.csv"
    path.write_text(text_of(ROWS))
    return str(path)


def test_a_person_reads_the_verdict_first(table: str) -> None:
    done = diagnose(table)
    assert (done.returncode, done.stderr) == (0, "")
    first, verdict, advice, *notes = done.stdout.splitlines()
    assert first == f"{table}: 4 ranks, steps 0 to 199"
    assert verdict.startswith("critical: rank 2 is late by ")
    assert "in backward (since step 60)" in verdict
    assert advice.startswith("    check the GPU of this rank")
    assert notes == []


def test_what_was_over_is_told_with_its_end() -> None:
    done = diagnose("-", stdin=text_of(OVER))
    _, verdict, *more = done.stdout.splitlines()
    assert verdict.startswith("critical, over: ")
    assert ": rank 2 was late by " in verdict
    assert "in backward (from step 60 to 1" in verdict
    assert more == [], "there is nothing left to do about it"


def test_a_calm_table_says_on_how_many_steps_it_rests() -> None:
    done = diagnose("-", "--fail-on", "info", stdin=text_of(CALM))
    assert done.returncode == 0
    assert done.stdout == "standard input: 4 ranks, steps 0 to 199\nno finding in 180 compared steps\n"


def test_too_short_a_table_is_not_called_calm() -> None:
    done = diagnose("-", stdin=text_of(CALM[:81]))
    assert "no finding" not in done.stdout
    assert "note: not enough evidence" in done.stdout


def test_a_script_reads_the_same_as_one_object(table: str) -> None:
    done = diagnose(table, "--json")
    assert len(done.stdout.splitlines()) == 1
    said = json.loads(done.stdout)
    assert [*said] == ["schema_version", "source", "ranks", "steps", "enough", "notes", "findings"]
    assert (said["schema_version"], said["source"], said["ranks"], said["steps"]) == (1, table, 4, 200)
    (finding,) = judged(text_of(ROWS)).findings
    assert said["findings"] == [{**finding_object(finding), "cleared_at_step": None}]
    over = json.loads(diagnose("-", "--json", stdin=text_of(OVER)).stdout)["findings"]
    assert [(one["since_step"], one["severity"], one["ranks"]) for one in over] == [(60, "critical", [2])]
    assert abs(over[0]["cleared_at_step"] - 110) <= 3


@pytest.mark.parametrize("floor", ["info", "warning", "critical"])
@pytest.mark.parametrize(("rows", "code"), [(ROWS, 1), (OVER, 1), (CALM, 0)], ids=["lasting", "over", "calm"])
def test_fail_on_counts_whatever_the_table_holds(floor: str, rows: list[str], code: int) -> None:
    assert diagnose("-", "--fail-on", floor, stdin=text_of(rows)).returncode == code
    assert diagnose("-", stdin=text_of(rows)).returncode == 0


def test_bad_rows_are_named_on_stderr_and_the_rest_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[31mtable.csv"
    path.write_text(text_of([*ROWS[:3], *["0,\x1b[31mx,1,1,1"] * 8, *ROWS[3:]]))
    done = diagnose(str(path), "--json")
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert len(lines) == 6
    assert "table.csv:4: rank is " in lines[0]
    assert lines[-1] == "ddpmon: 3 more rows could not be read"
    assert "\x1b" not in done.stderr + done.stdout
    assert len(json.loads(done.stdout)["findings"]) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        (ROWS[0] + "\n", "has no readable row"),
        ("step,rank,duration_ms\n0,0,1\n", "takes equally long"),
        (os.urandom(100_000), "standard input"),
    ],
    ids=["empty", "heading", "durations", "garbage"],
)
@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["text", "json"])
def test_what_cannot_be_judged_is_2_and_one_sentence(text: str | bytes, words: str, as_json: tuple[str, ...]) -> None:
    done = diagnose("-", *as_json, stdin=text)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("name", "words"), [("", "s a directory"), ("none.csv", "No such file")])
def test_what_cannot_be_opened_is_2_and_one_sentence(tmp_path: Path, name: str, words: str) -> None:
    done = diagnose(str(tmp_path / name))
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_2(table: str) -> None:
    Path(table).chmod(0)
    done = diagnose(table)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Permission denied" in done.stderr


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc")
def test_a_file_that_breaks_off_while_it_is_read_is_2() -> None:
    done = diagnose("/proc/self/mem")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be read" in done.stderr


def test_help_explains_the_columns_with_an_example_that_works() -> None:
    shown = diagnose("--help").stdout
    for column in ("step ", "rank ", "duration_ms", "exposed_ms", "work_ms", "barrier_ms", "node ", "loss, samples"):
        assert f"  {column}" in shown
    lines = [line.strip() for line in shown.splitlines()]
    start = next(at for at, line in enumerate(lines) if line.startswith("step,rank"))
    assert judged(text_of(lines[start : start + 3])).ranks == 2
    assert diagnose().returncode == 2
    assert diagnose("a", "b").returncode == 2
    assert diagnose("a", "--fail-on", "never").returncode == 2


def test_a_table_of_marks_is_judged_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "marks.csv"
    trace = simulate(Job(steps=120, item_every=10, fault=Fault((2,), extra_ms=3, onset=0)), range(1))
    path.write_text("\n".join([*marks_of(trace), "1,1,begins,2,3"]))
    done = diagnose("--marks", str(path), "--json", "--fail-on", "warning")
    assert done.returncode == 1
    (found,) = json.loads(done.stdout)["findings"]
    assert (found["ranks"], found["phase"], found["severity"]) == ([2], "backward", "critical")
    assert "marks.csv:3362: mark is 'begins', expected one of input, forward" in done.stderr


def test_a_table_of_steps_is_not_one_of_marks(table: str) -> None:
    done = diagnose("--marks", table)
    assert (done.returncode, done.stdout) == (2, "")
    assert "has no column mark and no column host_ms" in done.stderr
