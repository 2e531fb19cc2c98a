"""The ranks of a host that no row of a GPU stands for: a line each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.segment import Segment

from ddpmon.format import figure
from ddpmon.report.past import when_words
from ddpmon.report.peers import ShownLateness
from ddpmon.report.verdicts import is_past
from ddpmon.report.wording import state_words
from ddpmon.snapshot import Finding, Ranks, Snapshot
from ddpmon.tui.draw.gpu_table import late_cells
from ddpmon.tui.draw.header import finding_style
from ddpmon.tui.draw.panel import title
from ddpmon.tui.lines import Line, fit
from ddpmon.tui.theme import Look

COLUMNS = (("work ms", 9), ("wait ms", 9), ("cpu%", 6), ("GiB", 7))


def rank_rows(snapshot: Snapshot, who: Sequence[int], marked: dict[int, Finding], width: int, look: Look) -> list[Line]:
    """Title, headings, and a row for each of these ranks; nothing for none."""
    ranks, lateness = snapshot.ranks, ShownLateness(snapshot)
    if ranks is None or not who:
        return []
    late = [look.clean(lateness.words([rank], look.unknown)) for rank in who]
    cells, past = 1 + late_cells(late), is_past(snapshot)
    headings = f"{'late':>{cells}}" + "".join(f"{name:>{size}}" for name, size in COLUMNS)
    when = when_words(snapshot)
    lines = [title("ranks", "", width, look), [Segment(f"  {'rank':>7}{headings}  {when}", look.dim)]]
    rows = ((rank, f"{said:>{cells}}") for rank, said in zip(who, late, strict=True))
    return [*lines, *(_row(ranks, rank, marked.get(rank), said, width, look, past=past) for rank, said in rows)]


def _row(ranks: Ranks, rank: int, finding: Finding | None, late: str, width: int, look: Look, *, past: bool) -> Line:
    glyph, style = finding_style(finding, look) if finding else (" ", look.text)
    resident = float(ranks.figures["rss_bytes"][rank]) / 2**30
    numbers = [figure(float(ranks.column(name)[rank]), look.unknown) for name in ("work_ms", "wait_ms")]
    cpu = float(ranks.figures["cpu_pct"][rank])
    numbers += [look.unknown if not math.isfinite(cpu) else f"{cpu:.0f}", figure(resident, look.unknown)]
    text = late + "".join(f"{number:>{size}}" for number, (_, size) in zip(numbers, COLUMNS, strict=True))
    state, phase = ranks.state[rank], ranks.phase[rank]
    now = look.clean(state_words(state, phase, past=past))
    tone = look.broken if state in ("lost", "failed") else look.dim
    line = [Segment(f" {glyph}", style), Segment(f"{rank:>7}", look.strong), Segment(text, look.text)]
    return fit([*line, Segment(f"  {now}", tone)], width)
