"""Numbers and foreign text as they are shown: figures, ticks, sizes, durations, shares, ages, one line of JSON."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from typing import Any

UNKNOWN = "–"
_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SMALL = ((1e-6, "µ"), (1e-9, "n"), (1e-12, "p"))
_MILLI = (1e-3, "m")  # only where nothing else has room: on an axis it may be taken for M
_LOSS_CELLS, _LOSS_MOST = 6, 1e15  # of a loss in a table, and from where on it has an exponent
_ASCII = {"–": "-", "—": "-", "·": ".", "…": ".", "×": "x", "µ": "u", "°": "", "≥": ">=", "±": "+", "≤": "<=", "’": "'"}


def clean(text: str, ascii_only: bool = False) -> str:
    """Make foreign text printable: no control, format or private characters, one line; ASCII if asked."""
    if text.isprintable() and (text.isascii() or not ascii_only):
        return text
    if ascii_only:
        text = "".join(_ASCII.get(char, char) for char in text)
    kept = "".join(char if unicodedata.category(char)[0] not in "CZ" else _gap(char) for char in text)
    return kept.encode("ascii", "replace").decode() if ascii_only else kept


def _gap(char: str) -> str:
    return " " if char.isspace() else ""


def known(value: float | None) -> bool:
    """Whether a figure is there at all: not None, not NaN, not infinite."""
    return value is not None and math.isfinite(value)


def figure(value: float | None, unknown: str = UNKNOWN) -> str:
    """Three significant digits, thousands separated, never in exponents: 0.312, 3.21, 17.2, 172, 1,204, 1.23M."""
    if value is None or not math.isfinite(value):
        return unknown
    size = abs(value)
    if size >= 999_999.5:
        return _scaled(value)
    return f"{value:,.{decimals(size)}f}"


def decimals(size: float) -> int:
    """How many decimals leave three significant digits of a value of this size."""
    return 0 if size >= 99.95 or size == 0 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3


def _scaled(value: float) -> str:
    for factor, unit in _LARGE:
        if abs(value) >= factor * 0.9995:
            scaled = value / factor
            return f"{scaled:.{min(decimals(abs(scaled)), 2)}f}{unit}" if abs(scaled) < 1e4 else f"{scaled:.3g}{unit}"
    return figure(value)


def tick_labels(ticks: Sequence[float], cells: int) -> tuple[str, ...]:
    """The labels of an axis, all in one unit and exact: `0  0.5  1`, `1,500`, `0.5M  1M`, `490µ  500µ`.

    `ticks` are ascending and a round number apart. A label has `cells` cells at most; beyond what the units have room
    for it is rounded, as in `5e-15`.
    """
    largest, apart = max(map(abs, ticks)), ticks[1] - ticks[0] if len(ticks) > 1 else abs(ticks[0])
    units = (unit for unit in (*_LARGE, *_SMALL, _MILLI) if unit[0] <= largest)
    for factor, unit in ((1.0, ""), *units):
        decimals = next((places for places in range(12) if _are_exact(ticks, factor, places, apart)), 12)
        form = f"{'' if unit else ','}.{decimals}f"
        labels = tuple(_trimmed(format(each / factor, form)) + (unit if each else "") for each in ticks)
        if decimals < 12 and max(map(len, labels)) <= cells:
            return labels
    return tuple(f"{each:.0e}" if each else "0" for each in ticks)


def _are_exact(ticks: Sequence[float], factor: float, decimals: int, apart: float) -> bool:
    """Whether so many decimals in this unit change no tick by more than what floating point does."""
    return all(abs(round(each / factor, decimals) * factor - each) <= 1e-6 * apart for each in ticks)


def _trimmed(number: str) -> str:
    """Without zeros behind the point."""
    return number.rstrip("0").rstrip(".") if "." in number else number


def count(value: int | None, unknown: str = UNKNOWN) -> str:
    """A whole number with thousands separated; None or negative is unknown."""
    return unknown if value is None or value < 0 else f"{value:,}"


def ms(duration: float) -> str:
    """A duration in ms: 0.35 ms, 17.8 ms, 4.05 s."""
    if not abs(duration) < 999.5:
        return f"{duration / 1e3:.3g} s" if abs(duration) < 999_500 else f"{duration / 1e3:,.0f} s"
    return f"{duration:.3g} ms"


def pct(share: float) -> str:
    """A share in percent, without its sign: 0, <0.1, 2.6, 17, 100."""
    if 0 < share < 0.1:
        return "<0.1"
    return f"{share:.1f}" if 0 < abs(share) < 9.95 else f"{share:.0f}"


def size(count: float | None, unknown: str = UNKNOWN) -> str:
    """A size in the binary units of nvidia-smi: 512 MiB, 63.0 GiB, 1.5 TiB."""
    if count is None or not math.isfinite(count):
        return unknown
    if abs(count) < 999.5 * 2**20:
        return f"{count / 2**20:.0f} MiB" if abs(count) >= 9.95 * 2**20 or count == 0 else f"{count / 2**20:.1f} MiB"
    return f"{count / 2**30:,.1f} GiB" if abs(count) < 2**40 else f"{count / 2**40:,.1f} TiB"


def age(seconds: float | None, unknown: str = UNKNOWN) -> str:
    """How old: 0.4 s, 12 s, 119 s, 2 min, 2 h, 5 d. A unit begins at 2, where rounding changes little."""
    if seconds is None or not math.isfinite(seconds):
        return unknown
    seconds = max(seconds, 0.0)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for limit, factor, unit in ((119.5, 1, "s"), (7170, 60, "min"), (172_000, 3600, "h")):
        if seconds < limit:
            return f"{seconds / factor:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def clock(seconds: float | None, unknown: str = "--:--:--") -> str:
    """Elapsed time as 00:12:31, with days in front when there are any."""
    if seconds is None or not math.isfinite(seconds):
        return unknown
    whole = max(int(seconds), 0)
    days, rest = divmod(whole, 86400)
    text = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days} d {text}" if days else text


def local_time(wall: float) -> str:
    """A Unix time as this machine's calendar and clock say it: 2026-11-23 08:30:12."""
    try:
        return datetime.fromtimestamp(wall).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return UNKNOWN


