"""One host in full: what was found about it, its figures, GPUs, processes, disks, interfaces, what was not read."""

from __future__ import annotations

from rich.segment import Segment

from ddpmon.diagnose.finding import Finding
from ddpmon.format import age, amount, figure, plural
from ddpmon.machine import HostFigures
from ddpmon.report.host_summary import host_words, known_sum, memory_pct, received, sent
from ddpmon.report.hosts import gpu_states, ours_of, rank_span
from ddpmon.report.verdicts import about_host, marked_ranks
from ddpmon.snapshot import NodeView, Snapshot
from ddpmon.tui.draw.gpus import gpu_lines
from ddpmon.tui.draw.header import LATE_WORD_S, finding_style
from ddpmon.tui.draw.panel import paragraph
from ddpmon.tui.draw.places import place_lines, unread_lines
from ddpmon.tui.draw.processes import cpu_user_lines, gpu_process_lines
from ddpmon.tui.lines import Line, cut, fit, joined, width_of
from ddpmon.tui.look import Look
from ddpmon.tui.picture import Picture

SENTENCES = 3


def host_lines(picture: Picture, number: int, width: int) -> list[Line]:
    """All of one host, as many lines as it takes."""
    snapshot, look = picture.snapshot, picture.look
    node = next((node for node in snapshot.nodes if node.node == number), None)
    if node is None:
        return [fit([Segment(" this host has not been heard from", look.dim)], width)]
    states, ours = gpu_states(snapshot.ranks, node), ours_of(snapshot.ranks, node)
    lines = [_identity(node, width, look), *sentences(snapshot, node, width, look), *_figures(node, width, look)]
    if states:
        lines += gpu_lines(states, marked_ranks(snapshot.findings), width, look)
        lines += gpu_process_lines(states, ours, width, look)
    lines += cpu_user_lines(node.figures.processes, ours, width, look)
    lines += [*place_lines(node.figures, width, look), *unread_lines(node, width, look)]
    more = Segment(look.glyphs.more, look.dim)
    return [cut(line, width, more) for line in lines]


def _identity(node: NodeView, width: int, look: Look) -> Line:
    """The title line: who it is, and how old its word is."""
    dot = Segment(f" {look.glyphs.dot} " if not look.ascii_only else " | ", look.faint)
    facts = [rank_span(node.ranks) or "no rank", plural(len(node.gpus), "GPU") if node.gpus else "no GPU"]
    name = [Segment(look.clean(node.host) or look.unknown, look.strong)]
    who = [Segment(f"{look.glyphs.rule} ", look.faint), *joined([name, *([Segment(f, look.dim)] for f in facts)], dot)]
    old = node.age_s is None or node.age_s >= LATE_WORD_S
    cost = f"sampling {node.cost_pct:.1f} % of a core   " if width >= 100 and node.cost_pct is not None else ""
    heard = Segment(f"heard {age(node.age_s, look.unknown)} ago", look.accent if old else look.dim)
    right = [Segment(f" {cost}", look.dim), heard, Segment(f" {look.glyphs.rule}", look.faint)]
    room = max(width - width_of(right), 0)
    rule = Segment(look.glyphs.rule * max(room - width_of(who) - 1, 0), look.faint)
    return fit([*fit([*who, Segment(" "), rule], room), *right], width)


def sentences(snapshot: Snapshot, node: NodeView, width: int, look: Look) -> list[Line]:
    """The findings about the host or its ranks, each in full; a calm word where there is none."""
    found = about_host(snapshot.findings, node)
    lines = [line for finding in found[:SENTENCES] for line in _sentence(finding, width, look)]
    more = len(found) - SENTENCES
    lines += [[Segment(f"   {more:,} more  [5]", look.dim)]] if more > 0 else []
    words = "; ".join(host_words(node.figures))
    lines += paragraph(words, look.glyphs.mark, look.accent, width, look) if words else []
    return lines or paragraph("nothing was found about this host", look.glyphs.note, look.dim, width, look)


def _sentence(finding: Finding, width: int, look: Look) -> list[Line]:
    glyph, style = finding_style(finding, look)
    return paragraph(finding.summary, glyph, style, width, look)


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
        _fact("memory", _percent(memory_pct(figures), look), _of(amount(figures.memory_total, "")), look),
        _fact("net", f"{amount(net, look.unknown):>7}", "" if net is None else "/s", look),
    ]
    return [*facts, _fact("swap", amount(figures.swap_used), "", look)] if figures.swap_used else facts


def _percent(value: float | None, look: Look) -> str:
    return f"{look.unknown:>5}" if value is None else f"{value:>3.0f} %"


def _of(whole: int | str | None) -> str:
    return f" of {whole}" if whole else ""


def _fact(name: str, value: str, more: str, look: Look) -> Line:
    tone = look.dim if value.strip() == look.unknown else look.text
    return [Segment(f"{name} ", look.dim), Segment(value, tone), Segment(more, look.dim)]
