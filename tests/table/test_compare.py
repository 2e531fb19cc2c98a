"""`ddpmon compare` of tables: figures that ranks really have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddpmon.commands.compare import compare_files
from tests.made_frames import MadeJob, healthy_phases
from tests.table.tables import rows_of, text_of

PHASES = ("duration", "exposed", "input", "forward", "backward", "optimizer")


def table(path: Path, ranks: int, late_ms: float) -> str:
    """Steps of these ranks, of which the last one works longer in backward."""
    phases = healthy_phases(ranks, 120)
    phases["backward"][-1] += late_ms
    path.write_text(text_of(rows_of(MadeJob(phases), PHASES)))
    return str(path)


def test_the_slowest_rank_and_the_others_have_figures_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = table(tmp_path / "a.csv", 2, 20.0), table(tmp_path / "b.csv", 2, 60.0)
    assert compare_files(before, after, None, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert [told[side]["slowest_rank"] for side in ("before", "after")] == [1, 1]
    more = [told[side]["slowest_backward_ms"] - told[side]["backward_ms"] for side in ("before", "after")]
    assert more == pytest.approx([20.0, 60.0], abs=2.0), "not between the two ranks"
    assert abs(told["change_pct"]["backward_ms"]) < 1, "the other rank works as before"
    for side in (told["before"], told["after"]):
        assert side["slowest_work_ms"] + side["slowest_wait_ms"] == pytest.approx(side["step_ms"], rel=0.05)
    compare_files(before, after, None, as_json=False)
    assert "other ranks, median" in capsys.readouterr().out


def test_a_single_rank_is_compared_with_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone, two = table(tmp_path / "a.csv", 1, 0.0), table(tmp_path / "b.csv", 2, 20.0)
    compare_files(alone, two, None, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["before"]["slowest_rank"], told["before"]["slowest_work_ms"]) == (None, None)
    assert told["before"]["work_ms"] > 0
    compare_files(alone, alone, None, as_json=False)
    assert "slowest rank" not in capsys.readouterr().out
