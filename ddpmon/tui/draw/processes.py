"""The processes on a host's GPUs and the top users of its CPUs: foreign ones first, ours named by their rank."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment

from ddpmon.format import amount, figure
from ddpmon.machine import GpuProcess, HostProcess, Process
from ddpmon.report.host_summary import is_hog
from ddpmon.report.hosts import GpuState, number_span, whose
from ddpmon.run.ours import Ours
from ddpmon.tui.draw.panel import paragraph, title
from ddpmon.tui.lines import Line, cut, fit, left
from ddpmon.tui.look import Look

MOST = 12  # of the users of CPU
WHO, USER = 14, 10
STRANGER, UNCLEAR = "foreign", "hidden"


def gpu_process_lines(states: Sequence[GpuState], ours: Ours, width: int, look: Look) -> list[Line]:
    """Every process on every GPU, and what is known where processes cannot be seen."""
    listed = [(state, on, strange) for state in states for on, strange in state.listed()]
    lines = [title("on the GPUs", "", width, look)]
    if listed:
        heading = _heading("gpu", ("memory GB", "SM %"), look, width)
        listed.sort(key=lambda row: (not row[2], row[0].gpu.index))
        lines += [heading, *(_on_gpu(state, on, loud, ours, width, look) for state, on, loud in listed)]
    for state in states:
        more = (state.gpu.process_count or 0) - len(state.gpu.processes or ())
        if state.gpu.processes is not None and more > 0:
            lines.append(fit([Segment(f"{state.gpu.index:>5}  and {more:,} more", look.dim)], width))
    lines += _unseen(states, width, look)
    return lines if len(lines) > 1 else [*lines, fit([Segment("  no process is on them", look.dim)], width)]


def _on_gpu(state: GpuState, on: GpuProcess, loud: bool, ours: Ours, width: int, look: Look) -> Line:
    who = whose(on.process, ours)
    known = who or (STRANGER if loud else UNCLEAR if state.hidden else on.kind)
    figures = (figure(on.memory / 1e9) if on.memory is not None else look.unknown, _whole(on.sm_pct, look))
    return _row(str(state.gpu.index), known, loud, on.process, figures, width, look)


def _whole(value: float | None, look: Look) -> str:
    return look.unknown if value is None else f"{value:.0f}"


def _row(first: str, who: str, loud: bool, process: Process, figures: tuple[str, str], width: int, look: Look) -> Line:
    """One process; foreign words are cleaned and cut."""
    ours = who.startswith("rank")
    style = look.accent if loud else look.text if ours else look.dim
    sign = look.glyphs.mark if loud else " "
    more = look.glyphs.more
    user = look.clean(process.user) if process.user else look.unknown
    command = look.clean(process.command) if process.command else look.unknown
    line: Line = [
        Segment(f" {sign}{first:>3} ", style),
        Segment(left(who, WHO, more), look.strong if ours else style),
        Segment(f"{process.pid:>8} ", style),
        Segment(left(user, USER, more), style if loud else look.dim),
        *(Segment(f"{text:>{size}}", look.dim if text == look.unknown else style)
          for text, size in zip(figures, (10, 6), strict=True)),
        Segment(f"  {command}", style if loud else look.dim),
    ]  # fmt: skip
    return cut(line, width, Segment(more, look.dim))


def _heading(first: str, figures: tuple[str, str], look: Look, width: int) -> Line:
    text = f"{first:>5} {'who':<{WHO}}{'pid':>8} {'user':<{USER}}{figures[0]:>10}{figures[1]:>6}  command"
    return fit([Segment(text, look.dim)], width)


def _unseen(states: Sequence[GpuState], width: int, look: Look) -> list[Line]:
    """GPUs whose processes cannot be told apart: what of their memory our ranks do not account for."""
    unseen = [state for state in states if state.hidden or state.gpu.processes is None]
    lines: list[Line] = []
    for state in [state for state in unseen if state.crowded]:
        said = f"GPU {state.gpu.index}: {_why(state)}; {amount(state.untold)} not held by our ranks' torch"
        lines += paragraph(said, look.glyphs.mark, look.accent, width, look)
    calm: dict[str, list[GpuState]] = {}
    for state in [state for state in unseen if not state.crowded]:
        calm.setdefault(_why(state), []).append(state)
    for why, alike in calm.items():
        most = max((state.untold for state in alike if state.untold is not None), default=None)
        rest = "" if most is None else f"; at most {amount(most)} not held by our ranks' torch"
        where = f"GPU{'s' if len(alike) > 1 else ''} {number_span([state.gpu.index for state in alike])}"
        said = f"{where}: {why}{rest}"
        lines += paragraph(said, look.glyphs.note, look.dim, width, look)
    return lines


def _why(state: GpuState) -> str:
    reason = state.gpu.unread.get("processes", "")
    return "processes hidden" if state.hidden else f"processes not read{f' ({reason})' if reason else ''}"


def cpu_user_lines(processes: Sequence[HostProcess], ours: Ours, width: int, look: Look) -> list[Line]:
    """The processes that use most CPU, in percent of one core."""
    if not processes:
        return []
    lines = [title("on the CPUs", "top CPU users", width, look)]
    lines.append(_heading("", ("memory GB", "CPU %"), look, width))
    for used in processes[:MOST]:
        who = whose(used.process, ours) or STRANGER
        resident = figure(used.rss_bytes / 1e9) if used.rss_bytes is not None else look.unknown
        figures = (resident, _whole(used.cpu_pct, look))
        lines.append(_row("", who, is_hog(used, ours), used.process, figures, width, look))
    return lines
