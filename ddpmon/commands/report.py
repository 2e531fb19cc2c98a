"""`ddpmon report`: what happened to a run, as a page or as Markdown."""

from __future__ import annotations

import sys
from pathlib import Path

from ddpmon.commands.console import NO_RUN, OK, USAGE, complain, printable
from ddpmon.commands.looks import Looks
from ddpmon.commands.read_once import look_with_info
from ddpmon.commands.recordings import recording_at
from ddpmon.commands.target import reached
from ddpmon.report.report_html import page
from ddpmon.report.report_markdown import markdown
from ddpmon.report.run_report import RunReport
from ddpmon.store.base import StoreUnavailable, TargetError

_PAGES, _MARKDOWN = (".html", ".htm"), ".md"


def report(target: str | None, out: str | None, ssh: str | None = None, slurm: str | None = None) -> int:
    """Write the report on a run or a recording to a file, or as Markdown to standard output; returns the exit code."""
    from ddpmon.recording.layout import RecordingError

    try:
        if out is not None and Path(out).suffix.lower() not in (*_PAGES, _MARKDOWN):
            raise TargetError(f"{out!r} ends with neither .html nor .md: a report is a page or Markdown")
        told = _told(target, ssh, slurm)
    except (TargetError, RecordingError) as error:
        complain(str(error))
        return USAGE
    except StoreUnavailable as error:
        complain(str(error))
        return NO_RUN
    if out is None:
        sys.stdout.write(markdown(told))
        return OK
    return write(told, Path(out))


def write(told: RunReport, path: Path) -> int:
    """Write the report to a file, as a page if it is called .html, else as Markdown; returns the exit code."""
    content = page(told) if path.suffix.lower() in _PAGES else markdown(told)
    try:
        path.write_text(content, encoding="utf-8", errors="replace")
    except OSError as error:
        complain(f"{path} cannot be written: {error.strerror or error}")
        return USAGE
    print(f"wrote {printable(str(path))}")
    return OK


def _told(target: str | None, ssh: str | None, slurm: str | None) -> RunReport:
    from ddpmon.recording.story import report_of_file, report_of_snapshot

    path = recording_at(target) if ssh is None and slurm is None else None
    if path is not None:
        return report_of_file(path)
    with reached(target, ssh, slurm) as route:
        snapshot, info = look_with_info(route.target, Looks(), route.way)
    if info is None or snapshot.run is None:
        raise StoreUnavailable(snapshot.link.message or "no run was found")
    return report_of_snapshot(snapshot, info, snapshot.run.source)
