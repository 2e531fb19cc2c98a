"""The event log: what the hooks leave behind on the training thread, and what the publisher's thread makes steps of.

A sync point is the moment the last gradient bucket of a synchronising backward has been reduced; step i runs from sync
point i-1 to sync point i. Training has emptied the processor's caches before each hook, so that every object a hook
touches is dear: it takes one mark, adds one event to the log, and does no arithmetic. (Calls go through locals here:
Python 3.11 looks up `self.slot()` by name, but not `local = self.slot`.)
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import repeat
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from torch import Tensor
from torch.autograd import Variable

from ddpmon.probe.clock import Clock, CpuClock
from ddpmon.probe.loss import LossReader

_MAX_MARKS = 4096  # without a step to take them nothing may grow

Mark = tuple[bool, int, int]  # whether a collection begins, the thread that runs it, host clock in nanoseconds
MAX_EVENTS = 1 << 16  # kept while the publisher cannot keep up: thousands of steps
SAMPLED_FIRST, SAMPLED_EVERY = 3, 16  # steps; the latter a power of two
UNSEEN = 2.0  # what a step costs the thread, over what its hooks see of that

Event = tuple[Any, ...]  # its kind first; `StepAssembler` knows them all

queue_callback: Callable[[Callable[[], None]], None] = Variable._execution_engine.queue_callback


class Collections:
    """Marks where each collection of this process begins and ends.

    Attributes:
        marks: those that nobody has taken yet.
        callback: for `gc.callbacks`; runs no Python code, not even its own. An exception that a signal's handler raises
            would otherwise end in it, where Python drops it: a Ctrl-C during a collection would be lost.
    """

    def __init__(self) -> None:
        self.marks: deque[Mark] = deque(maxlen=_MAX_MARKS)
        begins, ends = (property(partial(next, _marking(self.marks, begins))) for begins in (True, False))
        self.callback: Callable[[str, dict[str, int]], object] = partial(
            getattr, type("_Phases", (), {"start": begins, "stop": ends})()
        )
        self._began = 0

    def take(self, thread: int) -> int:
        """How long `thread` has been in collections since the last call, in nanoseconds.

        A collection in another thread holds the interpreter too, but the training thread may be in C++ meanwhile.
        """
        spent = 0
        for _ in range(len(self.marks)):
            begins, where, at = self.marks.popleft()
            if where == thread and not begins and self._began:
                spent += at - self._began
            self._began = at if begins and where == thread else 0
        return spent


def _marking(marks: deque[Mark], begins: bool) -> map[None]:
    """Each `next` of it adds a mark."""
    return map(marks.append, zip(repeat(begins), iter(get_ident, None), iter(perf_counter_ns, None)))


def hook_collector(collections: Collections) -> Callable[[], None]:
    """Mark every collection; returns what undoes it."""
    callback = collections.callback

    def undo() -> None:
        if callback in gc.callbacks:
            gc.callbacks.remove(callback)

    gc.callbacks.append(callback)
    return undo


class EventLog:
    """Takes events down.

    Attributes:
        log: the events, oldest first; the publisher pops them, and the oldest are lost if it does not.
        last_step: the last finished synchronising step, -1 before the first.
        paused: how many phases of the user's the thread is in.
        due: whether a forward has ended whose backward has not begun.
        in_backward: whether a backward has been noticed whose gradients are not all computed.
        syncing: whether a forward since the last backward was one that synchronises; of a sharded model, whether this
            backward has reduced gradients.
        sharded: whether the model is such a one.
        reducing: whether collectives that are called are part of a reduction that is timed as a whole.
        sampling: whether this step is one of those in which the probe times itself; `cost_ns` goes by them.
        collections: what Python's garbage collector did in the step under way.
        thread: the training thread.
        replayed_ns: when a CUDA graph was replayed last, on the host's clock; 0 if none was.
        task: the number of the autograd engine's graph task in which a backward was noticed last, -1 before the first.
        forwards: how many `on_input` has been called for.
        on_input: called with what a forward gets, args and kwargs, if somebody wants to know.
        on_sync: called at a sync point, until it returns that it is done; the publisher sets it again.
        on_error: called with an exception of ours, which goes no further.
    """

    __slots__ = (
        "_accounted_ns",
        "_accounted_steps",
        "_gc_marks",
        "_mark",
        "_parts",
        "_per_step_ns",
        "_put",
        "_queue",
        "_samples",
        "_shortest",
        "_synced",
        "clock",
        "collections",
        "due",
        "forwards",
        "in_backward",
        "last_step",
        "log",
        "losses",
        "on_error",
        "on_input",
        "on_sync",
        "paused",
        "reducing",
        "replayed_ns",
        "sampling",
        "sharded",
        "syncing",
        "task",
        "thread",
    )

    def __init__(self, clock: Clock, losses: LossReader, on_error: Callable[[Exception], None]) -> None:
        self.clock = clock
        self.losses = losses
        self.on_sync: Callable[[], bool] | None = None
        self.on_error = on_error
        self.on_input: Callable[[tuple[Any, ...], dict[str, Any]], None] | None = None
        self.task = -1
        self.log: deque[Event] = deque(maxlen=MAX_EVENTS)
        self.last_step = -1
        self.paused = self.replayed_ns = self.forwards = 0
        self.due = self.in_backward = self.sharded = self.reducing = False
        self.sampling = True
        self.collections = Collections()
        self.thread = get_ident()
        self._mark, self._put = clock.mark, self.log.append
        self._queue, self._synced = queue_callback, self.synced
        self._gc_marks = self.collections.marks
        self.syncing = False
        self._accounted_ns = self._accounted_steps = self._per_step_ns = 0
        self._parts: dict[str, tuple[int, int]] = {}  # of this sampled step: how many of a kind ran, and nanoseconds
        self._shortest: dict[str, int] = {}  # what a hook of a kind took at least, in nanoseconds
        self._samples: deque[int] = deque(maxlen=3)

    @property
    def cost_ns(self) -> int:
        """The probe's own time on the training thread so far: a step costs what a sampled one of late did.

        A hook does not see all of its price: torch and the autograd engine call it, and what it displaces from the
        processor's caches is fetched again later. Paired runs with and without (one Gloo rank, a step of 0.5 ms) cost
        the thread between 1.7 and 2.4 times what the hooks saw, so a sample
        counts twice.
        """
        return self._accounted_ns + self._per_step_ns * (self.last_step + 1 - self._accounted_steps)

    def charge(self, job: Callable[..., Any], *args: Any) -> Any:
        """Run what is not done in every step: its time is accounted, its exceptions stay here."""
        began = perf_counter_ns()
        try:
            return self._run(job, args)
        finally:
            self._accounted_ns += perf_counter_ns() - began

    def time_hook(self, kind: str, job: Callable[..., Any], *args: Any) -> Any:
        """Run what a hook of this kind does in every step. Sampled steps time it, and its exceptions stay here.

        The training thread and those that run DDP's communication hooks call this.
        """
        if not self.sampling:
            return self._run(job, args)
        began = perf_counter_ns()
        try:
            return self._run(job, args)
        finally:
            self.spend(kind, began)

    def _run(self, job: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        try:
            return job(*args)
        except Exception as error:
            self.on_error(error)
            return None

    def spend(self, kind: str, began: int) -> None:
        """A hook of this kind ends in a sampled step; it began at `began`, in nanoseconds of the host's clock.

        Two threads may be in here at once. Then one of two hooks may stay uncounted.
        """
        spent = perf_counter_ns() - began
        ran, total = self._parts.get(kind, (0, 0))
        self._parts[kind] = ran + 1, total + spent
        self._shortest[kind] = min(spent, self._shortest.get(kind, spent))

    def put(self, *event: Any) -> None:
        """Take an event down."""
        self._put(event)

    def mark_as(self, kind: str) -> None:
        """Take an event down that is a mark."""
        self._put((kind, self._mark()))

    def pause(self, name: str) -> None:
        """A phase that the user names begins; input, forward and optimizer inside it are not the step's."""
        self.paused += 1
        self._put(("pause", perf_counter_ns(), name))

    def resume(self) -> None:
        """It ends."""
        self.paused -= 1
        self._put(("resume", perf_counter_ns()))

    def forward_begins(self, syncing: bool) -> None:
        """A training forward begins; `syncing` says whether its backward will reduce gradients."""
        began = perf_counter_ns() if self.sampling else 0
        try:
            self._put(("forward", self._mark()))
            self.thread = get_ident()
            self.in_backward = False  # whatever became of the last one
            self.syncing |= syncing
        except Exception as error:
            self.on_error(error)
        if began:
            self.spend("forward", began)

    def forget_backward(self) -> None:
        """No forward so far is waited for: its module is no longer watched."""
        self.due = self.in_backward = self.syncing = False

    def gradients_ready(self) -> None:
        """The engine's callback when all gradients of a backward are computed; the sync point's is queued behind it."""
        began = perf_counter_ns() if self.sampling else 0
        try:
            mark, put = self._mark, self._put
            self.in_backward = False
            if self.syncing:
                put(("ready", mark()))
                self.syncing = False
                queue = self._queue
                queue(self._synced)
            else:
                put(("computed", mark()))
        except Exception as error:
            self.on_error(error)
        if began:
            self.spend("ready", began)

    def synced(self) -> None:
        """The engine's callback at the sync point: this step is over, the next one begins."""
        began = perf_counter_ns() if self.sampling else 0
        try:
            mark, put, step = self._mark, self._put, self.last_step + 1
            put(("synced", mark(), step))
            self.last_step = step
            if self.on_sync is not None or self._gc_marks:
                self.charge(self._now_and_then)
            if began:
                self._close_sample(began)
            elif not step & SAMPLED_EVERY - 1:
                self.sampling = True
        except Exception as error:
            self.on_error(error)

    def _now_and_then(self) -> None:
        if self._gc_marks:
            self._put(("collected", self.collections.take(self.thread)))
        if self.on_sync is not None and self.on_sync():
            self.on_sync = None

    def _close_sample(self, began: int) -> None:
        self.spend("synced", began)
        cost = int(UNSEEN * self._sampled_ns())
        self._accounted_ns += cost + self._per_step_ns * (self.last_step - self._accounted_steps)
        self._accounted_steps = self.last_step + 1
        self._samples.append(cost)
        self._per_step_ns = sorted(self._samples)[len(self._samples) // 2]
        self._parts, self.sampling = {}, self.last_step < SAMPLED_FIRST

    def _sampled_ns(self) -> int:
        """What the hooks of this step took without waiting for a device.

        A mark behind a full launch queue waits until the device has come on, as the next launch would have without it.
        On an H100 hooks took 260 µs of a step of 64 ms that they made 22 µs longer, and with three buckets timed 1.4 ms
        of a step of 49 ms. The queue fills within seconds and stays full, so that a hook counts as the shortest of its
        kind in all samples: in the first steps the queue has room.
        """
        if self.clock.name == CpuClock.name:
            return sum(total for _, total in self._parts.values())
        return sum(ran * self._shortest[kind] for kind, (ran, _) in self._parts.items())

    def logged(self, loss: Any, samples: Any = None, tokens: Any = None, *, parts: int = 0) -> None:
        """The trainer says a micro-batch's loss, samples and tokens; `parts` is that of `StepRecord`."""
        began = perf_counter_ns() if self.sampling else 0
        try:
            if type(loss) is Tensor and loss.is_cpu and not loss.ndim:
                loss = loss.tolist()  # goes past the dispatcher
            if loss is not None and type(loss) is not float:
                loss = self.losses.take(loss)
            if samples is not None and type(samples) is not int:
                samples = self.losses.take(samples)
            if tokens is not None and type(tokens) is not int:
                tokens = self.losses.take(tokens)
            put = self._put
            put(("log", loss, samples, tokens, parts))
        except Exception as error:
            self.on_error(error)
        if began:
            self.spend("log", began)
