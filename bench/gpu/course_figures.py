"""What a row of the GPU course leaves behind: its figures and its verdict, as JSON.

The file is written again at every change, so a row that is stopped at its limit leaves what it had measured by then.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Figure = float | int | str | bool | None


class Figures:
    """The figures of one row.

    Args:
        path: where they are kept; None for a row that is run by hand.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._kept: dict[str, Any] = {"figures": {}, "said": [], "skipped": [], "supported": None, "why": ""}

    def put(self, named: Mapping[str, Figure]) -> None:
        """Keep figures by name; numbers with four digits."""
        for name, value in named.items():
            self._kept["figures"][name] = float(f"{value:.4g}") if isinstance(value, float) else value
            print(f"  {name} = {self._kept['figures'][name]}", flush=True)
        self._save()

    def say(self, text: str) -> None:
        """Print a sentence, which the course's table shows too."""
        self._kept["said"].append(text)
        print(text, flush=True)
        self._save()

    def skip(self, part: str, why: str) -> None:
        """Note a part of the row that cannot be measured here."""
        self._kept["skipped"].append(f"{part}: {why}"[:300])
        print(f"  skipped {part}: {why}", flush=True)
        self._save()

    def conclude(self, supported: bool, why: str) -> None:
        """Give the verdict: whether the figures support what the row is to prove, and why."""
        self._kept["supported"], self._kept["why"] = supported, why
        print(f"{'supported' if supported else 'refuted'}: {why}", flush=True)
        self._save()

    def _save(self) -> None:
        if self._path is not None:
            new = self._path.with_suffix(".new")
            new.write_text(json.dumps(self._kept, indent=1))
            new.replace(self._path)


def run_row(measure: Callable[[Figures, bool], None], about: str | None) -> None:
    """Parse a row's command line, measure, and leave without waiting for a device that may be stuck.

    Args:
        measure: takes the row's figures, and whether this is a rehearsal on CPUs.
        about: the row's docstring.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="on CPUs")
    parser.add_argument("--figures", type=Path, help="where the figures are kept as JSON")
    options = parser.parse_args()
    measure(Figures(options.figures), options.rehearse)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
