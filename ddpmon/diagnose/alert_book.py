"""The lives of alerts: pending until they are confirmed, firing while they last, resolved when they are over."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from ddpmon.diagnose.alert import SEVERITIES, Alert, Cause, Severity
from ddpmon.diagnose.late_policy import ALERTS, INTERMITTENT

GroupName = Literal[
    "late ranks",
    "late hosts",
    "intermittent",
    "hidden pace",
    "late together",
    "uneven work",
    "pace",
    "contention",
    "advice",
]


class CauseRecord(Struct):
    """What was found to explain an alert, as long as it is of one kind and names the same ranks.

    Attributes:
        weighed: the alert for which causes were last sought, None before that.
        cause: the last cause that was found. lasts: whether it was found for `weighed`.
        explained, unexplained: for how many descriptions a cause was found, and for how many none.
        recalled: the cause that it had most of the time, which stays with it when it is resolved.
    """

    weighed: Alert | None = None
    cause: Cause | None = None
    lasts: bool = False
    explained: int = 0
    unexplained: int = 0
    recalled: Cause | None = None


class Former(Struct, frozen=True):
    """What the next life of a trouble takes over from one that a restart of other ranks has interrupted.

    Attributes:
        id: its number.
        since_step: its onset, None where it has none. since_is_bound: whether it began before that step.
    """

    id: int
    since_step: int | None = None
    since_is_bound: bool = False


class Life(Struct):
    """One trouble from its first judgement to its end, on a rank, a host or the whole job.

    Attributes:
        id: what tells it from every other trouble of the run, 1 or more.
        key: who or what is under suspicion, within its group; hashable.
        high, low: how many judgements in a row said yes, and clearly no.
        calm: the first step without it, by the first of these that said no.
        confirmed_at: the step at which it had held often enough in a row; None while it is pending.
        alert: how it was last described, None before that.
        worst: the worst severity that it has had as an alert of this kind; it stays with it when it is resolved.
        causes: what was found to explain it.
        former: what is known of it from a life that was interrupted.
    """

    id: int
    key: Any
    high: int = 0
    low: int = 0
    calm: int = 0
    confirmed_at: int | None = None
    alert: Alert | None = None
    worst: Severity = "info"
    causes: CauseRecord = field(default_factory=CauseRecord)
    former: Former | None = None

    @property
    def kept(self) -> Former:
        """What goes on with its next life, if a restart of other ranks interrupts this one."""
        if self.alert is None:
            return self.former or Former(self.id)
        return Former(self.id, self.alert.since_step, self.alert.since_is_bound)

    def go_on(self, former: Former | None) -> None:
        """Be the trouble that was interrupted, if there is one."""
        if former is not None:
            self.id, self.former = former.id, former

    def severity(self, cost_pct: float) -> Severity:
        """Information below 5 % of the job's time, warning from 5 %, critical from 20 %; sticky at the edges."""
        before = "info" if self.alert is None else self.alert.severity
        critical = ALERTS.critical_pct * (ALERTS.keep_ratio if before == "critical" else 1)
        warning = ALERTS.warning_pct * (ALERTS.keep_ratio if before != "info" else 1)
        return "critical" if cost_pct >= critical else "warning" if cost_pct >= warning else "info"

    def describe(self, alert: Alert) -> Alert:
        """Take the newest description, which gets the id of this life. A cause belongs to one kind and its ranks.

        An onset that was known before a restart of other ranks stands where the record has only a later bound by now.
        """
        before = self.alert
        if before is not None and (before.kind, before.ranks) != (alert.kind, alert.ranks):
            self.causes = CauseRecord()
        worst = "info" if before is None or before.kind != alert.kind else self.worst
        self.worst = max(worst, alert.severity, key=SEVERITIES.index)
        self.alert = replace(_with_onset(alert, self.former), id=self.id)
        return self.alert


def _with_onset(alert: Alert, former: Former | None) -> Alert:
    """The alert with the former onset, where its own is a bound that is no earlier."""
    if former is None or former.since_step is None or alert.since_step is None or not alert.since_is_bound:
        return alert
    if former.since_step > alert.since_step:
        return alert
    return replace(alert, since_step=former.since_step, since_is_bound=former.since_is_bound)


