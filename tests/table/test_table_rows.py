"""Reading tables: what is accepted, what is named by line and left out, and what is refused in a sentence."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.judge import Judge
from ddpmon.parts import BadLoss
from ddpmon.run.model import Run
from ddpmon.table.csv_lines import TableError
from ddpmon.table.verdict import TableVerdict
from tests.table.tables import judged, rows_of, slow, text_of

ROWS = rows_of(slow(), ("duration", "exposed", "backward"))


def assert_finds_it(verdict: TableVerdict) -> None:
    (finding,) = verdict.findings
    assert (finding.kind, finding.ranks, finding.phase, finding.since_step) == ("straggler", (2,), "backward", 60)


def changed(line: int, text: str) -> str:
    """The table with its line (counted from 1) replaced."""
    return text_of([*ROWS[: line - 1], text, *ROWS[line:]])


def test_the_plain_table_has_nothing_to_remark() -> None:
    verdict = judged(text_of(ROWS))
    assert_finds_it(verdict)
    assert (verdict.ranks, verdict.steps, verdict.notes, verdict.complaints) == (4, 200, (), ())


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_separators_line_ends_and_marks(separator: str, end: str, encoding: str) -> None:
    text = "".join(row.replace(",", separator) + end for row in ROWS)
    verdict = judged(text.encode(encoding))
    assert_finds_it(verdict)
    assert verdict.notes == ()


def test_headings_and_rows_stand_as_they_like() -> None:
    random = np.random.default_rng(0)
    rows = [row.split(",") for row in ROWS[1:]]
    random.shuffle(rows)
    lines = ['" Backward MS",RANK , "duration_ms",exposed-ms,Step,comment', ""]
    lines += [f'{b}, "{rank}",{d},{e},{step}.0,"fine, ""really"""' for step, rank, d, e, b in rows]
    verdict = judged("\n\n" + text_of(lines))
    assert_finds_it(verdict)
    assert verdict.notes == ("not used: comment",)


