"""Where the dashboard's pictures come from."""

from __future__ import annotations

from typing import Protocol

from ddpmon.snapshot import Snapshot


class Source(Protocol):
    """Gives frozen pictures of a run; called from the reader thread only, except `focus`.

    Attributes:
        focus: the rank whose detail the next picture carries; set by the screen, None for no rank.
    """

    focus: int | None

    def tick(self) -> Snapshot:
        """Read the store and freeze a picture; may block for seconds, never raises."""

    def refreeze(self) -> Snapshot:
        """Freeze the same data again without any I/O, after `focus` has changed."""

    def close(self) -> None:
        """Let go of the store."""
