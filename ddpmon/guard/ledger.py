"""The alerts of one run as they are told: each one's beginning once and its end once.

This holds whatever the watcher goes through. An alert's life has a number, by which its end is known. The numbers begin
again when ranks restart and when the guard does, so a finding is also taken for a known alert if it is of the same kind
and names one of the same ranks or hosts. `rank_lost` and `rank_failed` also take over the `no_word` of a run that has
ended.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ddpmon.diagnose.alert import SEVERITIES, at_or_above
from ddpmon.diagnose.kinds import KINDS
from ddpmon.format import age
from ddpmon.guard.budget import Budget
from ddpmon.guard.memory import OpenAlert, RunMemory
from ddpmon.guard.policy import GuardPolicy
from ddpmon.report.status_json import finding_object
from ddpmon.report.verdicts import firing, names_others
from ddpmon.snapshot import Finding, RunView, Snapshot, is_over

Event = Literal["firing", "resolved", "withheld"]
NO_WORD = "no_word"
_DEATHS = {"rank_failed", "rank_lost", NO_WORD}  # the end of the run does not end these
_LATE = "late"
_ENDS = {
    "finished": "the run has finished",
    "failed": "the run has failed",
    "killed": "the run was killed",
    "cancelled": "the run was cancelled",
    "lost": "the run is lost",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """What is to be told.

    Attributes:
        event: "firing", "resolved", or "withheld" for a number of alerts that the rate limit kept back.
        alert: which; None for those kept back.
        reason: of an end: why it counts as over.
        withheld: how many were kept back.
    """

    event: Event
    alert: OpenAlert | None
    reason: str = ""
    withheld: int = 0


@dataclass(slots=True)
class _Absence:
    """Since when an alert has been gone: seconds on the monotonic clock, and steps made until then."""

    since: float
    steps: int


class Ledger:
    """What the channels have been told of one run.

    Args:
        memory: what is known of it; the ledger changes it.
        policy: when to speak.
        now: monotonic, in seconds, as all other times here unless they are said to be Unix time.
    """

    def __init__(self, memory: RunMemory, policy: GuardPolicy, now: float) -> None:
        self.memory = memory
        self._policy = policy
        self._budget = Budget(policy, now)
        self._absent: dict[str, _Absence] = {}
        # The id, or the ranks, of a lateness whose cause may still come -> since when it waits for that.
        self._unexplained: dict[tuple[int, ...], float] = {}
        self._last_word = now
        self._steps, self._step = 0, -1  # made while this guard looked, and the newest
        self._withheld = 0
        self._kept_back = {
            alert.alert for alert in memory.alerts if not alert.is_told
        }  # while they were no critical ones
        self.over_since: float | None = None
        for alert in memory.alerts:
            alert.life = 0  # of an earlier watcher

    def take(self, snapshot: Snapshot, now: float, wall: float) -> list[Notice]:
        """What a picture of this run changes; `wall` is Unix time."""
        run = snapshot.run
        if run is None:
            return []
        self._note(snapshot, run, now, wall)
        said = [*self._compare(snapshot, now, wall)] if snapshot.link.state != "silent" else []
        if _is_at_an_end(snapshot, run):
            said += self._end(run)
        said += self._listen(snapshot, run, now, wall)
        return self._within_budget(said, now)

    def end(self, reason: str) -> list[Notice]:
        """The ends of all open alerts whose beginning was told: the run is not there any more."""
        return [notice for notice in self._ends(reason, None) if notice.alert is not None and notice.alert.is_told]

    def lose(self, summary: str, now: float, wall: float) -> list[Notice]:
        """The run is gone without an end."""
        if any(alert.kind in _DEATHS for alert in self.memory.alerts):
            return []
        return self._within_budget([self._begin(_no_word(summary), wall)], now)

    def _note(self, snapshot: Snapshot, run: RunView, now: float, wall: float) -> None:
        """Take down how the run stands, how far it is, and when it was heard."""
        memory = self.memory
        memory.name, memory.state, memory.world_size, memory.seen_at = run.name, run.state, run.world_size, wall
        memory.is_live = not _is_at_an_end(snapshot, run)
        self.over_since = None if memory.is_live else now if self.over_since is None else self.over_since
        if run.step is not None:
            self._steps += max(0, run.step - self._step) if self._step >= 0 else 0
            memory.step = self._step = run.step
        if snapshot.link.state == "live" and snapshot.ranks is not None:
            newest = float(np.fmin.reduce(snapshot.ranks.age_s, initial=np.inf))
            self._last_word = max(self._last_word, now - newest)

    def _compare(self, snapshot: Snapshot, now: float, wall: float) -> Iterator[Notice]:
        """Find the known alert of each finding, begin those that are new, and end those that are over."""
        left = [alert for alert in self.memory.alerts if alert.kind != NO_WORD]
        unheard = [alert for alert in self.memory.alerts if alert.kind == NO_WORD and not self.memory.is_live]
        unknown = firing(snapshot.findings)
        named = {alert.alert: alert.ranks for alert in self.memory.alerts}
        for belongs, known in ((_is_life_of, left), (_fits, left), (_ended_it, unheard)):
            unknown = [finding for finding in unknown if not self._recognise(finding, known, belongs)]
        yield from self._worse()
        yield from self._corrected(named)
        for alert in left if snapshot.link.state != "gone" else ():
            yield from self._missing(alert, snapshot, now)
        news = [each for each in unknown if at_or_above(each.severity, self._policy.min_severity)]
        for finding in self._explained([each for each in news if self._may_begin(each, snapshot)], now):
            yield self._begin(_opened(finding), wall)

    def _explained(self, news: list[Finding], now: float) -> list[Finding]:
        """Those whose cause is known, or will not come any more: that of a lateness comes some seconds after it."""
        before, self._unexplained = self._unexplained, {}
        told = []
        for finding in news:
            is_open = not finding.cause and _family(finding.kind) == _LATE
            name = (finding.id,) if finding.id else finding.ranks
            if is_open:
                self._unexplained[name] = before.get(name, now)
            if not is_open or now - self._unexplained[name] >= self._policy.cause_s:
                told.append(finding)
        return told

    def _worse(self) -> Iterator[Notice]:
        """The beginnings that were kept back and are offered again, because they have become critical."""
        for alert in self.memory.alerts:
            if not alert.is_told and alert.severity == "critical" and alert.alert in self._kept_back:
                self._kept_back.discard(alert.alert)
                self._withheld = max(0, self._withheld - 1)
                yield Notice("firing", alert)

    def _corrected(self, named: Mapping[str, tuple[int, ...]]) -> Iterator[Notice]:
        """The beginnings that are told once more: what ended the run is another rank than the one that was `named`.

        Args:
            named: alert -> the ranks that it named before this picture.
        """
        for alert in self.memory.alerts:
            is_another = names_others(alert.ranks, named.get(alert.alert, alert.ranks))
            if alert.is_told and alert.kind in _DEATHS and is_another:
                yield Notice("firing", alert)

    def _may_begin(self, finding: Finding, snapshot: Snapshot) -> bool:
        """Whether a finding is news: of a run whose store is gone only what ended it.

        The last picture of a run keeps all that lasted until then.
        """
        return finding.kind in _DEATHS or (self.memory.is_live and snapshot.link.state != "gone")

    def _recognise(
        self, finding: Finding, left: list[OpenAlert], belongs: Callable[[Finding, OpenAlert], bool]
    ) -> bool:
        """Whether the finding belongs to one of the alerts that are left, which then takes its words."""
        known = next((alert for alert in left if belongs(finding, alert)), None)
        if known is None:
            return False
        left.remove(known)
        self._absent.pop(known.alert, None)
        _describe(known, finding)
        return True

    def _missing(self, alert: OpenAlert, snapshot: Snapshot, now: float) -> list[Notice]:
        """A known alert is not among the findings: its rule says that it is over, or it has been gone for long."""
        for finding in snapshot.findings:
            if finding.cleared_at_step is not None and _is_life_of(finding, alert):
                alert.finding = {**alert.finding, "cleared_at_step": finding.cleared_at_step}
                return [self._resolve(alert, f"it is over since step {finding.cleared_at_step:,}")]
        absence = self._absent.setdefault(alert.alert, _Absence(now, self._steps))
        rejudged = not alert.has_life or self._steps - absence.steps >= self._policy.rejudged_steps
        if now - absence.since >= self._policy.hold_s and rejudged:
            return [self._resolve(alert, "it is no longer seen")]
        return []

    def _end(self, run: RunView) -> list[Notice]:
        """The run is over: what slowed it down is over too; what ended it is not, unless it has ended well."""
        kinds = None if run.state == "finished" else {alert.kind for alert in self.memory.alerts} - _DEATHS
        return [*self._ends(_ENDS.get(run.state, "the run has ended"), kinds)]

    def _ends(self, reason: str, kinds: set[str] | None) -> Iterator[Notice]:
        for alert in [alert for alert in self.memory.alerts if kinds is None or alert.kind in kinds]:
            yield self._resolve(alert, reason)

    def _listen(self, snapshot: Snapshot, run: RunView, now: float, wall: float) -> list[Notice]:
        """Whether the run has been silent for too long, or is heard again."""
        known = next((alert for alert in self.memory.alerts if alert.kind == NO_WORD), None)
        silent_s = now - self._last_word
        if known is not None:
            heard = silent_s < self._policy.silence_s and self.memory.is_live and snapshot.link.state == "live"
            return [self._resolve(known, "the run is heard again")] if heard else []
        has_told = any(alert.kind in _DEATHS for alert in self.memory.alerts)
        if has_told or run.state == "restarting" or (is_over(run.state) and run.state != "killed"):
            return []
        if not self.memory.is_live:  # killed or lost
            return [self._begin(_no_word(snapshot.link.message or "the run is lost"), wall)]
        if silent_s < self._policy.silence_s:
            return []
        why = snapshot.link.message or "its store answers, but no rank publishes"
        return [self._begin(_no_word(f"no word from the run for {age(silent_s)}: {why}"), wall)]

    def _begin(self, alert: OpenAlert, wall: float) -> Notice:
        alert.began_at = wall
        self.memory.alerts.append(alert)
        return Notice("firing", alert)

    def _resolve(self, alert: OpenAlert, reason: str) -> Notice:
        self.memory.alerts.remove(alert)
        self._absent.pop(alert.alert, None)
        self._kept_back.discard(alert.alert)
        return Notice("resolved", alert, reason)

    def _within_budget(self, said: list[Notice], now: float) -> list[Notice]:
        """What may be told now; an end may if the beginning was told."""
        kept = []
        for notice in said:
            alert = notice.alert
            if alert is None or notice.event != "firing":
                kept += [notice] if alert is None or alert.is_told else []
            elif self._budget.allows(now, critical=alert.severity == "critical"):
                alert.is_told = True
                kept.append(notice)
            elif not alert.is_told:  # a correction that is not sent leaves its beginning told
                self._withheld += 1
                if alert.severity != "critical":
                    self._kept_back.add(alert.alert)
        if self._withheld and self._budget.allows(now, critical=False):
            kept.append(Notice("withheld", None, withheld=self._withheld))
            self._withheld = 0
        return kept


def _is_at_an_end(snapshot: Snapshot, run: RunView) -> bool:
    """Whether the run has ended or is lost; one whose launcher starts it again is neither."""
    return run.state == "finished" or (snapshot.link.state == "gone" and run.state != "restarting")


def _family(kind: str) -> str:
    """What kinds of findings tell one trouble: a late rank may turn out to be on a late host."""
    known = KINDS.get(kind)  # type: ignore[call-overload]
    return _LATE if known is not None and known.late else kind


def _fits(finding: Finding, alert: OpenAlert) -> bool:
    """Whether both are of one kind and name one of the same ranks, or else hosts, or nobody at all.

    What ended the run is told once: who it was may be known only some seconds later.
    """
    if _family(finding.kind) != _family(alert.kind):
        return False
    if finding.kind in _DEATHS:
        return True
    if finding.ranks or alert.ranks:
        return not set(finding.ranks).isdisjoint(alert.ranks)
    return not set(finding.nodes).isdisjoint(alert.nodes) or not (finding.nodes or alert.nodes)


def _ended_it(finding: Finding, _alert: OpenAlert) -> bool:
    """Whether the finding names the rank that ended a run of which `no_word` was sent."""
    return finding.kind in _DEATHS


def _is_life_of(finding: Finding, alert: OpenAlert) -> bool:
    """Whether the finding is the alert's life, by its number."""
    return alert.life > 0 and finding.id == alert.life and _fits(finding, alert)


def _describe(alert: OpenAlert, finding: Finding) -> None:
    """Take the newest description; the severity stays at its worst."""
    worst = max(alert.severity, finding.severity, key=SEVERITIES.index)
    alert.kind, alert.severity, alert.life = finding.kind, worst, finding.id
    alert.has_life = alert.has_life or finding.id > 0
    alert.ranks, alert.nodes, alert.finding = finding.ranks, finding.nodes, finding_object(finding)


def _opened(finding: Finding) -> OpenAlert:
    alert = OpenAlert(secrets.token_hex(8), finding.kind, finding.severity, 0.0)
    _describe(alert, finding)
    return alert


def _no_word(summary: str) -> OpenAlert:
    """That nothing is heard of the run; no rule says it, because no rule is asked then."""
    said: dict[str, Any] = {"kind": NO_WORD, "severity": "critical", "ranks": [], "nodes": [], "phase": None}
    said |= {"cause": None, "since_step": None, "cost_pct": None, "summary": summary, "since_is_bound": False}
    said |= {"advice": "look whether the hosts of the run are up and can be reached from here", "evidence": {}}
    return OpenAlert(secrets.token_hex(8), NO_WORD, "critical", 0.0, finding=said)
