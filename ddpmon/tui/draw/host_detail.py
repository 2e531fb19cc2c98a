"""One host in full: what was found about it, its figures, GPUs, processes, disks, interfaces, what was not read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from ddpmon.format import age, figure, pct, plural, size
from ddpmon.machine import Disk, HostFigures, Nic, TakenPort
from ddpmon.report.finding_rows import own_ranks
from ddpmon.report.host_gpus import GpuState, gpu_states, number_span, ours_of, rank_span
from ddpmon.report.host_summary import free_share, host_words, is_tight, known_sum, memory_pct, received, sent
from ddpmon.report.last_word import last_heard_s
from ddpmon.report.peers import ShownLateness
from ddpmon.report.silence import unheard_hosts
from ddpmon.report.verdicts import about_host, about_machine, is_past, marked_ranks
from ddpmon.report.wording import named
from ddpmon.run.process_roles import ProcessRoles
from ddpmon.snapshot import Finding, NodeView, Snapshot, is_over
from ddpmon.tui.draw.gpu_table import found_on, gpu_lines
from ddpmon.tui.draw.header import finding_style, no_findings_for, said_below
from ddpmon.tui.draw.host_processes import cpu_user_lines, gpu_process_lines, gpu_process_ranks
from ddpmon.tui.draw.host_ranks import rank_rows
from ddpmon.tui.draw.panel import dimmed, is_title, paragraph, title
from ddpmon.tui.draw.panel_sizes import TABLE_HEAD
from ddpmon.tui.lines import Line, cells_of, cut, fit, fit_all, joined, left, width_of
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState

HALF_LEAST, ROUNDED = 90, 4  # cells of each of two blocks beside each other that share the width, and of a step
NAME = 18
UNIT = re.compile(r"_(pct|w|c|mhz|1m)$")
SENTENCES = 3
WORDS = {"nvlinks": "NVLinks", "nvlinks_up": "active NVLinks", "numa_node": "NUMA node", "xids": "Xid errors"}


def per_second(rate: float | None, unknown: str) -> str:
    """Bytes a second as 1.2 GiB/s."""
    return unknown if rate is None else f"{size(rate)}/s"


def place_lines(figures: HostFigures, width: int, look: Look) -> list[Line]:
    """Disks, the tight ones first; interfaces; ports that somebody else has."""
    rows = [_disk(disk, look) for disk in sorted(figures.disks, key=lambda disk: not is_tight(disk))]
    rows += [_nic(nic, look) for nic in figures.nics]
    if figures.retransmits_per_1000 is not None:
        rows.append([Segment("   TCP retransmits ", look.dim),
                     Segment(f"{pct(figures.retransmits_per_1000 / 10)} %", look.text)])  # fmt: skip
    rows += [_port(port, look) for port in figures.ports]
    return [title("disks and network", "", width, look), *rows] if rows else []


def _disk(disk: Disk, look: Look) -> Line:
    free, tight = free_share(disk), is_tight(disk)
    style = look.accent if tight else look.text
    share = look.unknown if free is None else f"{100 * free:.0f} %"
    facts = [f"{share} of {size(disk.total, look.unknown)} free", ", ".join(disk.uses)]
    facts += [f"busy {disk.busy_pct:.0f} %"] if disk.busy_pct is not None else []
    waits = (("read", disk.read_wait_ms), ("write", disk.write_wait_ms))
    facts += [f"{name} {figure(wait)} ms" for name, wait in waits if wait is not None]
    return _place(disk.path, [fact for fact in facts if fact], look.glyphs.mark if tight else " ", style, look)


def _nic(nic: Nic, look: Look) -> Line:
    facts = [
        f"in {per_second(nic.received_bytes_s, look.unknown)}",
        f"out {per_second(nic.sent_bytes_s, look.unknown)}",
    ]
    facts += [f"{figure(nic.speed_mbit / 1e3)} Gbit/s"] if nic.speed_mbit is not None else []
    facts += [f"{count:,} {name}" for name, count in (("errors", nic.errors), ("drops", nic.drops)) if count]
    return _place(nic.name, facts, " ", look.text, look)


def _port(port: TakenPort, look: Look) -> Line:
    who = f"held by {named(port.process)}" if port.process is not None else "held by another process"
    who = who if port.held else "released since"
    return _place(f"port {port.port}", [f"wanted for {port.wanted_for}", who], " ", look.text, look)


def _place(name: str, facts: list[str], sign: str, style: Style, look: Look) -> Line:
    text = "   ".join(look.clean(fact) for fact in facts)
    label = left(look.clean(name), NAME, look.glyphs.more)
    return [Segment(f" {sign} ", style), Segment(f"{label} ", style), Segment(text, style)]


def unread_lines(node: NodeView, width: int, look: Look) -> list[Line]:
    """What could not be read and why, equal reasons together, and the sampler's own notes."""
    where: dict[tuple[str, str], list[int]] = {}
    for gpu in node.gpus:
        for name, reason in gpu.unread.items():
            where.setdefault((name, reason), []).append(gpu.index)
    names: dict[tuple[str, str], list[str]] = {}
    for name, reason in node.figures.unread.items():
        names.setdefault(("", reason), []).append(_words(name))
    for (name, reason), gpus in where.items():
        names.setdefault((f" of GPU {number_span(gpus)}", reason), []).append(_words(name))
    said = [f"{', '.join(figures)}{of}: {reason}" for (of, reason), figures in names.items()]
    said += list(node.notes)
    if not said:
        return []
    sentences = [line for text in said for line in paragraph(text, look.glyphs.note, look.dim, width, look)]
    return [title("unavailable", "", width, look), *sentences]


