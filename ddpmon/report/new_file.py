"""Files that a user asks for while looking at a run: named after it, and never written over another file."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from ddpmon.snapshot import RunView

_LONGEST_NAME = 80


def stem_of(what: str, run: RunView) -> str:
    """The name of a file without its ending: `report-my-run-step-1200`; a run may call itself anything."""
    name = re.sub(r"[^\w.-]+", "-", run.name, flags=re.ASCII)[:_LONGEST_NAME].strip(".-") or "run"
    return f"{what}-{name}-step-{run.step if run.step is not None else 0}"


def write_new(stem: str, suffix: str, text: str) -> Path:
    """Write a new file into the current folder; if there is one of that name, a number is added. Returns its path.

    Raises:
        OSError: it cannot be written.
    """
    for number in itertools.count(1):
        path = Path(f"{stem}{'' if number == 1 else f'-{number}'}{suffix}").absolute()
        try:
            with path.open("x", encoding="utf-8", errors="replace", newline="") as file:
                file.write(text)
        except FileExistsError:
            continue
        return path
    raise AssertionError("unreachable")
