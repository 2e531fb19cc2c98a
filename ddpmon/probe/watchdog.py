"""The watchdog: notices that no step finishes any more, and captures what this rank is in.

It runs in the publisher's thread and times by what the training thread left behind; the training thread does nothing
for it.
"""

from __future__ import annotations

import statistics
import threading
from collections import Counter, deque
from collections.abc import Callable
from time import monotonic, sleep

import torch

from ddpmon.parts import Flight, Stack, Stall, wire_text
from ddpmon.probe import stacks
from ddpmon.probe.device import DeviceWatch
from ddpmon.probe.event_log import EventLog
from ddpmon.probe.graphs import GraphWatch
from ddpmon.probe.stacks import FlightRecorder
from ddpmon.sensors.reading import read_file, read_table

_BURST, _BURST_EVERY_S = 10, 0.01  # positions a turn
_POSITIONS, _FEWEST = 80, 30
_COMPUTES = 0.5  # of the time on a CPU, or ready for one
_SAME_PLACE = 0.5  # of the positions, of a thread that mostly sleeps
_SEEN = 0.05  # of the positions: one alone may be anything, such as garbage collection
_HOLD_S = 10.0  # a checkpoint is written by fits and starts
PATIENCE_S = 10.0
FIRST_STEP_S = 60.0  # loading, compiling and the first rendezvous of the ranks take their time
_REFRESH_S = 5.0
_SOURCES_WAIT_S = 0.2


