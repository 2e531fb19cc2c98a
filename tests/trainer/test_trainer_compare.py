from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainer.compare import differ, main


def dump(first_step: int, losses: list[float], parameters: str = "p") -> dict[str, Any]:
    return {"first_step": first_step, "losses": [[loss.hex() for loss in losses]] * 2, "parameters": parameters}


def test_equal_runs_do_not_differ() -> None:
    assert differ(dump(0, [1.0, 2.0, 3.0]), dump(0, [1.0, 2.0, 3.0])) is None


def test_a_resumed_run_is_compared_where_both_have_steps() -> None:
    assert differ(dump(0, [1.0, 2.0, 3.0]), dump(1, [2.0, 3.0])) is None
    assert "step 2" in str(differ(dump(0, [1.0, 2.0, 3.0]), dump(1, [2.0, 3.5])))


def test_the_last_bit_counts() -> None:
    assert "step 1" in str(differ(dump(0, [1.0, 2.0]), dump(0, [1.0, 2.0000000000000004])))


def test_other_differences_are_named() -> None:
    assert "parameters" in str(differ(dump(0, [1.0]), dump(0, [1.0], "q")))
    assert "end at different steps" in str(differ(dump(0, [1.0]), dump(0, [1.0, 2.0])))
    assert "ranks" in str(differ(dump(0, [1.0]), {**dump(0, [1.0]), "losses": []}))


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    a.write_text(json.dumps(dump(0, [1.0])))
    b.write_text(json.dumps(dump(0, [1.5])))
    c.write_text("[]")
    assert main([str(a), str(a)]) == 0
    assert main([str(a), str(b)]) == 1
    assert main([str(a), str(c)]) == 2
    assert main([str(a), str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 2
