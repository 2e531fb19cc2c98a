"""The numbers that a finding rests on, in words: chosen, named, and with their units."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ddpmon.format import age, figure, pct, plural, size
from ddpmon.report.tense import in_tense
from ddpmon.report.wording import one_step_of
from ddpmon.schema import PHASES

Evidence = Mapping[str, float | int | str]

COUNTED_FROM_0 = ("step", "index", "numa_node")
LONGEST = 60  # a longer text stands in a block of its own
NEGLIGIBLE = 0.1  # of the whole: a part below it is left out
UNITS = {"ms": "ms", "us": "µs", "pct": "%", "mhz": "MHz", "w": "W", "gb_s": "GB/s"}
SHARES = ("share", "imbalance")
SIZES = ("memory_used", "memory_total", "memory_limit", "free", "total")  # bytes, though their names do not say so
IDENTIFIERS = ("pid", "port", "numa_node")  # numbers that count nothing
WHAT = ("work", "step", "transfer")
SAID = {
    "gc": "garbage collection",
    "typical": "typical work",
    "spread": "spread of the waits",
    "launch": "GPU waiting for the CPU",
    "runqueue": "run-queue wait",
    "sm": "SM use",
    "rss": "resident memory",
    "oom_kills": "killed for lack of memory",
    "refused_frames": "refused frames",
    "set_aside": "impossible step records",
    "retransmits_per_1000": "TCP retransmits",
    "others_per_1000": "other hosts",
    "gpus": "GPUs",
    "seconds": "for",
    "taken": "CPU taken",
    "left": "full in",
}
UNSEEN = {  # what is counted of an incomplete picture: how the ranks are named
    "not_reporting": "silent",
    "never_heard_of": "never reported",
    "restarted_alone": "restarted alone",
}
ELSEWHERE = (
    "restarted_alone",
    "cost_pct",
    "cost_most_pct",
    "hit_steps",
    "one_step_in",
    "phases_ms",
    "window_steps",
    "cause_strength",
)


def evidence_words(evidence: Evidence, *, is_over: bool = False) -> str:
    """`work 158 ms, others 117 ms, +41 ms; waits 40 ms less; input +39 ms; over 20 steps`: one line, not cleaned.

    Keys end in their unit (`_ms`, `_pct`, `_s`, `_bytes`). What is not finite, a count of 0, and what is small beside
    the whole, is left out. What is seen in some steps only begins with `in the late steps: `: medians do not have it.
    What is over is told in the past.
    """
    left = {key: value for key, value in evidence.items() if key not in ELSEWHERE and _worth_saying(key, value)}
    whole = _whole(left)
    said = [*_comparisons(left), *_waiting(left, is_over), *_parts(left, whole), *_ratios(left)]
    said += [*_growth(left, is_over), *unseen(left), *_standing(left, is_over)]
    left = {key: value for key, value in left.items() if not (key.endswith("gpus") and value == 1)}
    said += [_plainly(key, value, is_over) for key, value in left.items()]
    words = "; ".join([*said, *_extent(evidence)])
    return f"in the late steps: {words}" if said and "hit_steps" in evidence else words


def evidence_blocks(evidence: Evidence) -> list[tuple[str, list[str]]]:
    """Long texts, such as a stack: (name, lines), not cleaned."""
    texts = [(key, value) for key, value in evidence.items() if isinstance(value, str) and _is_long(value)]
    return [(_name(key), [line for line in text.splitlines() if line.strip()]) for key, text in texts]


def _worth_saying(key: str, value: float | int | str) -> bool:
    if isinstance(value, str):
        return not _is_long(value) and bool(value.strip())
    return math.isfinite(value) and (value != 0 or not isinstance(value, int) or key.endswith(COUNTED_FROM_0))


def _is_long(text: str) -> bool:
    return len(text) > LONGEST or len(text.splitlines()) > 1


def _number(left: dict[str, float | int | str], key: str) -> float | None:
    """Take a number out of what is left to say."""
    value = left.get(key)
    return None if value is None or isinstance(value, str) else float(left.pop(key))


def _comparisons(left: dict[str, float | int | str]) -> Iterator[str]:
    """What it is against what it is for others, or what it was, and by how much more."""
    for what in WHAT:
        before = "without the rise" if what == "step" else "before"  # which is not measured: it was another job then
        for usual, word in ((f"others_{what}_ms", "others"), (f"normal_{what}_ms", before)):
            if f"{what}_ms" in left and usual in left:
                own, other = _number(left, f"{what}_ms") or 0.0, _number(left, usual) or 0.0
                more = _number(left, "excess_ms") if word == "others" else None
                yield f"{what} {_ms(own)}, {word} {_ms(other)}, {_difference(own, other, more)}"


def _difference(own: float, other: float, measured: float | None) -> str:
    """`+41 ms`; that of the median step is called so where the two medians, as shown, have another difference."""
    if measured is None:
        return _more(own - other)
    shown_to = 10.0 ** (math.floor(math.log10(max(abs(own), abs(other), 1e-9))) - 2)  # three digits
    is_another = abs(own - other - measured) > shown_to
    return f"{_more(measured)} in the median step" if is_another else _more(measured)


def _waiting(left: dict[str, float | int | str], is_over: bool) -> Iterator[str]:
    less = _number(left, "waits_less_ms")
    if less is not None:
        yield f"{in_tense('waits', is_over=is_over)} {_ms(abs(less))} {'less' if less >= 0 else 'more'}"


def unseen(left: dict[str, float | int | str]) -> Iterator[str]:
    """How many ranks an incomplete picture lacks, and why."""
    for name, fate in UNSEEN.items():
        number = left.pop(name, None)
        if isinstance(number, int) and number:
            yield f"{plural(number, 'rank')} {fate}"


def _standing(left: dict[str, float | int | str], is_over: bool) -> Iterator[str]:
    """How many ranks have waited, in what and for how long; of a pause that has a name they may wait for less."""
    if "waiting" in left and "seconds" in left and "name" not in left:
        number, seconds = int(left.pop("waiting")), _number(left, "seconds")
        operation = str(left.pop("operation", "")).rpartition(":")[2]
        have_waited = in_tense("has waited" if number == 1 else "have waited", is_over=is_over)
        yield f"{plural(number, 'rank')} {have_waited}{f' in {operation}' if operation else ''} for {age(seconds)}"
    elif "waiting" in left:
        number = int(left.pop("waiting"))
        yield f"{plural(number, 'rank')} {in_tense('waits' if number == 1 else 'wait', is_over=is_over)}"


def _whole(left: Evidence) -> float:
    """The ms that a part is measured against: the largest part, or what the whole has grown by, whichever is more."""
    numbers = {key: float(value) for key, value in left.items() if not isinstance(value, str)}
    grown = [numbers.get(f"{what}_ms", 0.0) - numbers.get(f"normal_{what}_ms", math.inf) for what in WHAT]
    return max([*(abs(value) for key, value in numbers.items() if _is_part(key)), *grown], default=0.0)


def _is_part(key: str) -> bool:
    return key.endswith("_ms") and (key == "gc_ms" or key.startswith(("excess_", "rise_")) or key.endswith("_rise_ms"))


def _parts(left: dict[str, float | int | str], whole: float) -> Iterator[str]:
    """The parts of the excess, the largest first, without those that hardly count."""
    parts = {key: _number(left, key) or 0.0 for key in [*left] if _is_part(key)}
    for key, ms in sorted(parts.items(), key=lambda part: -abs(part[1])):
        name = key.removesuffix("_ms").removeprefix("excess_").removeprefix("rise_").removesuffix("_rise")
        if abs(ms) >= max(NEGLIGIBLE * whole, 0.05):
            yield f"{name if name in PHASES else SAID.get(name, name.replace('_', ' '))} {_more(ms)}"


def _ratios(left: dict[str, float | int | str]) -> Iterator[str]:
    samples, ratio = _number(left, "samples_ratio"), _number(left, "ratio")
    if ratio is not None:
        yield f"{ratio:.2f} times the others' work"
    if samples is not None and abs(samples - 1) >= 0.02:
        yield f"{samples:.2f} times the others' samples"


def _growth(left: dict[str, float | int | str], is_over: bool) -> Iterator[str]:
    if "growth_bytes" in left and "over_s" in left:
        grown, seconds = _number(left, "growth_bytes"), _number(left, "over_s")
        yield f"{in_tense('grows', is_over=is_over)} by {size(grown)} in {age(seconds)}"


def _extent(evidence: Evidence) -> Iterator[str]:
    """How many steps it rests on."""
    hits, often, window = (evidence.get(key) for key in ("hit_steps", "one_step_in", "window_steps"))
    if isinstance(hits, float | int):
        share = one_step_of(often).replace(" step", "")
        yield ", ".join(filter(None, [f"seen in {plural(round(hits), 'step')}", share]))
    if isinstance(window, float | int):
        yield f"over {plural(round(window), 'step')}"


def _plainly(key: str, value: float | int | str, is_over: bool) -> str:
    """Any other pair: its name, its value and the unit that its name ends in.

    What belongs to the cause of a finding is named like the same of a finding of its own.
    """
    if key == "cause_share":
        share, explains = pct(100 * float(value)), in_tense("explains", is_over=is_over)
        return f"this {explains} {'all' if share == '100' else f'{share} %'} of the lateness"
    key = key.removeprefix("cause_")
    if isinstance(value, str) or key in IDENTIFIERS:
        return f"{_name(key)} {value}"
    if key.endswith("_per_1000"):
        return f"{_name(key)} {pct(value / 10)} %"
    if key.endswith("_bytes_s"):
        return f"{_name(key.removesuffix('_bytes_s'))} {size(value)}/s"
    if key.endswith("_bytes") or key in SIZES:
        return f"{_name(key.removesuffix('_bytes'))} {size(value)}"
    if key.endswith(SHARES):
        return f"{_name(key).removesuffix(' share')} {100 * value:.0f} %"
    if key == "seconds" or (key.endswith("_s") and not key.endswith("gb_s")):
        return f"{_name(key.removesuffix('_s'))} {age(float(value))}"
    shown = f"{value:,}" if isinstance(value, int) else figure(value)
    unit = next((unit for unit in UNITS if key.endswith(f"_{unit}")), None)
    return f"{_name(key.removesuffix(f'_{unit}'))} {shown} {UNITS[unit]}" if unit else f"{_name(key)} {shown}"


def _name(key: str) -> str:
    return SAID.get(key, key.replace("_", " "))


def _ms(value: float) -> str:
    return f"{figure(value)} ms"


def _more(value: float) -> str:
    return f"{'+' if value >= 0 else '-'}{figure(abs(value))} ms"
