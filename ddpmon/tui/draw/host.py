"""One host in full: what was found about it, its figures, GPUs, processes, disks, interfaces, what was not read."""

from __future__ import annotations

from collections.abc import Iterator

from rich.segment import Segment

from ddpmon.diagnose.finding import Finding
from ddpmon.machine import HostFigures
from ddpmon.snapshot import NodeView, Snapshot
from ddpmon.tui.draw.gpus import gpu_lines
from ddpmon.tui.draw.header import LATE_WORD_S, finding_style
from ddpmon.tui.draw.places import per_second, place_lines, unread_lines
from ddpmon.tui.draw.processes import cpu_user_lines, gpu_process_lines
from ddpmon.tui.hosts import gpu_states, pids_of, rank_span
from ddpmon.tui.lines import Line, fit, joined, spread, width_of, wrap
from ddpmon.tui.look import Look
from ddpmon.tui.notable import host_words, memory_pct, pressed, received, sent
from ddpmon.tui.picture import Picture
from ddpmon.tui.text import age, amount, figure, plural
from ddpmon.tui.verdicts import about_host, marked_ranks

SENTENCES = 3


def host_lines(picture: Picture, number: int, width: int) -> list[Line]:
    """All of one host, as many lines as it takes."""
    snapshot, look = picture.snapshot, picture.look
    node = next((node for node in snapshot.nodes if node.node == number), None)
    if node is None:
        return [fit([Segment(" this host has not been heard from", look.dim)], width)]
    states, pids = gpu_states(snapshot.ranks, node), pids_of(snapshot.ranks, node)
    lines = [_identity(node, width, look), *sentences(snapshot, node, width, look), *_figures(node, width, look)]
    if states:
        lines += gpu_lines(states, marked_ranks(snapshot.findings), width, look)
        lines += gpu_process_lines(states, pids, width, look)
    lines += cpu_user_lines(node.figures.processes, pids, width, look)
    lines += [*place_lines(node.figures, width, look), *unread_lines(node, width, look)]
    return [fit(line, width) for line in lines]


def _identity(node: NodeView, width: int, look: Look) -> Line:
    between = Segment(f" {look.glyphs.dot} " if not look.ascii_only else " | ", look.faint)
    facts = [rank_span(node.ranks) or "no rank", plural(len(node.gpus), "GPU") if node.gpus else "no GPU"]
    who = joined(
        [
            [Segment(f" {look.clean(node.host) or look.unknown}", look.strong)],
            *([Segment(f, look.text)] for f in facts),
        ],
        between,
    )
    old = node.age_s is None or node.age_s >= LATE_WORD_S
    cost = f"sampling {figure(node.cost_pct, look.unknown)} % of a core   " if width >= 100 else ""
    heard = f"heard {age(node.age_s, look.unknown)} ago "
    return spread(who, [Segment(cost, look.dim), Segment(heard, look.accent if old else look.dim)], width)


def sentences(snapshot: Snapshot, node: NodeView, width: int, look: Look) -> list[Line]:
    """The findings about the host or its ranks, each in full; a calm word where there is none."""
    found = about_host(snapshot.findings, node)
    if not found:
        words = "; ".join(host_words(node.figures))
        calm = words or "nothing was found about this host"
        rows = wrap(look.clean(calm), max(width - 4, 1))
        return [[Segment(f" {look.glyphs.note} " if place == 0 else "   ", look.dim), Segment(row, look.dim)]
                for place, row in enumerate(rows)]  # fmt: skip
    lines = [line for finding in found[:SENTENCES] for line in _sentence(finding, width, look)]
    more = len(found) - SENTENCES
    return [*lines, [Segment(f"   {more:,} more  [5]", look.dim)]] if more > 0 else lines


def _sentence(finding: Finding, width: int, look: Look) -> Iterator[Line]:
    glyph, style = finding_style(finding, look)
    for place, row in enumerate(wrap(look.clean(finding.summary), max(width - 4, 1))):
        yield [Segment(f" {glyph} " if place == 0 else "   ", style), Segment(row, style)]


def _figures(node: NodeView, width: int, look: Look) -> list[Line]:
    """CPU, load, memory, network, and what is notable of swap, steal and pressure; a second line where they need it."""
    parts = [*_usual(node.figures, look), *_unusual(node.figures, look)]
    lines: list[Line] = []
    for part in parts:
        if lines and width_of(lines[-1]) + 3 + width_of(part) <= width:
            lines[-1] = [*lines[-1], Segment("   ", look.text), *part]
        else:
            lines.append([Segment(" ", look.text), *part])
    return lines


def _usual(figures: HostFigures, look: Look) -> list[Line]:
    unknown = look.unknown
    cpus = f" of {figures.cpu_count}" if figures.cpu_count is not None else ""
    used = "" if memory_pct(figures) is None else f" {memory_pct(figures):.0f} %"
    memory = amount(figures.memory_used, unknown) + (
        f" of {amount(figures.memory_total)}" if figures.memory_total is not None else ""
    )
    cpu = unknown if figures.cpu_pct is None else f"{figures.cpu_pct:.0f} %"
    return [
        _fact("cpu", f"{cpu:>5}", cpus, look),
        _fact("load", f"{figure(figures.load_1m, unknown):>5}", "", look),
        _fact("memory", memory, used, look),
        _fact("net in", per_second(received(figures), unknown), "", look),
        _fact("out", per_second(sent(figures), unknown), "", look),
    ]


def _fact(name: str, value: str, more: str, look: Look) -> Line:
    tone = look.dim if value.strip() == look.unknown else look.text
    return [Segment(f"{name} ", look.dim), Segment(value, tone), Segment(more, look.dim)]


def _unusual(figures: HostFigures, look: Look) -> list[Line]:
    """Swap if any is used, and whatever the host's tasks wait for."""
    parts = [[Segment("swap ", look.dim), Segment(amount(figures.swap_used), look.text)]] if figures.swap_used else []
    loud = [f"pressure {name} {share:.0f} %" for name, share in pressed(figures)]
    if figures.swap_in_bytes_s:
        loud.append(f"swapping in {amount(figures.swap_in_bytes_s)}/s")
    if figures.steal_pct is not None and figures.steal_pct >= 1:
        loud.append(f"steal {figures.steal_pct:.0f} %")
    return [*parts, *([Segment(f"{look.glyphs.mark} {text}", look.accent)] for text in loud)]
