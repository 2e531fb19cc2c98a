"""Makes steps of the events that the training thread has left behind, in the publisher's thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, TypeVar

from ddpmon.probe.clock import CapturedMark
from ddpmon.probe.event_log import Event, EventLog
from ddpmon.probe.loss import number
from ddpmon.probe.progress import Progress
from ddpmon.probe.record import StepRecord, Taken

MAX_SPANS = 4096  # in a step: without a sync point for hours nothing may grow
MAX_PENDING = 4096  # steps kept while their marks cannot be read
_MAX_TAKEN = 4 * MAX_SPANS  # marks of a step that go back to the clock; more are left to Python
_MARK_AT = {
    **dict.fromkeys(("forward", "forwarded", "computed", "ready", "arrived", "synced"), 1),
    **dict.fromkeys(("optimizer", "optimized", "barrier", "barriered", "reduce", "reduced"), 1),
    "load": 2,
}
_NESTING_PHASES = ("input", "forward", "backward", "optimizer")

T = TypeVar("T")


class StepAssembler:
    """The state machine of a step, driven by a EventLog's events.

    Attributes:
        finished: sealed records, oldest first; the reader pops them.
        phase: what the training thread was in at the last event.
        dropped: finished steps whose events or records were thrown away because nobody fetched them.
        synced_ns: when the last step finished, on the host's clock; None before the first.
        loader: of the DataLoader read last: its workers, the batches of this pass, whether it has ended.
        captured_ns: when the last step was captured into a CUDA graph, on the host's clock; None if steps have finished
            since, or none was.
        marked_ns: when the last mark of a device's clock was taken, on the host's clock; at first when this was made.
        progress: how far the job is by its own count.
        unmarked_step: the last step with collectives that were not marked, -1 before the first.
    """

    def __init__(self, recorder: EventLog) -> None:
        self._log = recorder.log
        self._clock = recorder.clock
        self._host_clock = recorder.clock.name == "perf_counter"
        self.finished: deque[StepRecord] = deque()
        self.phase = "start"
        self._since: Any = perf_counter_ns()
        self.synced_ns: int | None = None
        self.captured_ns: int | None = None
        self.marked_ns = perf_counter_ns()
        self.unmarked_step = -1
        self.dropped = 0
        self.progress = Progress()
        self.loader: tuple[int, int, bool] | None = None
        self._open = StepRecord(0, None)
        self._pending: StepRecord | None = None  # its loss may be logged until the next forward
        self._lost = False  # events of the open step
        self._outer: list[tuple[str, str, int]] = []  # the user's phases: name, the phase interrupted, since
        self._optimizers: list[tuple[Any, str]] = []  # steps under way: its mark, and the phase that it interrupted
        self._closure = False  # whether the outermost has run one: it has no mark from a forward to its gradients
        self._barriers: list[tuple[Any, str]] = []
        self._loads: list[str] = []
        self._reduction: tuple[Any, Any, str | None] | None = None  # of a sharded model, the last of this backward
        self._forward: Any = None
        self._backward_from: Any = None  # the last forward's end, or the last backward's
        self._spent: list[Any] = []  # marks of the record recycled last, which the one after it may refer to
        self._idle_since: Any = None  # device clocks: end of the last work before the coming forward
        self._handlers: dict[str, Callable[[Event], None]] = {
            kind: getattr(self, f"_on_{kind}")
            for kind in (
                *("forward", "forwarded", "computed", "ready", "arrived", "synced", "optimizer", "optimized"),
                *("load", "loaded"),
                *("log", "pause", "resume", "barrier", "barriered", "reduce", "reduced", "bucket", "allreduce"),
                *("collected", "seal", "progress"),
            )
        }

    def drain(self) -> None:
        """Take all events that there are."""
        log, handlers = self._log, self._handlers
        if len(log) == log.maxlen:
            self._lose()
        for _ in range(len(log)):
            event, taken = log.popleft(), None
            try:
                if not self._host_clock:
                    taken = self._take(event)
                handlers[event[0]](event)
            except Exception:  # costs a step, not the run's frames
                self._lose()
            if taken is not None:
                taken.phase = self.phase

    def _take(self, event: Event) -> Taken | None:
        """Note the event's mark, whatever becomes of the event: its clock wants it back."""
        place, record = _MARK_AT.get(event[0]), self._open
        if place is None or event[place] is None:
            return None
        taken = Taken(event[place])
        if len(record.taken) < _MAX_TAKEN:
            record.taken.append(taken)
        record.captured |= type(taken.mark) is CapturedMark
        self.marked_ns = _host_ns(taken.mark)
        return taken

    @property
    def step(self) -> int:
        """The number of the step under way."""
        return self._open.step

    def timeline(self) -> list[Taken]:
        """The marks of the steps that nobody has read, oldest first, each with the phase that follows it."""
        records = [*self.finished, *filter(None, [self._pending]), self._open]
        return [taken for record in records for taken in record.taken if taken.phase]

    def _lose(self) -> None:
        """Not all of the open step is known; what was begun may have ended unseen."""
        self._lost = True
        self._reduction = None
        for unfinished in (self._outer, self._optimizers, self._barriers, self._loads):
            unfinished.clear()

    @property
    def phase_since_ns(self) -> int:
        """Since when the thread is in that phase, on the host's clock."""
        return _host_ns(self._since)

    def recycle(self, record: StepRecord) -> None:
        """Nobody reads `record` any more. Its marks go back once the next one is not read any more either."""
        if not self._host_clock:
            self._clock.recycle(self._spent)
            self._spent = record.marks()

    def _on_forward(self, event: Event) -> None:
        if self._pending is not None:
            self._seal(self._pending)
        self._forward = mark = event[1]
        record, idle_since = self._open, self._idle_since
        began = self._enter_closure(mark)
        self.phase, self._since = "forward", mark
        if record.start is None:
            record.start = began
        if not self._host_clock and idle_since is not None:
            record.input_waits = _kept(record.input_waits, (idle_since, began))

    def _on_forwarded(self, event: Event) -> None:
        mark = event[1]
        if self._forward is not None and len(self._open.spans) < MAX_SPANS:
            self._open.spans.append(("forward", self._forward, mark, None, 1))
        self._forward, self._backward_from = None, mark
        self.phase, self._since = "backward", mark

    def _on_computed(self, event: Event) -> None:
        self._backward_ends(event[1])
        self._leave_closure(event[1])

    def _backward_ends(self, mark: Any) -> None:
        if self._backward_from is not None and len(self._open.spans) < MAX_SPANS:
            self._open.spans.append(("backward", self._backward_from, mark, None, 1))
        self._idle_since = self._backward_from = mark
        self.phase, self._since = "other", mark

    def _on_ready(self, event: Event) -> None:
        ready = event[1] if self._reduction is None else self._reduction[0]
        self._backward_ends(ready)
        self._open.ready = ready
        self.phase = "exposed"

    def _on_arrived(self, event: Event) -> None:
        """The rank waits for reductions behind its backward, as with Horovod and DeepSpeed."""
        self._open.ready = event[1]
        self.phase = "exposed"

    def _on_synced(self, event: Event) -> None:
        _, mark, step = event
        if self._reduction is not None:
            mark, self._reduction = self._reduction[1], None
        if self._pending is not None:
            self._seal(self._pending)
        record = self._open
        record.sync = self._idle_since = self._backward_from = mark
        self._open = StepRecord(step + 1, mark)
        if record.captured or self._lost or step != record.step:
            self._drop(record, step)
        else:
            self._pending, self.captured_ns = record, None
        self.phase, self._since, self.synced_ns = "other", mark, _host_ns(mark)
        self._leave_closure(mark)

    def _drop(self, record: StepRecord, step: int) -> None:
        """Nobody can read this step, which ended as number `step`; its marks go back with those of the next."""
        self._lost = False
        if not self._host_clock:
            rest = [Taken(mark) for mark in record.marks()[len(record.taken) :]]
            self._open.taken = [*record.taken, *rest][:_MAX_TAKEN]
        if type(record.sync) is CapturedMark:  # no step was trained, and the next one begins with its forward
            self.captured_ns = record.sync.host_ns
            self._open.start = self._idle_since = self._backward_from = None
        else:
            self.dropped, self.captured_ns = self.dropped + step - record.step + 1, None

    def _on_seal(self, _event: Event) -> None:
        if self._pending is not None:
            self._seal(self._pending)

    def _seal(self, record: StepRecord) -> None:
        self._pending = None
        if len(self.finished) >= MAX_PENDING:
            self.recycle(self.finished.popleft())
            self.dropped += 1
        self.finished.append(record)

    def _on_optimizer(self, event: Event) -> None:
        if self._optimizers and (self._closure or self.phase != "optimizer"):  # left by a step that raised
            self.phase = self._optimizers[0][1]
            self._optimizers.clear()
        if not self._optimizers:
            self._closure = False
        self._optimizers.append((event[1], self.phase))
        self.phase, self._since = "optimizer", event[1]

    def _on_optimized(self, event: Event) -> None:
        if not self._optimizers:
            return
        mark = event[1]
        start, left = self._optimizers.pop()
        if not self._optimizers and not self._outer and start is not None:
            self._span("optimizer", start, mark, None)
        self.phase, self._since = left, mark

    def _enter_closure(self, mark: Any) -> Any:
        """A forward begins, of an optimizer's closure if a step is under way; returns the mark since when that was."""
        if not self._optimizers:
            return mark
        since, left = self._optimizers[0]
        self._optimizers[0], self._closure = (None, left), True
        if since is None:
            return mark
        self._span("optimizer", since, mark, None)
        return since

    def _leave_closure(self, mark: Any) -> None:
        """Gradients are there: what follows is the optimizer's again, if its step is under way."""
        if self._optimizers and self._optimizers[0][0] is None:
            self._optimizers[0] = (mark, self._optimizers[0][1])
            self.phase = "optimizer"

    def _span(self, column: str, start: Any, end: Any, within: str | None, stands_for: int = 1) -> None:
        self._idle_since = end
        if len(self._open.spans) < MAX_SPANS:
            self._open.spans.append((column, start, end, within, stands_for))

    def _on_load(self, event: Event) -> None:
        _, at, first = event
        if self._open.start is None:
            self._open.start = first
        self._loads.append(self.phase)
        self.phase, self._since = "input", at

    def _on_loaded(self, event: Event) -> None:
        _, at, ns, loader = event
        before = self._loads.pop() if self._loads else "other"
        if not self._outer:
            if not self._loads:  # a load within a load counts once
                self._open.input_ns += ns
                if not self._host_clock:
                    self._open.loads = _kept(self._open.loads, (at - ns, at))
            if loader is not None:  # an evaluation's loader is not the training's
                self.loader = loader
        self.phase, self._since = before, at

    def _on_log(self, event: Event) -> None:
        """Between a sync point and the next forward this is the step just finished, otherwise the one under way."""
        _, loss, samples, tokens, parts = event
        record = self._pending or self._open
        if loss is not None and len(record.losses) < MAX_SPANS:
            record.losses.append(loss)
            record.parts = parts
        record.samples = self._counted(record, "samples", samples, record.samples)
        record.tokens = self._counted(record, "tokens", tokens, record.tokens)

    def _counted(self, record: StepRecord, name: str, more: Any, known: float) -> float:
        """What is known of a count, and `more`, which may still be on the device: then it is kept for later."""
        if isinstance(more, int | float):
            count = number(more)
            return count if known != known else known + count
        if more is not None:
            record.counts = _kept(record.counts, (name, more))
        return known

    def _on_progress(self, event: Event) -> None:
        self.progress.take(event[1], event[2])

    def _on_pause(self, event: Event) -> None:
        _, at, name = event
        self._outer.append((name, self.phase, at))
        self.phase, self._since = name, at

    def _on_resume(self, event: Event) -> None:
        if self._outer:
            name, before, since = self._outer.pop()
            self._open.marked = _kept(self._open.marked, (name, event[1] - since))
            self.phase, self._since = before, event[1]

    def _on_barrier(self, event: Event) -> None:
        self._barriers.append((event[1], self.phase))
        self.phase, self._since = "barrier", event[1]

    def _on_barriered(self, event: Event) -> None:
        if not self._barriers:
            return
        _, mark, stands_for = event  # as many calls: 0 if it did not block
        start, within = self._barriers.pop()
        if stands_for > 1:
            self.unmarked_step = self._open.step
        if stands_for and self._open.start is not None:  # what goes before the first step is not its
            inside = within if within in _NESTING_PHASES and not self._outer else None
            self._span("barrier", start, mark, inside, stands_for)
        self.phase, self._since = within, mark

    def _on_reduce(self, event: Event) -> None:
        """A reduction of a sharded model begins. If there was one before it in this step, that was not the last one."""
        if self._reduction is not None:
            start, end, inside = self._reduction
            self._reduction = None
            self._span("barrier", start, end, inside)
        self._barriers.append((event[1], self.phase))
        self.phase, self._since = "exposed", event[1]

    def _on_reduced(self, event: Event) -> None:
        if not self._barriers:
            return
        start, within = self._barriers.pop()
        self._reduction = (start, event[1], within if within in _NESTING_PHASES and not self._outer else None)
        self.phase, self._since = within, event[1]

    def _on_bucket(self, event: Event) -> None:
        self._open.buckets = _kept(self._open.buckets, event[1])

    def _on_allreduce(self, event: Event) -> None:
        """DDP's logger tells the window of the step before the one that has just finished, if that was not fetched."""
        record = self.finished[-1] if self.finished else self._pending
        if record is not None:
            record.allreduce_ms = event[1]

    def _on_collected(self, event: Event) -> None:
        if self._pending is not None:
            self._pending.gc_ns = event[1]


def _host_ns(mark: Any) -> int:
    """When the host took a mark of either clock."""
    return mark if type(mark) is int else int(mark.host_ns)


def _kept(known: list[T] | None, new: T) -> list[T]:
    """The same list with one more entry, as long as there is room; a new one where there was none."""
    known = [] if known is None else known
    if len(known) < MAX_SPANS:
        known.append(new)
    return known
