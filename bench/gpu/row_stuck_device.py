"""Row 3: a device that is stuck for 28 s, and one that waits for it: the host's word against the marks.

Two processes train side by side. After 30 quick steps the device of the culprit is busy in forward for 28 s; that of
the victim waits as long behind its reduction. Both hosts have queued everything and wait in `.item()`. Each process
tells once a second which of its own events its device has passed; this one reads what their probes publish, and has a
watcher judge both as the two ranks of one job. On a GPU 45 s.

    python bench/gpu/row_stuck_device.py [--rehearse]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
from course_device import Device
from course_figures import Figures, run_row
from course_job import Delayed, Delays, Published, judge, make_late
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ddpmon
from ddpmon.codec import decode
from ddpmon.schema import HistoryFrame, RankFrame, StepColumns
from ddpmon.snapshot import Finding
from ddpmon.store.base import StoreUnavailable, rank_key
from ddpmon.store.connect import connect, parse_target
from ddpmon.store.discovery import discover

_STUCK_S, _REHEARSED_S = 28.0, 16.0  # the probe's watchdog speaks after 10 s
_QUICK_STEPS = 30
_ROLES = ("victim", "culprit")  # rank 0 and rank 1 of the job that is judged
_RIGHT = {"victim": "exposed", "culprit": "forward"}
_PATIENCE_S = 60.0  # until the processes publish


class Passed:
    """Events at the places of a step at which the probe marks, and which of them the device has passed."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._events: dict[str, Any] = {}

    def mark(self, place: str) -> None:
        """Record that place of the step under way."""
        event: Any = True
        if self._device.is_gpu:
            event = torch.cuda.Event()
            event.record()
        self._events[place] = event

    def begin(self) -> None:
        """A step begins."""
        self._events = {}

    def phase(self) -> str:
        """What the device is in, by the last event that it has passed."""
        order = {"synced": "other", "ready": "exposed", "forwarded": "backward", "begun": "forward"}
        for place, phase in order.items():
            event = self._events.get(place)
            if event is not None and (event is True or event.query()):
                return phase
        return "other"


def play(role: str, folder: Path, rehearse: bool) -> None:
    """Train as the victim or the culprit."""
    device, delays = Device(rehearse), Delays()
    device.join()
    net = Delayed(nn.Sequential(*(nn.Linear(256, 256) for _ in range(6))), device, delays)
    ddp = DistributedDataParallel(net.to(device.at), device_ids=device.ids)
    make_late(ddp, device, delays)
    passed = Passed(device)
    net.register_forward_pre_hook(lambda *_: passed.mark("begun"))
    net.register_forward_hook(lambda *_: passed.mark("forwarded"))
    next(ddp.parameters()).register_post_accumulate_grad_hook(lambda _: passed.mark("ready"))
    optimizer, x = torch.optim.SGD(ddp.parameters(), lr=1e-4), torch.randn(64, 256, device=device.at)
    ddpmon.attach(ddp, name=role)
    threading.Thread(target=tell, args=(passed, folder / f"{role}.phases"), daemon=True).start()
    for step in range(_QUICK_STEPS + 1):
        if step == _QUICK_STEPS:
            stuck_ms = 1e3 * (_REHEARSED_S if rehearse else _STUCK_S)
            delays.forward, delays.wait = (stuck_ms, 0.0) if role == "culprit" else (0.0, stuck_ms)
        passed.begin()
        loss = ddp(x).square().mean()
        loss.backward()
        passed.mark("synced")
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
    os._exit(0)


def tell(passed: Passed, path: Path) -> None:
    """Write down once a second what the device is in."""
    while True:
        time.sleep(1.0)
        began = time.perf_counter()
        phase = passed.phase()
        with path.open("a") as told:
            told.write(json.dumps([phase, 1e3 * (time.perf_counter() - began)]) + "\n")


