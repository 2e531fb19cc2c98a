"""The reader thread: one reading at a time, wake-ups dropped and never queued, quitting never delayed."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from ddpmon.snapshot import Coverage, Link, Metric, Snapshot
from ddpmon.tui.picture_reader import Reader
from ddpmon.tui.view_state import NOTHING_YET


class Slow:
    """A source whose readings take as long as the test wants."""

    def __init__(self) -> None:
        self.focus: int | None = None
        self.metric: Metric = "lateness"
        self.entered = threading.Semaphore(0)
        self.leave = threading.Semaphore(0)
        self.calls: list[str] = []
        self.threads: set[str] = set()

    def tick(self) -> Snapshot:
        self.threads.add(threading.current_thread().name)
        self.calls.append("tick")
        self.entered.release()
        self.leave.acquire()
        return replace(NOTHING_YET, taken_at=float(len(self.calls)))

    def rebuild(self) -> Snapshot:
        self.calls.append(f"rebuild {self.focus}")
        return NOTHING_YET

    def close(self) -> None:
        self.calls.append("close")


def until(condition: object) -> None:
    while not condition():  # type: ignore[operator]
        time.sleep(0.002)


def test_wake_ups_during_a_reading_are_remembered_once() -> None:
    source, got = Slow(), []  # type: ignore[var-annotated]
    reader = Reader(source, got.append, got.append)
    reader.start()
    reader.wake()
    source.entered.acquire()
    for _ in range(50):
        reader.wake()
    source.leave.release(2)
    until(lambda: len(got) == 2)
    reader.stop()
    reader.join(30)
    assert source.calls == ["tick", "tick", "close"]
    assert source.threads == {"ddpmon-reader"}


class Reading(Slow):
    """A source that has read the past of all ranks only after the third reading."""

    def tick(self) -> Snapshot:
        self.calls.append("tick")
        unread = 3 - len(self.calls)
        return replace(NOTHING_YET, link=Link("live"), coverage=Coverage(3, 3, 0.0, unread_histories=unread))


def test_while_the_past_is_being_read_one_reading_follows_the_other() -> None:
    source, got = Reading(), list[Snapshot]()
    reader = Reader(source, got.append, got.append)  # type: ignore[arg-type]
    reader.start()
    reader.wake()
    until(lambda: len(got) == 3)
    reader.stop()
    reader.join(30)
    assert source.calls == ["tick", "tick", "tick", "close"]


def test_a_new_focus_alone_reads_nothing() -> None:
    source, got = Slow(), []  # type: ignore[var-annotated]
    reader = Reader(source, got.append, got.append)
    reader.start()
    source.focus = 3
    reader.refocus()
    until(lambda: got)
    reader.stop()
    reader.join(30)
    assert source.calls == ["rebuild 3", "close"]


def test_stopping_waits_for_nothing_and_delivers_nothing_more() -> None:
    source, got = Slow(), []  # type: ignore[var-annotated]
    reader = Reader(source, got.append, got.append)
    reader.start()
    reader.wake()
    source.entered.acquire()
    reader.stop()
    assert reader.daemon
    assert reader.is_alive()
    source.leave.release()
    reader.join(30)
    assert got == []
    assert source.calls[-1] == "close"


def test_an_app_that_has_gone_ends_the_reader() -> None:
    source = Slow()

    def gone(_: object) -> None:
        raise RuntimeError("event loop is closed")

    reader = Reader(source, gone, gone)
    reader.start()
    reader.wake()
    source.leave.release()
    reader.join(30)
    assert not reader.is_alive()
    assert source.calls == ["tick", "close"]
