"""The fields that a filter can name: figures of a rank with their units, and words of a rank or of a finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ddpmon.diagnose.alert import SEVERITIES
from ddpmon.diagnose.kinds import KINDS
from ddpmon.report.wording import phase_words
from ddpmon.schema import PHASES
from ddpmon.snapshot import Finding, Floats, Ranks
from ddpmon.tui.draw.columns import BY_KEY

SHARE = "%"  # of a step, for fields in milliseconds
STATES = ("running", "stalled", "finished", "failed", "lost", "unknown")
RESTARTED = "restarted_alone"  # what the screen says of a finding of the kind monitor_degraded with this evidence
_MS = {"µs": 1e-3, "us": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4}
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_GIB = {"MB": 1e6 / 2**30, "MiB": 2**-10, "GB": 1e9 / 2**30, "GiB": 1.0}


@dataclass(frozen=True, slots=True)
class NumberField:
    """A figure of each rank.

    Attributes:
        name: what a filter calls it.
        meaning: what it is, with the unit of a number without one.
        values: [world size] the figure of each rank, NaN where unknown.
        units: the units that may follow a number, with their size in the usual one; their case does not matter.
        shares: whether `%` means percent of the base step, in which nobody is late.
        aliases: other names for it.
    """

    name: str
    meaning: str
    values: Callable[[Ranks], Floats]
    units: Mapping[str, float]
    shares: bool = False
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TextField:
    """A word of each rank, or of each finding and so of the ranks that it names.

    Attributes:
        name: what a filter calls it.
        meaning: what it is.
        values: the word of each rank; None for a word of findings.
        words: the words that it can have, as far as they are known beforehand.
        aliases: other names for it.
        spellings: of one of these words: those that a filter may use.
    """

    name: str
    meaning: str
    values: Callable[[Ranks], Sequence[str]] | None = None
    words: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    spellings: Callable[[str], Sequence[str]] = lambda word: (word,)


def phase_spellings(phase: str) -> tuple[str, ...]:
    """A phase as the frames call it and as the screen does: `exposed` is all-reduce there, `other` between phases.

    Words of the screen may be joined by `_`, the last form, and so by `-`.
    """
    said = phase_words(phase).removeprefix("in ")
    word = said.removeprefix("the ")
    return (phase,) if word == phase else (phase, said, word, word.replace("-", "_").replace(" ", "_"))


def finding_words(finding: Finding) -> tuple[str, ...]:
    """What a finding is called in a filter: its kind, and what the screen says of ranks: lost, failed, restarted."""
    names = dict.fromkeys((finding.kind, finding.kind.removeprefix("rank_")))
    return (*names, RESTARTED) if RESTARTED in finding.evidence else (*names,)


def _column(key: str) -> Callable[[Ranks], Floats]:
    """The values of a column of the rank table."""
    return lambda ranks: BY_KEY[key].values(ranks, np.arange(len(ranks)))


def _own(name: str) -> Callable[[Ranks], Floats]:
    """An array of the ranks, as numbers."""
    return lambda ranks: np.asarray(ranks.column(name), np.float64)


def _gpu(name: str) -> Callable[[Ranks], Floats]:
    def values(ranks: Ranks) -> Floats:
        return np.array([None if gpu is None else getattr(gpu, name) for gpu in ranks.gpu], np.float64)  # None is NaN

    return values


def _ms(name: str, meaning: str, values: Callable[[Ranks], Floats], *aliases: str) -> NumberField:
    return NumberField(name, f"{meaning}, ms of a step", values, _MS, shares=True, aliases=aliases)


_NUMBERS = (
    NumberField("rank", "the rank's number", lambda ranks: np.arange(len(ranks), dtype=np.float64), {}),
    _ms("late", "lateness", _column("late"), "lateness"),
    _ms("work", "time in which it does not wait", _column("work")),
    _ms("wait", "exposed communication and barriers", _column("wait")),
    _ms("barrier", "time in explicit barriers", _column("barrier")),
    _ms("exposed", "communication that backward could not hide", _own("exposed_ms")),
    _ms("reduce", "all-reduce, first bucket to last", _column("allreduce"), "allreduce", "all-reduce"),
    *(_ms(phase, f"the phase {phase}", _own(f"{phase}_ms")) for phase in PHASES),
    _ms("steptime", "a whole step", _own("step_ms")),
    NumberField("step", "the last finished step", _column("step"), {}),
    NumberField("loss", "the loss", _column("loss"), {}),
    NumberField("gpu", "GPU utilisation, %", _column("gpu"), {SHARE: 1.0}, aliases=("gpu%", "util")),
    NumberField("power", "GPU power, W", _column("power"), {"W": 1.0, "kW": 1e3}, aliases=("w",)),
    NumberField("clock", "GPU clock, MHz", _column("clock"), {"MHz": 1.0, "GHz": 1e3}, aliases=("mhz",)),
    NumberField("temp", "GPU temperature, °C", _gpu("temperature_c"), {"C": 1.0, "°C": 1.0}),
    NumberField("cpu", "CPU of the rank's process, % of a core", _column("cpu"), {SHARE: 1.0}, aliases=("cpu%",)),
    NumberField("rss", "resident memory, GiB", _column("rss"), _GIB, aliases=("gib", "mem")),
    NumberField("heard", "age of its last word, s", _column("age"), _SECONDS, aliases=("age",)),
    NumberField("pid", "its process", _own("pid"), {}),
)
_PHASES = tuple(phase_spellings(phase)[-1].replace("_", "-") for phase in (*PHASES, "exposed", "barrier"))
_TEXTS = (
    TextField("host", "the host's name", lambda ranks: ranks.host, aliases=("node",)),
    TextField("state", "running, stalled, finished, failed, lost", lambda ranks: ranks.state, STATES),
    TextField("phase", "where it is now", lambda ranks: ranks.phase, _PHASES, spellings=phase_spellings),
    TextField("finding", "the kind of a finding that names it", words=(*KINDS, RESTARTED), aliases=("kind",)),
    TextField("severity", "of a finding that names it", words=tuple(SEVERITIES)),
)
NUMBERS: Mapping[str, NumberField] = {name: each for each in _NUMBERS for name in (each.name, *each.aliases)}
TEXTS: Mapping[str, TextField] = {name: each for each in _TEXTS for name in (each.name, *each.aliases)}
NAMES = (*(each.name for each in _NUMBERS), *(each.name for each in _TEXTS))
MOST_USED = ("late", "rank", "host", "gpu", "work", "wait", "state", "finding", "loss", "step")  # named first


def meaning(name: str) -> str:
    """What a field, or the column of that name, shows, with its unit."""
    return NUMBERS[name].meaning if name in NUMBERS else TEXTS[name].meaning
