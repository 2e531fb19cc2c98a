"""What is shown, as files: the picture as SVG or text, the rank table as CSV, everything as JSON; one finding."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from typing import Any

from textual.screen import Screen

from ddpmon.format import clean, json_line
from ddpmon.report.finding_text import finding_text
from ddpmon.report.status_json import finding_of_run, status_object
from ddpmon.snapshot import Finding, Ints, Snapshot
from ddpmon.tui.draw.columns import COLUMNS

# A key -> the form that it stands for, which is the ending of the file, and what that is called.
VIEW_FORMS: Mapping[str, tuple[str, str]] = {
    "s": ("svg", "SVG picture"),
    "t": ("txt", "text"),
    "c": ("csv", "CSV of the rank table"),
    "j": ("json", "JSON"),
}
REPORT = "report"
FINDING_FORMS: Mapping[str, tuple[str, str]] = {
    "t": ("txt", "text"),
    "j": ("json", "JSON"),
}
REPORT_FORMS: Mapping[str, tuple[str, str]] = {"r": (REPORT, "report of the run")}


def view_text(screen: Screen[Any]) -> str:
    """The screen's lines as plain text."""
    strips = screen._compositor.render_strips()  # Textual has no public way to the characters on the screen
    return "".join(f"{strip.text.rstrip()}\n" for strip in strips)


def table_csv(snapshot: Snapshot, order: Ints) -> str:
    """The rank table with all its columns, whichever of them are shown; an unknown figure is an empty cell.

    Args:
        snapshot: what is shown.
        order: the ranks in the order of the table.
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["rank", "host", "state", *(column.heading for column in COLUMNS[1:])])
    ranks = snapshot.ranks
    if ranks is not None:
        values = [column.values(ranks, order).tolist() for column in COLUMNS[1:]]
        for place, rank in enumerate(order.tolist()):
            figures = [_cell(column[place]) for column in values]
            rows.writerow([rank, clean(ranks.host[rank]), clean(ranks.state[rank]), *figures])
    return text.getvalue()


def _cell(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else ""


def finding_file(snapshot: Snapshot, finding: Finding, form: str) -> str:
    """The same as `y` copies: text, or with the form "json" an object."""
    if form == "json":
        return json_line(finding_of_run(snapshot, finding)) + "\n"
    return finding_text(snapshot, finding)


def snapshot_json(snapshot: Snapshot) -> str:
    """The same object as `ddpmon status --json` prints."""
    return json_line(status_object(snapshot)) + "\n"
