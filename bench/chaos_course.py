"""A course of faults, from the plan to the table."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
from chaos_faults import ENGINES_OWN, FAULTS, RESTARTS
from chaos_leaks import Leaks
from chaos_losses import Life, differences, lives
from chaos_redis import PROGRAM, Redis
from chaos_stage import HOSTS, LAST_WORDS_S, MARK, REDIS_HOST, Stage, make_reference, watchers_environment
from chaos_verdict import right_after, truth_of
from network import Network, network
from watcher import Watcher

from ddpmon.diagnose.late_policy import SUSTAINED

ALLOWED_S, _BUSY_S = 10.0, 60.0
_SLACK_S = 30.0  # for a store to end on a busy machine
_STRETCH, _PATIENCE_S, _GOES_ON_S, _STARTS_S = 25, 30.0, 60.0, 180.0


@dataclass(frozen=True)
class Planned:
    """One fault to come: its number, its kind, the launch it falls into, and where that publishes."""

    index: int
    kind: str
    launch: int
    store: str


@dataclass
class Outcome:
    """What came of it: seconds from healing until each watcher was right, and what was wrong."""

    fault: Planned
    right_s: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def plan(count: int, seed: int, kinds: Sequence[str], stores: Sequence[str]) -> list[Planned]:
    """So many faults, each kind about as often as the others, in the order that the seed gives."""
    chance, planned = random.Random(seed), list[Planned]()
    stores = [store for store in stores if store != "redis" or PROGRAM is not None]
    for launch, first in enumerate(range(0, count, _STRETCH)):
        store = stores[launch % len(stores)]
        possible = [kind for kind in kinds if store == "redis" or kind not in ENGINES_OWN]
        numbers = range(first, min(count, first + _STRETCH))
        drawn = list(itertools.islice(itertools.cycle(chance.sample(possible, len(possible))), len(numbers)))
        chance.shuffle(drawn)
        planned += [Planned(number, kind, launch, store) for number, kind in zip(numbers, drawn, strict=True)]
    return planned


def course(planned: Sequence[Planned], seed: int, *, busy: bool = False) -> bool:
    """Do all of them, print what came of it; True if all was as it should be.

    Where others use this machine's cores (`busy`), watchers may take a minute, and transfers may truly be slower.
    """
    began, leaks = time.monotonic(), Leaks()
    with tempfile.TemporaryDirectory(prefix="ddpmon-chaos-") as name, network(HOSTS) as net:
        folder = Path(name)
        with small_disk(folder) as disk:
            outcomes = _launches(net, folder, disk, planned, seed, leaks, busy)
        told = [life for losses in folder.glob("launch*/losses") for life in lives(losses)]
        compared, different = _compare(net, folder, told)
    left = _left_behind()
    print_table(outcomes)
    print(f"losses: {compared:,} of {len(told)} processes compared with an unmonitored run, {len(different)} differ")
    print(*leaks.lines(), sep="\n")
    troubles = [f"loss: {text}" for text in different[:10]] + leaks.found() + [f"left behind: {text}" for text in left]
    print(*troubles, sep="\n")
    faults = sum(outcome.fault.index >= 0 for outcome in outcomes)
    print(f"{faults} faults in {time.monotonic() - began:.0f} s; {len(left)} processes left behind", flush=True)
    return not troubles and bool(compared) and not any(outcome.wrong for outcome in outcomes)


def _left_behind() -> list[str]:
    """What still runs once the stores of jobs that were killed have ended by themselves."""
    until = time.monotonic() + LAST_WORDS_S + _SLACK_S
    while (left := orphans()) and time.monotonic() < until:
        time.sleep(1.0)
    return left


def _launches(
    net: Network, folder: Path, disk: Path, planned: Sequence[Planned], seed: int, leaks: Leaks, busy: bool
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    near = Watcher(net.enter(0), None, folder / "near.log", watchers_environment(disk))
    try:
        for launch, faults in itertools.groupby(planned, key=lambda fault: fault.launch):
            redis = None
            several = list(faults)
            if several[0].store == "redis":
                redis = Redis(net, REDIS_HOST, folder / "redis.log")
            stage = Stage(net, folder / f"launch{launch}", disk, redis, near, busy=busy)
            try:
                with stage.running():
                    outcomes += _stretch(stage, several, seed, leaks)
            finally:
                if redis is not None:
                    redis.kill()
    finally:
        near.end()
    return outcomes


def _stretch(stage: Stage, planned: Sequence[Planned], seed: int, leaks: Leaks) -> Iterator[Outcome]:
    """The faults of one launch, once both watchers are right about its start."""
    began = Outcome(replace(planned[0], kind="(start of the job)", index=-1))
    started = stage.all_step({}, _STARTS_S)
    if started is None:
        began.wrong.append(f"the job does not start:\n{logs(stage.folder)}")
    else:
        _judge(stage, began, started, stage.crew(), _STARTS_S)
    print(*began.wrong, sep="\n", flush=True)
    yield began
    for fault in planned:
        leaks.note(stage.processes())
        outcome = _one(stage, fault, seed)
        yield outcome
        if any("does not go on" in wrong for wrong in outcome.wrong):
            print(logs(stage.folder), flush=True)
            return
    leaks.note(stage.processes())


def _one(stage: Stage, fault: Planned, seed: int) -> Outcome:
    outcome, before = Outcome(fault), stage.crew()
    began = time.monotonic()
    words = FAULTS[fault.kind](stage, random.Random(f"{seed}/{fault.index}/{fault.kind}"))
    undone = time.monotonic()
    least = SUSTAINED.warm_up_steps if fault.kind in RESTARTS else 0
    healed = stage.all_step({life.pid: max(life.steps, least) for life in stage.crew().values()}, _GOES_ON_S)
    if healed is None:
        outcome.wrong.append("training does not go on")
    else:
        _judge(stage, outcome, healed, before, _BUSY_S if stage.busy else ALLOWED_S)
    right = "/".join(f"{seconds:.1f}" for seconds in outcome.right_s)
    print(
        f"{fault.index:3} {fault.store:5} {fault.kind:22} {words:32} {undone - began:5.1f} s, "
        f"steps again after {(healed or 0) - undone:4.1f} s, right after {right} s",
        *(f"    WRONG: {text}" for text in outcome.wrong),
        sep="\n",
        flush=True,
    )
    return outcome


def _judge(stage: Stage, outcome: Outcome, healed: float, before: dict[int, Life], allowed_s: float) -> None:
    truth = truth_of(stage)
    if outcome.fault.kind not in RESTARTS and truth.pids != {rank: life.pid for rank, life in before.items()}:
        outcome.wrong.append("the ranks have been started again")
    patience_s = max(allowed_s, _PATIENCE_S)
    with ThreadPoolExecutor() as both:
        for seconds, doubt in both.map(lambda w: right_after(w, truth, healed, patience_s), (stage.far, stage.near)):
            if seconds is None or seconds > allowed_s:
                outcome.wrong.append(f"a watcher was wrong for {seconds or patience_s:.0f} s: {doubt[:600]}")
            if seconds is not None:
                outcome.right_s.append(seconds)


def _compare(net: Network, folder: Path, told: list[Life]) -> tuple[int, list[str]]:
    steps = 1 + max((step for life in told for step in life.losses()), default=0)
    return differences(told, lives(make_reference(net, folder / "reference", steps)))


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 16 MB, gone at the end."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def orphans() -> list[str]:
    """The processes of this course that are still there."""
    mark = f"{MARK}={os.getpid()}".encode()
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if mark in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                found.append(f"{process.pid} {' '.join(process.cmdline())[:100]}")
    return found


def print_table(outcomes: Sequence[Outcome]) -> None:
    """One line a kind, and the totals."""
    print(f"\n{'fault':24}{'times':>6}{'right':>7}{'median s':>10}{'max s':>7}")
    for kind in [*dict.fromkeys(outcome.fault.kind for outcome in outcomes), ""]:
        some = [
            outcome for outcome in outcomes if kind == outcome.fault.kind or (not kind and outcome.fault.index >= 0)
        ]
        right = sum(not outcome.wrong for outcome in some)
        worst = [max(outcome.right_s) for outcome in some if outcome.right_s] or [float("nan")]
        line = f"{kind or 'all':24}{len(some):6}{right:7}{statistics.median(worst):10.1f}{max(worst):7.1f}"
        print(line)


def logs(folder: Path) -> str:
    """The ends of what was written down."""
    return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-3000:]}" for path in folder.glob("*.log"))
