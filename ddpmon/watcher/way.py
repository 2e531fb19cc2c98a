"""A way to runs that are elsewhere, as a watcher uses it, and what has become of a run there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from ddpmon.store.connect import Target


@dataclass(frozen=True, slots=True)
class Fate:
    """What has become of a run from which nothing comes, as somebody knows it who can look.

    Attributes:
        state: "running" where its rank 0 lives, "restarting" where only its launcher does and has attempts
            left, "unknown" where the place was asked and cannot tell.
        why: the fact that it rests on, as a part of a sentence, such as "job 2 is CANCELLED"; may be empty.
    """

    state: Literal["running", "restarting", "killed", "cancelled", "failed", "finished", "unknown"]
    why: str = ""


class Way(Protocol):
    """Leads to runs that are elsewhere. Every method returns within a second; looking goes on in another thread."""

    def target(self) -> Target | None:
        """Where the run is to be read; None while there is none."""

    def waits_for(self) -> str:
        """What is waited for while there is no run, in a sentence."""

    def trouble(self) -> str:
        """Why nothing comes through at present, in a sentence; empty where the way is open, or needs nothing open."""

    def refusal(self) -> str:
        """Why the far end could not connect to the store, as a part of a sentence; empty where that is not known."""

    def fate(self, run_id: str, since: float) -> Fate | None:
        """What has become of a run, by a look after `since` (monotonic seconds); None while there is none."""