def test_tables_put_behind_each_other_keep_their_headings() -> None:
    verdict = judged(text_of([*ROWS[:400], ROWS[0], *ROWS[400:]]))
    assert_finds_it(verdict)
    assert verdict.refused == 0
    assert verdict.notes == ("the heading is repeated 1 time",)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("0,x,100,5,60", "rank is 'x', expected a whole number from 0 to"),
        ("0,-1,100,5,60", "rank is '-1'"),
        ("0,999999999,100,5,60", "rank is '999999999'"),
        ("1.5,0,100,5,60", "step is '1.5', expected a whole number, 0 or more"),
        (",0,100,5,60", "step is ''"),
        ("nan,0,100,5,60", "step is 'nan'"),
        ("0,0,1;5,5,60", "duration_ms is '1;5', expected milliseconds, 0 or more"),
        ("0,0,-3,5,60", "duration_ms is '-3'"),
        ("0,0,100,inf,60", "exposed_ms is 'inf'"),
        ("0,0,1e300,5,60", "duration_ms is '1e300'"),
        ("0,0,1,5,5,60", "6 cells where the heading has 5"),
        ("0,0,100", "3 cells where the heading has 5"),
        ('0,0,"100,5,60', "a quote is not closed"),
        pytest.param("0,0,100,5," + "9" * 50_000, "backward_ms is '9999", id="long"),
        pytest.param("0,0,100,5," + "9" * 3_000_000, "a cell does not end", id="endless"),
        ("\x00\x01\x02", "1 cell where the heading has 5"),
        ("0,0,\ud83d\ude00,5,60".encode("utf-16", "surrogatepass").decode("utf-16"), "duration_ms is '\U0001f600'"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_by_line_and_left_out(row: str, words: str) -> None:
    verdict = judged(changed(3, row), "my.csv")
    (complaint,) = verdict.complaints
    assert complaint.startswith("my.csv:3: ")
    assert words in complaint
    assert len(complaint) < 200
    assert verdict.refused == 1
    assert "left out: 1 unreadable row" in verdict.notes
    assert_finds_it(verdict)


def test_of_many_bad_rows_the_first_five_are_named() -> None:
    bad = {5: "x,0,1,1,1", 9: "0,0", 10: "0,0,y,1,1", 700: '0,"', 13: "0,0,1,z,1", 20: "0,0,1", 21: "0,0,-1,1,1"}
    verdict = judged(text_of(bad.get(at, row) for at, row in enumerate(ROWS, 1)))
    assert [complaint.split(":")[1] for complaint in verdict.complaints] == ["5", "9", "10", "13", "20"]
    assert verdict.refused == len(bad)


@pytest.mark.parametrize("missing", ["", "nan", "NaN", "NA", "null", "None", "-"])
def test_what_is_missing_is_missing_not_zero(missing: str) -> None:
    rows = [
        row if at % 9 else ",".join([*row.split(",")[:2], missing, *row.split(",")[3:]]) for at, row in enumerate(ROWS)
    ]
    rows[0] = ROWS[0]
    verdict = judged(text_of(rows))
    assert verdict.refused == 0
    assert [finding.ranks for finding in verdict.findings] == [(2,)]
    assert any("without enough columns to compute the work" in note for note in verdict.notes)


def test_of_two_rows_for_a_step_and_rank_the_last_counts() -> None:
    wrong = [re.sub(r"^(\d+),1,[\d.]+", r"\1,1,900", row) for row in ROWS[1:] if row.split(",")[1] == "1"]
    verdict = judged(text_of([ROWS[0], *wrong, *ROWS[1:]]))
    assert_finds_it(verdict)
    assert any(note.startswith("200 rows ignored: a later row is for the same step and rank") for note in verdict.notes)
    assert judged(text_of([*ROWS, *wrong])).findings != verdict.findings


def test_work_that_disagrees_is_said() -> None:
    rows = [row + ("," + ("1" if at else "work_ms")) for at, row in enumerate(ROWS)]
    verdict = judged(text_of(rows))
    assert_finds_it(verdict)
    assert any(note.startswith("work_ms of 800 rows replaced by") for note in verdict.notes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("\n \n\r\n", "is empty"),
        (ROWS[0], "no readable row below its heading"),
        (ROWS[0] + "\n1,2\n", r"no readable row: t.csv:2: 2 cells where the heading has 5"),
        ("hello world\n1 2\n", "is not a table"),
        ("1,2,3\n4,5,6\n", "is not a table"),
        ("step,duration_ms,exposed_ms\n1,2,3\n", "has no column rank; it has step, duration_ms, exposed_ms"),
        ("loss,work_ms\n1,2\n", "has no column step and no column rank"),
        ("step,rank,duration_ms\n1,0,5\n", "every rank's step takes equally long"),
        ("step,rank,duration_ms,forward_ms\n1,0,5,1\n", "every rank's step takes equally long"),
        ("step,rank,exposed_ms\n1,0,5\n", "needs a column work_ms, or duration_ms and exposed_ms"),
        ("step,rank,duration_ms,exposed_ms\n1,0,5,\n", "no row of t.csv holds the work of its rank"),
        ("step,rank,work_ms\n1,0,5\n1,99999,5\n", "2 ranks, but one is numbered 99,999"),
    ],
)
def test_a_table_that_cannot_be_judged_is_refused_in_a_sentence(text: str, words: str) -> None:
    with pytest.raises(TableError, match=words) as raised:
        judged(text)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("seed", range(20))
def test_garbage_is_refused_and_never_a_crash(seed: int) -> None:
    random = np.random.default_rng(seed)
    garbage = random.bytes(200_000)
    with pytest.raises(TableError):
        judged(garbage)
    with pytest.raises(TableError):
        judged(ROWS[0].encode() + b"\n" + garbage)
    with_rows = text_of(ROWS).encode() + garbage + b"\n" + text_of(ROWS[1:]).encode()
    assert [finding.ranks for finding in judged(with_rows).findings] == [(2,)]


def test_a_loss_that_is_not_finite_is_told_from_one_that_is_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Run] = []

    class Listening(Judge):
        def __call__(self, run: Run, ages: NDArray[np.float64]) -> tuple[Alert, ...]:
            runs.append(run)
            return super().__call__(run, ages)

    monkeypatch.setattr("ddpmon.table.replay.Judge", Listening)
    losses = {20: "nan", 21: "", 50: "-inf"}
    rows = [
        f"{step},{rank},5,{losses.get(step, 2.5) if not rank else 'nan'}" for step in range(60) for rank in range(2)
    ]
    judged(text_of(["step,rank,work_ms,loss", *rows]))
    first, second = (state.frame.bad_loss for state in runs[-1].ranks if state is not None)
    assert first == BadLoss(first_step=20, last_step=50, count=2, value="nan")
    assert second is None, "a rank without any loss does not log it"
