"""One rank against the others: its phases over the last steps, and what else differs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from rich.segment import Segment

from ddpmon.format import known
from ddpmon.report.base_step import noise_ms
from ddpmon.report.comparison import rare_excess, shares_by_phase
from ddpmon.report.peers import (
    MOST_PEERS,
    at_same_steps,
    difference_words,
    figure_words,
    is_of_machine,
    machine_peers,
    now_and_then_words,
    others_of,
    shared_decimals,
)
from ddpmon.report.verdicts import marked_ranks, until_words
from ddpmon.report.wording import last_steps
from ddpmon.run.medians import median, some_of
from ddpmon.schema import PHASES
from ddpmon.snapshot import Ints, Ranks
from ddpmon.tui.draw.bars import bar, swatch
from ddpmon.tui.draw.columns import BY_KEY
from ddpmon.tui.draw.panel import FAINT, meter, no_match, title
from ddpmon.tui.lines import Line, fit, fit_all
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState

NAME, NUMBER = 14, 9
LED_LEAST = 6  # cells between a bar and its number from which on a line leads there
MORE = (  # (name, unit, column): what follows the phases where there is room
    ("wait", "ms", "wait"), ("work", "ms", "work"), ("all-reduce", "ms", "allreduce"), ("loss", "", "loss"),
    ("CPU", "%", "cpu"), ("GPU", "%", "gpu"), ("GPU clock", "MHz", "clock"), ("GPU power", "W", "power"),
)  # fmt: skip


def against_lines(picture: ViewState, rank: int, width: int, height: int) -> list[Line]:
    """A bar and three numbers a phase: this rank, the median of the others, and the difference.

    A `rank` of -1 stands for none, because the filter fits none.
    """
    look, ranks = picture.look, picture.snapshot.ranks
    if rank < 0:
        said = [title("a rank against the others", "", width, look), *no_match("rank", width, look)]
        return fit_all(said, width, height)
    if ranks is None or not 0 <= rank < len(ranks):
        return fit_all([], width, height)
    name = f"rank {rank} against the others"
    lines = [title(name, _over(picture, int(ranks.step[rank]), width - len(name) - 6), width, look)]
    lines.append(_headings(width, look))
    others = some_of(others_of(picture.snapshot, ranks, [rank]), MOST_PEERS)
    of_machine = np.array(machine_peers(picture.snapshot, ranks, [rank]), np.int64)
    lines += [*_phases(picture, ranks, rank, others, width), *_more(picture, ranks, rank, (others, of_machine), width)]
    return fit_all(lines, width, height)


def _over(picture: ViewState, newest: int, cells: int) -> str:
    """Which steps up to the `newest` the times are of, as far as there is room: other figures are the newest ones."""
    steps, until = last_steps(newest), until_words(picture.snapshot, newest)
    said = f"ms: medians of the {steps}" if steps else ""
    whole = f"{said}, {until}" if said and until else said
    return whole if len(whole) <= cells else said


def against_height(picture: ViewState, rank: int) -> int:
    """How many lines there are to show of a rank."""
    ranks = picture.snapshot.ranks
    if ranks is None or not 0 <= rank < len(ranks):
        return 2 + len(PHASES)
    own = np.array([rank])
    return 2 + len(PHASES) + sum(known(float(BY_KEY[key].values(ranks, own)[0])) for _, _, key in MORE)


def _bar_width(width: int) -> int:
    return max(width - NAME - 3 * NUMBER - 4, 8)


def _headings(width: int, look: Look) -> Line:
    text = f"  {'ms':<{NAME}}{'':<{_bar_width(width)}}{'this':>{NUMBER}}{'others':>{NUMBER}}{'diff':>{NUMBER}}"
    return fit([Segment(text, look.dim)], width)


def _phases(picture: ViewState, ranks: Ranks, rank: int, others: Ints, width: int) -> Iterator[Line]:
    look, noise = picture.look, noise_ms(picture.snapshot)
    columns = [ranks.column(f"{phase}_ms") for phase in PHASES]
    own, typical = [float(column[rank]) for column in columns], [median(column[others]) for column in columns]
    apart = [mine - theirs for mine, theirs in zip(own, typical, strict=True)]
    finding = marked_ranks(picture.snapshot.findings).get(rank)
    by_phase = dict(zip(PHASES, apart, strict=True)).__getitem__
    shares = shares_by_phase(finding, by_phase) if finding else {}
    rare = rare_excess(finding, by_phase) if finding else {}
    late = [ms + rare.get(phase, 0.0) for phase, ms in zip(PHASES, own, strict=True)]
    longest = max((ms for ms in (*late, *typical) if known(ms)), default=0.0)
    most = max(shares, key=lambda phase: shares[phase], default=None)
    for index, phase in enumerate(PHASES):
        loud = phase in shares and apart[index] > noise
        excess = [apart[index] if loud and place == index else 0.0 for place in range(len(PHASES))]
        lengths = [ms if place == index else 0.0 for place, ms in enumerate(own)]
        more = [rare.get(phase, 0.0) if place == index else 0.0 for place in range(len(PHASES))]
        drawn = bar(lengths, 0.0, longest, _bar_width(width), look, excess, more)
        name = [Segment("  "), swatch(index, look), Segment(f" {phase:<{NAME - 2}}", look.text)]
        rhythm = now_and_then_words(finding, NUMBER - 1) if phase == most else ""
        instead = rhythm or _not_compared(ranks, rank, look)
        pair = _Pair(own[index], typical[index], "ms", noise)
        numbers = _numbers(pair, look, loud=loud or bool(rhythm), instead=instead)
        yield fit([*name, *_led(drawn, look), *numbers], width)


def _led(drawn: Line, look: Look) -> Line:
    """A bar with a faint line from its end to the numbers."""
    *full, last = drawn
    if not last.text.isspace() or len(last.text) < LED_LEAST:
        return drawn
    return [*full, Segment(f" {look.glyphs.grid * (len(last.text) - 1)}", look.faint)]


class _Pair(NamedTuple):
    """A figure of this rank, that of the others, and below which difference they are alike: all three in `unit`.

    A figure is NaN where it is not known. `unit` is empty for a loss; `noise` is 0 or more.
    """

    own: float
    others: float
    unit: str
    noise: float


def _numbers(pair: _Pair, look: Look, *, loud: bool = False, instead: str = "") -> Line:
    """This rank's number, the others', and the difference, or what stands `instead` of it."""
    own, others, unit, noise = pair
    decimals = shared_decimals(own, others)
    first, second = (look.clean(figure_words(value, decimals, unit, look.unknown)) for value in (own, others))
    apart = instead or look.clean(difference_words(own, others, decimals, unit, noise)) or look.unknown
    return [
        Segment(f"{first:>{NUMBER}}", look.text),
        Segment(f"{second:>{NUMBER}}", look.dim),
        Segment(f"{apart:>{NUMBER}}", look.accent if loud else look.text),
    ]


def _not_compared(ranks: Ranks, rank: int, look: Look) -> str:
    """What stands instead of the differences of a rank that cannot be compared with the others; else empty."""
    return "" if at_same_steps(ranks)[rank] else look.unknown


def _more(picture: ViewState, ranks: Ranks, rank: int, others: tuple[Ints, Ints], width: int) -> Iterator[Line]:
    """What else is known of this rank; the larger of its number and the others' fills the bar.

    `others` are those that its steps and those that its machine is compared with.
    """
    look, instead = picture.look, _not_compared(ranks, rank, picture.look)
    finding = marked_ranks(picture.snapshot.findings).get(rank)
    for name, unit, key in MORE:
        them = others[is_of_machine(unit)]
        own, typical = (float(median(BY_KEY[key].values(ranks, some))) for some in (np.array([rank]), them))
        if not known(own):
            continue
        largest = max(own, typical) if known(typical) else own
        bar_of = meter(own / largest if largest > 0 else None, _bar_width(width), look, FAINT)
        pair = _Pair(own, typical, unit, noise_ms(picture.snapshot) if unit == "ms" else 0.0)
        rhythm = now_and_then_words(finding, NUMBER - 1) if name == "work" else ""
        label = Segment(f"  {name} {unit}".ljust(NAME + 2), look.dim)
        yield fit([label, *bar_of, *_numbers(pair, look, loud=bool(rhythm), instead=rhythm or instead)], width)