def _words(name: str) -> str:
    """`power_w` as `power`."""
    return WORDS.get(name) or UNIT.sub("", name).replace("_", " ")


class HostPage(NamedTuple):
    """All of one host.

    Attributes:
        lines: as many as it takes.
        ranks: the rank that a line leads to, by the line's place.
        processes: the same of the lines that have a process of a rank on a GPU, in the first `cells` cells.
        cells: how wide the block of these processes is.
    """

    lines: list[Line]
    ranks: dict[int, int]
    processes: Mapping[int, int] = MappingProxyType({})
    cells: int = 0

    def rank_at(self, line: int, x: int) -> int | None:
        """The rank that the cell `x` of a line leads to."""
        return self.ranks.get(line, self.processes.get(line) if x < self.cells else None)


def host_page(
    picture: ViewState, number: int, width: int, *, named_first: bool = False, first: int | None = None
) -> HostPage:
    """All of one host: first the GPU of the rank `first`, then with `named_first` those of ranks with a warning."""
    snapshot, look = picture.snapshot, picture.look
    node = next((node for node in snapshot.nodes if node.node == number), None)
    if node is None:
        return HostPage([fit([Segment(" this host has never reported", look.dim)], width)], {})
    marked = marked_ranks(snapshot.findings, "warning")
    states, ours = gpu_states(snapshot.ranks, node), ours_of(snapshot.ranks, node)
    states = sorted(states, key=lambda state: marked.keys().isdisjoint(state.ranks)) if named_first else states
    states = sorted(states, key=lambda state: first not in state.ranks)
    lines = [_identity(snapshot, node, width, look), *sentences(picture, node, width)]
    values = _figures(node, width, look)
    listed, links = _ranks(snapshot, node, states, len(lines) + len(values), width, look)
    above = len(lines) + len(values) + len(listed)
    below, cells = _below(node, states, ours, about_host(snapshot.findings, node), width, look)
    processes = {above + line: rank for line, rank in gpu_process_ranks(states, ours).items()}
    values += [*listed, *below]
    lines += dimmed(values, look) if is_past(snapshot) else values
    more = Segment(look.glyphs.more, look.dim)
    return HostPage([cut(line, width, more) for line in lines], links, processes, cells)


