"""How contention begins and ends: counted in the frames of their host, and in the readings that these tell of."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.alert_book import Group, Life
from ddpmon.diagnose.contention.gpu_sharing import GpuHiddenMeasures, is_unread, with_last_share
from ddpmon.diagnose.contention.host_state import Host
from ddpmon.diagnose.contention.symptom import Source, Symptom, culprits_of
from ddpmon.diagnose.contention_policy import CONTENTION, READING
from ddpmon.diagnose.kinds import KindName


class Contention(Struct):
    """One contention, from its first symptom on.

    Attributes:
        life: its life in the book of alerts.
        symptom: what the last frame that showed it had to say.
        host: where, as its frame names it.
        since: the step of its ranks then, None before their first. again: that of its last return, if it was gone.
        gone: the first step without it, while it is not shown.
        bound: it began before the first look at its host.
        shown: by how many readings in a row. missed: how many frames in a row have not shown it.
        reading: the newest. seen: whether it has shown the contention. without: how many before it in a row had not.
        unread: how many frames in a row have not told whether it lasts.
    """

    life: Life
    symptom: Symptom
    host: str
    since: int | None
    bound: bool
    again: int | None = None
    gone: int = 0
    shown: int = 0
    missed: int = 0
    reading: int | None = None
    seen: bool = True
    without: int = 0
    unread: int = 0

    @property
    def confirmed(self) -> bool:
        """Whether enough readings in a row have shown it."""
        return self.life.confirmed_at is not None

    @property
    def missing(self) -> int:
        """How many more readings in a row must show it before it is confirmed."""
        return max(1, self.symptom.consecutive - self.shown)

    def take(self, symptom: Symptom | None, reading: int | None, step: int) -> None:
        """Take in a frame.

        A reading that lasts for several frames shows the contention if one of them does, so it must be over.
        """
        begins = reading is None or reading != self.reading
        if symptom is not None:
            self.again = step if self._is_gone() else self.again
            self.shown += begins or not self.seen
            if self.bound:  # the host has seen the culprits at it before this watcher came: one more reading confirms
                self.shown = max(self.shown, min(symptom.lasted, symptom.consecutive - 1))
            self.symptom = replace(symptom, measures=with_last_share(symptom.measures, self.symptom.measures))
            self.seen, self.missed, self.without, self.unread = True, 0, 0, 0
            if self.shown >= symptom.consecutive and not self.confirmed:
                self.life.confirmed_at = step
        else:
            self.gone = self.gone if self.missed else step
            self.missed += 1
            if begins and (reading is None or not self.seen):
                self.shown, self.without = 0, self.without + 1
            self.seen &= not begins
        self.reading = reading

    def count_unread(self, host: Host) -> None:
        """Count a frame that does not show it, if the frame does not tell whether it lasts."""
        self.unread = self.unread + 1 if is_unread(host, self.symptom) else 0

    @property
    def is_held(self) -> bool:
        """Whether it stands although the newest frame does not show it, since that does not tell; not for long."""
        return self.confirmed and 0 < self.unread <= CONTENTION.unread_frames

    def begin_again(self, newest: int) -> None:
        """The run counts its steps from the beginning and has finished step `newest`: it began before that."""
        self.gone = min(self.gone, newest)
        if self.since is None:
            return
        self.since, self.again, self.bound = newest, None, True
        if self.life.alert is not None:
            self.life.alert = replace(self.life.alert, since_step=newest, since_is_bound=True)

    def is_over(self) -> bool:
        """Whether enough has been read without it."""
        if not self.confirmed:
            return self.without > 0
        return self._is_gone() and self.missed >= CONTENTION.clearing_frames

    def lapses(self, symptom: Symptom, reading: int | None) -> bool:
        """Whether what a new reading shows is another one: no more than a flicker before, or somebody else."""
        if self.confirmed:
            return self._is_gone() and _is_by_others(self.symptom, symptom)
        return not self.seen and reading != self.reading

    def _is_gone(self) -> bool:
        """Whether enough readings in a row have not shown it."""
        return self.without >= CONTENTION.confirming_readings

    def alert(self) -> Alert:
        """The contention by itself, as bad as the threat that it is."""
        symptom = self.symptom
        return Alert(
            kind=symptom.kind,
            severity=symptom.threat,
            ranks=symptom.ranks,
            nodes=(self.host,),
            since_step=self.since,
            since_is_bound=self.bound and self.since is not None,
            measures=symptom.measures,
        )


def _is_by_others(before: Symptom, now: Symptom) -> bool:
    """Whether it is the doing of other processes now, or only one of the two names any."""
    known, named = culprits_of(before.measures), culprits_of(now.measures)
    return known.isdisjoint(named) and bool(known or named)


def _is_hidden(symptom: Symptom, unread: Container[Source | None]) -> bool:
    """Whether it only says that somebody is on a GPU, and it is known who is on that one."""
    return isinstance(symptom.measures, GpuHiddenMeasures) and symptom.source in unread


class ContentionLives:
    """All contention of all hosts; `lives` is their group in the book of alerts."""

    def __init__(self, lives: Group) -> None:
        self._lives = lives
        self._hosts: dict[int, dict[tuple[KindName, Hashable], Contention]] = {}
        self._first: dict[int, tuple[int, int]] = {}  # host -> number of the frame at the first look, step then

    def __iter__(self) -> Iterator[Contention]:
        return iter([contention for contention in self._all() if contention.confirmed])

    @property
    def pending(self) -> list[Contention]:
        """Those that are not confirmed."""
        return [contention for contention in self._all() if not contention.confirmed]

    def _all(self) -> Iterator[Contention]:
        return (contention for known in self._hosts.values() for contention in known.values())

    def look(
        self, host: Host, symptoms: Sequence[Symptom], step: int, late_since: Mapping[int, int] | None = None
    ) -> None:
        """Take in what one frame of a host shows.

        Args:
            host: which.
            symptoms: what it shows.
            step: what its ranks have finished.
            late_since: ranks that are late -> from which step on.
        """
        node = host.number
        is_first = node not in self._first
        self._first.setdefault(node, (host.frame.seq, step))
        if not symptoms and node not in self._hosts:
            return
        known = self._hosts.setdefault(node, {})
        shown = {(symptom.kind, symptom.about): symptom for symptom in symptoms}
        missed = [key for key in known if key not in shown]
        for key in missed:
            known[key].count_unread(host)
        held = [key for key in missed if known[key].is_held]
        unread = {known[key].symptom.source for key in held}
        shown = {key: each for key, each in shown.items() if key in known or not _is_hidden(each, unread)}
        for key, symptom in shown.items():
            contention, reading = known.get(key), host.reading(symptom.source)
            if contention is None or contention.lapses(symptom, reading):
                self._end(contention)
                life = self._lives.begin((node, *key))
                bound = is_first or self._is_older(host, symptom, late_since or {})
                contention = known[key] = Contention(life, symptom, host.frame.host, step if step >= 0 else None, bound)
            contention.take(symptom, reading, step)
        for key in [key for key in missed if key not in held]:
            contention = known[key]
            contention.take(None, host.reading(contention.symptom.source), step)
            if contention.is_over():
                self._end(known.pop(key))
        if not known:
            del self._hosts[node]

    def begin_again(self, newest: int) -> None:
        """The run counts its steps from the beginning and has finished step `newest`: all that is known began before.

        A host may have told of the steps that are counted now before the run was known to count them.
        """
        for contention in self._all():
            contention.begin_again(newest)

    def _is_older(self, host: Host, symptom: Symptom, late_since: Mapping[int, int]) -> bool:
        """Whether the foreign process ran, and a rank was late, before the first look at the host."""
        seq, step = self._first[host.number]
        looked_s = (host.frame.seq - seq) * READING.frame_s
        had_begun = symptom.lasted > 1 and symptom.lasted * READING.processes_s >= looked_s >= 0
        return had_begun and any(late_since.get(rank, step) < step for rank in symptom.ranks)

    def _end(self, contention: Contention | None) -> None:
        """It is over; what was never confirmed has not been described, and leaves nothing behind."""
        if contention is not None:
            self._lives.resolve(contention.life.key, max(0, contention.gone))

    def forget(self, node: int) -> None:
        """Nobody tells of this host any more: what was, is neither known to last nor to be over."""
        for contention in self._hosts.pop(node, {}).values():
            self._lives.drop(contention.life.key)
