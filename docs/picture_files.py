"""What both scripts that make pictures share: a simulated run to draw, and a drawn screen as SVG and as PNG."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}  # pictures have all colours, wherever they are made
CONVERTER = "rsvg-convert"  # Debian's librsvg2-bin
_ELSEWHERE = "import socket; socket.gethostname = lambda: 'elsewhere'; from ddpmon.cli import main; main()"
_TEXT = re.compile(r'<text class="([^"]*)" x="([\d.]+)" (y="[\d.]+") textLength="([\d.]+)"([^>]*)>([^<]*)</text>')


class Simulation(NamedTuple):
    """A simulated run: the address of its store, and the process that publishes it."""

    url: str
    process: subprocess.Popen[str]


@contextmanager
def simulated(options: str, *, elsewhere: bool = False) -> Iterator[Simulation]:
    """A simulated run with these options, which ends with the block.

    Args:
        options: of `ddpmon simulate`.
        elsewhere: a dashboard knows no more of its processes than of those on another host.

    Raises:
        RuntimeError: it did not start.
    """
    program = ["-c", _ELSEWHERE] if elsewhere else ["-m", "ddpmon.cli"]
    command = [sys.executable, *program, "simulate", *options.split()]
    with TemporaryDirectory() as folder:
        announced = {"XDG_RUNTIME_DIR": folder} if elsewhere else {}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **announced}) as process:
            assert process.stdout is not None
            try:
                words = process.stdout.readline().split()
                if not words:
                    raise RuntimeError(f"`ddpmon simulate {options}` does not start")
                yield Simulation(words[-1], process)
            finally:
                process.terminate()


def with_cells(svg: str) -> str:
    """A screen that Textual exported, with every letter in its cell and without the fonts that it names in the net.

    A font may have Braille of another width than the rest, and few programs heed `textLength`.
    """
    return _TEXT.sub(_in_cells, re.sub(r"@font-face\s*\{[^}]*\}", "", svg))


def _in_cells(text: re.Match[str]) -> str:
    """A piece of text with a place for each ASCII word and for each other character."""
    style, left, line, length, rest, escaped = text.groups()
    words = html.unescape(escaped)
    cell = float(length) / len(words)
    placed = "".join(
        f'<tspan class="{style}" x="{float(left) + cell * part.start():.1f}">{html.escape(part[0])}</tspan>'
        for part in re.finditer(r"[!-~]+|\S", words)
    )
    return f"<text {line}{rest}>{placed}</text>"


def size_of(svg: str) -> tuple[float, float]:
    """Width and height of a picture in pixels."""
    width, height = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0]
    return float(width), float(height)


def side_by_side(pictures: list[str]) -> str:
    """One picture of several, from left to right."""
    sizes = [size_of(picture) for picture in pictures]
    lefts = [sum(width for width, _ in sizes[:place]) for place in range(len(sizes) + 1)]
    placed = "".join(
        picture.replace("<svg ", f'<svg x="{left}" width="{size[0]}" height="{size[1]}" ', 1)
        for picture, left, size in zip(pictures, lefts, sizes, strict=False)
    )
    whole = f"0 0 {lefts[-1]} {max(height for _, height in sizes)}"
    return f'<svg viewBox="{whole}" xmlns="http://www.w3.org/2000/svg">{placed}</svg>'


def can_convert() -> bool:
    """Whether the program is there that makes a PNG of an SVG."""
    return shutil.which(CONVERTER) is not None


def as_png(svg: Path) -> Path:
    """Put a PNG in the place of an SVG; returns where it is."""
    png = svg.with_suffix(".png")
    subprocess.run([CONVERTER, str(svg), "-o", str(png)], check=True)
    svg.unlink()
    return png
