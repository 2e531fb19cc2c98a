"""What began before a watcher came: no surface gives the first step on record as its onset."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ddpmon.commands.status_text import status_lines
from ddpmon.recording.story import report_of_snapshot
from ddpmon.report.finding_text import finding_text
from ddpmon.report.report_html import page
from ddpmon.report.report_markdown import markdown
from ddpmon.report.run_about import about
from ddpmon.report.sentences import tell
from ddpmon.report.status_json import status_object
from ddpmon.snapshot import Snapshot
from ddpmon.tui.draw.finding_view import evidence_lines, list_lines
from ddpmon.tui.draw.findings import all_findings, finding_lines
from ddpmon.tui.draw.table import TableView
from ddpmon.tui.draw.verdict_lines import verdict_lines
from ddpmon.tui.lines import Line
from ddpmon.tui.view_state import ViewState
from tests.made_frames import run_info
from tests.report.test_late_sentences import alert, late
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

ONSET = 1_204


@pytest.fixture
def shown() -> Snapshot:
    """A run of which two ranks have been late since before the steps on record."""
    made = snapshot(Made(straggler=2, gpu=True))
    assert made.run is not None
    found = tell(alert(late(), since_step=ONSET, since_is_bound=True))
    other = replace(found, ranks=(5,), summary=found.summary.replace("rank 2", "rank 5"))
    return replace(made, findings=(found, other), run=replace(made.run, step_age_s=0.2))


def drawn(lines: list[Line]) -> str:
    """Lines as text, without the breaks between words."""
    return re.sub(r"\s+", " ", " ".join(text_of(lines)))


def test_all_surfaces_say_before_the_step_and_none_says_since_it(shown: Snapshot) -> None:
    picture, found = ViewState(shown, LOOKS["ascii"]), shown.findings[0]
    report = report_of_snapshot(shown, run_info(8), "x")
    listed = drawn(list_lines(picture, shown.findings, TableView(np.arange(2)), 120, 20))
    surfaces = {
        "headline": drawn(verdict_lines(picture, 160)),
        "headline in 80 columns": drawn(verdict_lines(picture, 80)),
        "also found": drawn(finding_lines(picture, 120, 3)),
        "findings in full": drawn(all_findings(picture, 400)),
        "finding": drawn(evidence_lines(picture, found, 120, 40)),
        "copied finding": finding_text(shown, found),
        "status": "\n".join(status_lines(shown)),
        "JSON": str(status_object(shown)["findings"]),
        "about the run": str([section.pairs for section in about(shown)]),
        "report": markdown(report),
        "page": page(report),
    }
    for name, words in surfaces.items():
        assert re.search(rf"before (step )?{ONSET:,}", words), (name, words)
        assert not re.search(rf"since (step )?{ONSET:,}|since step .*before {ONSET:,}", words), (name, words)
    assert " >" in listed, "how long at least"
    assert all(each["since_is_bound"] for each in status_object(shown)["findings"])
