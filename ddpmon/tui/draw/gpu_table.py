"""The GPUs of one host: a row each, with utilisation and the power it draws side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from ddpmon.diagnose.alert import SEVERITIES, at_or_above
from ddpmon.machine import GpuFigures
from ddpmon.report.host_gpus import GpuState, Level
from ddpmon.report.peers import RHYTHM
from ddpmon.report.verdicts import about_machine, marked_ranks
from ddpmon.snapshot import Finding
from ddpmon.tui.draw.header import finding_style
from ddpmon.tui.draw.panel import FAINT, STRONG, USUAL, meter, title
from ddpmon.tui.lines import Line, clip, cut, fit
from ddpmon.tui.theme import Look

REMARK_LEAST, REMARK_MOST = 17, 30
LEAD = 12  # glyph, index, ranks
LATE, LATE_FROM = 6, 72  # cells of a lateness, and the width from which on it has a column
HOTTEST_C = 100.0


@dataclass(frozen=True, slots=True)
class Gauge:
    """A quantity with a bar and a number.

    Attributes:
        heading: name and unit.
        number: cells of the number.
        bars: the least cells of the bar, and those that it has on a usual terminal, beyond which all bars grow alike.
        worth: gauges of higher worth are kept when room is short.
        share: how full the bar is. text: the number, of the unknown dash.
    """

    heading: str
    number: int
    bars: tuple[int, int]
    worth: int
    shade: int
    share: Callable[[GpuFigures], float | None]
    text: Callable[[GpuFigures, str], str]

    @property
    def least(self) -> int:
        """Cells that it needs, with the gap before it."""
        return 1 + self.bars[0] + self.number


def share_of(part: float | None, whole: float | None) -> float | None:
    """Part of a whole, None where either is unknown."""
    return part / whole if part is not None and whole else None


def _pair(part: float | None, whole: float | None, unknown: str) -> str:
    """`540/700`, as far as known."""
    return f"{part:.0f}/{whole:.0f}" if part is not None and whole is not None else _whole(part, unknown)


def _whole(value: float | None, unknown: str) -> str:
    return unknown if value is None else f"{value:,.0f}"


def _memory(gpu: GpuFigures, unknown: str) -> str:
    if gpu.memory_used is None:
        return unknown
    whole = f"/{gpu.memory_total / 2**30:.0f}" if gpu.memory_total is not None else ""
    return f"{gpu.memory_used / 2**30:.1f}{whole}"


GAUGES = (
    Gauge("util %", 4, (6, 24), 9, STRONG, lambda gpu: share_of(gpu.utilization_pct, 100.0),
          lambda gpu, unknown: _whole(gpu.utilization_pct, unknown)),
    Gauge("power W", 8, (4, 16), 8, STRONG, lambda gpu: share_of(gpu.power_w, gpu.power_limit_w),
          lambda gpu, unknown: _pair(gpu.power_w, gpu.power_limit_w, unknown)),
    Gauge("memory GiB", 9, (3, 16), 7, USUAL, lambda gpu: share_of(gpu.memory_used, gpu.memory_total), _memory),
    Gauge("SM MHz", 6, (3, 12), 6, FAINT, lambda gpu: share_of(gpu.sm_clock_mhz, gpu.sm_clock_max_mhz),
          lambda gpu, unknown: _whole(gpu.sm_clock_mhz, unknown)),
    Gauge("C", 4, (0, 8), 5, FAINT, lambda gpu: share_of(gpu.temperature_c, HOTTEST_C),
          lambda gpu, unknown: _whole(gpu.temperature_c, unknown)),
)  # fmt: skip


def gpu_lines(states: Sequence[GpuState], found: FoundOn, late: Sequence[str], width: int, look: Look) -> list[Line]:
    """Title, headings, and a row a GPU; `late` is the lateness of the latest rank on each."""
    names = list(dict.fromkeys(look.clean(state.gpu.name) for state in states if state.gpu.name))
    lines = [title("GPUs", ", ".join(names), width, look)]
    cells = late_cells(late) if width >= LATE_FROM else 0
    gauges, bars = _sheet(width - cells - bool(cells))
    lines.append(_headings(gauges, bars, cells, width, look))
    column = [f"{said:>{cells}} " if cells else "" for said in late]
    rows = zip(states, column, strict=True)
    return [*lines, *(_row(state, found, said, gauges, bars, width, look) for state, said in rows)]


def late_cells(late: Sequence[str]) -> int:
    """The cells of a column of lateness: more than usual where a rank is late now and then."""
    return LATE if all(len(words) <= LATE for words in late) else RHYTHM


def _sheet(width: int) -> tuple[list[Gauge], list[int]]:
    """The gauges that fit, and the width of each one's bar; what is left over is for the remarks."""
    chosen: list[Gauge] = []
    for gauge in sorted(GAUGES, key=lambda gauge: -gauge.worth):
        if LEAD + sum(one.least for one in [*chosen, gauge]) <= max(width - REMARK_LEAST, LEAD + GAUGES[0].least):
            chosen.append(gauge)
    gauges = [gauge for gauge in GAUGES if gauge in chosen]
    spare = max(width - LEAD - sum(gauge.least for gauge in gauges) - REMARK_LEAST, 0)
    spare -= min(spare // 4, REMARK_MOST - REMARK_LEAST)
    wanted = [gauge.bars[1] - gauge.bars[0] for gauge in gauges]
    share = spare / max(sum(wanted), 1)
    return gauges, [gauge.bars[0] + int(share * more) for gauge, more in zip(gauges, wanted, strict=True)]


def _headings(gauges: list[Gauge], bars: list[int], late: int, width: int, look: Look) -> Line:
    """`late` are the cells of the lateness, 0 without it."""
    line = f"{'gpu':>5} {'rank':>5} " + (f"{'late':>{late}} " if late else "")
    for gauge, bar in zip(gauges, bars, strict=True):
        heading = gauge.heading if gauge.heading != "C" or look.ascii_only else "°C"
        line += f" {heading:>{bar + gauge.number}}"
    return fit([Segment(line, look.dim)], width)


def _row(
    state: GpuState,
    found: FoundOn,
    late: str,
    gauges: list[Gauge],
    bars: list[int],
    width: int,
    look: Look,
) -> Line:
    glyph, style = gpu_glyph(state, found, look)
    warned = told_style(state, found.told, look)[1]
    line: Line = [Segment(f" {glyph}", style), Segment(f"{state.gpu.index:>3} ", look.text), _ranks(state, look)]
    line += [Segment(late, look.dim if late.strip() == look.unknown else look.text)] if late else []
    for gauge, bar in zip(gauges, bars, strict=True):
        text = gauge.text(state.gpu, look.unknown)
        line.append(Segment(" ", look.text))
        line += meter(gauge.share(state.gpu), bar, look, gauge.shade)
        number = clip(text, gauge.number - 1, look.glyphs.more)
        line.append(Segment(f"{number:>{gauge.number}}", look.dim if text == look.unknown else look.text))
    line.append(Segment("  ", look.text))
    for index, (level, word) in enumerate(state.remarks):
        tone = warned if level == "warning" else level_style(level, look)[1]
        line.append(Segment(f"{', ' if index else ''}{look.clean(word)}", tone))
    return cut(line, width, Segment(look.glyphs.more, look.dim))


def _ranks(state: GpuState, look: Look) -> Segment:
    """Our ranks on it."""
    text = ",".join(str(rank) for rank in state.ranks) or look.unknown
    style = look.dim if not state.ranks else look.accent if len(state.ranks) > 1 else look.strong
    return Segment(f"{clip(text, 5, look.glyphs.more):>5} ", style)


def level_style(level: Level, look: Look) -> tuple[str, Style]:
    """Glyph and style of a remark."""
    if level == "broken":
        return look.glyphs.lost, look.broken
    return (look.glyphs.mark, look.accent) if level == "warning" else (look.glyphs.note, look.dim)


class FoundOn(NamedTuple):
    """The worst lasting finding on each rank.

    Attributes:
        worst: of all findings.
        told: of those that tell of its host, its GPU or a process there.
    """

    worst: dict[int, Finding]
    told: dict[int, Finding]


def found_on(findings: Sequence[Finding]) -> FoundOn:
    """The worst of these findings on each rank."""
    return FoundOn(marked_ranks(findings), marked_ranks(about_machine(findings)))


def gpu_glyph(state: GpuState, found: FoundOn, look: Look) -> tuple[str, Style]:
    """The sign before a GPU: that of a loud finding about a rank on it, else that of its own state.

    Only that a GPU is broken is as bad whatever is found.
    """
    level = state.remarks[0][0] if state.remarks else "note"
    if level == "broken":
        return level_style(level, look)
    worst = _worst(state, found.worst)
    if worst is not None and at_or_above(worst.severity, "warning"):
        return finding_style(worst, look)
    return told_style(state, found.told, look) if level == "warning" else (" ", look.text)


def told_style(state: GpuState, told: dict[int, Finding], look: Look) -> tuple[str, Style]:
    """How a warning of a GPU's state is marked: as the worst finding that tells of it, else as what stands out."""
    finding = _worst(state, told)
    return level_style("warning", look) if finding is None else finding_style(finding, look)


def _worst(state: GpuState, marked: dict[int, Finding]) -> Finding | None:
    return max((marked[rank] for rank in state.ranks if rank in marked), key=_severity, default=None)


def _severity(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)
