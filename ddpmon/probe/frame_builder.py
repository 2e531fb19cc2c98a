"""What a rank will say next: collects finished steps and writes its frames, in the publisher's thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, perf_counter_ns

from ddpmon.parts import Failure, Loader
from ddpmon.probe import frames
from ddpmon.probe.buckets import ReducerLog
from ddpmon.probe.clock import CpuClock, DeviceError
from ddpmon.probe.device import QUIET_S, DeviceWatch
from ddpmon.probe.event_log import EventLog
from ddpmon.probe.failure import Report
from ddpmon.probe.graphs import GraphWatch
from ddpmon.probe.host_sampler import HostSampler
from ddpmon.probe.host_share import Word
from ddpmon.probe.identity import Identity
from ddpmon.probe.loss import BadLosses
from ddpmon.probe.record import Elapsed, HostTimes, StepRecord, StepRow, resolve
from ddpmon.probe.step_assembler import StepAssembler
from ddpmon.probe.watchdog import Watchdog
from ddpmon.schema import HistoryFrame, NodeFrame, RankFrame, StepColumns


class FrameBuilder:
    """Collects finished steps from `recorder` and writes this rank's frames.

    Attributes:
        reducer_log: of the DDP module that is watched at present.
    """

    def __init__(
        self,
        identity: Identity,
        recorder: EventLog,
        reducer_log: ReducerLog,
        machine: HostSampler,
        run: Callable[[], str],
    ) -> None:
        self._me = identity
        self._recorder = recorder
        self._replay = StepAssembler(recorder)
        self._host_times = HostTimes()
        self.reducer_log = reducer_log
        self._machine = machine
        self._run = run
        self._window = frames.Window()
        self._history = frames.History()
        self._seq = 0
        self._costs: deque[tuple[int, int]] = deque(maxlen=10)
        self._bad_losses = BadLosses()
        self._report: Report | None = None
        self.notes: list[str] = []
        self._device = DeviceWatch(recorder.clock, self._replay)
        self.watchdog = Watchdog(recorder, self.notes, self._device, GraphWatch(recorder, self._replay))
        self._read_at = monotonic()

    def read_here(self) -> None:
        """The calling thread is the one that will collect. Never raises."""
        with suppress(Exception):
            self._recorder.clock.read_here()

    def fail(self, error: BaseException) -> None:
        """Take down the exception that ends this rank; of several the first."""
        if not self.failed:
            self._report = Report.of(error, self._recorder.last_step)

    @property
    def failed(self) -> bool:
        """Whether an exception has ended this rank: no step has finished since."""
        return self._report is not None and self._report.step == self._recorder.last_step

    def collect(self) -> None:
        """Take finished steps from the recorder, as far as their marks can be read without waiting."""
        replay, clock = self._replay, self._recorder.clock
        replay.drain()
        self._note_silence()
        while replay.finished and self._answered(replay.finished[0]):
            record = replay.finished.popleft()
            try:
                row = self._resolved(record)
            except Exception:  # a mark that cannot be read costs its step, not the run's frames
                replay.dropped += 1
                continue
            self._read_at, clock.is_quiet, clock.is_stalling = monotonic(), False, False
            replay.recycle(record)
            self._window.add(row)
            self._history.add(row)
            self._bad_losses.take(row)
            self.watchdog.progress(row.duration_ms)

    def _resolved(self, record: StepRecord) -> StepRow:
        """The step in milliseconds, with the host's times where the clock is a device's."""
        clock = self._recorder.clock
        if clock.name == CpuClock.name:
            return resolve(record, clock.ms, monotonic())
        elapsed = Elapsed(record, clock)
        return resolve(record, elapsed.ms, monotonic(), self._host_times.of(record, elapsed))

    def _note_silence(self) -> None:
        """Tell a device's clock for how long no step could be read."""
        clock, silence = self._recorder.clock, monotonic() - self._read_at
        if clock.name != CpuClock.name:
            clock.is_quiet, clock.is_stalling = silence > QUIET_S, silence > self.watchdog.patience_s / 4

    def _answered(self, record: StepRecord) -> bool:
        """The same as `_readable`, of a driver that may block while no step finishes."""
        return self._device.ask(lambda: self._readable(record), default=False)

    def _readable(self, record: StepRecord) -> bool:
        """Whether it can be read without waiting, or else never: `resolve` finds out."""
        try:
            return record.readable(self._recorder.clock)
        except DeviceError:
            return False
        except Exception:  # such as an event of a CUDA graph
            return True

    def state(self) -> str:
        """Running; failed once an exception has ended the rank; stalled (see Watchdog)."""
        if self.failed:
            return "failed"
        return "stalled" if self.watchdog.stalled else "running"

    def word(self, state: str, dropped_frames: int) -> Word:
        """This rank's frame, now, and the steps that belong to it."""
        rows, thinned = self._window.select(monotonic())
        me, recorder, replay = self._me, self._recorder, self._replay
        recorder.on_sync = self._at_sync
        self._seq += 1
        frame = RankFrame(
            run_id=self._run(),
            rank=me.rank,
            seq=self._seq,
            sent_at=time.time(),
            host=me.host,
            node=me.node,
            pid=me.pid,
            local_rank=me.local_rank,
            gpu_uuid=me.gpu_uuid,
            state=state,  # type: ignore[arg-type]  # the publisher's states are the schema's
            phase=replay.phase[:64],
            step=recorder.last_step,
            phase_s=(perf_counter_ns() - replay.phase_since_ns) / 1e9,
            step_s=None if replay.synced_ns is None else (perf_counter_ns() - replay.synced_ns) / 1e9,
            steps=StepColumns(),
            thinned=thinned,
            buckets=frames.bucket_columns(rows),
            bucket_count=self.reducer_log.bucket_count,
            bucket_sizes=self.reducer_log.bucket_sizes if me.rank == 0 else [],
            buckets_rebuilt=self.reducer_log.buckets_rebuilt if me.rank == 0 else None,
            gradient_bytes=self.reducer_log.gradient_bytes,
            marks=frames.marks(rows),
            process=self._machine.process,
            dropped_steps=replay.dropped,
            dropped_frames=dropped_frames,
            cost_us=self._cost_us(),
            job_step=replay.progress.step,
            job_total=replay.progress.total,
            eta_s=replay.progress.eta_s(),
            stall=None if state == "finished" else self.watchdog.stall,
            failure=self._failure(),
            bad_loss=self._bad_losses.found,
            loader=None if replay.loader is None else Loader(*replay.loader),
            notes=[*self.notes, *self._machine.notes][:16],
        )
        return Word(frame, rows)

    def _at_sync(self) -> bool:
        """Called once a frame or a little more often, on the training thread; see `EventLog.on_sync`."""
        is_done = self.reducer_log()
        if is_done:
            self._machine.at_sync()
        return is_done

    def _failure(self) -> Failure | None:
        return self._report.read() if self._report is not None and self.failed else None

    def _cost_us(self) -> float | None:
        """The probe's time on the training thread per step, over the last ten frames that brought a step."""
        if not self._costs or self._costs[-1][0] != self._recorder.last_step:
            self._costs.append((self._recorder.last_step, self._recorder.cost_ns))
        (first, since), (last, until) = self._costs[0], self._costs[-1]
        return (until - since) / 1e3 / (last - first) if last > first else None

    @property
    def outgrown(self) -> bool:
        """Whether the last history frame and the next rank frame may leave out steps between them."""
        return self._history.unsent > frames.FRAME_ROWS // 2

    def history_frame(self) -> HistoryFrame:
        """This rank's past, now."""
        self._history.unsent = 0
        return HistoryFrame(
            run_id=self._run(), rank=self._me.rank, recent=self._history.recent(), older=self._history.older()
        )

    def node_frame(self) -> NodeFrame | None:
        """This rank's host, where this rank samples it and has read it."""
        sample = self._machine.sample()
        if sample is None:
            return None
        return NodeFrame(
            run_id=self._run(),
            node=self._me.node_key,
            seq=self._seq,
            sent_at=time.time(),
            host=self._me.host,
            figures=sample.figures,
            gpus=sample.gpus,
            cost_pct=self._machine.cost_pct(),
            notes=sample.notes,
        )
