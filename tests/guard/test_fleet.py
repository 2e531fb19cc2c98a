"""Which addresses are followed: one at which no run was ever seen makes room; a watcher that breaks is replaced."""

from __future__ import annotations

import queue
import socket
import threading

import pytest

from ddpmon.guard import fleet as fleets
from ddpmon.guard.fleet import Fleet, Look


def closed_addresses(count: int) -> list[str]:
    """Addresses at which nobody listens."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return [f"tcp://127.0.0.1:{port}" for port in ports]


def test_an_address_without_a_run_is_left_when_it_is_not_found_or_others_need_its_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleets, "MOST_RUNS", 2)
    monkeypatch.setattr(fleets, "IDLE_S", 0.0)
    first, second, third = closed_addresses(3)
    found, asked = [first, second], threading.Semaphore(0)

    def find() -> list[str]:
        asked.release()
        return [*found]

    def look_again() -> set[str]:
        while asked.acquire(blocking=False):
            pass
        for _ in range(3):  # the second of them begins after the change, and the third after the second has ended
            assert asked.acquire(timeout=60)
        return fleet.addresses

    fleet = Fleet(find, lambda _look: None, print, tick_s=0.05, find_s=0.05)
    fleet.start()
    try:
        assert look_again() == {first, second}
        found[:] = [second]
        assert look_again() == {second}
        found[:] = [second, first]
        assert look_again() == {first, second}
        found[:] = [third, first, second]
        while third not in fleet.addresses:  # the idle ones take turns
            assert asked.acquire(timeout=60)
    finally:
        threads = fleet.leave()
        for thread in threads:
            thread.join(60)


def test_a_watcher_that_breaks_again_and_again_is_told_once() -> None:
    (address,) = closed_addresses(1)
    warned: list[str] = []
    looks: queue.SimpleQueue[Look] = queue.SimpleQueue()

    def take(look: Look) -> None:
        looks.put(look)
        raise RuntimeError(f"broken {looks.qsize()}")

    follower = fleets.Follower(address, take, warned.append, every_s=0.01)
    follower.start()
    for _ in range(5):
        looks.get(timeout=60)
    follower.drop()
    follower.join(60)
    assert len(warned) == 1
    assert "the watcher of a run broke and is started again: RuntimeError: broken" in warned[0]
