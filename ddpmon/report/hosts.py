"""The hosts of a snapshot: made where one is asked for, since the overview draws none of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

from ddpmon.run.model import Run
from ddpmon.schema import NodeFrame
from ddpmon.snapshot import NodeView

Members = Mapping[int | str, tuple[int, ...]]


class Hosts(Sequence[NodeView]):
    """Every host that has been heard of, with its ranks, in the order of their numbers.

    Args:
        known: each host's number, newest frame, and when that came.
        members: number or name -> the ranks there; not to be written any more.
        now: the time of the snapshot, in monotonic seconds.
    """

    def __init__(self, known: Sequence[tuple[int, NodeFrame, float]], members: Members, now: float) -> None:
        self._known, self._members, self._now = known, members, now
        self._made: dict[int, NodeView] = {}

    def __len__(self) -> int:
        return len(self._known)

    @overload
    def __getitem__(self, place: int) -> NodeView: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[NodeView]: ...
    def __getitem__(self, place: int | slice) -> NodeView | Sequence[NodeView]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        at = range(len(self))[place]
        if at not in self._made:
            self._made[at] = self._make(*self._known[at])
        return self._made[at]

    def __iter__(self) -> Iterator[NodeView]:
        """All of them, in order."""
        for at, known in enumerate(self._known):
            node = self._made.get(at)
            if node is None:
                node = self._made[at] = self._make(*known)
            yield node

    def _make(self, number: int, frame: NodeFrame, heard_at: float) -> NodeView:
        return NodeView(
            node=number,
            host=frame.host,
            ranks=self._members.get(number) or self._members.get(frame.host, ()),
            age_s=self._now - heard_at,
            figures=frame.figures,
            gpus=tuple(frame.gpus),
            cost_pct=frame.cost_pct,
            notes=tuple(frame.notes),
        )


def build_nodes(run: Run, now: float) -> Hosts:
    """Every host that has been heard of, as of `now` in monotonic seconds."""
    known = [(number, frame, heard_at) for number, (frame, heard_at) in sorted(run.nodes.items())]
    return Hosts(known, run.members(), now)
