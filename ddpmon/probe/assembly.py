"""Puts the probe together on one data parallel model, and takes it apart again."""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any, cast

import torch
import torch.distributed as dist

from ddpmon.probe.about import command, versions
from ddpmon.probe.buckets import BucketTimer, ReducerLog, settings_of
from ddpmon.probe.clock import Clock, CpuClock, CudaClock
from ddpmon.probe.collectives import hook_collectives
from ddpmon.probe.deepspeed import hook_deepspeed
from ddpmon.probe.device_copies import DeviceCopies
from ddpmon.probe.event_log import EventLog, hook_collector
from ddpmon.probe.external_store import external_store, uplink_of
from ddpmon.probe.failure import hook_exceptions
from ddpmon.probe.frame_builder import FrameBuilder
from ddpmon.probe.graphs import hook_graphs
from ddpmon.probe.hooks import Given, hook_loader, hook_module, hook_optimizer
from ddpmon.probe.horovod import hook_horovod, key_values
from ddpmon.probe.host_sampler import HostSampler
from ddpmon.probe.host_share import HostShare
from ddpmon.probe.identity import Identity, identify, uses_rendezvous
from ddpmon.probe.job_ids import job_ids
from ddpmon.probe.loss import LossReader
from ddpmon.probe.parallel import DDP, HOROVOD, bare, group_of, is_sharded, kind_of, sizes
from ddpmon.probe.publisher import Publisher
from ddpmon.probe.run_life import launch
from ddpmon.probe.uplink import Handover, Uplink
from ddpmon.schema import RunInfo

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where losses and samples are read in a script that does not log them, in words, and what ends that."""

    loss: str = ""
    samples: str = ""
    undo: Sequence[Undo] = ()


Reads = Callable[[EventLog], Sources]

_attachments = itertools.count()


@cache
def leave_untraced() -> None:
    """Mark every function of ours that runs in the training, once a process.

    Otherwise a model that is compiled after attach has them compiled as well, warns of what it finds in them, and does
    so again whenever a number in them changes. Never raises: where torch knows no such mark, nothing is marked.
    """
    with suppress(Exception):
        skip = _marker()
        for name, module in list(sys.modules.items()):
            if name.startswith((f"{__package__}.", "ddpmon.autoattach.")):
                for code in _codes_of(module, name):
                    skip(code)


def _marker() -> Callable[[CodeType], None]:
    frames: Any = torch._C._dynamo.eval_frame  # what torch._dynamo itself marks by; importing that takes a second
    if hasattr(frames, "skip_code"):  # torch 2.6
        return cast("Callable[[CodeType], None]", frames.skip_code)
    strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
    return lambda code: frames.set_code_exec_strategy(code, strategy)


def _codes_of(holder: Any, module: str) -> Iterator[CodeType]:
    """The code of all functions that `holder`, a module or a class in it, defines."""
    for value in vars(holder).values():
        if getattr(value, "__module__", None) != module:
            continue
        if inspect.isfunction(value):
            yield from _within(value.__code__)
        elif inspect.isclass(value):
            yield from _codes_of(value, module)


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _within(constant)


@dataclass(slots=True)
class Assembly:
    """The parts of an attached probe. `hooks` are on one parallel model, `ddp`; `undo` is of what is on the process."""

    me: Identity
    ddp: Any
    recorder: EventLog
    publisher: Publisher
    draft: FrameBuilder
    buckets: bool
    hooks: list[Undo]
    undo: list[Undo]

    def take_down(self) -> None:
        """Take every hook back and ask the threads to end with a last frame; does not wait."""
        _undo_all(self.undo)
        _undo_all(self.hooks)
        self.recorder.put("seal")
        self.publisher.stop("failed" if self.draft.failed else "finished")

    def can_go_on_with(self, ddp: Any) -> bool:
        """Whether `ddp` holds the very module that is watched: its wrapper so far has been given up then."""
        return bare(ddp) is bare(self.ddp) and identify(ddp) == self.me

    def go_on_with(self, model: torch.nn.Module, ddp: Any, optimizer: torch.optim.Optimizer | None) -> None:
        """Take the hooks over to `ddp` (inside `model`, if compiled); steps are counted on.

        Raises:
            Exception: whatever torch raises.
        """
        _undo_all(self.hooks)
        self.ddp = ddp
        self.recorder.forget_backward()
        reducer_log, _, notes = _watch(self.recorder, model, ddp, optimizer, self.hooks, buckets=self.buckets)
        self.draft.reducer_log = reducer_log
        self.draft.notes += [note for note in notes if note not in self.draft.notes]


def _undo_all(undo: list[Undo]) -> None:
    while undo:
        undo.pop()()


def assemble(
    model: torch.nn.Module,
    ddp: Any,
    *,
    name: str,
    optimizer: torch.optim.Optimizer | None,
    buckets: bool,
    folders: Mapping[str, str],
    remark: str = "",
    reads: Reads | None = None,
    under_way: Given | None = None,
    on_error: Callable[[Exception], None],
) -> Assembly:
    """Hook `ddp` (inside `model`, if compiled) and start the threads.

    Raises:
        TargetError: DDPMON_STORE or DDPMON_TTL_S makes no sense.
        StoreUnavailable: what DDPMON_STORE needs is not installed.
        Exception: whatever torch raises; every hook is taken back before it gets out.
    """
    leave_untraced()
    _import_early()
    me = identify(ddp)
    clock, losses = _clock_of(me.device)
    hooks: list[Undo] = []
    undo: list[Undo] = []
    recorder = EventLog(clock, losses, on_error)
    try:
        sources = Sources() if reads is None else reads(recorder)
        undo += sources.undo
        reducer_log, timed, notes = _watch(recorder, model, ddp, optimizer, hooks, buckets=buckets, under_way=under_way)
        undo += hook_loader(recorder)
        undo += hook_collectives(recorder)
        undo += hook_graphs(recorder)
        undo.append(hook_collector(recorder.collections))
        uplink = _uplink(me, name, _describer(me, name, ddp, timed, sources), ddp, remark)
        machine = HostSampler(me, lambda: uplink.run, folders, uplink.missed_ports)
        undo.append(machine.stop)
        draft = FrameBuilder(me, recorder, reducer_log, machine, lambda: uplink.run)
        draft.notes += notes
        undo.append(hook_exceptions(draft.fail))
        publisher = Publisher(draft, uplink, HostShare(me, uplink, machine))
        machine.start()
        publisher.start()
    except Exception:
        _undo_all(undo)
        _undo_all(hooks)
        raise
    return Assembly(me, ddp, recorder, publisher, draft, timed, hooks, undo)


def _clock_of(device: torch.device) -> tuple[Clock, LossReader]:
    """What tells the time on a device, and what reads the numbers that are on it."""
    if device.type == "cpu":
        return CpuClock(), LossReader()
    clock = CudaClock(device)
    return clock, LossReader(DeviceCopies(clock))


def _import_early() -> None:
    """What our threads would import: a process forked while they do could never import it itself."""
    for name in ("encodings.idna", "psutil", "pwd", "pynvml"):
        with suppress(Exception):
            importlib.import_module(name)


def _watch(
    recorder: EventLog,
    model: torch.nn.Module,
    ddp: Any,
    optimizer: torch.optim.Optimizer | None,
    hooks: list[Undo],
    *,
    buckets: bool,
    under_way: Given | None = None,
) -> tuple[ReducerLog, bool, list[str]]:
    """Hook one parallel model; `hooks` gets what undoes it. Returns DDP's log, whether buckets are timed, and notes."""
    recorder.sharded = is_sharded(ddp)
    timer, notes = _time_buckets(recorder, ddp) if buckets else (None, [])
    hooks += [timer.stop] if timer is not None else []
    # After the timer, which may renew the reducer and its logger.
    reducer_log = ReducerLog(
        ddp, functools.partial(recorder.put, "allreduce"), on_cpu=recorder.clock.name == CpuClock.name
    )
    recorder.on_sync = reducer_log
    hooks.append(reducer_log.stop)
    hooks += hook_module(recorder, model, ddp, under_way)
    hooks += hook_optimizer(recorder, optimizer)
    hooks += hook_horovod(recorder, ddp) or hook_deepspeed(recorder, ddp)
    return reducer_log, timer is not None, notes


