"""A host's disks and interfaces, ports that somebody else holds, and what could not be read."""

from __future__ import annotations

import re

from rich.segment import Segment
from rich.style import Style

from ddpmon.diagnose.wording import named
from ddpmon.format import amount, figure, pct
from ddpmon.machine import Disk, HostFigures, Nic, TakenPort
from ddpmon.report.host_summary import free_share, is_tight
from ddpmon.report.hosts import number_span
from ddpmon.snapshot import NodeView
from ddpmon.tui.draw.panel import paragraph, title
from ddpmon.tui.lines import Line, left
from ddpmon.tui.look import Look

NAME = 18
UNIT = re.compile(r"_(pct|w|c|mhz|1m)$")


def per_second(rate: float | None, unknown: str) -> str:
    """Bytes a second as 1.23 GB/s."""
    return unknown if rate is None else f"{amount(rate)}/s"


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
    facts = [f"{share} of {amount(disk.total, look.unknown)} free", ", ".join(disk.uses)]
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
    reasons: dict[tuple[str, str], list[int]] = {}
    for gpu in node.gpus:
        for name, reason in gpu.unread.items():
            reasons.setdefault((name, reason), []).append(gpu.index)
    said = [f"{_words(name)}: {reason}" for name, reason in node.figures.unread.items()]
    said += [f"{_words(name)} of GPU {number_span(where)}: {reason}" for (name, reason), where in reasons.items()]
    said += list(node.notes)
    if not said:
        return []
    sentences = [line for text in said for line in paragraph(text, look.glyphs.note, look.dim, width, look)]
    return [title("unavailable", "", width, look), *sentences]


def _words(name: str) -> str:
    """`power_w` as `power`."""
    return UNIT.sub("", name).replace("_", " ")
