"""One fault: its kinds, and how it is written on the command line."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

DELAYS = {
    "input": "the data comes late",
    "forward": "forward takes longer",
    "backward": "backward takes longer",
    "host": "the rank pauses between two steps",
    "gc": "a garbage collection with a slow finalizer interrupts forward",
}
EVENTS = {
    "hang_input": "the dataset gets stuck",
    "hang_forward": "forward loops forever",
    "skip": "the other ranks enter a barrier after the step, this one does not",
    "nan": "the loss is multiplied by NaN",
    "raise": "forward raises a RuntimeError",
    "end": "the data ends before the step",
}
KINDS = (*DELAYS, *EVENTS)
FAULT_FORM = "KIND:rank=R,ms=M[,from=S][,until=S][,every=P]"
FAULT_HELP = (
    f"{FAULT_FORM}. With ms= the kinds that delay: {', '.join(f'{kind} ({what})' for kind, what in DELAYS.items())}. "
    f"Without it: {', '.join(f'{kind} ({what})' for kind, what in EVENTS.items())}"
)
_HINT = (
    f"the form is {FAULT_FORM}, with KIND one of {', '.join(DELAYS)}, or without ms= one of {', '.join(EVENTS)}, "
    "and R like 1 or 1+3"
)


@dataclass(frozen=True)
class Fault:
    """A delay of `ms` milliseconds (without end, where the kind knows none) in some ranks' steps.

    Those are the steps `start`, `start + every`, ... before `until`.
    """

    kind: str
    ranks: frozenset[int]
    ms: float = math.inf
    start: int = 0
    until: int | None = None
    every: int = 1

    def due(self, step: int) -> bool:
        """Whether the fault strikes in the step (counted from 0)."""
        begun = step >= self.start and (self.until is None or step < self.until)
        return begun and (step - self.start) % self.every == 0


def parse_fault(text: str) -> Fault:
    """Read one fault, such as `input:rank=1+3,ms=150,from=60,every=2` or `nan:rank=1,from=60`.

    Raises:
        ValueError: with one sentence that names the bad part and the right form.
    """
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        raise ValueError(f"'{kind}' in '{text}' is not a kind of fault: {_HINT}")
    values = _parse_values(text, rest)
    for key in ("rank", "ms") if kind in DELAYS else ("rank",):
        if key not in values:
            raise ValueError(f"'{text}' lacks {key}=: {_HINT}")
    if kind in EVENTS and "ms" in values:
        raise ValueError(f"'ms={values['ms']}' in '{text}' has no effect, since {kind} is not a delay: {_HINT}")
    until = int(values["until"]) if "until" in values else None
    fault = Fault(
        kind=kind,
        ranks=frozenset(int(rank) for rank in values["rank"].split("+")),
        ms=float(values.get("ms", "inf")),
        start=int(values.get("from", "0")),
        until=until,
        every=int(values.get("every", "1")),
    )
    if until is not None and until <= fault.start:
        raise ValueError(f"'until={until}' in '{text}' is not after from={fault.start}: {_HINT}")
    return fault


_VALUE_PATTERNS = {
    "rank": r"\d+(\+\d+)*",
    "ms": r"\d+(\.\d+)?",
    "from": r"\d+",
    "until": r"\d+",
    "every": r"[1-9]\d*",
}


def _parse_values(text: str, rest: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in rest.split(",") if rest else []:
        key, _, value = part.partition("=")
        if key in values or not re.fullmatch(_VALUE_PATTERNS.get(key, "(?!)"), value, re.ASCII):
            raise ValueError(f"'{part}' in '{text}' is not understood: {_HINT}")
        values[key] = value
    return values
