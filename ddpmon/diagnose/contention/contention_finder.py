"""All contention of a run: one look at every host whose frame is new."""

from __future__ import annotations

from collections.abc import Sequence

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.alert_book import AlertBook
from ddpmon.diagnose.contention.contention_lives import Contention, ContentionLives
from ddpmon.diagnose.contention.cpu import cpu_symptoms
from ddpmon.diagnose.contention.foreign_processes import ForeignProcesses
from ddpmon.diagnose.contention.gpu_health import boards
from ddpmon.diagnose.contention.gpu_sharing import sharing
from ddpmon.diagnose.contention.host_state import Host, Members, RunContext, alive_at
from ddpmon.diagnose.contention.memory import memory
from ddpmon.diagnose.contention.network import Wires
from ddpmon.diagnose.contention.process_history import Leak, Leaks, ProcessHistory, free_memory
from ddpmon.diagnose.contention.storage import Storage
from ddpmon.diagnose.contention.symptom import Symptom
from ddpmon.diagnose.kinds import KINDS
from ddpmon.run.model import LOST_S, Run

# Both keep a tick of the judge within its budget (docs/design.md "Budgets"); they are chosen, not measured.
_EVERY_TICK = 64  # hosts; of more, each has its turn every other tick
_AT_ONCE = 256  # hosts a tick at most; of more than 512, each has its turn every third tick, every fourth, ...


class ContentionFinder:
    """Follows the hosts from frame to frame, also where ranks restart.

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
        self._members = Members()

    def update(self, run: Run, found: Sequence[Alert]) -> list[Contention]:
        """The contention now; `found` is what is said of the ranks' work."""
        members = self._members
        members.gather(run)
        room = {node: free_memory(frame) for node, (frame, _) in run.nodes.items()}
        if self.figures.update(run, room, members.node_of):
            self._leaking = self._leaks.update(self.figures)
        context = _context(run, self.figures, self._leaking, found)
        self._foreign.learn(context)
        hosts = len(run.nodes)
        every = max(1 + (hosts > _EVERY_TICK), -(-hosts // _AT_ONCE))
        self._turn += 1
        alive, steps = alive_at(run), _steps_of_run(run)
        for place, (node, (frame, heard_at)) in enumerate(run.nodes.items()):
            if (place + self._turn) % every:
                continue
            if self._seen.get(node) != frame.seq:
                self._seen[node] = frame.seq
                host = members.look(node, frame, heard_at, run, alive)
                self._look(host, context, max([steps[rank] for rank in host.states], default=-1))
            elif self._is_stale(run, node, heard_at):
                self.lives.forget(node)
        return list(self.lives)

    def _look(self, host: Host, context: RunContext, step: int) -> None:
        """Look at a host, whose ranks have come to `step`."""
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
        self.lives.look(host, symptoms, step, context.late_since)

    def _is_stale(self, run: Run, node: int, heard_at: float) -> bool:
        """Whether its ranks go on while nobody tells of the host."""
        rank = self._members.first(node)
        return rank is not None and bool(run.latest.heard_at[rank] - heard_at > LOST_S)


def _steps_of_run(run: Run) -> list[int]:
    """[world] the step that each rank is in; a rank that counts its own from a restart is in the step of the others."""
    steps, away = run.latest.step, run.out_of_step()
    if away.any():
        steps[away] = steps[~away].max(initial=-1)
    found: list[int] = steps.tolist()
    return found


def _context(run: Run, figures: ProcessHistory, leaks: dict[int, Leak], found: Sequence[Alert]) -> RunContext:
    worse = [each for each in found if each.severity != "info" and each.cleared_at_step is None]
    late = {rank: each.phase or "work" for each in worse if KINDS[each.kind].late for rank in each.ranks}
    since = {rank: each.since_step or 0 for each in worse if KINDS[each.kind].late for rank in each.ranks}
    slower = [each.phase or "" for each in worse if each.kind == "job_slower"]
    return RunContext(run, figures, leaks, late, since, slower[0] if slower else None)
