"""Plain words on a plain terminal: what a run calls itself is data, never an escape code."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def plain(text: str) -> str:
    """The text with everything unprintable (control characters, escape codes, direction marks) made visible."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def complain(message: str) -> None:
    """Say on stderr, line by line, what went wrong."""
    for line in message.splitlines():
        print(f"ddpmon: {plain(line)}", file=sys.stderr)


def leave(code: int) -> NoReturn:
    """End the process at once: a thread may still hang in the store, and waiting for it would hang us too."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