class Motion:
    """What a silent rank does, from looks at it once a turn of the publisher.

    Attributes:
        note: why nothing could be found out, "" if nothing went wrong.
    """

    def __init__(self) -> None:
        self.note = ""
        self._positions: deque[stacks.Position] = deque(maxlen=_POSITIONS)
        self._busy: deque[tuple[float, float]] = deque(maxlen=_POSITIONS // _BURST + 1)
        self._written: deque[tuple[float, int]] = deque(maxlen=64)
        self._moved = float("-inf")

    def clear(self) -> None:
        """Steps finish: forget what was seen."""
        self._positions.clear()
        self._busy.clear()
        self._written.clear()
        self._moved = float("-inf")

    def look(self, thread: int, wait: Callable[[float], object] = sleep) -> None:
        """Look at the training thread, which Python calls `thread`, `wait`ing 0.1 s in between; never raises."""
        try:
            self._follow(thread, wait)
            self._account(thread)
            if self._is_moving():
                self._moved = monotonic()
        except Exception as error:
            self.note = f"whether it makes progress is unknown: {type(error).__name__}: {error}"

    @property
    def moves(self) -> bool:
        """Whether the training thread got about within the last seconds."""
        return monotonic() - self._moved <= _HOLD_S

    @property
    def write_bytes_s(self) -> float:
        """Bytes a second that the process has written to disks in the last ten seconds, 0 where unknown."""
        if len(self._written) < 2:
            return 0.0
        (since, before), (now, written) = self._written[0], self._written[-1]
        return (written - before) / max(now - since, 1e-3)

    def _follow(self, thread: int, wait: Callable[[float], object]) -> None:
        for again in range(_BURST):
            if again:
                wait(_BURST_EVERY_S)
            if (position := stacks.position(thread)) is None:
                self._positions.clear()
            else:
                self._positions.append(position)

    def _account(self, thread: int) -> None:
        now = monotonic()
        if (busy := _busy_s(thread)) is not None:
            self._busy.append((now, busy))
        if (written := _written()) is not None:
            self._written.append((now, written))
        while len(self._written) > 2 and now - self._written[1][0] >= _HOLD_S:
            self._written.popleft()

    def _is_moving(self) -> bool:
        if len(self._positions) < _FEWEST:
            return False
        return self._works() if self._computes() else self._gets_about()

    def _works(self) -> bool:
        """Of a thread that computes: whether it is in several functions, or in calls and hardly ever at a turn."""
        few, places = _SEEN * len(self._positions), Counter(self._positions)
        functions = Counter(place.functions for place in self._positions)
        if len(self._positions) - max(functions.values()) >= few:
            return True
        at_turns = sum(place.turns for place in self._positions)
        in_several = sum(times >= few for times in places.values()) > 1
        return at_turns < few and (in_several or not torch.cuda.is_initialized())

    def _gets_about(self) -> bool:
        """Of a thread that mostly sleeps: whether it does in many places."""
        functions = {place.functions for place in self._positions}
        most = max(Counter(self._positions).values())
        return len(functions) > 1 and most <= _SAME_PLACE * len(self._positions)

    def _computes(self) -> bool:
        if len(self._busy) < 2:
            return False
        (since, before), (now, busy) = self._busy[0], self._busy[-1]
        return busy - before >= _COMPUTES * (now - since)


def _busy_s(thread: int) -> float | None:
    """Seconds that the thread has been on a CPU, or ready for one; None where the kernel does not say."""
    native = next((each.native_id for each in threading.enumerate() if each.ident == thread), None)
    try:
        on_cpu, waited = read_file(f"/proc/self/task/{native}/schedstat").split()[:2]
    except (OSError, ValueError):
        return None
    return (int(on_cpu) + int(waited)) / 1e9


def _written() -> int | None:
    try:
        return read_table("/proc/self/io")["write_bytes"]
    except (OSError, LookupError):
        return None


class Watchdog:
    """Times the silence since the last finished step, and says what the rank is in once it lasts too long.

    A phase of the user's makes no rank "stalled", but its stacks are captured all the same: an evaluation may hang. The
    flight recorders are not read there, nor while the training thread makes progress, since reading them holds the GIL.
    Nor are they read while the GPU's driver does not answer, since they ask it, too.

    A rank that replays a CUDA graph of whole steps is not stalled as long as it goes on replaying. Nothing else is
    captured of it then.

    Attributes:
        notes: takes a sentence if something could not be captured, once each.
    """

    def __init__(self, recorder: EventLog, notes: list[str], device: DeviceWatch, graphs: GraphWatch) -> None:
        self.notes = notes
        self._recorder = recorder
        self._device = device
        self._graphs = graphs
        self._durations: deque[float] = deque(maxlen=20)
        self._step = recorder.last_step
        self._progress = self._unpaused = monotonic()
        self._next = 0.0
        self._motion = Motion()
        self._stacks: list[Stack] = []
        self._recorders = FlightRecorder()
        self._flights: list[Flight] = []
        self._sources = _Sources()

    def progress(self, duration_ms: float) -> None:
        """A finished step has been read."""
        self._durations.append(duration_ms)
        self._progress = monotonic()

    def look(self, wait: Callable[[float], object]) -> None:
        """Called once a turn of the publisher, before it enters the store; `wait` is how it sleeps."""
        now = monotonic()
        if self._recorder.last_step != self._step:  # finished, but not handed over before the next forward
            self._step, self._progress = self._recorder.last_step, now
        self._graphs.inspect()
        replay_s = self._graphs.replay_s
        if self._recorder.paused:
            self._unpaused = now
        if replay_s is not None:
            self._unpaused = max(self._unpaused, now - replay_s)
        if replay_s is not None and replay_s <= self.patience_s:
            self._forget()
            return
        if now - self._progress <= self.patience_s / 4:
            self._motion.clear()
        else:
            self._motion.look(self._recorder.thread, wait)
            self._note(self._motion.note)
        now = monotonic()  # looking took its time
        if now - self._progress <= self.patience_s:
            self._forget()
        elif now >= self._next:
            self._next = now + _REFRESH_S
            self._capture()

    def _forget(self) -> None:
        """The rank is not stuck: nothing that was captured holds any more."""
        self._stacks, self._flights, self._next = [], [], 0.0
        self._recorders.clear()
        self._device.clear()

    @property
    def patience_s(self) -> float:
        """How long no step may finish: max(10 s, 10 x the median of the last 20), 60 s for the first."""
        if self._step < 0:
            return FIRST_STEP_S
        return max(PATIENCE_S, 10 * statistics.median(self._durations) / 1e3) if self._durations else PATIENCE_S

    @property
    def stalled(self) -> bool:
        """Whether no step has finished for too long, outside the user's phases."""
        return monotonic() - max(self._progress, self._unpaused) > self.patience_s

    @property
    def stall(self) -> Stall | None:
        """What the rank is in, as captured last; None while steps finish."""
        silence, replay_s = monotonic() - self._progress, self._graphs.replay_s
        if silence <= self.patience_s or not (self._stacks or replay_s is not None):
            return None
        known = stacks.with_sources(self._stacks, self._sources.known)
        return Stall(
            seconds=silence,
            stacks=known,
            flights=self._flights,
            moves=self._motion.moves,
            write_bytes_s=self._motion.write_bytes_s,
            device_phase=wire_text(self._device.phase),
            device_error=self._device.error,
            graph_replay_s=replay_s,
        )

    def _capture(self) -> None:
        try:
            self._stacks = stacks.capture(self._recorder.thread)
            self._sources.look_up(stacks.places(self._stacks))
        except Exception as error:
            self._note(f"no stacks: {type(error).__name__}: {error}")
        self._device.inspect()
        try:
            held = self._recorder.paused or self._motion.moves or not self._device.answers
            self._flights = [] if held else self._recorders.look()
        except Exception as error:
            self._note(f"no flight recorder: {type(error).__name__}: {error}")

    def _note(self, text: str) -> None:
        if text and text[:256] not in self.notes:
            self.notes.append(text[:256])


class _Sources:
    """Reads source lines in a thread of its own: a file system that hangs may be why the rank does."""

    def __init__(self) -> None:
        self.known: dict[stacks.Place, str] = {}
        self._thread: threading.Thread | None = None

    def look_up(self, places: list[stacks.Place]) -> None:
        """Start to read these lines, if the last reading has come back; waits a moment for the answer."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = threading.Thread(target=self._read, args=(places,), name="ddpmon-sources", daemon=True)
        self._thread.start()
        self._thread.join(_SOURCES_WAIT_S)

    def _read(self, places: list[stacks.Place]) -> None:
        self.known = {place: self.known[place] for place in places if place in self.known}
        for place in places:
            if place not in self.known:
                self.known[place] = stacks.read_source(place)
