"""All contention of a run: one look at every host whose frame is new."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.alert_book import AlertBook
from ddpmon.diagnose.contention.contention_lives import Contention, ContentionLives
from ddpmon.diagnose.contention.cpu import cpu_symptoms
from ddpmon.diagnose.contention.foreign_processes import ForeignProcesses
from ddpmon.diagnose.contention.gpu_health import boards
from ddpmon.diagnose.contention.gpu_sharing import sharing
from ddpmon.diagnose.contention.host_state import Host, RunContext, look
from ddpmon.diagnose.contention.memory import memory
from ddpmon.diagnose.contention.network import Wires
from ddpmon.diagnose.contention.process_history import Leak, Leaks, ProcessHistory, free_memory
from ddpmon.diagnose.contention.storage import Storage
from ddpmon.diagnose.contention.symptom import Symptom
from ddpmon.diagnose.kinds import KINDS
from ddpmon.run.model import LOST_S, RankState, Run

# Both keep a tick of the judge within its budget (docs/design.md "Budgets"); they are chosen, not measured.
_EVERY_TICK = 64  # hosts; of more, each has its turn every other tick
_AT_ONCE = 256  # hosts a tick at most; of more than 512, each has its turn every third tick, every fourth, ...
Members = dict[int, list[tuple[int, RankState]]]


class ContentionFinder:
    """Follows the hosts from frame to frame.

    Attributes:
        lives: the contention that is known.
        figures: the ranks' processes over time.
    """

    def __init__(self, book: AlertBook) -> None:
        self.lives = ContentionLives(book.group("contention"))
        self.figures = ProcessHistory()
        self._leaks, self._leaking = Leaks(), dict[int, Leak]()
        self._foreign, self._storage, self._wires = ForeignProcesses(), Storage(), Wires()
        self._turn = 0
        self._seen: dict[int, int] = {}
        self._counted: tuple[int, int, int] = (-1, -1, -1)
        self._members: Members = {}
        self._node_of: NDArray[np.int64] = np.empty(0, np.int64)

    def update(self, run: Run, found: Sequence[Alert]) -> list[Contention]:
        """The contention now; `found` is what is said of the ranks' work."""
        self._gather(run)
        room = {node: free_memory(frame) for node, (frame, _) in run.nodes.items()}
        if self.figures.update(run, room, self._node_of):
            self._leaking = self._leaks.update(self.figures)
        context = _context(run, self.figures, self._leaking, found)
        self._foreign.learn(context)
        hosts = len(run.nodes)
        every = max(1 + (hosts > _EVERY_TICK), -(-hosts // _AT_ONCE))
        self._turn += 1
        for place, (node, (frame, heard_at)) in enumerate(run.nodes.items()):
            if (place + self._turn) % every:
                continue
            if self._seen.get(node) != frame.seq:
                self._seen[node] = frame.seq
                self._look(look(node, frame, heard_at, self._members.get(node, ())), context)
            elif self._is_stale(node, heard_at):
                self.lives.forget(node)
        return list(self.lives)

    def _look(self, host: Host, context: RunContext) -> None:
        symptoms: list[Symptom] = []
        if host.on:
            symptoms += sharing(host, context)
        if host.gpus:
            symptoms += boards(host, context)
        symptoms += cpu_symptoms(host, context)
        symptoms += self._foreign.look(host, context)
        symptoms += memory(host, context)
        symptoms += self._storage.look(host, context)
        symptoms += self._wires.look(host, context)
        step = int(context.run.latest.column("step")[[*host.states]].max(initial=-1.0))
        self.lives.look(host, symptoms, step)

    def _is_stale(self, node: int, heard_at: float) -> bool:
        """Whether its ranks go on while nobody tells of the host."""
        return any(state.heard_at - heard_at > LOST_S for _, state in self._members.get(node, ())[:1])

    def _gather(self, run: Run) -> None:
        """Who is on which host; it changes when ranks come, or come back."""
        known = len(run.states)
        counted = (run.restarts, known, len(run.nodes))
        if counted == self._counted:
            return
        self._counted, self._members = counted, {}
        self._node_of = np.full(len(run.ranks), -1)
        for node in run.nodes:
            ranks = run.ranks_on(node)
            self._members[node] = [(rank, run.states[rank]) for rank in ranks]
            self._node_of[[*ranks]] = node


def _context(run: Run, figures: ProcessHistory, leaks: dict[int, Leak], found: Sequence[Alert]) -> RunContext:
    worse = [each for each in found if each.severity != "info" and each.cleared_at_step is None]
    late = {rank: each.phase or "work" for each in worse if KINDS[each.kind].late for rank in each.ranks}
    slower = [each.phase or "" for each in worse if each.kind == "job_slower"]
    return RunContext(run, figures, leaks, late, slower[0] if slower else None)
