"""Everything that must not harm a run, on one rank."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

import ddpmon
from ddpmon.probe import publisher
from ddpmon.probe.assembly import Assembly
from ddpmon.probe.clock import CpuClock
from ddpmon.probe.record import StepRecord
from ddpmon.probe.step_assembler import MAX_SPANS
from ddpmon.store.connect import parse_target
from ddpmon.store.discovery import discover
from tests.probe.probe_stage import STEPS, WIDTH, batch, note, perform, scene, toy, train, watched

REGISTER = (optimizers.register_optimizer_step_pre_hook, optimizers.register_optimizer_step_post_hook)
WELCOME = "to watch this run"


@contextlib.contextmanager
def heard() -> Iterator[list[str]]:
    """The lines on stderr, without the one that says how to watch."""
    lines: list[str] = []
    with contextlib.redirect_stderr(io.StringIO()) as heard_here:
        yield lines
    lines += [line for line in heard_here.getvalue().splitlines() if WELCOME not in line]


def ddpmon_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("ddpmon")]


def until_no_threads() -> bool:
    deadline = time.monotonic() + 60
    while ddpmon_threads() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not ddpmon_threads()


def hooked(ddp: nn.Module) -> dict[str, Any]:
    """All that attach touches."""
    found: dict[str, Any] = {f"dist.{name}": value for name, value in vars(dist).items() if callable(value)}
    found["wait"] = vars(dist.Work)["wait"]
    found["loader"] = _BaseDataLoaderIter.__next__
    found["forward"] = [type(ddp).forward, *ddp._forward_hooks, *ddp._forward_pre_hooks]
    found["optimizer"] = [*optimizers._global_optimizer_pre_hooks, *optimizers._global_optimizer_post_hooks]
    found["collector"], found["excepthook"] = [*gc.callbacks], sys.excepthook
    return found


@scene
def detached() -> None:
    ddp = toy()
    before = hooked(ddp)
    with heard() as lines, ddpmon.attach(ddp) as monitor:
        during = hooked(ddp)
        train(ddp)
    train(ddp)
    changed = [name for name, value in during.items() if before[name] != value]
    note(changed=changed, restored=hooked(ddp) == before, enabled=monitor.enabled, lines=lines)
    monitor.detach()
    note(ended=until_no_threads())


@scene
def switched_off() -> None:
    os.environ["DDPMON"] = "0"
    ddp = toy()
    before = hooked(ddp)
    with heard() as lines, ddpmon.attach(ddp, buckets=True) as monitor:
        train(ddp)
        monitor.log(loss=1.0, samples=2)
        with monitor.phase("eval"):
            note(same=hooked(ddp) == before, threads=ddpmon_threads(), enabled=monitor.enabled)
    del os.environ["DDPMON"]
    note(lines=lines)


@scene
def not_ddp() -> None:
    told = []
    for model in (toy().module, torch.compile(nn.Linear(1, 1)), None, "model", 7):
        with heard() as lines:
            monitor = ddpmon.attach(model)
            monitor.log(loss=1.0)
            monitor.detach()
        told.append(lines)
    note(told=told)


@scene
def attached_twice() -> None:
    ddp, other = toy(), toy()
    with ddpmon.attach(ddp) as monitor:
        with heard() as same:
            again = [ddpmon.attach(ddp) for _ in range(2)]
        with heard() as different, ddpmon.attach(other) as second:
            train(other)
            ddpmon.attach(toy())
        note(same=same, different=different, one=again == [monitor] * 2, second=second.enabled, first=monitor.enabled)


class Unwilling:
    def __float__(self) -> float:
        raise RuntimeError("no number")


@scene
def nonsense_is_logged() -> None:
    ddp = toy()
    nonsense = ["low", torch.ones(2), torch.empty(0), float("nan"), None, 10**400, Unwilling(), torch.ones(1) * 1j, [1]]
    with heard() as lines, watched(ddp) as monitor:

        def log(step: int) -> None:
            if step == 1:
                for value in nonsense:
                    monitor.log(loss=value)
                    monitor.log(samples=value)  # type: ignore[arg-type]
                    monitor.log(value, value)  # type: ignore[arg-type]
            elif step == 3:
                monitor.log(loss=torch.tensor([1.5]), samples=3)
            with monitor.phase("\ud800" * 300), monitor.phase("input"):
                pass

        train(ddp, after=log)
        note(enabled=monitor.enabled)
    note(lines=lines)


@scene
def names_are_nonsense() -> None:
    told = []
    for name in ("\ud800" * 1000, 7, "", "a\n\x1b[2J/b"):
        with heard() as lines:
            monitor = ddpmon.attach(toy(), name=name)  # type: ignore[arg-type]
            monitor.detach()
            until_no_threads()
        told.append(lines)
    note(told=told)


@scene
def an_error_of_our_own() -> None:
    """Whichever mark of the probe's clock fails, training goes on as if it had not been watched."""
    original, told, losses = CpuClock.mark, [], []
    hooks_called = [0]

    def count(*_: Any) -> None:
        hooks_called[0] += 1

    for failing in range(18):
        torch.manual_seed(0)
        ddp, left = toy(), iter(range(failing))

        def mark(left: Iterator[int] = left) -> int:
            next(left)  # raises StopIteration when there are none left
            return original()

        with heard() as lines:
            CpuClock.mark = staticmethod(mark)
            monitor = ddpmon.attach(ddp)
            # Behind ours in the same list: it must be reached although ours are taken back while the list is walked.
            handles = [register(count) for register in REGISTER]
            train(ddp, after=lambda _step: dist.barrier(), steps=3)
            CpuClock.mark = staticmethod(original)
            told.append([*lines, monitor.enabled])
            monitor.detach()
        for handle in handles:
            handle.remove()
        told[-1][:0] = lines
        losses.append(float(ddp(batch()).sum()))
    note(told=told, results=len(set(losses)), hooked=hooks_called[0])