class Group:
    """The lives of one rule's alerts.

    Attributes:
        confirmations: judgements in a row that must say yes before an alert fires.
        former: key -> what is known of the lives that a restart of other ranks has interrupted. If the same is said
            again, it goes on with that.
        resolved: the last alerts that are over, oldest first.
    """

    def __init__(self, ids: Iterator[int], confirmations: int, former: dict[Any, Former]) -> None:
        self._ids = ids
        self.confirmations, self.former = confirmations, former
        self._lives: dict[Any, Life] = {}
        self.resolved: list[Alert] = []

    def __contains__(self, key: Any) -> bool:
        return key in self._lives

    def __iter__(self) -> Iterator[Life]:
        return iter([life for life in self._lives.values() if life.confirmed_at is not None])

    @property
    def interrupted(self) -> dict[Any, Former]:
        """Key -> what is kept of all lives that are confirmed, and of those before them that have not gone on."""
        return self.former | {life.key: life.kept for life in self}

    @property
    def keys(self) -> list[Any]:
        """Everybody under suspicion, confirmed or not."""
        return list(self._lives)

    @property
    def pending(self) -> list[Life]:
        """Those under suspicion that are not confirmed."""
        return [life for life in self._lives.values() if life.confirmed_at is None]

    @property
    def firing(self) -> list[Alert]:
        """The alerts that are confirmed and last."""
        return [life.alert for life in self if life.alert is not None]

    def keep(self, keys: set[int]) -> None:
        """Forget those who are no longer judged."""
        self._lives = {key: life for key, life in self._lives.items() if key in keys}

    def begin(self, key: Any) -> Life:
        """A new life, pending."""
        life = self._lives[key] = Life(next(self._ids), key)
        return life

    def observe(self, key: Any, step: int, *, high: bool, low: bool, calm: int | None = None) -> None:
        """Take one judgement in, made at `step`.

        Args:
            key: on whom.
            step: the last one that it looked at.
            high: whether it says yes.
            low: whether it says clearly no.
            calm: the first step without the trouble, if this is the first to say no; by default `step`. A window says
                no only once half of its steps are without it.
        """
        life = self._lives.get(key)
        if life is None:
            if not high:
                if low and key in self.former:  # a former trouble is over: what is found later has an onset of its own
                    self.former[key] = Former(self.former[key].id)
                return
            life = self.begin(key)
        life.high = life.high + 1 if high else 0
        if low and not life.low:
            life.calm = step if calm is None else calm
        life.low = life.low + 1 if low else 0
        if life.confirmed_at is None:
            if life.high >= self.confirmations:
                life.confirmed_at = step
                life.go_on(self.former.pop(key, None))
            elif not high:
                self.drop(key)
        elif life.low >= ALERTS.clear_judgements:
            self.resolve(key, life.calm)

    def resolve(self, key: Any, step: int) -> None:
        """It is over: `step` was the first without it."""
        life = self._lives.pop(key, None)
        if life is None:
            return
        if life.alert is None:  # nobody has seen it: such as a short one that is judged again after a restart
            self.former[key] = Former(life.id)
            return
        end = max(step, life.alert.since_step or 0)
        self.resolved.append(replace(life.alert, severity=life.worst, cause=life.causes.recalled, cleared_at_step=end))
        del self.resolved[: -ALERTS.kept_resolved]

    def drop(self, key: Any) -> None:
        """Forget it: it is neither known to last nor to be over."""
        self._lives.pop(key, None)


class AlertBook:
    """All lives of a run, in groups: one a rule.

    Attributes:
        ids: the numbers of further lives, each given once; also of those that a rule keeps by itself.
        host_keys: host -> its key in the group "late hosts", for as long as the run goes on.
    """

    def __init__(self) -> None:
        self.host_keys: dict[tuple[str, int], int] = {}  # a host's place among the hosts changes as ranks come and go
        self.ids: Iterator[int] = itertools.count(1)
        self._groups: dict[GroupName, Group] = {}
        self._former: dict[GroupName, dict[Any, Former]] = {}  # what groups that have not begun again will go on with

    def group(self, name: GroupName) -> Group:
        """The group of this name, which is begun by the first call."""
        if name not in self._groups:
            policy = INTERMITTENT if name == "intermittent" else ALERTS
            self._groups[name] = Group(self.ids, policy.confirmations, self._former.pop(name, {}))
        return self._groups[name]

    def keep_only(self, *names: GroupName) -> None:
        """Forget all groups but these, and of the others all but the ids and onsets of what lasts."""
        self._former |= {name: group.interrupted for name, group in self._groups.items() if name not in names}
        self._groups = {name: group for name, group in self._groups.items() if name in names}

    def begin_again(self) -> None:
        """Forget what is over, and what was interrupted: the run counts its steps from the beginning."""
        self._former.clear()
        for group in self._groups.values():
            group.resolved.clear()
            group.former.clear()

    def lives(self) -> dict[int, Life]:
        """Id -> life, of all that are confirmed."""
        return {life.id: life for group in self._groups.values() for life in group}

    @property
    def resolved(self) -> list[Alert]:
        """What is over of what made ranks, hosts or the job slower: group by group, in each the oldest first."""
        return [alert for name, group in self._groups.items() if name != "advice" for alert in group.resolved]
