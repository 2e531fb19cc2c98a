"""The processes on a host: each one on its GPUs, what is known where none can be seen, and the top CPU users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.segment import Segment

from ddpmon.format import figure, size
from ddpmon.machine import GpuProcess, HostProcess, Process
from ddpmon.report.host_gpus import GpuState, number_span, whose
from ddpmon.report.host_summary import is_hog
from ddpmon.report.verdicts import about_machine, marked_ranks, named_processes
from ddpmon.run.process_roles import ProcessRoles, owner_of
from ddpmon.snapshot import Finding
from ddpmon.tui.draw.gpu_table import told_style
from ddpmon.tui.draw.header import finding_style
from ddpmon.tui.draw.panel import StyledGlyph, paragraph, title
from ddpmon.tui.draw.panel_sizes import TABLE_HEAD
from ddpmon.tui.lines import Line, cut, fit, left
from ddpmon.tui.theme import Look

MOST = 12  # of the users of CPU
WHO, USER = 14, 10
STRANGER, UNCLEAR = "foreign", "hidden"


def gpu_process_lines(
    states: Sequence[GpuState], ours: ProcessRoles, found: Sequence[Finding], width: int, look: Look
) -> list[Line]:
    """Every process on every GPU, and what is known where processes cannot be seen; `found` is about the host."""
    named, listed = named_processes(found), _listed(states)
    lines = [_heading("gpu", ("GiB", "SM %"), look, width)] if listed else []
    for state, on, strange in listed:
        lines.append(_on_gpu(state, on, _sign(on.process, named, look) if strange else None, ours, width, look))
    lines += [*_unlisted(states, width, look), *_unseen(states, found, width, look)]
    nothing = fit([Segment("  no process is on them", look.dim)], width)
    return [title("on the GPUs", "", width, look), *(lines or [nothing])]


def gpu_process_ranks(states: Sequence[GpuState], ours: ProcessRoles) -> dict[int, int]:
    """The rank that each line of `gpu_process_lines` is a process of."""
    owners = (owner_of(on.process, ours.pids) for _, on, _ in _listed(states))
    return {line: rank for line, rank in enumerate(owners, TABLE_HEAD) if rank is not None}


def _listed(states: Sequence[GpuState]) -> list[tuple[GpuState, GpuProcess, bool]]:
    """Each process on each GPU, and whether it is a foreign process; these come first."""
    listed = [(state, on, strange) for state in states for on, strange in state.listed()]
    return sorted(listed, key=lambda row: (not row[2], row[0].gpu.index))


def _unlisted(states: Sequence[GpuState], width: int, look: Look) -> list[Line]:
    """How many processes of each GPU are on it besides those that are listed."""
    lines: list[Line] = []
    for state in states:
        more = (state.gpu.process_count or 0) - len(state.gpu.processes or ())
        if state.gpu.processes is not None and more > 0:
            lines.append(fit([Segment(f"{state.gpu.index:>5}  and {more:,} more", look.dim)], width))
    return lines


def _sign(process: Process, named: Mapping[int, Finding], look: Look) -> StyledGlyph:
    """How a foreign process is marked: as the worst finding that names it, else as something that stands out."""
    finding = named.get(process.pid)
    return (look.glyphs.mark, look.accent) if finding is None else finding_style(finding, look)


def _on_gpu(
    state: GpuState, on: GpuProcess, sign: StyledGlyph | None, ours: ProcessRoles, width: int, look: Look
) -> Line:
    who = whose(on.process, ours)
    known = who or (STRANGER if sign else UNCLEAR if state.hidden else on.kind)
    figures = (figure(on.memory / 2**30) if on.memory is not None else look.unknown, _whole(on.sm_pct, look))
    return _row(str(state.gpu.index), known, sign, on.process, figures, width, look)


def _whole(value: float | None, look: Look) -> str:
    return look.unknown if value is None else f"{value:.0f}"


def _row(
    first: str, who: str, sign: StyledGlyph | None, process: Process, figures: tuple[str, str], width: int, look: Look
) -> Line:
    """One process, with a sign if it stands out; foreign words are cleaned and cut."""
    ours = who.startswith("rank")
    glyph, style = sign or (" ", look.text if ours else look.dim)
    more = look.glyphs.more
    user = look.clean(process.user) if process.user else look.unknown
    command = look.clean(process.command) if process.command else look.unknown
    line: Line = [
        Segment(f" {glyph}{first:>3} ", style),
        Segment(left(who, WHO, more), look.strong if ours else style),
        Segment(f"{process.pid:>8} ", style),
        Segment(left(user, USER, more), style if sign else look.dim),
        *(Segment(f"{text:>{cells}}", look.dim if text == look.unknown else style)
          for text, cells in zip(figures, (10, 6), strict=True)),
        Segment(f"  {command}", style if sign else look.dim),
    ]  # fmt: skip
    return cut(line, width, Segment(more, look.dim))


def _heading(first: str, figures: tuple[str, str], look: Look, width: int) -> Line:
    text = f"{first:>5} {'who':<{WHO}}{'pid':>8} {'user':<{USER}}{figures[0]:>10}{figures[1]:>6}  command"
    return fit([Segment(text, look.dim)], width)


def _unseen(states: Sequence[GpuState], found: Sequence[Finding], width: int, look: Look) -> list[Line]:
    """GPUs whose processes cannot be told apart: what of their memory our ranks do not account for."""
    unseen = [state for state in states if state.hidden or state.gpu.processes is None]
    lines, told = list[Line](), marked_ranks(about_machine(found))
    for state in [state for state in unseen if state.crowded]:
        said = f"GPU {state.gpu.index}: {_why(state)}; {size(state.untold)} not held by our ranks' torch"
        lines += paragraph(said, *told_style(state, told, look), width, look)
    calm: dict[str, list[GpuState]] = {}
    for state in [state for state in unseen if not state.crowded]:
        calm.setdefault(_why(state), []).append(state)
    for why, alike in calm.items():
        most = max((state.untold for state in alike if state.untold is not None), default=None)
        rest = "" if most is None else f"; at most {size(most)} not held by our ranks' torch"
        where = f"GPU{'s' if len(alike) > 1 else ''} {number_span([state.gpu.index for state in alike])}"
        said = f"{where}: {why}{rest}"
        lines += paragraph(said, look.glyphs.note, look.dim, width, look)
    return lines


def _why(state: GpuState) -> str:
    reason = state.gpu.unread.get("processes", "")
    return "processes hidden" if state.hidden else f"processes not read{f' ({reason})' if reason else ''}"


def cpu_user_lines(
    processes: Sequence[HostProcess], ours: ProcessRoles, found: Sequence[Finding], width: int, look: Look
) -> list[Line]:
    """The processes that use most CPU, in percent of one core; `found` is about the host."""
    if not processes:
        return []
    lines = [title("on the CPUs", "top CPU users", width, look)]
    lines.append(_heading("", ("GiB", "CPU %"), look, width))
    named = named_processes(found)
    for used in processes[:MOST]:
        who = whose(used.process, ours) or STRANGER
        resident = figure(used.rss_bytes / 2**30) if used.rss_bytes is not None else look.unknown
        figures = (resident, _whole(used.cpu_pct, look))
        sign = _sign(used.process, named, look) if is_hog(used, ours) else None
        lines.append(_row("", who, sign, used.process, figures, width, look))
    return lines
