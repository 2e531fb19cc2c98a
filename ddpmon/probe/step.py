"""The state machine of one step, driven by hooks on the training thread.

A sync point is the moment the last gradient bucket of a synchronising backward has been reduced; step i runs from sync
point i-1 to sync point i. The hooks only leave marks here: all arithmetic is done in the publisher's thread.

What runs every step keeps the probe's account by itself, without `Recorder.charge`: between long steps, when the code
has gone cold, every call is dear.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns
from typing import Any, TypeVar

from torch.autograd import Variable

from ddpmon.probe.clock import Clock
from ddpmon.probe.garbage import Collections
from ddpmon.probe.record import StepRecord

MAX_SPANS = 4096  # in a step: without a sync point for hours nothing may grow
MAX_PENDING = 4096  # steps kept while the publisher cannot keep up

T = TypeVar("T")

queue_callback: Callable[[Callable[[], None]], None] = Variable._execution_engine.queue_callback


class Recorder:
    """Collects marks into step records.

    Attributes:
        finished: sealed records, oldest first; the publisher pops them.
        phase, phase_since_ns: what the training thread is in, and since when (host clock).
        last_step: the last finished synchronising step, -1 before the first.
        cost_ns: the probe's own time on the training thread so far.
        dropped: finished steps thrown away because nobody fetched them.
        collections: what Python's garbage collector did in the step under way.
        loader: of the DataLoader read last: its workers, the batches of this pass, whether it has ended.
        in_backward: whether a backward has been noticed whose gradients are not all computed.
        on_sync: called at a sync point with the record just closed, until it returns that it is done; the publisher
            sets it anew.
        on_error: called with an exception of ours, which goes no further.
    """

    def __init__(self, clock: Clock, on_error: Callable[[Exception], None]) -> None:
        self.clock = clock
        self.on_sync: Callable[[StepRecord], bool] | None = None
        self.on_error = on_error
        self.finished: deque[StepRecord] = deque()
        self.phase = "start"
        self.phase_since_ns = perf_counter_ns()
        self.last_step = -1
        self.cost_ns = 0
        self.dropped = 0
        self.collections = Collections()
        self.loader: tuple[int, int, bool] | None = None
        self.thread = get_ident()
        self._open = StepRecord(0, None)
        self._pending: StepRecord | None = None
        self._paused = 0
        self._forward: Any = None
        self._backward_from: Any = None  # the last forward's end, or the last backward's
        self._syncing = False  # whether a forward since the last backward was one that synchronises
        self.in_backward = False
        self._idle_since: Any = None  # device clocks: end of the last work before the coming forward
        self._host_clock = clock.name == "perf_counter"

    def charge(self, job: Callable[..., Any], *args: Any) -> Any:
        """Run `job` on the training thread: its time counts as the probe's, its exceptions stay here."""
        began = perf_counter_ns()
        try:
            return job(*args)
        except Exception as error:
            self.on_error(error)
            return None
        finally:
            self.cost_ns += perf_counter_ns() - began

    @property
    def paused(self) -> bool:
        """Whether the thread is in a phase that the user named."""
        return self._paused > 0

    def enter(self, phase: str) -> str:
        """The thread enters `phase`; returns the phase that it leaves."""
        before = self.phase
        self.phase = phase
        self.phase_since_ns = perf_counter_ns()
        return before

    def touch(self, mark: Any) -> None:
        """The first thing seen starts step 0."""
        if self._open.start is None:
            self._open.start = mark

    def pause(self, name: str) -> str:
        """A phase that the user names begins; input, forward and optimizer inside it are not the step's."""
        self._paused += 1
        return self.enter(name)

    def resume(self, name: str, before: str, ns: int) -> None:
        """The user's phase ends after `ns` of host time."""
        self._paused -= 1
        self.enter(before)
        self._open.marked = _kept(self._open.marked, (name, ns))

    def loaded(self, ns: int) -> None:
        """The loader took `ns` to hand over a batch."""
        if not self._paused:
            self._open.input_ns += ns

    def forward_begins(self, syncing: bool) -> None:
        """A training forward begins; `syncing` says whether its backward will reduce gradients."""
        if self._paused:
            return
        self.thread = get_ident()
        self._syncing |= syncing
        self.in_backward = False  # whatever became of the last one
        if self._pending is not None:
            self.seal()
        self._forward = mark = self.clock.mark()
        self.phase, self.phase_since_ns = "forward", perf_counter_ns()
        record = self._open
        if record.start is None:
            record.start = mark
        if not self._host_clock and self._idle_since is not None:
            record.input_waits = _kept(record.input_waits, (self._idle_since, mark))

    def forward_ends(self) -> bool:
        """It ends; returns whether its backward is to be followed."""
        if self._forward is None:
            return False
        end = self.clock.mark()
        spans = self._open.spans
        if len(spans) < MAX_SPANS:
            spans.append(("forward", self._forward, end, None))
        self._forward, self._backward_from = None, end
        self.phase, self.phase_since_ns = "backward", perf_counter_ns()
        return True

    def span(self, column: str, start: Any, within: str | None) -> None:
        """A timed stretch of `column` ends now; `within` is the column that it interrupts."""
        end = self.clock.mark()
        if self._paused and column != "barrier":
            return
        self._idle_since = end
        spans = self._open.spans
        if len(spans) < MAX_SPANS:
            spans.append((column, start, end, None if self._paused else within))

    def gradients_ready(self) -> None:
        """The engine's callback when all gradients of a backward are computed; the sync point's is queued behind it."""
        began = perf_counter_ns()
        try:
            mark = self.clock.mark()
            record, syncing = self._open, self._syncing
            if len(record.spans) < MAX_SPANS:
                record.spans.append(("backward", self._backward_from, mark, None))
            self._idle_since = self._backward_from = mark
            self.in_backward = self._syncing = False
            self.phase, self.phase_since_ns = "other", began
            if syncing:
                record.ready = mark
                self.phase = "exposed"
                queue_callback(self.synced)
        except Exception as error:
            self.on_error(error)
        self.cost_ns += perf_counter_ns() - began

    def synced(self) -> None:
        """The engine's callback at the sync point: this step is over, the next one begins."""
        began = perf_counter_ns()
        try:
            mark = self.clock.mark()
            if self._pending is not None:
                self.seal()
            self._pending = record = self._open
            self._open = StepRecord(record.step + 1, mark)
            record.sync = self._idle_since = self._backward_from = mark
            if self.collections.marks:
                record.gc_ns = self.collections.take(self.thread)
            self.last_step = record.step
            self.phase, self.phase_since_ns = "other", began
            if self.on_sync is not None and self.on_sync(record):
                self.on_sync = None
        except Exception as error:
            self.on_error(error)
        self.cost_ns += perf_counter_ns() - began

    def seal(self) -> None:
        """Hand the last finished step to the publisher; its loss may be logged until now."""
        record, self._pending = self._pending, None
        if record is None:
            return
        if len(self.finished) >= MAX_PENDING:
            self.clock.recycle(self.finished.popleft().marks())
            self.dropped += 1
        self.finished.append(record)

    def log(self, loss: Any, samples: float | None) -> None:
        """Add a micro-batch's loss and samples to the step that it belongs to.

        Between a sync point and the next forward that is the step just finished, otherwise the one under way.
        """
        record = self._pending or self._open
        if loss is not None and len(record.losses) < MAX_SPANS:
            record.losses.append(loss)
        if samples is not None:
            record.samples = samples if record.samples != record.samples else record.samples + samples

    def bucket_launched(self, index: int, size: int) -> list[Any]:
        """A gradient bucket is about to be reduced; its last entry takes the mark of completion."""
        entry: list[Any] = [index, size, self.clock.mark(), None]
        if self._open.buckets is None:
            self._open.buckets = []
        self._open.buckets.append(entry)
        return entry


def _kept(known: list[T] | None, new: T) -> list[T]:
    """The same list with one more entry, as long as there is room; a new one where there was none."""
    known = [] if known is None else known
    if len(known) < MAX_SPANS:
        known.append(new)
    return known
