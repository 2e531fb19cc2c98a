"""The user's own commands: what stands for {rank}, {host}, {pid} and {gpu}."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ddpmon.snapshot import Ranks
from ddpmon.tui.preferences import UserCommand

# A run may call its host anything: a name that begins with a dash would be an option of ssh.
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")


class UnknownPlaceError(ValueError):
    """Something that the command needs is not known of this rank; the message says what."""


def filled(command: UserCommand, ranks: Ranks, rank: int) -> list[str]:
    """The program and its arguments for a rank; there is no shell that could read them in another way.

    Raises:
        UnknownPlaceError: what the command needs is not known, or a host's name is none.
    """
    values = _values(ranks, rank)

    def value(match: re.Match[str]) -> str:
        found = values.get(match[1])
        if found is None:
            raise UnknownPlaceError(f"{command.name}: the {match[1]} of rank {rank} is not known")
        return found

    return [re.sub(r"\{(\w+)\}", value, word) for word in command.run]


def _values(ranks: Ranks, rank: int) -> Mapping[str, str | None]:
    host, pid, gpu = ranks.host[rank], int(ranks.pid[rank]), ranks.gpu[rank]
    return {
        "rank": str(rank),
        "host": host if _HOST.fullmatch(host) else None,
        "pid": str(pid) if pid > 0 else None,
        "gpu": None if gpu is None else str(gpu.index),
    }
