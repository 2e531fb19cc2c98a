"""The faults: each is done to a stage and undone again, and says in words what it was."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
from across import stopped_family
from chaos_stage import FAR_HOST, RANKS, Stage, watchers_environment
from watcher import ROOT, Watcher

_RESTART_S, _BEGINS_S = 240.0, 60.0
_HEARD_S = 3.0  # frames of a rank have come since


def kill_watcher(stage: Stage, _chance: random.Random) -> str:
    """The far watcher is killed, and another one started; that it takes a while to begin is no fault's doing."""
    stage.far.end()
    began = time.monotonic()
    stage.far = stage.watch_afar()
    stage.far.look(began, _BEGINS_S)
    return f"the next began in {time.monotonic() - began:.1f} s"


def stop_host(stage: Stage, chance: random.Random) -> str:
    """The store's host stands still for some seconds: the server, or all processes of host 0."""
    seconds = chance.uniform(3, 12)
    if stage.redis is not None and chance.random() < 0.5:
        stage.redis.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        stage.redis.process.send_signal(signal.SIGCONT)
        return f"the redis-server for {seconds:.1f} s"
    family = stopped_family(stage.launchers[0])
    time.sleep(seconds)
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()
    return f"host 0 for {seconds:.1f} s"


def cut_node(stage: Stage, chance: random.Random) -> str:
    """The link of a host that trains is cut."""
    return _cut(stage, chance.randrange(2), chance.uniform(2, 5))


def cut_watcher(stage: Stage, chance: random.Random) -> str:
    """The link of the far watcher's host is cut."""
    return _cut(stage, FAR_HOST, chance.uniform(3, 9))


def _cut(stage: Stage, host: int, seconds: float) -> str:
    stage.net.cut(host)
    time.sleep(seconds)
    stage.net.restore(host)
    return f"host {host} for {seconds:.1f} s"


def kill_rank(stage: Stage, chance: random.Random) -> str:
    """A rank is killed; torchrun starts all of them again, from the checkpoint."""
    rank, before = chance.randrange(RANKS), stage.crew()
    os.kill(before[rank].pid, signal.SIGKILL)
    until = time.monotonic() + _RESTART_S
    while any(life.pid in {old.pid for old in before.values()} for life in stage.crew().values()):
        if time.monotonic() > until:
            return f"rank {rank}; its launcher did not start it again"
        time.sleep(0.1)
    return f"rank {rank}"


def forge_frames(stage: Stage, chance: random.Random) -> str:
    """Whoever reaches the store overwrites what ranks put; then somebody begins to watch."""
    words = _attack(stage, "frames", chance.uniform(3, 6), chance.randrange(1 << 30))
    return f"{words}; {kill_watcher(stage, chance)}"


def besiege_port(stage: Stage, chance: random.Random) -> str:
    """Whoever reaches the store's port sends noise."""
    return _attack(stage, "port", chance.uniform(3, 6), chance.randrange(1 << 30))


def _attack(stage: Stage, what: str, seconds: float, seed: int) -> str:
    command = [sys.executable, str(ROOT / "bench" / "chaos_attack.py"), stage.url, what, str(seconds), str(seed)]
    environment = {**os.environ, **watchers_environment(stage.disk), "PYTHONPATH": str(ROOT), "DDPMON_TOKEN": ""}
    done = subprocess.run(
        [*stage.net.enter(FAR_HOST), *command], env=environment, capture_output=True, text=True, check=False
    )
    trouble = (done.stderr.strip().splitlines() or ["no word"])[-1] if done.returncode else ""
    return f"{seconds:.1f} s{'; the attacker gave up: ' if trouble else ''}{trouble[:150]}"


def fill_disk(stage: Stage, chance: random.Random) -> str:
    """The file system of announcements and checkpoints is full for some seconds, and somebody begins to watch."""
    seconds = chance.uniform(3, 6)
    with _full(stage):
        newcomer = Watcher(stage.net.enter(0), None, stage.folder / "newcomer.log", watchers_environment(stage.disk))
        time.sleep(seconds)
        newcomer.end()
    return f"for {seconds:.1f} s"


def restart_on_full_disk(stage: Stage, chance: random.Random) -> str:
    """A rank is killed while that file system is full: the new run begins there."""
    with _full(stage):
        return kill_rank(stage, chance)


@contextlib.contextmanager
def _full(stage: Stage) -> Iterator[None]:
    ballast, ended = stage.disk / "ballast", threading.Event()
    filler = threading.Thread(target=_fill, args=(ballast, ended))
    filler.start()
    try:
        yield
    finally:
        ended.set()
        filler.join()
        ballast.unlink()


def _fill(ballast: Path, ended: threading.Event) -> None:
    """Take all that there is, and what others give back."""
    with ballast.open("wb", buffering=0) as file:
        while not ended.wait(0.02):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))


def jump_clock(stage: Stage, chance: random.Random) -> str:
    """A rank's wall clock jumps, and stays there."""
    rank, seconds = chance.randrange(RANKS), chance.choice((-1, 1)) * chance.choice((3, 40, 600, 7200, 10**7))
    stage.clocks.set(rank, seconds)
    time.sleep(_HEARD_S)
    return f"rank {rank} is {seconds:+,} s off"


def restart_redis(stage: Stage, chance: random.Random) -> str:
    """The server is killed and starts again, empty."""
    assert stage.redis is not None
    seconds = chance.uniform(1, 8)
    stage.redis.kill()
    time.sleep(seconds)
    stage.redis.start()
    return f"down for {seconds:.1f} s"


Fault = Callable[[Stage, random.Random], str]
FAULTS: dict[str, Fault] = {
    "watcher killed": kill_watcher,
    "store's host stopped": stop_host,
    "node's link cut": cut_node,
    "watcher's link cut": cut_watcher,
    "rank killed": kill_rank,
    "frames forged": forge_frames,
    "noise at the port": besiege_port,
    "disk full": fill_disk,
    "rank killed on full disk": restart_on_full_disk,
    "wall clock jumped": jump_clock,
    "redis restarted": restart_redis,
}
RESTARTS = ("rank killed", "rank killed on full disk")
ENGINES_OWN = ("redis restarted",)
