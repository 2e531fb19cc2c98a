"""The table of the GPU course: what every row has measured so far, and its verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from course_rows import ROWS, Row

_HEAD = ("#", "measured", "figures", "proves", "refuted if", "verdict")
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '([^']+)'")
_LONGEST = 200  # characters of a log's last line

Result = dict[str, Any]


def verdict(row: Row, result: Result | None, waiting: str) -> str:
    """A row's verdict: supported, refuted, rehearsed only, or not run and why.

    Args:
        row: which one.
        result: what it left; None where it has not been run.
        waiting: why it has not been run.
    """
    if result is None:
        return f"not run: {waiting}"
    if result["ended"] and result["supported"] is None:
        return f"not run: {result['ended']}"
    if result["rehearsed"]:
        return f"rehearsed only: {row.rehearsed}"
    return f"{'supported' if result['supported'] else 'refuted'}: {result['why']}"


def why_it_ended(code: int, log: Path) -> str:
    """Why a row's process gave no verdict, from its exit code and its log; empty if it ended well."""
    if code == 0:
        return ""
    lines = log.read_text(errors="replace").strip().splitlines()
    last = lines[-1].strip() if lines else "no output"
    if missing := _MISSING.match(last):
        return f"the module {missing[1]} is missing"
    return f"failed with exit code {code}: {last[:_LONGEST]}"


def table(results: Mapping[int, Result], waiting: Mapping[int, str]) -> str:
    """All rows in Markdown.

    Args:
        results: what rows left, by number.
        waiting: why others have not been run, by number.
    """
    machines = sorted({result["machine"] for result in results.values()})
    lines = ["# A course on a real GPU", "", *machines, "", _line(_HEAD), _line("---" for _ in _HEAD)]
    for row in ROWS:
        result = results.get(row.number)
        shown = verdict(row, result, waiting.get(row.number, "not chosen so far"))
        lines.append(_line((row.number, row.measured, _figures(result), row.proves, row.refuted_if, shown)))
    return "\n".join([*lines, ""])


def _figures(result: Result | None) -> str:
    if result is None:
        return "-"
    said = [*result["said"], *(f"skipped: {part}" for part in result["skipped"])]
    known = len(result["figures"])
    return "; ".join(said) or (f"{known} in its JSON" if known else "-")


def _line(cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
