"""The list of further findings below the verdict: how many there are, and what a filter leaves of them."""

from __future__ import annotations

import numpy as np
import pytest
from rich.segment import Segment

from ddpmon.snapshot import Finding
from ddpmon.tui.draw.clicked_key import key_in_brackets
from ddpmon.tui.draw.finding_view import list_lines
from ddpmon.tui.draw.findings import also_found_height, finding_at, finding_lines
from ddpmon.tui.draw.table import TableView
from ddpmon.tui.draw.verdict_lines import verdict_lines
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import NOTES, Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

LONG = "late<30 or late<40 or late<50 or late<60 or late<70"


def picture_of(notes: tuple[Finding, ...], wanted: str = "") -> ViewState:
    """A run whose rank 5 is late, with these findings besides."""
    return ViewState(snapshot(Made(straggler=5, findings=notes)), LOOKS["ascii"], wanted=wanted)


@pytest.mark.parametrize(
    ("notes", "more", "left_out"),
    [
        (NOTES, "2 more [5]", "1 over, not shown [5]"),
        ((*NOTES[:2], NOTES[0]), "3 more [5]", "2 of 3 shown [5]"),
        ((*NOTES[:2], *NOTES), "4 more [5]", "2 of 4 shown, 1 over [5]"),
        ((NOTES[0], NOTES[2], NOTES[2]), "1 more [5]", "2 over, 1 shown [5]"),
        (NOTES[:2], "2 more [5]", ""),
    ],
)
def test_the_list_and_the_first_line_count_the_same_findings(
    notes: tuple[Finding, ...], more: str, left_out: str
) -> None:
    """A line of its own said `4 of 5 shown`, where the fifth finding had room."""
    made = picture_of(notes)
    assert any(more in line for line in text_of(verdict_lines(made, 120)))
    heading, *listed = text_of(finding_lines(made, 100, 3))
    assert heading.startswith(f"- also found{', ' if left_out else ''}{left_out} -")
    assert [":" in words for words in listed] == [True, True], "a finding in each line"
    assert (key_in_brackets([Segment(heading)], heading.find("[5]") + 1) == "5") is bool(left_out)


@pytest.mark.parametrize(
    ("wanted", "heading", "listed"),
    [
        ("", "also found, 1 over", ["rank 2: ", "the run: ", "rank 1: "]),
        ("rank=2", "also found, filter rank=2: 2 of 3", ["rank 2: ", "the run: "]),
        ("rank=1", "also found, filter rank=1: 2 of 3, 1 over", ["the run: ", "rank 1: "]),
        ("late>30", "also found, filter late>30: 1 of 3", ["the run: "]),
        (f"gc_pauses ({LONG})", "also found, filter: 1 of 3, 1 over", ["rank 1: "]),
    ],
)
def test_a_filter_leaves_of_the_list_what_concerns_a_rank_that_fits_or_the_run(
    wanted: str, heading: str, listed: list[str]
) -> None:
    """The list went on naming ranks that the table and the other views had left out. The verdict is the run's."""
    made = picture_of(NOTES, wanted)
    assert text_of(verdict_lines(made, 80)) == text_of(verdict_lines(picture_of(NOTES), 80))
    assert also_found_height(made) == len(listed)
    title, *lines = text_of(finding_lines(made, 80, 1 + len(listed)))
    assert title.startswith(f"- {heading} -")
    assert [line[5:].startswith(whom) for line, whom in zip(lines, listed, strict=True)] == [True] * len(listed)
    assert all(finding_at(made, 80, 1 + len(listed), 1 + row) for row in range(len(listed)))


@pytest.mark.parametrize(
    ("wanted", "heading", "what"),
    [("late>999", "filter late>999: 0 of 4", "finding"), ("straggler", "filter straggler: 0 of 3", "other finding")],
)
def test_a_list_of_which_the_filter_fits_nothing_says_so(wanted: str, heading: str, what: str) -> None:
    made = picture_of(NOTES, wanted)
    title, line = text_of(finding_lines(made, 80, 1 + also_found_height(made)))
    assert heading in title
    assert line.strip() == f"no {what} matches; / esc drops the filter"
    assert finding_at(made, 80, 2, 1) is None


@pytest.mark.parametrize(("wanted", "is_told"), [("late>30", True), ("rank=1", False)])
def test_findings_in_full_are_those_that_the_filter_fits(wanted: str, is_told: bool) -> None:
    made = picture_of(NOTES, wanted)
    title, *lines = text_of(finding_lines(made, 120, 60))
    assert f" filter {wanted}: {2} of 4" in title
    summaries = [finding.summary for finding in made.snapshot.findings]
    assert [said[:30] in "\n".join(lines) for said in summaries] == [is_told, False, True, not is_told]


def test_the_filter_of_a_list_without_findings_has_nothing_to_count() -> None:
    """The findings view said `filter late>10: 0 of 0 findings`."""
    picture = ViewState(snapshot(Made()), LOOKS["ascii"], wanted="late>10")
    for title in (
        text_of(list_lines(picture, [], TableView(np.arange(0)), 80, 5))[0],
        text_of(finding_lines(picture, 80, 5))[0],
    ):
        assert " filter late>10: nothing to count " in title
        assert "0 of 0" not in title


@pytest.mark.parametrize("wanted", ["", "late>999"])
@pytest.mark.parametrize(("width", "height"), [(80, 1), (80, 2), (30, 3), (80, 3), (80, 0)])
def test_a_run_without_findings_is_never_said_to_have_none_that_match(wanted: str, width: int, height: int) -> None:
    """In three lines it said that no other finding matches, and how to clear a filter that was not set."""
    lines = text_of(finding_lines(ViewState(snapshot(Made()), LOOKS["ascii"], wanted=wanted), width, height))
    assert len(lines) == height
    assert not any("match" in line for line in lines), lines
    assert all(line.startswith("- findings ") for line in lines[:1])
