"""The job that faults are done to: four ranks on two hosts that are network namespaces, and those who watch it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
from across import Job, torchrun
from chaos_clock import WallClocks
from chaos_losses import Life, lives
from chaos_redis import Redis
from network import Network
from watcher import ROOT, Watcher

RANKS, STRAGGLER = 4, 3
FAR_HOST, REDIS_HOST, HOSTS = 2, 3, 4
TOKEN = "the secret of this run"
MARK = "DDPMON_CHAOS"  # a variable that all processes of a course have
LAST_WORDS_S = 5.0  # how long a store outlives its job: what is usual (60 s) is not waited for at the end
MODEL = ("--layers=1", "--width=32", "--heads=2", "--batch=2", "--context=32")
EVEN = ("--fault=forward:rank=0+1+2+3,ms=20", "--fault=backward:rank=0+1+2+3,ms=30")  # ranks sleep, not fight for cores
SLOW = f"--fault=input:rank={STRAGGLER},ms=50"
_ENDLESS = 1_000_000


class Stage:
    """One launch, embedded or external store, with a watcher on another host.

    Args:
        net: the hosts.
        folder: logs, losses and clocks.
        disk: a small file system: announcements, checkpoints and temporary files go there.
        redis: where the job publishes; None for its own store.
        busy: whether others use this machine's cores.

    Attributes:
        near: a watcher on host 0 that finds runs by itself; it goes with no stage.
        far: one on another host, with the address.
    """

    def __init__(
        self, net: Network, folder: Path, disk: Path, redis: Redis | None, near: Watcher, *, busy: bool = False
    ) -> None:
        self.busy = busy
        self.net, self.folder, self.disk, self.redis, self.near = net, folder, disk, redis, near
        self.losses = folder / "losses"
        self.losses.mkdir(parents=True)
        self.clocks = WallClocks(folder, RANKS)
        self.url = f"tcp://{net.address(0)}:29480" if redis is None else redis.url
        self.launchers: list[subprocess.Popen[bytes]] = []
        self.far: Watcher

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The job and the far watcher, until the end of the block."""
        with torchrun(self.net, self.folder, self._job()) as self.launchers:
            self.far = self.watch_afar()
            try:
                yield
            finally:
                self.far.end()

    def watch_afar(self) -> Watcher:
        """One more watcher on the far host."""
        return Watcher(self.net.enter(FAR_HOST), self.url, self.folder / "far.log", watchers_environment(self.disk))

    def crew(self) -> dict[int, Life]:
        """The newest process of each rank that has made a step."""
        return {life.rank: life for life in lives(self.losses)}

    def all_step(self, but: Mapping[int, int], deadline_s: float) -> float | None:
        """When (monotonic seconds) every rank has made more steps than `but` says of its process; None if too late."""
        until = time.monotonic() + deadline_s
        while time.monotonic() < until:
            crew = self.crew()
            if len(crew) == RANKS and all(life.steps > but.get(life.pid, 0) for life in crew.values()):
                return time.monotonic()
            time.sleep(0.05)
        return None

    def processes(self) -> dict[str, list[psutil.Process]]:
        """Those that must not leak, by what they are."""
        found = {
            "rank": [life.pid for life in self.crew().values()],
            "launcher": [launcher.pid for launcher in self.launchers],
            "watcher, near": [self.near.process.pid],
            "watcher, far": [self.far.process.pid],
        }
        return {name: [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)] for name, pids in found.items()}

    def _job(self) -> Job:
        checkpoint = (f"--checkpoint={self.disk / self.folder.name}.pt", "--checkpoint-every=50")
        program = [str(ROOT / "bench" / "chaos_rank.py"), "--name=chaos", f"--steps={_ENDLESS}", *MODEL, *EVEN, SLOW]
        environment = {
            **watchers_environment(self.disk),
            **self.clocks.environment,
            "TMPDIR": str(self.disk),
            "LOSSES": str(self.losses),
            "LAST_WORDS_S": str(LAST_WORDS_S),
            "DDPMON_STORE": "" if self.redis is None else self.redis.url,
        }
        return Job(2, 2, [*program, *checkpoint], ("--max-restarts=1000",), environment)


def watchers_environment(disk: Path) -> dict[str, str]:
    """What whoever watches needs to know, and what tells that a process is of this course."""
    return {"XDG_RUNTIME_DIR": str(disk), "DDPMON_TOKEN": TOKEN, MARK: str(os.getpid())}


def make_reference(net: Network, folder: Path, steps: int) -> Path:
    """Train so many steps without a monitor and without faults; returns the folder of the losses."""
    losses = folder / "losses"
    losses.mkdir(parents=True)
    program = [str(ROOT / "bench" / "chaos_rank.py"), f"--steps={steps}", *MODEL]
    environment = {"DDPMON": "0", "LOSSES": str(losses), "LAST_WORDS_S": str(LAST_WORDS_S), MARK: str(os.getpid())}
    with torchrun(net, folder, Job(2, 2, program, (), environment)) as launchers:
        for launcher in launchers:
            launcher.wait(1200)
    return losses