class Facts(Dataset[Tensor]):
    """What a loader's worker sees of the probe that it inherited."""

    def __init__(self, monitor: ddpmon.Monitor, port: int) -> None:
        self.monitor = monitor
        self.port = port

    def __len__(self) -> int:
        return STEPS + 1

    def __getitem__(self, index: int) -> Tensor:
        self.monitor.log(loss=1e9)
        facts = [os.getpid(), self.monitor.enabled, len(ddpmon_threads()), self.port in listening()]
        return torch.tensor([*map(float, facts), *[0.0] * (WIDTH - len(facts))], dtype=torch.float64)


@scene
def forked_workers() -> None:
    ddp = toy()
    seen: list[list[float]] = []
    with watched(ddp) as monitor:
        train(ddp, steps=1)
        port = wait_for_the_store()
        for rows in DataLoader(Facts(monitor, port), num_workers=2, batch_size=None, multiprocessing_context="fork"):
            ddp(rows.float()).sum().backward()
            seen.append(rows.tolist()[:4])
        note(seen=seen, pid=os.getpid(), workers=len({row[0] for row in seen}))


@scene
def forked_by_hand() -> None:
    """What was attached is an event's only owner on a GPU: a child that destroys one may end in an abort."""
    with ddpmon.attach(toy()) as monitor:
        train(monitor.model)
        if (child := os.fork()) == 0:
            gc.collect()
            os._exit(sum(type(each) is Assembly for each in gc.get_objects()))
        _, status = os.waitpid(child, 0)
    note(kept=os.waitstatus_to_exitcode(status))


def listening() -> set[int]:
    """The ports on which this process listens."""
    return {c.laddr.port for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN}


def wait_for_the_store() -> int:
    """The port of the store that this process has started: only then is there something that a fork could inherit."""
    while True:
        for run in discover():
            if run.pid == os.getpid():
                return parse_target(run.url).port
        time.sleep(0.02)


@scene
def stderr_is_gone() -> None:
    """Closed, and as Python leaves it when there was none at the start: None."""
    output, errors = io.StringIO(), sys.stderr
    closed = io.StringIO()
    closed.close()
    with contextlib.redirect_stdout(output):
        for gone in (closed, None):
            sys.stderr = gone
            ddpmon.attach(nn.Linear(1, 1))
            with ddpmon.attach(toy()) as monitor:
                wait_for_the_store()
                train(monitor.model)
            until_no_threads()
    sys.stderr = errors
    note(stdout=output.getvalue())