class Follower:
    """Reads what one process publishes."""

    def __init__(self, role: str) -> None:
        self.role = role
        self._store: Any = None
        self._key = ""
        self.frame: RankFrame | None = None  # the newest that says what it is stuck in, or else the newest
        self.silent_s = 0.0
        self._seq, self._heard = -1, time.monotonic()

    def look(self) -> None:
        """Read the newest frame, if there is one."""
        try:
            if self._store is None:
                self._open()
            value = None if self._store is None else self._store.get_many([self._key])[0]
        except StoreUnavailable:
            return
        if value is None:
            return
        frame, now = decode(self._key, value, RankFrame), time.monotonic()
        if frame.seq != self._seq:
            self._seq, self._heard = frame.seq, now
            if frame.stall is not None or self.frame is None or self.frame.stall is None:
                self.frame = frame
        self.silent_s = max(self.silent_s, now - self._heard)

    def _open(self) -> None:
        for found in discover():
            if found.name == self.role:
                self._store, self._key = connect(parse_target(found.url)), rank_key(found.run_id, 0)

    def word(self) -> dict[str, Any]:
        """What its probe said while it was stuck."""
        frame = self.frame
        if frame is None:
            return {"published": False}
        flights = [] if frame.stall is None else frame.stall.flights
        return {
            "state": frame.state,
            "phase of the host": frame.phase,
            "collectives pending": sum(0 <= each.last_completed < each.last_enqueued for each in flights),
            "device_phase": getattr(frame.stall, "device_phase", None),
            "device_error": getattr(frame.stall, "device_error", None),
            "silent s": self.silent_s,
        }


def follow(folder: Path, rehearse: bool) -> dict[str, Follower]:
    """Start both processes and read their frames until they have ended."""
    followers = {role: Follower(role) for role in _ROLES}
    words = ["--rehearse"] if rehearse else []
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    processes = [
        subprocess.Popen([sys.executable, __file__, "play", role, str(folder), *words], env=environment)
        for role in _ROLES
    ]
    until = time.monotonic() + _PATIENCE_S + _STUCK_S
    while any(process.poll() is None for process in processes) and time.monotonic() < until:
        for follower in followers.values():
            follower.look()
        time.sleep(0.5)
    for process in processes:
        process.kill()
        process.wait()
    return followers


def seen_by_marks(folder: Path, role: str) -> tuple[str, float]:
    """What the device was in for longest by its events, and the longest query in ms."""
    path = folder / f"{role}.phases"
    told = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    phases = [phase for phase, _ in told]
    return max(phases, key=phases.count, default="never told"), max((ms for _, ms in told), default=0.0)


def measure(figures: Figures, rehearse: bool) -> None:
    """Let both be stuck, and compare what is said with what is so."""
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ddpmon-course-") as name:
        followers = follow(Path(name), rehearse)
        for role in _ROLES:
            seen, word = seen_by_marks(Path(name), role), followers[role].word()
            wrong += compare(role, word, seen, figures, must_tell=not rehearse)
    said = verdict(followers, Device(rehearse))
    words = "; ".join(f"{each.kind} {list(each.ranks)}: {each.summary[:160]}" for each in said) or "nothing"
    figures.say(f"verdict on both as the ranks 0 and 1 of a job (1 is the culprit): {words}")
    if not any(each.kind == "hang" and each.ranks == (1,) for each in said):
        wrong.append("the verdict does not name the culprit")
    figures.conclude(not wrong, wrong[0] if wrong else "marks and verdict tell the culprit from the victim")


def compare(
    role: str, word: dict[str, Any], seen: tuple[str, float], figures: Figures, *, must_tell: bool
) -> list[str]:
    """What is wrong with what the marks show, and what the probe says, of one process.

    Args:
        role: whose.
        word: what its probe published.
        seen: what its device was in by its own events, and the longest query in ms.
        figures: takes both.
        must_tell: whether the probe can know what the device is in, as it does on a GPU.
    """
    phase, longest_ms = seen
    figures.put({f"{role}: device is in, by marks": phase, f"{role}: longest query ms": longest_ms})
    figures.put({f"{role}: {what}": value for what, value in word.items()})
    told = word.get("device_phase")  # None where this build has no such field, "" where it is unknown
    figures.say(f"{role}: by marks {phase}, host {word.get('phase of the host')}, device_phase {told!r}")
    wrong = [] if phase == _RIGHT[role] else [f"the marks of the {role} do not tell its phase"]
    allowed = (None, _RIGHT[role]) if must_tell else (None, "", _RIGHT[role])
    return wrong + ([f"the probe says of the device of the {role}: {told!r}"] if told not in allowed else [])


def verdict(followers: dict[str, Follower], device: Device) -> tuple[Finding, ...]:
    """What a watcher says of a job in which both are ranks; nothing where one of them did not publish."""
    frames = [frame for role in _ROLES if (frame := followers[role].frame) is not None]
    if len(frames) < len(_ROLES):
        return ()
    nothing = HistoryFrame(run_id="", rank=0, recent=StepColumns(), older=StepColumns())
    return judge([Published(nothing, frame) for frame in frames], device)


if __name__ == "__main__":
    if sys.argv[1:2] == ["play"]:
        play(sys.argv[2], Path(sys.argv[3]), "--rehearse" in sys.argv)
    run_row(measure, __doc__)