def _time_buckets(recorder: EventLog, ddp: Any) -> tuple[BucketTimer | None, list[str]]:
    if kind_of(ddp) != DDP:
        return None, ["no bucket detail: only DistributedDataParallel has buckets"]
    try:
        return BucketTimer.of(recorder, ddp), []
    except RuntimeError as error:
        return None, [f"no bucket detail: {error}"[:256]]


def _uplink(me: Identity, name: str, describe: Callable[[str], RunInfo], ddp: Any, remark: str) -> Uplink:
    group = group_of(ddp)
    ranks = [0] if group is None else dist.get_process_group_ranks(group)
    # torchrun keeps its store across elastic restarts.
    key = f"ddpmon/address/{launch().restart}/{ranks[0]}-{len(ranks)}/{next(_attachments)}"
    alone = me.world_size == 1 and not uses_rendezvous()
    training: Any = None
    if not alone:
        training = key_values() if kind_of(ddp) == HOROVOD else dist.distributed_c10d._get_default_store()
    return uplink_of(me, name, Handover(training, key), describe, external_store(), remark)


def _describer(me: Identity, name: str, ddp: Any, bucket_detail: bool, sources: Sources) -> Callable[[str], RunInfo]:
    counted, kind = [*sizes(ddp)], kind_of(ddp)
    software, started_by = versions(me.device.type), command()
    started = time.time()

    def describe(run: str) -> RunInfo:
        return RunInfo(
            run_id=run,
            name=name[:256],
            world_size=me.world_size,
            node_keys=list(me.node_keys),
            backend=me.backend,
            device=me.device.type,
            parameters=sum(count for count, _ in counted),
            gradient_bytes=sum(count * size for count, size in counted),
            bucket_detail=bucket_detail,
            settings=settings_of(ddp),
            started_at=started,
            host=me.host,
            pid=me.pid,
            versions=software,
            command=started_by,
            parallel=kind or DDP,
            loss_from=sources.loss,
            samples_from=sources.samples,
            jobs=job_ids(),
        )

    return describe
