"""Tells two live processes publishing as one rank from a restarted rank."""

from __future__ import annotations

from dataclasses import dataclass

from ddpmon.schema import RankFrame

KEEPS_ITS_PLACE_S = 10.0  # a process that publishes as a rank keeps its place so long after its last frame


@dataclass(frozen=True, slots=True)
class DuplicateRank:
    """A rank as which two processes write: the one that is followed, the other, and when it was last seen."""

    kept: tuple[int, str]
    other: tuple[int, str]
    at: float


class DuplicateRanks:
    """What is known of the processes that ranks were before.

    Attributes:
        seen: rank -> the two that write as it.
    """

    def __init__(self) -> None:
        self.seen: dict[int, DuplicateRank] = {}
        self._former: dict[int, RankFrame] = {}

    def refuse(self, known: RankFrame, heard_at: float, frame: RankFrame, now: float) -> bool:
        """Whether a frame comes from a second live process, and not from a restarted rank.

        Args:
            known: the rank's newest frame.
            heard_at: when that came.
            frame: the other process's.
            now: when this has come.
        """
        former = self._former.get(frame.rank)
        if former is not None and _process(former) == _process(frame) != _process(known):
            if frame.seq > former.seq:
                self.seen[frame.rank] = DuplicateRank(_process(known), _process(frame), now)
                if now - heard_at <= KEEPS_ITS_PLACE_S:
                    return True
            elif frame.sent_at <= former.sent_at:
                return True  # an old word of it
        self._former[frame.rank] = known
        return False


def _process(frame: RankFrame) -> tuple[int, str]:
    return frame.pid, frame.host
