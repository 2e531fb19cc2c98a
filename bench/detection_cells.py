"""The synthetic cells: world size x scatter x case, where a case is what happens to a healthy job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from detection_job import F64, STEPS, TRANSFER_MS, WORK_MS, Job, healthy_job, heavy
from detection_truth import Episode

from ddpmon.diagnose.kinds import KindName

WORLDS = (2, 4, 8, 64, 256, 1024)
CVS = (0.02, 0.05, 0.08, 0.12)
FAULTY_STEPS = 200
_ONE: tuple[KindName, ...] = ("straggler", "intermittent_straggler")
_OFTEN: tuple[KindName, ...] = ("intermittent_straggler", "straggler")


@dataclass(frozen=True)
class Cell:
    """One row of the table."""

    ranks: int
    cv: float
    case: str

    @property
    def name(self) -> str:
        """Such as n8-cv5-forward-1.15."""
        return f"n{self.ranks}-cv{self.cv * 100:g}-{self.case}"

    def job(self, seed: int) -> Job:
        """The job of one seed, the same every time."""
        rng = np.random.default_rng([self.ranks, round(self.cv * 1000), sum(map(ord, self.case)), seed])
        hosts_of = max(2, self.ranks // 2) if self.case.startswith("node") and self.ranks <= 8 else 8
        job = healthy_job(rng, self.ranks, self.cv, hosts_of)
        CASES[self.case](job)
        for which, episode in enumerate(job.episodes):
            job.episodes[which] = Episode(**{**vars(episode), "cost": job.cost_of(which)})
        return job


def strike(job: Job, episode: Episode, phase: str, ms: F64) -> None:
    """Inject delays ms [n, T] and note what should be said of them."""
    job.delay(phase, ms)
    job.injected.append((ms, np.zeros_like(job.transfer)))
    job.episodes.append(episode)


def span(job: Job, steps: int = FAULTY_STEPS) -> tuple[int, int]:
    """When the fault lasts: after a clean part, before a recovered one."""
    on = int(job.rng.integers(150, 230))
    return on, on + steps


def delays(job: Job, rank: int, on: int, off: int, factor: float, duty: float = 1.0) -> F64:
    """[n, T] a rank's extra time: `factor` of the healthy work in a share `duty` of its steps, noisy as work is."""
    ms = np.zeros_like(job.skew)
    hit = job.rng.random(off - on) < duty
    hit[0] = True
    ms[rank, on:off] = hit * (factor - 1) * WORK_MS * np.maximum(0.3, 1 + job.cv * heavy(job.rng, (off - on,)))
    return ms


def any_rank(job: Job) -> int:
    """Whom it hits."""
    return int(job.rng.integers(job.ranks))


def steady(job: Job, phase: str, factor: float) -> None:
    on, off = span(job)
    rank = any_rank(job)
    truth = Episode(_ONE, on, off, frozenset({rank}), (phase,), required=factor >= 1.1)
    strike(job, truth, phase, delays(job, rank, on, off, factor))


def intermittent(job: Job, duty: float, factor: float) -> None:
    on, off = span(job)
    rank = any_rank(job)
    truth = Episode(_OFTEN, on, off, frozenset({rank}), ("forward",))
    strike(job, truth, "forward", delays(job, rank, on, off, factor, duty))


def come_and_go(job: Job) -> None:
    """Two ranks, each twice as long in a fifth of the steps, not the same ones."""
    on, off = span(job)
    a, b = job.rng.choice(job.ranks, 2, replace=False).tolist()
    first, second = (delays(job, rank, on, off, 2.0, 0.2) for rank in (a, b))
    second[b, first[a] > 0] = 0
    for rank, ms in ((a, first), (b, second)):
        strike(job, Episode(_OFTEN, on, off, frozenset({rank}), ("forward",)), "forward", ms)


