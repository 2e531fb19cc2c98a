"""What the sentence of an alert consists of, and the phrases that several sentences share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.contention.symptom import MOST_CULPRITS, Culprit
from ddpmon.machine import Process
from ddpmon.parts import NO_HOST, StackFrame
from ddpmon.report.tense import tense
from ddpmon.run.recent import RECENT
from ddpmon.shell_command import Advice, ShellCommand, Whose

_SHOWN = 6
RHYTHM = 1.5  # steps from one late step to the next, on average: a smaller mean would be said as "one step of 1"
_STACK_LINES = 16
_HOST = re.compile(r"[A-Za-z0-9_][\w.-]*", re.ASCII)
_DEVICE = re.compile(r"[A-Za-z0-9_.][\w.:@-]*", re.ASCII)
Evidence = Mapping[str, float | int | str]


class Words(Struct, frozen=True):
    """What is said of one alert.

    Attributes:
        said: the sentence, without its full stop if nothing follows it. The cause stands behind it.
        rest: whole sentences behind it and its cause, such as what it costs; empty if there are none.
        advice: what to do or look at next, in parts where it holds commands; empty for none.
        evidence: the numbers that the alert rests on, by the names of the JSON contract.
        because: what follows "because of" where these measures are the cause of something: a noun, then the details.
        cause: what the rank itself tells of the reason, where `said` names it already.
        lines: the lines of code that `said` names, as `format_line` has them.
        tells_moment: `said` says itself at which past moment it happened, and is true ever since.
        tells_end: of what is over, `said` is in the past and says itself until when.
    """

    said: str
    rest: str = ""
    advice: Advice = ""
    evidence: Evidence = field(default_factory=dict)
    because: str = ""
    cause: str | None = None
    lines: tuple[StackFrame, ...] = ()
    tells_moment: bool = False
    tells_end: bool = False


Sentence = Callable[[Any, Alert], Words]  # of measures of one class, and the alert that carries them


def clean(text: str, limit: int = 120) -> str:
    """Foreign text on one line, without control characters or escape codes, at most `limit` characters long."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: 4 * limit]).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def last_steps(newest: int | None) -> str:
    """`last 20 steps`: those that medians are taken over at step `newest`; fewer of a younger run, empty for none."""
    count = min((-1 if newest is None else newest) + 1, RECENT)
    return "" if count < 1 else "last step" if count == 1 else f"last {count} steps"


def named(process: Process | Culprit) -> str:
    """Pid 8123 (bob, python x.py), as far as it is visible."""
    known = ", ".join(clean(text, limit) for text, limit in ((process.user, 32), (process.command, 60)) if text)
    return f"pid {process.pid} ({known})" if known else f"pid {process.pid}"


def format_ranks(ranks: Sequence[int]) -> str:
    """Rank 2; ranks 0, 1, 3; ranks 8-23; 12 ranks (0, 3, 7, ...). Sorted, so that the sentence does not flicker."""
    ordered = sorted(ranks)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    if len(ordered) <= _SHOWN:
        return f"ranks {', '.join(map(str, ordered))}"
    if ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"ranks {ordered[0]}-{ordered[-1]}"
    return f"{len(ordered):,} ranks ({', '.join(map(str, ordered[:3]))}, ...)"


def does(ranks: Sequence[int], verb: str, alert: Alert | None = None) -> str:
    """`format_ranks` with its verb, given in the plural: rank 2 waits, rank 2 attaches, ranks 0, 1 wait.

    The verb is in the tense of the alert, if any is given: rank 2 waited.
    """
    return f"{format_ranks(ranks)} {_agreeing(verb, ranks, alert)}"


def _agreeing(verb: str, ranks: Sequence[int], alert: Alert | None) -> str:
    """The verb in the number of the ranks and in the tense of the alert."""
    if len(ranks) == 1:
        first, *more = verb.split(" ")
        ending = "es" if first.endswith(("ch", "sh", "s", "x", "o")) else "s"
        verb = " ".join([{"are": "is", "have": "has", "may": "may"}.get(first, f"{first}{ending}"), *more])
    return verb if alert is None else tense(alert, verb)


def run_share(share: str, *, is_over: bool) -> str:
    """`22 % of the run's time`; of what is over `22 % of the run's time while it lasted`."""
    return f"{share} of the run's time{' while it lasted' if is_over else ''}"


def others_do(ranks: Sequence[int], verb: str, alert: Alert) -> str:
    """The same of the ranks besides those that a sentence names: rank 2 waits, 63 ranks wait."""
    who = format_ranks(ranks) if len(ranks) <= _SHOWN else f"{len(ranks):,} ranks"
    return f"{who} {_agreeing(verb, ranks, alert)}"


def one_step_of(steps: object) -> str:
    """`one step of 5`: how often something is late; empty where that is every step, or nearly."""
    return f"one step of {steps:.0f}" if isinstance(steps, float | int) and steps >= RHYTHM else ""


