"""What a trainer calls: attach, log, phase, detach. Nothing here raises into the training loop, or waits for I/O."""

from __future__ import annotations

import atexit
import ctypes
import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic, perf_counter_ns, sleep
from typing import Any

import torch
import torch.distributed as dist

from ddpmon.parts import wire_text
from ddpmon.probe.assembly import Assembly, Reads, assemble
from ddpmon.probe.child_end import at_end_of_child
from ddpmon.probe.external_store import speaks_for_its_host
from ddpmon.probe.failure import is_failure, unheard_s
from ddpmon.probe.hooks import Given
from ddpmon.probe.identity import name_asked_for
from ddpmon.probe.parallel import DP, HOROVOD, inside, kind_of, name_of
from ddpmon.probe.publisher import Publisher
from ddpmon.probe.record import ALWAYS_PARTS
from ddpmon.probe.registration import say
from ddpmon.store.base import StoreUnavailable, TargetError

EXIT_WAIT_S = 0.95
_CLOSING_S = 0.15  # for the store, once watchers had the time to read why a rank failed


class Monitor:
    """The handle of a watched model; a no-op once detached, or where there is nothing to watch.

    Usable as a context manager, which detaches at the end.

    Attributes:
        model: the watched model.
        automatic: whether `ddpmon run` attached it: a call of `attach` in the script then takes its place.
    """

    def __init__(self, model: Any, assembly: Assembly | None = None) -> None:
        self.model = model
        self.automatic = False
        self._assembly = assembly

    @property
    def steps(self) -> int:
        """How many steps have been finished."""
        return 0 if self._assembly is None else self._assembly.recorder.last_step + 1

    @property
    def forwards(self) -> int:
        """How many forwards with gradients have begun; counted where `ddpmon run` has attached."""
        return 0 if self._assembly is None else self._assembly.recorder.forwards

    @property
    def enabled(self) -> bool:
        """Whether steps are being measured."""
        return self._assembly is not None

    @property
    def cost_ns(self) -> int:
        """The probe's own time on the training thread so far, in nanoseconds."""
        return 0 if self._assembly is None else self._assembly.recorder.cost_ns

    def log(
        self,
        loss: Any = None,
        samples: float | None = None,
        *,
        tokens: float | None = None,
        step: int | None = None,
        total: int | None = None,
    ) -> None:
        """Add a micro-batch's loss (a number or a one-element tensor) and this rank's counts to the step.

        A CUDA loss is copied asynchronously and read later; nothing is synchronised.

        Args:
            loss: of this micro-batch; the step's is the mean of them.
            samples: how many this rank has trained on.
            tokens: how many this rank has trained on.
            step: how many steps the job has finished by its own count, such as after a resume.
            total: how many steps the job will make; with `step` this gives an ETA.
        """
        if self._assembly is None:
            return
        recorder = self._assembly.recorder
        if loss is not None or samples is not None or tokens is not None:
            recorder.logged(loss, samples, tokens)
        if step is not None:
            recorder.put("progress", step, total)

    def log_part(self, loss: Any, step: int, total: int | None, *, is_divided: bool) -> None:
        """Add a micro-batch's loss, of which a framework may have divided the step's, and the framework's progress."""
        if self._assembly is not None:
            recorder = self._assembly.recorder
            recorder.logged(loss, parts=ALWAYS_PARTS if is_divided else 0)
            recorder.put("progress", step, total)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Mark a stretch that is not training, such as "eval" or "checkpoint"; "input" times a loader of your own."""
        assembly = self._assembly
        if assembly is None:
            yield
            return
        recorder, name, began = assembly.recorder, wire_text(name), perf_counter_ns()
        if name == "input":
            recorder.charge(recorder.put, "load", began, None)
        else:
            recorder.charge(recorder.pause, name)
        try:
            yield
        finally:
            ended = perf_counter_ns()
            if name == "input":
                recorder.charge(recorder.put, "loaded", ended, ended - began, None)
            else:
                recorder.charge(recorder.resume)

    def detach(self) -> None:
        """Stop measuring: take every hook back, publish a last frame, and let the threads end by themselves."""
        self._end()

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._fail(error)
        self._end()

    def _go_on_with(self, model: Any, ddp: Any, optimizer: torch.optim.Optimizer | None) -> bool:
        """Watch `model` from now on, if it is the one watched so far or a new wrapper of that; never raises."""
        if self.model is model:
            _say_once("attach was called twice: this process already watches this model; call detach first")
            return True
        try:
            if self._assembly is not None and self._assembly.can_go_on_with(ddp):
                self._assembly.go_on_with(model, ddp, optimizer)
                self.model = model
                return True
        except Exception as error:
            say(f"could not attach ({type(error).__name__}: {error}); training goes on unwatched")
            self._end()
            return False
        _say_once("attach was called twice: this process already watches another model; call detach first")
        return False

    def _fail(self, error: BaseException | None) -> None:
        """Take down that training ends with `error`, if that is a failure."""
        if self._assembly is not None and error is not None and is_failure(error):
            with suppress(Exception):
                self._assembly.draft.fail(error)

    def _end(self) -> None:
        assembly, self._assembly = self._assembly, None
        if _process.active is self:
            _process.active = None
        if assembly is None:
            return
        try:
            assembly.take_down()
        except Exception as error:
            say(f"could not detach cleanly ({type(error).__name__}: {error}); training is not affected")


class _Process:
    """What this process holds at most one of."""

    active: Monitor | None = None
    registered = False

    def __init__(self) -> None:
        self.said: set[str] = set()


_process = _Process()


def attach(
    model: Any,
    name: str | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    buckets: bool | None = None,
    folders: Mapping[str, str | os.PathLike[str]] | None = None,
) -> Monitor:
    """Start measuring a data parallel model on this rank.

    Args:
        model: the DistributedDataParallel module, a model sharded by FSDP (`fully_shard`, `replicate` or
            FullyShardedDataParallel; its outermost module), DataParallel, DeepSpeed's engine, or torch.compile's
            wrapper of one of them.
        name: how to call the run; the model's class name by default.
        optimizer: time this optimizer only; every optimizer's step by default.
        buckets: time every gradient bucket through a communication hook (DDPMON_BUCKETS=1 by default).
        folders: use -> folder, such as {"checkpoints": path, "data": path}: their disks are watched, besides those of
            the working directory, the temporary folder and /dev/shm.

    Returns:
        A Monitor. With DDPMON=0, on a model of another kind, or if another model is watched already, it does nothing,
        and one line on stderr says why. For a new wrapper of the module that is watched already, and for the same
        model again, it is the Monitor that there is: the run goes on. Never raises.
    """
    if os.environ.get("DDPMON") == "0":
        return Monitor(model)
    if (active := _process.active) is not None and active.automatic:
        active.detach()
    return _attach(model, name, optimizer, buckets, folders)


def active() -> Monitor | None:
    """The Monitor of this process that measures; None if there is none."""
    return _process.active


def attach_automatically(model: Any, remark: str, reads: Reads, under_way: Given | None) -> Monitor:
    """Attach as `ddpmon run` does. Never raises.

    Args:
        model: as in `attach`.
        remark: ends the line that rank 0 prints.
        reads: makes what reads losses and samples.
        under_way: what the forward of `model` is given in which this is called; None outside of one.
    """
    found = _attach(model, remark=remark, reads=reads, under_way=under_way)
    found.automatic = found.enabled
    return found


def _attach(
    model: Any,
    name: str | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    buckets: bool | None = None,
    folders: Mapping[str, str | os.PathLike[str]] | None = None,
    remark: str = "",
    reads: Reads | None = None,
    under_way: Given | None = None,
) -> Monitor:
    ddp = inside(model)
    if (reason := _refusal(model, ddp)) is not None:
        say(reason)
        return Monitor(model)
    if (active := _process.active) is not None:
        return active if active._go_on_with(model, ddp, optimizer) else Monitor(model)
    if buckets is None:
        buckets = os.environ.get("DDPMON_BUCKETS") == "1"
    monitor = Monitor(model)
    try:
        monitor._assembly = assemble(
            model,
            ddp,
            name=wire_text(name_asked_for(name) or name_of(ddp)),
            optimizer=optimizer,
            buckets=buckets,
            folders={wire_text(use): os.fsdecode(folder) for use, folder in (folders or {}).items()},
            remark=remark,
            reads=reads,
            under_way=under_way,
            on_error=monitor_error,
        )
        _process.active = monitor
        _register_once()
    except (TargetError, StoreUnavailable) as error:
        if speaks_for_its_host(_rank()):
            say(f"{error}; training goes on unwatched")
    except Exception as error:
        say(f"could not attach ({type(error).__name__}: {error}); training goes on unwatched")
    return monitor


def monitor_error(error: Exception) -> None:
    """An exception of ours on the training thread: say so once, and measure no more."""
    if _process.active is not None:
        if (assembly := _process.active._assembly) is not None:
            assembly.draft.notes.append("stopped measuring after an internal error; training is not affected")
        _process.active._end()
        say(f"stopped measuring after an internal error ({type(error).__name__}: {error}); training is not affected")


def _refusal(model: Any, ddp: Any) -> str | None:
    """Why this model cannot be watched, in one sentence; None if it can."""
    if kind_of(ddp) is None:
        kind = type(model).__name__
        return (
            f"{kind} is not DistributedDataParallel, FSDP, DataParallel or DeepSpeed: nothing is watched; wrap it first"
        )
    if kind_of(ddp) not in (DP, HOROVOD) and not (dist.is_available() and dist.is_initialized()):
        return "the process group is gone, so nothing is watched; call attach before destroy_process_group"
    return None


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _say_once(text: str) -> None:
    """What all ranks would say alike, and again each epoch."""
    if speaks_for_its_host(_rank()) and text not in _process.said:
        _process.said.add(text)
        say(text)


def _register_once() -> None:
    if _process.registered:
        return
    _process.registered = True
    if multiprocessing.parent_process() is None:
        atexit.register(_at_exit)
    else:
        at_end_of_child(_speak_last)
    os.register_at_fork(after_in_child=_in_child)


def _at_exit() -> None:
    """The interpreter ends; somebody's hook for exceptions may have taken the place of ours."""
    _speak_last(None if hasattr(sys, "ps1") else getattr(sys, "last_value", None))


def _speak_last(error: BaseException | None) -> None:
    """The process ends, with `error`: last frames, a second for them at most, and longer for a failure to be read."""
    if _process.active is not None:
        _process.active._fail(error)
        _process.active._end()
    until = monotonic() + max(EXIT_WAIT_S, unheard_s() + _CLOSING_S)
    with suppress(BaseException):  # a second signal while waiting must not become a traceback of ours
        publishers = [thread for thread in threading.enumerate() if isinstance(thread, Publisher)]
        for publisher in publishers:
            publisher.leaving.set()
        for publisher in publishers:
            publisher.join(max(0.0, until - monotonic()))
        sleep(unheard_s())


def _in_child() -> None:
    """A forked child (a DataLoader worker) is not a rank: it has our hooks but not our threads.

    What it has inherited lives as long as the process: a CUDA event that is destroyed in a child may end it.
    """
    if _process.active is not None:
        if (assembly := _process.active._assembly) is not None:
            assembly.recorder.thread = 0  # no thread of the child's is the training thread
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(assembly))
        _process.active._assembly = None
        _process.active = None
    _process.registered = False