def disturbed_node(job: Job) -> None:
    """All ranks of a host, twice as long in the same fifth of the steps."""
    on, off = span(job)
    node = int(job.rng.integers(-(-job.ranks // job.host_size)))
    ranks = range(node * job.host_size, min(job.ranks, (node + 1) * job.host_size))
    hit = np.asarray(job.rng.random(job.skew.shape[1]) < 0.2)
    hit[on] = True
    ms = hit * sum((delays(job, rank, on, off, 2.0) for rank in ranks), np.zeros_like(job.skew))
    also = ("uneven_work", *_ONE)
    strike(job, Episode(("slow_node",), on, off, frozenset(ranks), also=also, node=f"node{node}"), "backward", ms)


def two_at_once(job: Job) -> None:
    on, off = span(job)
    a, b = job.rng.choice(job.ranks, 2, replace=False).tolist()
    strike(job, Episode(_ONE, on, off, frozenset({a}), ("input",)), "input", delays(job, a, on, off, 1.3))
    on += 40
    strike(job, Episode(_ONE, on, off, frozenset({b}), ("backward",)), "backward", delays(job, b, on, off, 1.4))


def moves(job: Job) -> None:
    on, _ = span(job)
    a, b = job.rng.choice(job.ranks, 2, replace=False).tolist()
    for rank, first in ((a, on), (b, on + 100)):
        truth = Episode(_ONE, first, first + 100, frozenset({rank}), ("forward",))
        strike(job, truth, "forward", delays(job, rank, first, first + 100, 1.3))


def whole_node(job: Job) -> None:
    on, off = span(job)
    node = int(job.rng.integers(-(-job.ranks // job.host_size)))
    ranks = range(node * job.host_size, min(job.ranks, (node + 1) * job.host_size))
    ms = sum((delays(job, rank, on, off, 1.3) for rank in ranks), np.zeros_like(job.skew))
    also = ("job_slower", "uneven_work", *_ONE)
    truth = Episode(("slow_node",), on, off, frozenset(ranks), also=also, node=f"node{node}")
    strike(job, truth, "backward", ms)


def whole_job(job: Job) -> None:
    on, off = span(job)
    ms = sum((delays(job, rank, on, off, 1.3) for rank in range(job.ranks)), np.zeros_like(job.skew))
    strike(job, Episode(("job_slower",), on, off), "backward", ms)


def network(job: Job, factor: float) -> None:
    on, off = span(job)
    more = np.zeros_like(job.transfer)
    more[on:off] = (factor - 1) * TRANSFER_MS * job.rng.lognormal(0, 0.12, off - on)
    job.transfer = job.transfer + more
    job.injected.append((np.zeros_like(job.skew), more))
    job.episodes.append(Episode(("slow_network",), on, off))


def uneven(job: Job, cv: float) -> None:
    """Sequences of uneven length, in every rank's every step: true all along, named or not."""
    lengths = np.clip(1 + cv * heavy(job.rng, job.skew.shape), 0.3, 3)
    for phase in ("forward", "backward"):
        job.phases[phase] = job.phases[phase] * lengths
    truth = Episode(("uneven_work",), 0, STEPS, required=False)
    job.injected.append((np.zeros_like(job.skew), np.zeros_like(job.transfer)))
    job.episodes.append(truth)


def spikes(job: Job, share: float) -> None:
    """Steps of five times the length, anywhere; a share of 0 means a single one."""
    ms = np.where(job.rng.random(job.skew.shape) < share / job.ranks, 4 * WORK_MS, 0.0)
    ms[any_rank(job), span(job)[0]] = 4 * WORK_MS
    job.delay("forward", ms)


def garbage(job: Job, measured: bool) -> None:
    """Half a step every hundred steps, each rank at its own time."""
    offsets = job.rng.integers(0, 100, (job.ranks, 1))
    due = (np.arange(job.skew.shape[1]) + offsets) % 100 == 99
    ms = np.where(due, 0.5 * WORK_MS * job.rng.uniform(0.8, 1.2, due.shape), 0.0)
    job.delay("forward", ms)
    job.natural.add("gc_pauses")
    if job.ranks >= 8:
        job.natural.add("uneven_work")
    job.gc = ms if measured else None


def checkpoint(job: Job, marked: bool) -> None:
    """Rank 0 writes for twenty steps' time, every 250 steps."""
    ms = np.zeros_like(job.skew)
    ms[0, 249::250] = 20 * WORK_MS
    _pause(job, "checkpoint", ms, marked)


def evaluation(job: Job) -> None:
    """All ranks evaluate every 120 steps, and say so."""
    ms = np.zeros_like(job.skew)
    ms[:, 119::120] = 30 * WORK_MS
    _pause(job, "eval", ms * np.maximum(0.3, 1 + job.cv * heavy(job.rng, ms.shape)), marked=True)


def _pause(job: Job, name: str, ms: F64, marked: bool) -> None:
    job.delay("other", ms)
    job.natural |= {"pause"}
    if marked:
        job.marked = job.marked + ms
        job.mark_names |= dict.fromkeys(np.flatnonzero(ms.max(axis=0)).tolist(), name)


def epochs(job: Job) -> None:
    """Every 150 steps a short last batch, and then an input that starts again, on all ranks."""
    for phase in ("forward", "backward"):
        job.phases[phase][:, 149::150] *= job.rng.uniform(0.2, 0.7)
    ms = np.zeros_like(job.skew)
    ms[:, 150::150] = 3 * WORK_MS * job.rng.lognormal(0, 0.2, ms[:, 150::150].shape)
    job.delay("input", ms)


def everything(job: Job, factor: float = 0) -> None:
    """All that is normal at once, with or without a straggler."""
    garbage(job, measured=True)
    checkpoint(job, marked=True)
    evaluation(job)
    epochs(job)
    if factor:
        steady(job, "forward", factor)


QUIET: dict[str, Callable[[Job], None]] = {
    "healthy": lambda _: None,
    "spike": partial(spikes, share=0),
    "spikes": partial(spikes, share=0.01),
    "gc": partial(garbage, measured=True),
    "gc-unmeasured": partial(garbage, measured=False),
    "checkpoint": partial(checkpoint, marked=True),
    "checkpoint-unmarked": partial(checkpoint, marked=False),
    "evaluation": evaluation,
    "epochs": epochs,
    "everything": everything,
    "uneven-12": partial(uneven, cv=0.12),
    "uneven-18": partial(uneven, cv=0.18),
    "uneven-25": partial(uneven, cv=0.25),
}
FAULTY: dict[str, Callable[[Job], None]] = {
    f"{phase}-{factor:g}": partial(steady, phase=phase, factor=factor)
    for factor in (1.08, 1.15, 1.3, 2.0)
    for phase in ("input", "forward", "backward", "other")
} | {
    "intermittent-20x2": partial(intermittent, duty=0.2, factor=2.0),
    "intermittent-5x5": partial(intermittent, duty=0.05, factor=5.0),
    "come-and-go": come_and_go,
    "node-20x2": disturbed_node,
    "two": two_at_once,
    "moves": moves,
    "node-1.3": whole_node,
    "global-1.3": whole_job,
    "network-1.5": partial(network, factor=1.5),
    "network-3": partial(network, factor=3.0),
    "everything-1.3": partial(everything, factor=1.3),
}
CASES = QUIET | FAULTY


def all_cells() -> list[Cell]:
    """Every cell that makes sense, in table order."""
    return [
        Cell(ranks, cv, case)
        for ranks in WORLDS
        for cv in CVS
        for case in CASES
        if not (case.startswith(("node", "come")) and ranks < 4)
    ]
