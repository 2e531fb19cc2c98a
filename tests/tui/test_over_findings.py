"""Findings that are over: what is copied and written of each is what its row says."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddpmon.report.finding_text import finding_text
from ddpmon.snapshot import Finding
from ddpmon.tui.draw.finding_view import list_lines
from ddpmon.tui.draw.findings import all_findings, finding_lines
from ddpmon.tui.draw.table import TableView
from ddpmon.tui.view_state import ViewState
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.test_habits import copied, sent
from tests.tui.watched import STRAGGLER, Fixed, Watched, watch

SPANS = ((900, 940), (700, 730), (500, 520))  # of the same ranks, which were lost several times


def lost(life: int, since: int, over: int | None = None) -> Finding:
    now, then = f"have been silent since step {since:,}", f"were silent from step {since:,} to {over or 0:,}"
    summary = f"ranks 6-7 {now if over is None else then}"
    return Finding("rank_lost", "warning", summary, (6, 7), ("node1",), since_step=since, cleared_at_step=over, id=life)


OVER = tuple(lost(9 - place, *span) for place, span in enumerate(SPANS))
LASTING = tuple(replace(lost(20 + place, 1_000 + place), ranks=(place,)) for place in range(2))
SEEN = Fixed(replace(STRAGGLER, findings=(*LASTING, *OVER)))


@pytest.mark.parametrize(
    ("over", "words"), [(None, "costs 24 % of the run's time;"), (900, "cost 24 % of the run's time while it lasted;")]
)
def test_what_is_over_has_cost_a_share_of_the_time_that_it_lasted(over: int | None, words: str) -> None:
    late = next(each for each in STRAGGLER.findings if each.kind == "straggler")
    shown = replace(STRAGGLER, findings=(replace(late, cleared_at_step=over, cost_pct=24.0),))
    assert f"; {words}" in finding_text(shown, shown.findings[0])
    drawn = " ".join(text_of(all_findings(ViewState(shown, LOOKS["colour"]), 400)))
    assert f"; {words}" in drawn


def test_each_finding_is_copied_and_written_as_the_one_under_the_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Y` and `w` took the first of all that were lost, `y` did not say since when."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TMUX", raising=False)
    as_json: list[dict[str, Any]] = []
    as_text: list[str] = []

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("5", "home")
        said = sent(watched)
        for place in range(len(LASTING + OVER)):
            said.clear()
            await watched.press("Y")
            as_json.append(json.loads(copied(said)))
            said.clear()
            await watched.press("y")
            as_text.append(copied(said))
            await watched.press("w", "j")
            await watched.until(lambda: len(list(tmp_path.iterdir())) == place + 1)  # noqa: B023  # awaited here
            await watched.press("j")

    watch(SEEN, act, (120, 40))
    named = [(found["since_step"], found["cleared_at_step"]) for found in as_json]
    assert named == [(1_000, None), (1_001, None), *SPANS]
    assert all(
        f"since step {since:,}; over at step {over:,}" in text
        for (since, over), text in zip(SPANS, as_text[2:], strict=True)
    )
    written = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    assert sorted(found["since_step"] for found in written) == sorted(found["since_step"] for found in as_json)


def test_the_table_has_a_row_of_its_own_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("5", "ctrl+s", "c")
        await watched.until_shown("written:")

    watch(SEEN, act)
    rows = list(csv.DictReader(next(tmp_path.glob("*.csv")).read_text().splitlines()))
    ends = [(row["since_step"], row["cleared_at_step"]) for row in rows]
    assert ends == [("1000", ""), ("1001", ""), *((str(since), str(over)) for since, over in SPANS)]
    assert len({row["summary"] for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("many", "title", "counted"), [(9, "9 findings", "9 over"), (10, "10 or more findings", "10 or more over")]
)
def test_a_number_that_is_a_limit_is_not_told_as_a_total(many: int, title: str, counted: str) -> None:
    """A report counted 31 of which the screen said that there were 10."""
    over = tuple(lost(place, 100 * place, 100 * place + 50) for place in range(1, many + 1))
    picture = ViewState(replace(STRAGGLER, findings=(*STRAGGLER.findings[:1], *over)), LOOKS["colour"])
    listed = text_of(list_lines(picture, picture.found, TableView(np.arange(many + 1)), 80, 30))
    assert any(line.startswith("─ over ─") and f"─ {title} " in line for line in listed)
    found = text_of(finding_lines(picture, 100, 4))
    assert f"also found, {counted}, 3 shown [5] " in found[0]
