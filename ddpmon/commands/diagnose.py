"""`ddpmon diagnose`: the verdicts over a table of steps and ranks, for a person or a script."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ddpmon.commands.console import FOUND, OK, USAGE, complain, printable
from ddpmon.commands.recordings import recording_at
from ddpmon.diagnose.alert import Severity, at_or_above
from ddpmon.format import json_line, plural
from ddpmon.recording.step_table import StepTable
from ddpmon.report.status_json import Object, finding_object
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding
from ddpmon.table.csv_lines import TableError
from ddpmon.table.verdict import TableVerdict, judge_rows, judge_table

SCHEMA_VERSION = 1


def diagnose(table: str, as_json: bool, fail_on: Severity | None, of_marks: bool = False) -> int:
    """Judge the table, of steps or of marks, or a recording, and print what was found; returns the exit code."""
    from ddpmon.recording.layout import RecordingError

    try:
        verdict = judge_any(table, of_marks)
    except (TableError, RecordingError) as error:
        complain(str(error))
        return USAGE
    except OSError as error:
        complain(f"{table} cannot be read: {error.strerror or error}")
        return USAGE
    _complain_of_rows(verdict)
    print(json_line(table_object(verdict)) if as_json else "\n".join(table_lines(verdict)))
    return FOUND if fail_on is not None and _found(verdict, fail_on) else OK


def judge_any(table: str, of_marks: bool = False) -> TableVerdict:
    """The verdict on a table in a file, on standard input for "-", or on the steps of a recording.

    Raises:
        TableError, RecordingError: it cannot be judged.
        OSError: it cannot be read.
    """
    path = recording_at(table)
    if path is not None and not of_marks:
        with closing(StepTable(path)) as steps:
            return judge_rows(steps.table())
    if table == "-":
        stream = getattr(sys.stdin, "buffer", None)  # there is no sys.stdin where it is closed
        if not isinstance(stream, io.BufferedReader):
            raise TableError("standard input is closed")
        return judge_table(stream, "standard input", of_marks=of_marks)
    with Path(table).open("rb") as stream:
        return judge_table(stream, table, of_marks=of_marks)


def _complain_of_rows(verdict: TableVerdict) -> None:
    for complaint in verdict.complaints:
        complain(complaint)
    if verdict.refused > len(verdict.complaints):
        complain(f"{verdict.refused - len(verdict.complaints):,} more rows could not be read")


def _found(verdict: TableVerdict, floor: Severity) -> bool:
    return any(at_or_above(finding.severity, floor) for finding in verdict.findings)


def table_object(verdict: TableVerdict) -> Object:
    """The verdict as one JSON object; a finding that lasts to the table's end has no `cleared_at_step`: null."""
    return {
        "schema_version": SCHEMA_VERSION,
        "source": verdict.source,
        "ranks": verdict.ranks,
        "steps": verdict.steps,
        "enough": verdict.enough,
        "notes": list(verdict.notes),
        "findings": [
            {**finding_object(finding), "cleared_at_step": finding.cleared_at_step} for finding in verdict.findings
        ],
    }


def table_lines(verdict: TableVerdict) -> Iterator[str]:
    """The verdict for a person: the findings that last, those that are over, and what to know of the table."""
    span = f"steps {verdict.first_step:,} to {verdict.last_step:,}"
    yield printable(f"{verdict.source}: {plural(verdict.ranks, 'rank')}, {span}")
    if not verdict.findings and verdict.enough:
        yield f"no finding in {verdict.compared:,} compared steps"
    for finding in verdict.findings:
        yield from _lines_of(finding)
    yield from (f"note: {printable(note)}" for note in verdict.notes)


def _lines_of(finding: Finding) -> Iterator[str]:
    over = "" if finding.cleared_at_step is None else ", over"
    yield f"{finding.severity}{over}: {printable(finding.summary)}"
    if finding.advice:
        yield f"    {printable(advice_text(finding.advice))}"
