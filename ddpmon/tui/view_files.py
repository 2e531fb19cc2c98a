"""What is shown, as files: the picture as SVG or text, the view's table as CSV, everything as JSON; one finding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textual.screen import Screen

from ddpmon.format import json_line
from ddpmon.report.finding_text import finding_text
from ddpmon.report.status_json import finding_of_run, status_object
from ddpmon.snapshot import Finding, Snapshot
from ddpmon.tui.view_tables import TABLES, TableName

Forms = Mapping[str, tuple[str, str]]  # a key -> the form that it stands for, the ending of the file, and its name
REPORT = "report"
FINDING_FORMS: Forms = {
    "t": ("txt", "text"),
    "j": ("json", "JSON"),
}
REPORT_FORMS: Forms = {"r": (REPORT, "report of the run")}


def view_forms(table: TableName) -> Forms:
    """The forms of a view whose table is that one."""
    return {
        "s": ("svg", "SVG picture"),
        "t": ("txt", "text"),
        "c": ("csv", f"CSV of {TABLES[table]}"),
        "j": ("json", "JSON"),
    }


def view_text(screen: Screen[Any]) -> str:
    """The screen's lines as plain text."""
    strips = screen._compositor.render_strips()  # Textual has no public way to the characters on the screen
    return "".join(f"{strip.text.rstrip()}\n" for strip in strips)


def finding_file(snapshot: Snapshot, finding: Finding, form: str) -> str:
    """The same as `y` copies: text, or with the form "json" an object."""
    if form == "json":
        return json_line(finding_of_run(snapshot, finding)) + "\n"
    return finding_text(snapshot, finding)


def snapshot_json(snapshot: Snapshot) -> str:
    """The same object as `ddpmon status --json` prints."""
    return json_line(status_object(snapshot)) + "\n"
