"""`ddpmon compare`: two recordings or tables side by side, with an exit code for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ddpmon.commands.console import FOUND, OK, USAGE, complain, printable
from ddpmon.commands.recordings import recording_at
from ddpmon.diagnose.alert import at_or_above
from ddpmon.format import figure, json_line, plural
from ddpmon.recording.layout import RecordingError
from ddpmon.recording.step_table import StepTable
from ddpmon.report.status_json import Object, finding_object, rounded
from ddpmon.snapshot import Finding
from ddpmon.table.csv_lines import TableError
from ddpmon.table.read import Table, read_table
from ddpmon.table.summary import OF_JOB, OF_RANK, SLOWEST, Comparison, TableSummary, compare, summarise

SCHEMA_VERSION = 1
_NAMES = {
    "step_ms": "step time, ms",
    "slow_step_ms": "slowest step in 20, ms",
    "lost_pct": "lost to waiting, %",
    "throughput": "samples/s",
    "rank_throughput": "samples/s and rank",
}
_WIDTH = 28


def compare_files(before: str, after: str, max_regression: float | None, as_json: bool) -> int:
    """Print how `after` differs from `before`; 1 if it is slower by more than `max_regression` percent."""
    try:
        found = compare(_summary(before), _summary(after))
    except (TableError, RecordingError) as error:
        complain(str(error))
        return USAGE
    except OSError as error:
        complain(f"{error.filename} cannot be read: {error.strerror or error}")
        return USAGE
    slower = max_regression is not None and found.slower_pct > max_regression
    print(json_line(_object(found, max_regression, slower)) if as_json else "\n".join(_lines(found, max_regression)))
    return FOUND if slower else OK


def _summary(name: str) -> TableSummary:
    """The figures of one file.

    Raises:
        TableError, RecordingError: it cannot be judged.
        OSError: it cannot be read.
    """
    return summarise(_table(name))


def _table(name: str) -> Table:
    path = recording_at(name)
    if path is not None:
        with closing(StepTable(path)) as steps:
            return steps.table()
    with Path(name).open("rb") as stream:
        return read_table(stream, name)


def _object(found: Comparison, max_regression: float | None, slower: bool) -> Object:
    return {
        "schema_version": SCHEMA_VERSION,
        "before": _side(found.before),
        "after": _side(found.after),
        "change_pct": {name: rounded(change) for name, _, _, change in found.changes()},
        "basis": found.basis,
        "slower_pct": rounded(found.slower_pct),
        "max_regression_pct": max_regression,
        "regressed": slower,
        "notes": list(found.notes()),
    }


def _side(side: TableSummary) -> Object:
    return {
        "source": side.source,
        "ranks": side.ranks,
        "steps": side.steps,
        "first_step": side.first_step,
        "last_step": side.last_step,
        "slowest_rank": side.slowest_rank,
        **{name: rounded(value) for name, value in side.figures.items()},
        "findings": [{**finding_object(each), "cleared_at_step": each.cleared_at_step} for each in side.findings],
        "notes": list(side.notes),
    }


def _lines(found: Comparison, max_regression: float | None) -> Iterator[str]:
    how = "slower" if found.slower_pct > 0 else "faster"
    what = "for a sample of a rank" if found.basis != "step_ms" else "for a step"
    bound = "" if max_regression is None else f" ({max_regression:g} % slower is allowed)"
    yield f"the second is {abs(found.slower_pct):.1f} % {how} {what}{bound}"
    yield ""
    for place, side in (("first", found.before), ("second", found.after)):
        span = f"steps {side.first_step:,} to {side.last_step:,}"
        yield printable(f"{place + ':':<8} {side.source}: {plural(side.ranks, 'rank')}, {span}")
    yield ""
    yield f"{'':<{_WIDTH}}{'first':>10}{'second':>10}{'change':>10}"
    yield from _figures(found)
    for place, side in (("first", found.before), ("second", found.after)):
        yield from _findings(place, side.findings)
    yield from (f"note: {printable(note)}" for note in found.notes())


def _figures(found: Comparison) -> Iterator[str]:
    """The figures of the job, of the slowest rank of each file, and of the other ranks."""
    rows = {name: (a, b, change) for name, a, b, change in found.changes()}
    yield from (_row(_NAMES[name], *rows[name]) for name in OF_JOB)
    slowest = (found.before.slowest_rank, found.after.slowest_rank)
    if slowest != (None, None):
        yield ""
        yield f"{'slowest rank':<{_WIDTH}}" + "".join(f"{'–' if rank is None else rank:>10}" for rank in slowest)
        yield from (_row(f"  {_title(name)}", *rows[f"{SLOWEST}{name}"]) for name in OF_RANK)
    yield ""
    yield "other ranks, median" if slowest != (None, None) else "its rank"
    yield from (_row(f"  {_title(name)}", *rows[name]) for name in OF_RANK)


def _title(name: str) -> str:
    return f"{name.removesuffix('_ms')}, ms"


def _row(title: str, before: float, after: float, change: float) -> str:
    moved = f"{change:+.1f} %" if abs(change) < 1e4 else "–"
    return f"{title:<{_WIDTH}}{figure(before):>10}{figure(after):>10}{moved:>10}"


def _findings(place: str, findings: tuple[Finding, ...]) -> Iterator[str]:
    loud = [finding for finding in findings if at_or_above(finding.severity, "warning")]
    yield ""
    yield f"{place}: {'no warning' if not loud else ''}".rstrip()
    for finding in loud:
        over = "" if finding.cleared_at_step is None else ", over"
        yield f"  {finding.severity}{over}: {printable(finding.summary)}"