def time_of_day(wall: float | None, unknown: str = "") -> str:
    """A Unix time as this machine's clock says it: 08:30:12."""
    return unknown if wall is None or not math.isfinite(wall) else local_time(wall)[-8:]


def signed(value: float | None, unknown: str = UNKNOWN, noise: float = 0.0, decimals: int | None = None) -> str:
    """A difference with its sign: +41, -3.1, +0.31; ±0 what is below `noise`, or below the last decimal."""
    if value is None or not math.isfinite(value):
        return unknown
    size = abs(value)
    places = (0 if size >= 9.95 else 1 if size >= 0.995 else 2) if decimals is None else decimals
    text = f"{value:+,.{places}f}"
    return "±0" if size < noise or not any(digit in text for digit in "123456789") else text


def loss_words(loss: float | None, unknown: str = UNKNOWN) -> str:
    """Four digits, also where they are zeros: 2.310, 1234."""
    return f"{loss:#.4g}".rstrip(".") if loss is not None and math.isfinite(loss) else unknown


def loss_brief(loss: float | None, unknown: str = UNKNOWN) -> str:
    """The same in six cells, for tables: 2.310, 0.0491, 490.8µ, 12,345, 1.235M; of a negative one fewer digits."""
    if loss is None or not math.isfinite(loss):
        return unknown
    factor, unit, places = _loss_form(loss)
    return f"{loss / factor:,.{places}f}{unit}" if abs(loss) < _LOSS_MOST else f"{loss:.0e}"


def loss_difference(own: float, other: float) -> str:
    """By how much a loss exceeds another one, in the form of the larger one: +0.012, -1.3µ, ±0."""
    factor, unit, places = _loss_form(max(own, other, key=abs))
    apart = round(own / factor, places) - round(other / factor, places)
    if abs(own - other) >= _LOSS_MOST:
        return f"{own - other:+.0e}"
    return f"{apart:+,.{places}f}{unit}" if abs(apart) * 10**places >= 0.5 else "±0"


def _loss_form(loss: float) -> tuple[float, str, int]:
    """The unit in which a loss has most digits in six cells, none from 0.01 to 99,999, and its decimals."""
    rounded = abs(float(f"{loss:.4g}"))
    units = (unit for unit in (*_LARGE, *_SMALL) if unit[0] <= rounded)
    factor, unit = (
        (1.0, "") if rounded == 0 or 0.01 <= rounded < (1e4 if loss < 0 else 1e5) else next(units, _SMALL[-1])
    )
    most = min(max(3 - math.floor(math.log10(rounded / factor)), 0), 4) if rounded else 3
    fits = (places for places in range(most, 0, -1) if len(f"{loss / factor:,.{places}f}{unit}") <= _LOSS_CELLS)
    return factor, unit, next(fits, 0)


def plural(number: int, noun: str) -> str:
    """1 rank, 8 ranks."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def json_line(value: Any) -> str:
    """One line of ASCII: what a run calls itself cannot reach a terminal as an escape code.

    Raises:
        ValueError: a number that is not finite.
    """
    return json.dumps(value, ensure_ascii=True, allow_nan=False).replace("\x7f", "\\u007f")
