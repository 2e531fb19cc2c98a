"""Whether a thread that finishes no step makes progress, told from real threads that compute, poll, hang and write."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from ddpmon.probe.watchdog import Motion
from ddpmon.sensors.disks import FolderSensor

LOOKS, APART_S = 5, 0.2


def evaluate(stop: threading.Event) -> None:
    """Nearly all the time is spent in one call, as a model's layers are."""
    layer, batch = torch.nn.Linear(512, 512), torch.randn(512, 512)
    while not stop.is_set():
        with torch.no_grad():
            layer(batch).argmax(dim=1)


def decompose(stop: threading.Event) -> None:
    """One call after the other, in one line."""
    matrix = torch.randn(300, 300)
    while not stop.is_set():
        torch.linalg.svd(matrix)


def score(stop: threading.Event) -> None:
    def points(number: int) -> int:
        return sum(int(digit) for digit in str(number)) + (points(number // 10) if number else 0)

    while not stop.is_set():
        for number in range(1000):
            points(number)


def wait(stop: threading.Event) -> None:
    stop.wait()


def spin(stop: threading.Event) -> None:
    """An endless loop: nothing but arithmetic."""
    number = 0
    while number < 1 << 62:
        number = (number + 1) % 1000
        if not number and stop._flag:  # type: ignore[attr-defined]
            return


def turn(stop: threading.Event) -> None:
    """The shortest of them."""
    while not stop._flag:  # type: ignore[attr-defined]
        pass


def poll(stop: threading.Event) -> None:
    """Somebody's lock, looked at a few times a second: the look takes its time, and the sleep five times as long."""

    def is_there() -> bool:
        for _ in range(1000):
            pass
        return stop.is_set()

    busy = busy_s()
    while not is_there():
        before, busy = busy, busy_s()
        time.sleep(max(0.1, 5 * (busy - before)))


def busy_s() -> float:
    """Seconds that this thread has run or been ready to run: on a busy machine a short look takes long."""
    on_cpu, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
    return (int(on_cpu) + int(waited)) / 1e9


def look_up(stop: threading.Event) -> None:
    """Two calls in turn, in one function."""
    table, keys = torch.arange(1 << 20).flip(0), torch.arange(1 << 18)
    while not stop.is_set():
        torch.searchsorted(table, keys)
        torch.sort(table)


@contextmanager
def at_work(work: Callable[[threading.Event], None]) -> Iterator[int]:
    def begin() -> None:
        torch.set_num_threads(1)
        begun.set()
        work(stop)

    begun, stop, usual = threading.Event(), threading.Event(), torch.get_num_threads()
    thread = threading.Thread(target=begin)
    thread.start()
    begun.wait()
    while not is_within(work, thread.ident or 0):
        time.sleep(0.01)
    try:
        yield thread.ident or 0
    finally:
        stop.set()
        thread.join()
        torch.set_num_threads(usual)


def is_within(work: Callable[[threading.Event], None], thread: int) -> bool:
    """Whether the thread has come to its work."""
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code is not work.__code__:
        frame = frame.f_back
    return frame is not None


def looked_at(thread: int) -> Motion:
    motion = Motion()
    for _ in range(LOOKS):
        motion.look(thread)
        time.sleep(APART_S)
    return motion


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs a kernel that accounts for threads")
@pytest.mark.parametrize("work", [evaluate, decompose, look_up, score])
def test_a_thread_that_computes_moves(work: Callable[[threading.Event], None]) -> None:
    with at_work(work) as thread:
        motion = looked_at(thread)
    seen = [motion.moves]
    motion.clear()
    assert ([*seen, motion.moves], motion.note) == ([True, False], "")


@pytest.mark.parametrize("work", [wait, spin, turn, poll])
def test_a_thread_that_waits_spins_or_polls_does_not(work: Callable[[threading.Event], None]) -> None:
    with at_work(work) as thread:
        motion = looked_at(thread)
    assert not motion.moves
    assert motion.note == ""


def test_what_the_process_writes_is_told_by_the_second(tmp_path: Path) -> None:
    if not Path("/proc/self/io").exists() or FolderSensor("test", str(tmp_path)).read().device is None:
        pytest.skip("needs a kernel that accounts for it, and a disk under the temporary folder")
    motion, size, began = Motion(), 32 << 20, time.monotonic()
    motion.look(threading.get_ident())
    assert motion.write_bytes_s == 0.0
    with (tmp_path / "checkpoint.bin").open("wb") as file:
        file.write(bytes(size))
        file.flush()
        os.fsync(file.fileno())
    motion.look(threading.get_ident())
    assert motion.write_bytes_s >= size / (time.monotonic() - began)


def test_a_thread_that_has_gone_is_no_trouble() -> None:
    motion = looked_at(1 << 40)
    assert (motion.moves, motion.note) == (False, "")


def test_what_goes_wrong_is_noted_and_no_more() -> None:
    motion = Motion()
    motion.look([])  # type: ignore[arg-type]
    assert "unhashable" in motion.note
    assert not motion.moves
