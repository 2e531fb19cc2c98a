"""The cells of a plot: lines, bands and hatching as dots of braille or quarters of a cell, in ASCII as signs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.snapshot import Floats
from ddpmon.tui.draw.decimation import Edges
from ddpmon.tui.theme import Look

Dots = NDArray[np.bool_]
# Row and column of each dot of a character, and its bit in Unicode's braille patterns (U+2800).
_BITS = tuple(
    (row, column, np.uint8(bit))
    for row, bits in enumerate(((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80)))
    for column, bit in enumerate(bits)
)
BRAILLE = np.r_[np.uint32(ord(" ")), 0x2801 + np.arange(255)].astype("<u4")  # the sign of each pattern of 8 dots
_QUARTERS = " ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█"
QUARTERS = np.array(
    [
        ord(_QUARTERS[sum(bit for bit, dots in ((1, 0x03), (2, 0x18), (4, 0x44), (8, 0xA0)) if code & dots)])
        for code in range(256)
    ],
    dtype="<u4",
)
Kinds = NDArray[np.uint8]
GROUND, BAND, LINE, LIMIT = 0, 1, 2, 3  # what a cell shows
Cells = list[tuple[str, Kinds]]  # of each row its characters, and what each of them shows


def _codes(dots: Dots) -> NDArray[np.uint8]:
    """[layers, rows, columns] the braille pattern of each character, 0 where it is empty."""
    found = np.zeros((dots.shape[0], dots.shape[1] // 4, dots.shape[2] // 2), np.uint8)
    for row, column, bit in _BITS:
        found |= dots[:, row::4, column::2] * bit
    return found


def _filled(low: Floats, high: Floats, every: Sequence[int], rows: int) -> Dots:
    """[layers, 4 * rows, dots across] each column's dots from `low` to `high`, of each layer every so many of them.

    Args:
        low: [layers, dots across] where a column begins: 0 in the middle of the lowest row, where the grid line of that
            value is, 1 in that of the highest; of a single row its lowest and its highest dot. NaN leaves it empty.
        high: [layers, dots across] where it ends.
        every: of each layer 1 for all dots, or a power of 2 for a hatching.
        rows: of characters.
    """
    most = 4 * rows - 1
    seen = np.isfinite(low) & np.isfinite(high)
    reach, lowest = (4 * (rows - 1), 1.5) if rows > 1 else (most, 0.0)
    low, high = (np.clip(np.where(seen, edge, 0.0), 0.0, 1.0) * reach + lowest for edge in (low, high))
    bottom, top = np.floor(low + 0.5), np.where(seen, np.floor(high + 0.5), -1.0)
    row = np.arange(most, -1, -1)[:, None]
    diagonal = row + np.arange(low.shape[1])
    dots: Dots = (row >= bottom[:, None]) & (row <= top[:, None])
    for layer, step in enumerate(every):
        if step > 1:
            dots[layer] &= (diagonal & (step - 1)) == 0
    return dots


def dotted(
    line: Edges, spread: Edges | None, band: Edges | None, zero: float | None, columns: int, rows: int, look: Look
) -> Cells:
    """The line and the spread over the band over the area, in braille or in quarters of a cell.

    A cell shows the first that it holds. Dots are at the ends of the spread, and in braille some between them. The area
    between the line and `zero` is hatched where hatching is quieter than the line: in braille and in colour.
    """
    nothing = np.full(2 * columns, np.nan)
    layers = [(*line, 1), (nothing, nothing, 2) if band is None else (*band, 2)]
    if zero is not None and look.braille and look.colour:
        layers.append((np.minimum(line[0], zero), np.maximum(line[1], zero), 4))
    ends = [] if spread is None else [(edge, edge, 1) for edge in spread]
    ends += [(*spread, 2)] if spread is not None and look.braille else []
    low, high, every = zip(*layers, *ends, strict=True)
    codes = _codes(_filled(np.array(low), np.array(high), every, rows))
    over, under, *ground = codes[: len(layers)]
    over = np.bitwise_or.reduce([over, *codes[len(layers) :]])
    shown = np.where(over > 0, over, np.where(under > 0, under, ground[0] if ground else 0))
    kinds = np.where(over > 0, LINE, np.where(under > 0, BAND, GROUND)).astype(np.uint8)
    signs = (BRAILLE if look.braille else QUARTERS)[shown]
    return [(row.tobytes().decode("utf-32-le"), kind) for row, kind in zip(signs, kinds, strict=True)]


def in_ascii(line: Edges, band: Edges | None, rows: int) -> Cells:
    """The line as stars over the band as colons."""
    cells: Cells = []
    for row in range(rows):
        bottom, top = (rows - 1 - row - 0.5) / max(rows - 1, 1), (rows - 1 - row + 0.5) / max(rows - 1, 1)
        on_line = (line[0] < top) & (line[1] >= bottom)
        in_band = (band[0] <= top) & (band[1] >= bottom) if band is not None else np.zeros_like(on_line)
        in_band[row % 2 :: 2] = False  # so that the line stands out
        kinds = np.where(on_line, LINE, np.where(in_band, BAND, GROUND)).astype(np.uint8)
        cells.append(("".join(" :*"[kind] for kind in kinds.tolist()), kinds))
    return cells


def with_samples(cells: Cells, columns: Sequence[int], heights: Floats, look: Look) -> Cells:
    """The cells with the line, which holds between samples, as faint as a band, and a mark on each sample.

    Args:
        cells: the rows, from the highest to the lowest.
        columns: [samples] of each sample, from 0 to before the number of cells of a row.
        heights: [samples] of each sample: 0 in the lowest row, 1 in the highest; one outside stands at that end.
        look: how it is drawn.
    """
    faint = [(list(signs.replace("*", ":")), np.where(kinds == LINE, BAND, kinds)) for signs, kinds in cells]
    most = len(cells) - 1
    rows = most - np.floor(np.clip(heights, 0.0, 1.0) * most + 0.5).astype(np.int64)
    for column, row in zip(columns, rows.tolist(), strict=True):
        signs, kinds = faint[row]
        signs[column], kinds[column] = look.glyphs.note, LINE
    return [("".join(signs), kinds) for signs, kinds in faint]