def _below(
    node: NodeView,
    states: Sequence[GpuState],
    ours: ProcessRoles,
    found: Sequence[Finding],
    width: int,
    look: Look,
) -> tuple[list[Line], int]:
    """Processes, disks, interfaces, what was not read; those on the GPUs beside the others where there is room.

    Returns:
        The lines, and the cells of those on the GPUs.
    """

    def on_gpus(cells: int) -> list[Line]:
        return gpu_process_lines(states, ours, found, cells, look) if states else []

    def elsewhere(cells: int) -> list[Line]:
        users = cpu_user_lines(node.figures.processes, ours, found, cells, look)
        return [*users, *place_lines(node.figures, cells, look), *unread_lines(node, cells, look)]

    half = _half(on_gpus(width), elsewhere(width), width)
    if not half:
        return [*on_gpus(width), *elsewhere(width)], width
    more, rest = Segment(look.glyphs.more, look.dim), width - half - 1
    blocks = [[cut(line, cells, more) for line in draw(cells)] for draw, cells in ((on_gpus, half), (elsewhere, rest))]
    high = max(map(len, blocks))
    pairs = zip(fit_all(blocks[0], half, high), fit_all(blocks[1], rest, high), strict=True)
    return [[*one, Segment(" "), *other] for one, other in pairs], half


def _half(left_side: list[Line], right_side: list[Line], width: int) -> int:
    """Cells of the left one of two blocks that stand beside each other; 0 where they have no room for that.

    In wide terminals they share the width, and in narrower ones the left one takes what its rows need, or as much as
    there: longer commands are cut.
    """
    if not left_side or not right_side:
        return 0
    if width >= 2 * HALF_LEAST:
        return width // 2
    needed = min(_needed(left_side), HALF_LEAST)
    return needed if needed + 1 + _needed(right_side) <= width else 0


