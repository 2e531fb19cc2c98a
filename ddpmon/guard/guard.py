"""The guard: takes pictures of runs in, tells what begins and what is over, and remembers it over a restart."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ddpmon.guard.courier import Courier, Delivery
from ddpmon.guard.fleet import Fleet, Look
from ddpmon.guard.ledger import Ledger, Notice
from ddpmon.guard.memory import Outgoing, RunMemory, StateFile
from ddpmon.guard.message import from_elsewhere, line_of, message_of
from ddpmon.guard.policy import GuardPolicy
from ddpmon.report.attempt_sentences import attempt_of
from ddpmon.snapshot import RunView, Snapshot
from ddpmon.store.connect import parse_target

MOST_WAITING = 512  # messages that channels have not taken; the oldest go first
_SAVE_EVERY_S = 30.0
_LEAVE_S = 20.0  # for the last looks and messages: systemd grants 90 s, Slurm 30 s
_MAY_GO_ON = ("restarting", "lost")  # a run whose store is gone: its launcher starts it again, or its end is unknown
Said = Look | Delivery


class Guard:
    """Follows runs and tells what happens to them; everything but `hand` and `stop` belongs to one thread.

    Args:
        policy: when to speak.
        file: where it remembers.
        say: is called with a line of text a message.
        warn: is called with a sentence about the guard itself.
        was_killed: whether a run of this id is known to have ended without a word.
        clock, wall: the monotonic clock and Unix time, in seconds.
    """

    def __init__(
        self,
        policy: GuardPolicy,
        file: StateFile,
        say: Callable[[str], None],
        warn: Callable[[str], None],
        was_killed: Callable[[str], bool] = lambda _run_id: False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._policy, self._file, self._say, self._warn = policy, file, say, warn
        self._was_killed, self._clock, self._wall = was_killed, clock, wall
        self._memory, trouble = file.load()
        if trouble:
            warn(trouble)
        self._ledgers: dict[str, Ledger] = {}
        self._run_at: dict[str, str] = {}  # address -> id of the run that was seen there last
        self._couriers: dict[str, Courier] = {}
        self._inbox: queue.Queue[Said] = queue.Queue(maxsize=64)
        self._stopping = threading.Event()
        self._began, self._saved_at, self._began_wall = clock(), clock(), wall()
        self._is_changed, self._file_trouble = False, ""
        self._fleet: Fleet | None = None

    def hand(self, said: Said) -> None:
        """Take in a picture, or how a delivery went; any thread may call it, and it may wait."""
        self._inbox.put(said)

    def stop(self) -> None:
        """Let `run` end; may be called by a signal handler."""
        self._stopping.set()

    def employ(self, couriers: Sequence[Courier]) -> None:
        """Deliver through these, beginning with what an earlier guard has left."""
        self._couriers = {courier.channel: courier for courier in couriers}
        self._memory.outbox = [item for item in self._memory.outbox if item.channel in self._couriers]
        for courier in couriers:
            courier.start()
        for outgoing in self._memory.outbox:
            self._couriers[outgoing.channel].put(outgoing)

    def run(self, fleet: Fleet) -> None:
        """Follow the fleet until told to stop."""
        self._fleet = fleet
        fleet.start()
        while not self._stopping.is_set():
            self.serve(0.5)
        self._leave(fleet)

    def serve(self, seconds: float) -> None:
        """Take in the next of what was handed over, if it comes within so many seconds, and do what is due."""
        try:
            said = self._inbox.get(timeout=seconds)
        except queue.Empty:
            said = None
        if isinstance(said, Look):
            self._take(said)
        elif said is not None:
            self._delivered(said)
        self._tend()

    @property
    def waiting(self) -> int:
        """How many messages no channel has taken yet."""
        return len(self._memory.outbox)

    def _take(self, look: Look) -> None:
        """Take in one picture."""
        snapshot = look.snapshot
        if snapshot.run is None:
            return
        run_id, now = snapshot.run.id, self._clock()
        before = self._run_at.get(look.address)
        if before is None and run_id in self._run_at.values():
            self._drop(look.address)  # followed at another address
            return
        if run_id not in self._ledgers and not self._begin(look, snapshot, now):
            return
        if before is not None and before != run_id:
            self._end_of(before, f"another run has started there: {snapshot.run.name}")
        self._run_at[look.address] = run_id
        if snapshot.link.state == "live":
            self._succeed(snapshot.run)
        ledger = self._ledgers[run_id]
        self._tell(ledger.memory, ledger.take(snapshot, now, self._wall()))
        if self._is_done_with(ledger, now):
            self._drop(look.address)

    def _begin(self, look: Look, snapshot: Snapshot, now: float) -> bool:
        """Begin with a run; one that was over before any guard came is left alone.

        It was not if a rank has spoken since, on the watcher's clock, or if it began since, by the clock of rank 0.
        """
        run = snapshot.run
        assert run is not None
        known = self._memory.runs.get(run.id)
        is_over = snapshot.link.state == "gone" or run.state == "finished"
        began_since = run.info is not None and run.info.started_at > self._began_wall
        is_missed = known is None and (began_since or _newest_word_s(snapshot) < now - self._began)
        if is_over and not is_missed and (known is None or not known.is_live):
            self._drop(look.address)
            return False
        if known is None:
            known = self._memory.runs[run.id] = RunMemory(run.id, run.name, run.source)
        known.address, known.seen_at, self._is_changed = run.source, self._wall(), True
        known.elsewhere = from_elsewhere(run)
        self._ledgers[run.id] = Ledger(known, self._policy, now)
        return True

    def _succeed(self, run: RunView) -> None:
        """End what is open of the runs that this one goes on with: its earlier attempts, and those of its name there.

        A store beside rank 0 ends with its run, so a run of the same name at its address takes the place of that one. A
        Redis server holds many runs, and two of one name may have nothing to do with each other.
        """
        for memory in [*self._memory.runs.values()]:
            is_attempt = memory.id in {attempt.run_id for attempt in run.attempts}
            is_there = not memory.is_live and run.source.startswith("tcp://") and memory.address == run.source
            if memory.id == run.id or not (is_attempt or (is_there and memory.name == run.name)):
                continue
            for address in [address for address, run_id in self._run_at.items() if run_id == memory.id]:
                self._drop(address)
            if memory.alerts or memory.is_live:
                attempt = f", {attempt_of(run.restart, run.max_restarts)}" if run.restart else ""
                self._close(memory, f"the run goes on as {run.id}{attempt}")

    def _end_of(self, run_id: str, reason: str) -> None:
        """The run is not where it was; what was open is over."""
        memory = self._memory.runs.get(run_id)
        if memory is not None:
            self._close(memory, reason)

    def _close(self, memory: RunMemory, reason: str) -> None:
        ledger = self._ledgers.pop(memory.id, None) or Ledger(memory, self._policy, self._clock())
        self._tell(memory, ledger.end(reason))
        memory.is_live = False
        self._is_changed = True

    def _is_done_with(self, ledger: Ledger, now: float) -> bool:
        """Whether the run has been over for so long that nothing more is to be expected."""
        if ledger.over_since is None:
            return False
        patience = self._policy.lost_leave_s if ledger.memory.state in _MAY_GO_ON else self._policy.leave_s
        return now - ledger.over_since > patience

    def _drop(self, address: str) -> None:
        """Follow the run no more; where the address names no run, another one may come there."""
        self._ledgers.pop(self._run_at.pop(address, ""), None)
        if self._fleet is not None and parse_target(address).run_id is not None:
            self._fleet.drop(address)

    def _tend(self) -> None:
        """What is due without a picture: runs that a restart of the guard has missed, old memories, the file."""
        now, wall = self._clock(), self._wall()
        if now - self._began > self._policy.silence_s and not (self._fleet is not None and self._fleet.trouble):
            for memory in [*self._memory.runs.values()]:
                if memory.is_live and memory.id not in self._ledgers:
                    self._miss(memory, now, wall)
        for memory in [*self._memory.runs.values()]:
            if memory.id not in self._ledgers and wall - memory.seen_at > self._policy.keep_s:
                del self._memory.runs[memory.id]
        if self._is_changed or now - self._saved_at > _SAVE_EVERY_S:
            self._save()

    def _miss(self, memory: RunMemory, now: float, wall: float) -> None:
        """An earlier guard has seen the run live, and there is no picture of it: say so, or end its alerts.

        Nobody hears of a run that was killed, or whose address is still followed; another one has been withdrawn.
        """
        memory.is_live = False
        ledger = Ledger(memory, self._policy, now)
        seen = f"it was last seen at step {memory.step or 0:,}"
        if self._was_killed(memory.id):
            why = f"the run was killed or crashed while no guard looked; {seen}"
            self._tell(memory, ledger.lose(why, now, wall))
        elif self._is_awaited(memory):
            self._tell(memory, ledger.lose(f"no word from the run since the guard was started; {seen}", now, wall))
        else:
            self._tell(memory, ledger.end("the run cannot be found any more"))
        self._is_changed = True

    def _is_awaited(self, memory: RunMemory) -> bool:
        """Whether its address is followed, and no run has been seen there yet."""
        followed = set() if self._fleet is None else self._fleet.addresses - {*self._run_at}
        targets = [parse_target(address) for address in followed]
        return any(target.url == memory.address and target.run_id in (None, memory.id) for target in targets)

    def _tell(self, memory: RunMemory, notices: Sequence[Notice]) -> None:
        """Remember what is to be told, and only then tell it."""
        messages = [message_of(notice, memory, self._wall()) for notice in notices]
        outgoing = [Outgoing(name, self._wall(), message) for message in messages for name in self._channels()]
        if not messages:
            return
        waiting = self._memory.outbox = [*self._memory.outbox, *outgoing]
        if len(waiting) > MOST_WAITING:
            self._warn(f"{len(waiting) - MOST_WAITING} messages that nobody took are given up")
            del waiting[:-MOST_WAITING]
        self._save()
        for message in messages:
            self._say(line_of(message))
        for item in outgoing:
            self._couriers[item.channel].put(item)

    def _channels(self) -> list[Any]:
        return [*self._couriers]

    def _delivered(self, delivery: Delivery) -> None:
        if delivery.is_left:
            self._warn(f"a message is left for the next start: {delivery.trouble}")
            return
        if delivery.trouble:
            self._warn(f"a message was not taken by the {delivery.outgoing.channel}: {delivery.trouble}")
        self._memory.outbox = [item for item in self._memory.outbox if item.key != delivery.outgoing.key]
        self._save()

    def _save(self) -> None:
        trouble = self._file.save(self._memory)
        if trouble and trouble != self._file_trouble:
            self._warn(trouble)
        self._file_trouble, self._is_changed, self._saved_at = trouble, False, self._clock()

    def _leave(self, fleet: Fleet) -> None:
        """Look at each run once more, give each message one more attempt, and end in any case."""
        until = time.monotonic() + _LEAVE_S
        readers = fleet.leave()
        while any(reader.is_alive() for reader in readers) and time.monotonic() < until - _LEAVE_S / 2:
            self.serve(0.1)
        while not self._inbox.empty():
            self.serve(0.0)
        for courier in self._couriers.values():
            courier.hurry()
        left = {item.key for item in self._memory.outbox}
        while left and time.monotonic() < until:
            try:
                said = self._inbox.get(timeout=0.2)
            except queue.Empty:
                continue
            if isinstance(said, Delivery):
                left.discard(said.outgoing.key)
                self._delivered(said)
        self._save()


def _newest_word_s(snapshot: Snapshot) -> float:
    """How many seconds ago any rank was heard of, on the watcher's clock; infinite where none is known."""
    ages = [] if snapshot.ranks is None else [age for age in snapshot.ranks.age_s.tolist() if age >= 0]
    return min(ages, default=math.inf)
