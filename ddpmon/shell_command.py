"""What to do about a trouble: words, and commands to paste that know where they run and whose process they name."""

from __future__ import annotations

from collections.abc import Set
from typing import Literal, TypeAlias

from msgspec import Struct

Whose = Literal["", "rank", "foreign"]


class ShellCommand(Struct, frozen=True):
    """A command to paste into a shell, with the words that make sense only beside it.

    Attributes:
        words: the command itself, without ssh.
        host: where it must run; "" where that is unknown.
        whose: whose process number it holds, a rank's or one that is foreign to the run; "" if it holds none.
        lead: what stands between the sentence and the command.
        instead: what is said in place of the lead, the command and the tail once the process may have ended.
        tail: what stands between the command and what follows it.
    """

    words: str
    host: str = ""
    whose: Whose = ""
    lead: str = ""
    instead: str = ""
    tail: str = ""

    def line(self, here: str = "") -> str:
        """The line to paste: `ssh node0005 nvidia-smi -i 2`, without ssh for a reader on the host `here`."""
        return self.words if self.host in ("", here) else f"ssh {self.host} {self.words}"


Advice: TypeAlias = str | tuple[str | ShellCommand, ...]  # text, or its parts where it holds commands


def advice_text(advice: Advice, here: str = "") -> str:
    """The advice as text.

    Args:
        advice: its parts.
        here: the run's name for the host that the reader is on; "" if the text may be read anywhere.
    """
    if isinstance(advice, str):
        return advice
    return "".join(part if isinstance(part, str) else f"{part.lead}`{part.line(here)}`{part.tail}" for part in advice)


def first_command(advice: Advice, here: str = "") -> str:
    """The first line to paste, for a reader on the host `here`; "" without one."""
    return next((part.line(here) for part in advice if isinstance(part, ShellCommand)), "")


def names_rank(advice: Advice) -> bool:
    """Whether one of its commands names the process of a rank."""
    commands = () if isinstance(advice, str) else (part for part in advice if isinstance(part, ShellCommand))
    return any(command.whose == "rank" for command in commands)


def of_ended_ranks(advice: Advice) -> Advice:
    """The advice where the ranks have ended; foreign processes may still be there."""
    return _without(advice, {"rank"})


def of_the_past(advice: Advice) -> Advice:
    """The advice where nobody knows which processes are left."""
    return _without(advice, {"rank", "foreign"})


def _without(advice: Advice, whose: Set[Whose]) -> Advice:
    if isinstance(advice, str):
        return advice
    return tuple(part.instead if isinstance(part, ShellCommand) and part.whose in whose else part for part in advice)