def _needed(lines: list[Line]) -> int:
    """The cells that rows take below their titles, rounded up so that a longer figure moves nothing."""
    texts = ["".join(segment.text for segment in line).rstrip() for line in lines if not is_title(line)]
    longest = max(map(cells_of, texts), default=0)
    return -(-(longest + 2) // ROUNDED) * ROUNDED


def _ranks(
    snapshot: Snapshot, node: NodeView, states: Sequence[GpuState], above: int, width: int, look: Look
) -> tuple[list[Line], dict[int, int]]:
    """Its GPUs with the ranks on them, and the other ranks; and the rank of each line, counted from the page's top."""
    marked, ranks, lateness = marked_ranks(snapshot.findings), snapshot.ranks, ShownLateness(snapshot)
    late = [look.clean(lateness.words(state.ranks, look.unknown)) for state in states]
    lines = gpu_lines(states, found_on(snapshot.findings), late, width, look) if states else []
    by_rank = {state.ranks[0]: above + TABLE_HEAD + place for place, state in enumerate(states) if state.ranks}
    links = {line: rank for rank, line in by_rank.items()}
    if ranks is None:
        return lines, links
    rest = [rank for rank in node.ranks if rank < len(ranks) and rank not in links.values()]
    first = above + len(lines) + TABLE_HEAD
    return [*lines, *rank_rows(snapshot, rest, marked, width, look)], {**links, **dict(enumerate(rest, first))}


def _identity(snapshot: Snapshot, node: NodeView, width: int, look: Look) -> Line:
    """The title line: who it is, and how old its word is."""
    dot = Segment(f" {look.glyphs.dot} ", look.faint)
    facts = [rank_span(node.ranks) or "no rank", plural(len(node.gpus), "GPU") if node.gpus else "no GPU"]
    name = [Segment(look.clean(node.host) or look.unknown, look.strong)]
    who = [Segment(f"{look.glyphs.rule} ", look.faint), *joined([name, *([Segment(f, look.dim)] for f in facts)], dot)]
    old = node.node in unheard_hosts(snapshot) and not is_past(snapshot)
    cost = f"sensors {node.cost_pct:.1f} % of a core   " if width >= 100 and node.cost_pct is not None else ""
    heard = Segment(
        f"heard {age(last_heard_s(snapshot, node.age_s), look.unknown)} ago", look.accent if old else look.dim
    )
    right = [Segment(f" {cost}", look.dim), heard, Segment(f" {look.glyphs.rule}", look.faint)]
    room = max(width - width_of(right), 0)
    rule = Segment(look.glyphs.rule * max(room - width_of(who) - 1, 0), look.faint)
    return fit([*fit([*who, Segment(" "), rule], room), *right], width)


def sentences(picture: ViewState, node: NodeView, width: int) -> list[Line]:
    """The findings about the host or its ranks, each in full; a calm word where there is none."""
    snapshot, look = picture.snapshot, picture.look
    found = about_host(snapshot.findings, node)
    found = [finding for finding in found if not any(_explains(finding, other) for other in found)]
    lines = [line for finding in found[:SENTENCES] for line in _sentence(picture, finding, node, width)]
    more = len(found) - SENTENCES
    lines += [[Segment(f"   {more:,} more  [5]", look.dim)]] if more > 0 else []
    words, told = "; ".join(host_words(node.figures)), about_machine(found)
    sign = finding_style(told[0], look) if told else (look.glyphs.mark, look.accent)
    lines += paragraph(words, *sign, width, look) if words else []
    well = (snapshot.run is not None and is_over(snapshot.run.state)) or node.node not in unheard_hosts(snapshot)
    glyph, calm = no_findings_for(snapshot, node.ranks, look, "host", well=well)
    return lines or paragraph(calm, glyph, look.dim, width, look)


def _explains(cause: Finding, finding: Finding) -> bool:
    """Whether a finding is said in the sentence of another one, as its cause."""
    process = cause.evidence.get("pid")
    same = process is not None and finding.evidence.get("cause_pid") == process
    return same and not set(finding.ranks).isdisjoint(cause.ranks)


def _sentence(picture: ViewState, finding: Finding, node: NodeView, width: int) -> list[Line]:
    """A finding in full, behind those of its ranks that are here where others are elsewhere."""
    glyph, style = finding_style(finding, picture.look)
    own = own_ranks(finding, node)
    here = f"{rank_span(own)} here: " if len(own) < len(finding.ranks) else ""
    return paragraph(here + said_below(picture, finding), glyph, style, width, picture.look)


def _figures(node: NodeView, width: int, look: Look) -> list[Line]:
    """CPU, load, memory, network and swap; a second line where they need it."""
    lines: list[Line] = []
    for part in _facts(node.figures, look):
        if lines and width_of(lines[-1]) + 3 + width_of(part) <= width:
            lines[-1] = [*lines[-1], Segment("   ", look.text), *part]
        else:
            lines.append([Segment(" ", look.text), *part])
    return lines


def _facts(figures: HostFigures, look: Look) -> list[Line]:
    """Swap only if any is used."""
    net = known_sum([received(figures), sent(figures)])
    facts = [
        _fact("cpu", _percent(figures.cpu_pct, look), _of(figures.cpu_count), look),
        _fact("load", f"{figure(figures.load_1m, look.unknown):>5}", "", look),
        _fact("memory", _percent(memory_pct(figures), look), _of(size(figures.memory_total, "")), look),
        _fact("net", f"{size(net, look.unknown):>7}", "" if net is None else "/s", look),
    ]
    return [*facts, _fact("swap", size(figures.swap_used), "", look)] if figures.swap_used else facts


def _percent(value: float | None, look: Look) -> str:
    return f"{look.unknown:>5}" if value is None else f"{value:>3.0f} %"


def _of(whole: int | str | None) -> str:
    return f" of {whole}" if whole else ""


def _fact(name: str, value: str, more: str, look: Look) -> Line:
    tone = look.dim if value.strip() == look.unknown else look.text
    return [Segment(f"{name} ", look.dim), Segment(value, tone), Segment(more, look.dim)]
