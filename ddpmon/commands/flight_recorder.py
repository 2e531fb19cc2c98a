"""`ddpmon diagnose --flight-recorder`: who did not join, from what torch dumped on a timeout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ddpmon.commands.console import FOUND, OK, USAGE, complain, printable
from ddpmon.diagnose.alert import Severity, at_or_above
from ddpmon.flight.dumps import Dumps, NoDumpsError, read_folder
from ddpmon.flight.verdict import judge_dumps
from ddpmon.format import json_line, plural
from ddpmon.report.status_json import Object, finding_object
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding

SCHEMA_VERSION = 1
_STACK_LINES = 8


def diagnose_flight_recorder(folder: str, as_json: bool, fail_on: Severity | None) -> int:
    """Read the dumps in a folder and print what they show; returns the exit code."""
    try:
        dumps = read_folder(Path(folder))
    except NoDumpsError as error:
        complain(str(error))
        return USAGE
    findings = judge_dumps(dumps)
    print(json_line(_object(folder, dumps, findings)) if as_json else "\n".join(_lines(folder, dumps, findings)))
    return FOUND if fail_on and any(at_or_above(each.severity, fail_on) for each in findings) else OK


def _object(folder: str, dumps: Dumps, findings: Sequence[Finding]) -> Object:
    return {
        "schema_version": SCHEMA_VERSION,
        "source": folder,
        "ranks": len(dumps.of),
        "notes": list(dumps.notes),
        "findings": [finding_object(finding) for finding in findings],
    }


def _lines(folder: str, dumps: Dumps, findings: Sequence[Finding]) -> Iterator[str]:
    yield printable(f"{folder}: dumps of {plural(len(dumps.of), 'rank')}")
    if not findings:
        yield "no collective is pending: the run did not stop in one, or the dumps were made too late"
    for finding in findings:
        yield f"{finding.severity}: {printable(finding.summary)}"
        yield f"    {printable(advice_text(finding.advice))}"
        stack = str(finding.evidence.get("stack", "")).splitlines()
        if stack:
            yield "    those who wait, most recent call last"
        yield from (f"      {printable(line)}" for line in stack[-_STACK_LINES:])
    yield from (f"note: {printable(note)}" for note in dumps.notes)
