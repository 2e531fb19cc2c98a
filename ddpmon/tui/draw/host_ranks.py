"""The ranks of a host that no row of a GPU stands for: a line each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.segment import Segment

from ddpmon.format import figure, signed
from ddpmon.report.base_step import noise_ms
from ddpmon.report.verdicts import is_past
from ddpmon.report.wording import state_words
from ddpmon.snapshot import Finding, Ranks, Snapshot
from ddpmon.tui.draw.header import finding_style
from ddpmon.tui.draw.panel import title
from ddpmon.tui.lines import Line, fit
from ddpmon.tui.theme import Look

COLUMNS = (("late", 7), ("work ms", 9), ("wait ms", 9), ("cpu%", 6), ("GiB", 7))


def rank_rows(snapshot: Snapshot, who: Sequence[int], marked: dict[int, Finding], width: int, look: Look) -> list[Line]:
    """Title, headings, and a row for each of these ranks; nothing for none."""
    ranks, noise = snapshot.ranks, noise_ms(snapshot)
    if ranks is None or not who:
        return []
    headings = "".join(f"{name:>{size}}" for name, size in COLUMNS)
    past = is_past(snapshot)
    when = "at the end" if past else "now"
    lines = [title("ranks", "", width, look), [Segment(f"  {'rank':>7}{headings}  {when}", look.dim)]]
    return [*lines, *(_row(ranks, rank, marked.get(rank), noise, width, look, past=past) for rank in who)]


def _row(ranks: Ranks, rank: int, finding: Finding | None, noise: float, width: int, look: Look, *, past: bool) -> Line:
    glyph, style = finding_style(finding, look) if finding else (" ", look.text)
    late = look.clean(signed(float(ranks.lateness_ms[rank]), look.unknown, noise))
    resident = float(ranks.figures["rss_bytes"][rank]) / 2**30
    numbers = [late, *(figure(float(ranks.column(name)[rank]), look.unknown) for name in ("work_ms", "wait_ms"))]
    cpu = float(ranks.figures["cpu_pct"][rank])
    numbers += [look.unknown if not math.isfinite(cpu) else f"{cpu:.0f}", figure(resident, look.unknown)]
    text = "".join(f"{number:>{size}}" for number, (_, size) in zip(numbers, COLUMNS, strict=True))
    state, phase = ranks.state[rank], ranks.phase[rank]
    now = look.clean(state_words(state, phase, past=past))
    tone = look.broken if state in ("lost", "failed") else look.dim
    line = [Segment(f" {glyph}", style), Segment(f"{rank:>7}", look.strong), Segment(text, look.text)]
    return fit([*line, Segment(f"  {now}", tone)], width)