def interrupt_in_a_collection() -> bool:
    """Whether the interrupt came out."""
    shown = io.StringIO()
    sender = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
    deadline = time.monotonic() + 60
    try:
        with contextlib.redirect_stderr(shown):
            sender.start()
            while "Exception ignored" not in shown.getvalue() and time.monotonic() < deadline:
                gc.collect()
    except KeyboardInterrupt:
        return True
    return False


@scene
def interrupted() -> None:
    """Nearly all the time is spent collecting."""
    heap = [[each] for each in range(300_000)]
    with ddpmon.attach(toy()):
        came_out = [interrupt_in_a_collection() for _ in range(5)]
    note(came_out=came_out, objects=len(heap))


@scene
def compiled_later() -> None:
    """The model is compiled when it is watched already: the compiler meets our hooks."""
    ddp = toy()
    with heard() as lines, ddpmon.attach(ddp) as monitor:
        compiled: Any = torch.compile(ddp, backend="aot_eager")
        train(compiled)
        note(enabled=monitor.enabled)
    ours = ("perf_counter", "get_ident", str(Path(publisher.__file__).parent))
    traced = [line for line in lines if any(word in line for word in ours)]
    note(traced=traced)


@scene
def copied_and_pickled() -> None:
    """What is made of a watched model is not watched, and knows nothing of us."""
    ddp = toy()
    with heard() as lines, ddpmon.attach(ddp) as monitor:
        train(ddp)
        before = monitor.cost_ns
        pickled = pickle.dumps(ddp)
        twins = [copy.deepcopy(ddp), pickle.loads(pickled)]
        for twin in twins:
            train(twin)
        note(enabled=monitor.enabled, counted=monitor.cost_ns - before, ours=b"ddpmon" in pickled)
    train(ddp)
    note(lines=lines, equal=[torch.equal(ddp(batch()), twin(batch())) for twin in twins])


def longest_list() -> int:
    """The length of the longest list that any step's record holds."""
    records = [each for each in gc.get_objects() if type(each) is StepRecord]
    lists = [getattr(record, name) or () for record in records for name in ("spans", "marked", "losses")]
    return max(map(len, lists), default=0)


def until_read(monitor: ddpmon.Monitor) -> None:
    """Wait until the publisher has taken every event."""
    while monitor._assembly is not None and monitor._assembly.recorder.log:
        time.sleep(0.01)


@scene
def never_synchronises() -> None:
    """More micro-batches than a step's lists hold, in portions that the event log holds."""
    publisher.INTERVAL_S = 0.01
    ddp = torch.nn.parallel.DistributedDataParallel(nn.Linear(WIDTH, 1))
    with ddpmon.attach(ddp) as monitor, ddp.no_sync():
        full = 0
        while full < 2:  # portions since the lists were full
            for _ in range(500):
                ddp(batch()).sum().backward()
                with monitor.phase("a while"):
                    monitor.log(loss=0.0)
            until_read(monitor)
            full += longest_list() >= MAX_SPANS
        note(longest=longest_list())
    publisher.INTERVAL_S = 1.0


@scene
def elsewhere_in_part() -> None:
    """The user's default device is none that has memory, and so is that of a frozen part that DDP leaves alone."""
    inner = nn.Sequential(nn.Linear(WIDTH, WIDTH))
    inner.register_parameter("frozen", nn.Parameter(torch.empty(1, device="meta"), requires_grad=False))
    ignored = ["frozen"]
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(inner, ignored)
    ddp = nn.parallel.DistributedDataParallel(inner)
    with heard() as lines, watched(ddp) as monitor:
        torch.set_default_device("meta")
        note(enabled=monitor.enabled, first=str(next(ddp.parameters()).device))
        torch.set_default_device(None)
        train(ddp, after=lambda _step: monitor.log(samples=torch.tensor(2.0)))  # type: ignore[arg-type]
    note(lines=lines)


@scene
def process_group_is_gone() -> None:
    ddp = toy()
    with heard() as early, ddpmon.attach(ddp) as monitor:
        train(ddp)
        dist.destroy_process_group()
        monitor.log(loss=1.0)
    with heard() as late:
        second = ddpmon.attach(ddp)
        second.log(loss=1.0)
        second.detach()
    note(early=early, late=late, enabled=second.enabled)


if __name__ == "__main__":
    perform()