def cores(cpu_pct: float, total: int | None) -> str:
    """How much CPU something takes: 60 % of a core, 1.9 of 4 cores, 118 of 128 cores.

    Args:
        cpu_pct: percent of one core.
        total: the cores that there are, None or 0 if that is unknown.
    """
    if cpu_pct < 99.5 or total == 1:
        return f"{cpu_pct:.0f} % of a core"
    taken = f"{cpu_pct / 100:.1f}" if cpu_pct < 995 else f"{cpu_pct / 100:,.0f}"
    return f"{taken} of {total:,} cores" if total else f"{taken} cores"


def is_host_name(text: str) -> bool:
    """Whether a host may be called so: no shell reads anything into the name, and ssh does not take it for an option.

    A frame says which host it comes from, and another user may have written the frame.
    """
    return _HOST.fullmatch(text) is not None


def is_device_name(text: str) -> bool:
    """Whether a network interface or device may be called so, and the name may stand in a command to paste."""
    return _DEVICE.fullmatch(text) is not None


def on_host(
    host: str, command: str, whose: Whose = "", *, lead: str = "", instead: str = "", tail: str = ""
) -> ShellCommand:
    """The command to paste; without its host where that is unknown or has an odd name.

    Args:
        host: as a frame names it.
        command: words of ours, numbers, and names that `is_device_name` accepts: two shells read it.
        whose: as `ShellCommand` has it.
        lead: the same.
        instead: the same.
        tail: the same.
    """
    return ShellCommand(command, host if is_host_name(host) else "", whose, lead, instead, tail)


def stack_command(host: str, pid: int) -> ShellCommand:
    """The command that prints where a rank's process is: `ssh node0002 py-spy dump --pid 20021`."""
    return on_host(host, f"py-spy dump --pid {pid}", "rank", instead="py-spy dump on its process when it happens again")


def format_stack(stack: Sequence[StackFrame]) -> str:
    """The innermost lines of a stack, most recent last; "" if it is unknown."""
    return "\n".join(map(format_line, stack[-_STACK_LINES:]))


def format_line(line: StackFrame) -> str:
    """One line of a stack: data.py:88 in __getitem__: time.sleep(1e9)."""
    source = f": {clean(line.source, 80)}" if line.source.strip() else ""
    return f"{brief_line(line)} in {clean(line.function, 60)}{source}"


def brief_line(line: StackFrame) -> str:
    """The same without the function and its code: data.py:88."""
    name = line.file.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{clean(name, 60)}:{line.line}"


def in_brackets(host: str) -> str:
    """The host behind the name of a rank: " (node0)"; "" where it is unknown."""
    return "" if host in ("", NO_HOST) else f" ({clean(host, 60)})"


def host_of(alert: Alert) -> str:
    """The host as its frame names it, for commands; "" if the alert names none."""
    return next(iter(alert.nodes), "")


def host_name(alert: Alert) -> str:
    """The host's name, made harmless."""
    return clean(host_of(alert), 60)


def culprit_names(culprits: Sequence[Culprit]) -> str:
    """The first of them, and how many more: pid 8123 (bob, python x.py) and 2 more."""
    more = len(culprits) - 1
    return named(culprits[0]) + (f" and {more} more" if more > 0 else "")


def culprit_evidence(culprits: Sequence[Culprit]) -> Evidence:
    """The first one whole, and everybody's number; nothing where none is known."""
    if not culprits:
        return {}
    first = culprits[0]
    evidence: dict[str, float | int | str] = {"pid": first.pid}
    if first.user:
        evidence["user"] = clean(first.user, 32)
    if first.command:
        evidence["command"] = clean(first.command)
    if len(culprits) > 1:
        evidence["pids"] = ", ".join(str(culprit.pid) for culprit in culprits[:MOST_CULPRITS])
    return evidence


def state_words(state: str, phase: str, *, past: bool = False) -> str:
    """`running in backward`, `waiting in the all-reduce`, `lost`: a rank's state, and its phase if it lives.

    In the past `last seen in backward`: nobody knows that it is still there.
    """
    if not phase or state not in ("running", "stalled"):
        return state
    if past:
        return f"last seen {'stalled ' if state == 'stalled' else ''}{phase_words(phase)}"
    return f"{'waiting' if (state, phase) == ('running', 'exposed') else state} {phase_words(phase)}"


def phase_name(phase: str) -> str:
    """What the screen calls where a rank is: `all-reduce` of one whose gradients are all ready, else as it says."""
    return {"exposed": "all-reduce"}.get(phase, phase)


def phase_words(phase: str) -> str:
    """Where a rank is: `in backward`, `in the all-reduce`, `between phases`."""
    return {"exposed": f"in the {phase_name(phase)}", "other": "between phases"}.get(phase, f"in {phase}")
