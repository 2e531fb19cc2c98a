"""Writes the tables of kinds in README.md and docs/findings.md from the table in the code.

python docs/make_findings.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ddpmon.diagnose.kinds import KINDS, KindName

ROOT = Path(__file__).parents[1]
README, FINDINGS = ROOT / "README.md", ROOT / "docs" / "findings.md"
BEGIN, END = "<!-- made by docs/make_findings.py -->", "<!-- end -->"
IN_README: tuple[tuple[KindName, ...], ...] = (
    ("straggler", "intermittent_straggler"),
    ("slow_node",),
    ("job_slower", "slow_network"),
    ("uneven_work", "uneven_inputs"),
    ("hang",),
    ("rank_failed", "rank_lost"),
    ("nonfinite_loss", "loss_jump"),
    ("gpu_shared", "gpu_throttled", "gpu_errors"),
    ("cpu_contention", "cpu_pinned", "cpu_throttled"),
    ("memory_pressure", "shm_low", "disk_low", "nic_errors"),
)


def pages() -> dict[Path, str]:
    """Each page that holds such a table, with the text that it should have.

    Raises:
        ValueError: a page has no place for its table, or docs/findings.md does not explain a kind.
    """
    readme, findings = README.read_text("utf-8"), FINDINGS.read_text("utf-8")
    return {README: _with_table(readme, _short_table()), FINDINGS: _with_table(findings, _full_table(findings))}


def _with_table(page: str, table: Iterable[str]) -> str:
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"a page lacks the line {BEGIN} or {END}")
    return "\n".join((head + begin, "", *table, "", end + tail))


def _short_table() -> list[str]:
    """The kinds to know first, several a row."""
    rows = ["| finding | what it says |", "|---|---|"]
    for names in IN_README:
        said = "; ".join(KINDS[name].meaning for name in names)
        rows.append(f"| {', '.join(f'`{name}`' for name in names)} | {said} |")
    return rows


def _full_table(page: str) -> list[str]:
    """Every kind, with a link to where the page explains it."""
    anchors = explained(page)
    missing = [name for name in KINDS if name not in anchors]
    if missing:
        raise ValueError(f"docs/findings.md does not explain {', '.join(missing)}")
    rows = ["| kind | about | what it says |", "|---|---|---|"]
    return rows + [
        f"| [`{kind.name}`](#{anchors[kind.name]}) | {kind.subject} | {kind.meaning} |" for kind in KINDS.values()
    ]


def explained(page: str) -> dict[str, str]:
    """Each name that has a heading, or a row in a table, of its own: the anchor of that heading, or of the row's."""
    anchors, here = dict[str, str](), ""
    for line in page.splitlines():
        if heading := re.fullmatch(r"##+ `?(.+?)`?", line):
            here = heading[1].lower().replace(" ", "-")
            anchors[here] = here
        elif row := re.match(r"\| `(\w+)` \|", line):
            anchors[row[1]] = here
    return anchors


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, "utf-8")
