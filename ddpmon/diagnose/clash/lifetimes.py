"""How clashes begin and end: counted in the frames of their host."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from ddpmon.diagnose.cases import over
from ddpmon.diagnose.clash.sign import Sign
from ddpmon.diagnose.finding import Finding

CLEAR_LOOKS = 10
_REMEMBERED = 10


@dataclass(slots=True)
class Clash:
    """One clash, from its first sign on.

    Attributes:
        sign: what the last frame that showed it had to say.
        host: where.
        since: the step of its ranks then, None before their first.
        bound: the first look at its host showed it already.
        told: how it was last described.
        shown: by how many readings in a row. missed: how many frames in a row have not shown it.
    """

    sign: Sign
    host: str
    since: int | None
    bound: bool
    told: Finding | None = None
    shown: int = 0
    missed: int = 0
    confirmed: bool = False

    def finding(self) -> Finding:
        """The clash by itself, as bad as the threat that it is."""
        sign = self.sign
        return Finding(
            kind=sign.kind,
            severity=sign.threat,
            summary=sign.summary,
            ranks=sign.ranks,
            nodes=(self.host,),
            since_step=self.since,
            since_is_bound=self.bound and self.since is not None,
            evidence=sign.evidence,
            advice=sign.advice,
        )


class Lifetimes:
    """All clashes of all hosts.

    Attributes:
        cleared: the last findings that are over, oldest first.
    """

    def __init__(self) -> None:
        self._hosts: dict[int, dict[tuple[str, Hashable], Clash]] = {}
        self._looked: set[int] = set()
        self.cleared: list[Finding] = []

    def __iter__(self) -> Iterator[Clash]:
        return iter([clash for known in self._hosts.values() for clash in known.values() if clash.confirmed])

    def look(self, node: int, host: str, signs: Sequence[Sign], step: int) -> None:
        """Take in what one frame of a host shows, whose ranks have finished `step`."""
        first = node not in self._looked
        self._looked.add(node)
        if not signs and node not in self._hosts:
            return
        known = self._hosts.setdefault(node, {})
        shown = {(sign.kind, sign.about): sign for sign in signs}
        for key, sign in shown.items():
            clash = known.get(key)
            if clash is None:
                clash = known[key] = Clash(sign, host, step if step >= 0 else None, first)
            is_news = clash.shown == 0 or sign.reading is None or sign.reading != clash.sign.reading
            clash.sign, clash.missed, clash.shown = sign, 0, clash.shown + is_news
            clash.confirmed |= clash.shown >= sign.looks
        for key in [key for key in known if key not in shown]:
            self._miss(known, key, step)
        if not known:
            del self._hosts[node]

    def _miss(self, known: dict[tuple[str, Hashable], Clash], key: tuple[str, Hashable], step: int) -> None:
        clash = known[key]
        clash.shown, clash.missed = 0, clash.missed + 1
        if clash.confirmed and clash.missed < CLEAR_LOOKS:
            return
        del known[key]
        if clash.confirmed and clash.told is not None:
            self.cleared.append(over(clash.told, max(0, step)))
            del self.cleared[:-_REMEMBERED]

    def forget(self, node: int) -> None:
        """Nobody tells of this host any more: what was, is neither known to last nor to be over."""
        self._hosts.pop(node, None)
