"""All that was ever said of a table: of a live run the present matters, of a table every stretch of its steps."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from ddpmon.diagnose.alert import SEVERITIES, Alert, Severity
from ddpmon.diagnose.kinds import KINDS
from ddpmon.parts import NO_HOST


class _Episode(Struct, eq=False):
    """One trouble from its first word to its last: how it was described while it lasted, and at its worst."""

    alert: Alert
    worst: Severity
    over_at: int | None = None
    closed: bool = False

    def goes_on_with(self, alert: Alert) -> bool:
        """Whether `finding` may speak of the same trouble."""
        mine = self.alert
        same_ranks = bool(set(mine.ranks) & set(alert.ranks)) or not (mine.ranks and alert.ranks)
        since = alert.since_step
        lasts = self.over_at is None or since is None or since <= self.over_at
        return mine.kind == alert.kind and same_ranks and lasts

    def likeness(self, alert: Alert) -> tuple[bool, ...]:
        """How closely it is described as before; the greater, the closer."""
        names = ("ranks", "since_step", "phase")
        alike = [getattr(self.alert, name) == getattr(alert, name) for name in names]
        return (*alike, type(self.alert.measures) is type(alert.measures))


class History:
    """Follows findings from tick to tick, whatever verdict they come from."""

    def __init__(self) -> None:
        self._episodes: list[_Episode] = []
        self._ended: set[tuple[object, ...]] = set()

    def hear(self, said: Sequence[Alert], step: int) -> None:
        """Take in what the judge says at the end of a tick, `step` being the newest."""
        told = [_without_host(alert) for alert in said if KINDS[alert.kind].in_tables]
        before = [episode for episode in self._episodes if episode.over_at is None]
        now: list[_Episode] = []
        lasting = [alert for alert in told if alert.cleared_at_step is None]
        there = {*map(_identity, lasting)}
        over = [alert for alert in told if alert.cleared_at_step is not None]
        ended = [alert for alert in over if _identity(alert) not in there]
        self._ended.update(_end_of(alert) for alert in over if _identity(alert) in there)  # it goes on as it was
        self._close(ended, before)
        for alert in lasting:
            now.append(self._go_on(alert, now))
        gone = [episode for episode in before if episode not in now]
        for alert in ended:
            self._end(alert, gone)
        for episode in gone:  # a verdict may drop a trouble without a word on its end
            episode.over_at = episode.over_at if episode.over_at is not None else step

    def alerts(self) -> tuple[Alert, ...]:
        """Those that last to the end of the table, the worst and dearest first; then those that are over, in order.

        One that is over has the severity that it had at its worst, and `cleared_at_step`.
        """
        lasting = [episode.alert for episode in self._episodes if episode.over_at is None]
        over = [
            replace(episode.alert, severity=episode.worst, cleared_at_step=episode.over_at)
            for episode in self._episodes
            if episode.over_at is not None
        ]
        return (*sorted(lasting, key=_weight, reverse=True), *over)

    def _close(self, ended: Sequence[Alert], before: Sequence[_Episode]) -> None:
        """End for good what has ended: if it began again within the same tick, that is another episode."""
        for alert in ended:
            for episode in before:
                if not episode.closed and _identity(episode.alert) == _identity(alert):
                    episode.over_at, episode.closed = alert.cleared_at_step, True
                    self._ended.add(_end_of(alert))

    def _go_on(self, alert: Alert, taken: list[_Episode]) -> _Episode:
        """The episode that `finding` belongs to, or a new one."""
        known = [one for one in self._episodes if not (one.closed or one in taken) and one.goes_on_with(alert)]
        if not known:
            self._episodes.append(_Episode(alert, alert.severity))
            return self._episodes[-1]
        episode = max(known, key=lambda one: one.likeness(alert))
        episode.alert, episode.over_at = alert, None
        episode.worst = max(episode.worst, alert.severity, key=SEVERITIES.index)
        return episode

    def _end(self, alert: Alert, gone: list[_Episode]) -> None:
        """The judge's word that a trouble is over; it is repeated for a while."""
        if _end_of(alert) in self._ended:
            return
        self._ended.add(_end_of(alert))
        open_still = [one for one in gone if one.over_at is None and one.goes_on_with(alert)]
        if open_still:
            max(open_still, key=lambda one: one.likeness(alert)).over_at = alert.cleared_at_step
        else:
            self._episodes.append(_Episode(alert, alert.severity, alert.cleared_at_step))


def _identity(alert: Alert) -> tuple[object, ...]:
    """What stays the same of a trouble while the judge tells of it."""
    return alert.kind, alert.ranks, alert.since_step, type(alert.measures)


def _end_of(alert: Alert) -> tuple[object, ...]:
    return *_identity(alert), alert.phase, alert.cleared_at_step


def _weight(alert: Alert) -> tuple[int, float]:
    return SEVERITIES.index(alert.severity), alert.cost_pct or 0.0


def _without_host(alert: Alert) -> Alert:
    """The alert without a host that the table does not name."""
    if NO_HOST not in alert.nodes:
        return alert
    return replace(alert, nodes=tuple(node for node in alert.nodes if node != NO_HOST))
