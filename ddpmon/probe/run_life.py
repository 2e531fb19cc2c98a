"""Which attempt of an elastic run this is, and how the ones before it ended.

torchrun starts all ranks again when one has failed, and rank 0 begins another run. What the ranks of the attempt before
said last is read by its successor's rank 0, which finds it by its file on this host: from the store of its own, which
outlives rank 0 for that, or from the external one. So it reaches every watcher, whenever that comes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

from msgspec.structs import replace

from ddpmon.codec import decode
from ddpmon.failure_role import role_of
from ddpmon.parts import MOST_ATTEMPTS, MOST_ENDS, Attempt, FailedRank, wire_text
from ddpmon.schema import FrameError, RankFrame, RunInfo
from ddpmon.store.base import rank_key, run_key
from ddpmon.store.connect import connect, parse_target
from ddpmon.store.discovery import Announcement, left_over
from ddpmon.store.signed import CheckedStore

_RANKS_READ = 1024  # of an attempt; their frames take a tenth of a second of the publisher's thread to read
_AT_ONCE = 256
_TIMEOUT_S = 2.0
_LAUNCH = "TORCHELASTIC_RUN_ID"
_MOST_BETWEEN = 8  # processes between a rank and its launcher; chosen
_LATEST = 2.0**32  # Unix seconds, in the year 2106: what is later is no time of a frame


@dataclass(frozen=True, slots=True)
class Launch:
    """What torchrun says of this attempt in its variables TORCHELASTIC_*.

    Attributes:
        name: what it calls all attempts together, with its process where nobody has named them; empty without it.
        pid: its process; 0 without it.
        restart: how often it has started the ranks again; 0 in the first attempt and without it.
        most: how often it may; None without it.
    """

    name: str = ""
    pid: int = 0
    restart: int = 0
    most: int | None = None

    @property
    def may_restart(self) -> bool:
        """Whether it may start the ranks again if they fail."""
        return self.most is not None and self.restart < self.most


@dataclass(frozen=True, slots=True)
class RunLife:
    """Where an attempt stands among those of its run.

    Attributes:
        launch: which attempt it is.
        attempts: how those before this one ended, the oldest first.
    """

    launch: Launch = Launch()
    attempts: tuple[Attempt, ...] = ()

    def told_by(self, info: RunInfo) -> RunInfo:
        """The description of the run with this in it."""
        job = self.launch
        return replace(info, restart=job.restart, max_restarts=job.most, launch=job.name, attempts=[*self.attempts])


def launch() -> Launch:
    """What the launcher says of this process."""
    name = os.environ.get(_LAUNCH, "")
    most = _number("TORCHELASTIC_MAX_RESTARTS")
    pid = _launcher() if name else 0
    return Launch(
        name=f"none/{pid}" if name == "none" else wire_text(name, 200),
        pid=0 if most is None else pid,
        restart=_number("TORCHELASTIC_RESTART_COUNT") or 0,
        most=most,
    )


def _launcher() -> int:
    """The nearest ancestor that has none of torchrun's variables: a shell or a tool may stand between it and a rank."""
    with suppress(Exception):  # another user's process, or no /proc
        import psutil

        ancestors = psutil.Process().parents()[:_MOST_BETWEEN]
        return next(int(each.pid) for each in ancestors if _LAUNCH not in each.environ())
    return os.getppid()


def read_life(name: str) -> RunLife:
    """The life of the run that this rank 0 begins; waits for a store for a few seconds at most, and never raises."""
    job = launch()
    attempts: tuple[Attempt, ...] = ()
    if job.restart and job.name and (before := left_over(job.name, name)) is not None:
        attempts = _attempts(before)
    return RunLife(job, attempts[-MOST_ATTEMPTS:])


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _attempts(before: Announcement) -> tuple[Attempt, ...]:
    """The attempt that is over, behind those that it knew of; nothing where its store is gone."""
    try:
        with closing(connect(parse_target(before.url), timeout_s=_TIMEOUT_S)) as store:
            data, _ = store.look_at(run_key(before.run_id))
            info = decode(before.run_id, data or b"", RunInfo)
            return (*info.attempts, _ended(info, list(_frames(store, info))))
    except Exception:  # such as its store's certificate, or what a foreign process says in its place
        return ()


def _frames(store: CheckedStore, info: RunInfo) -> Iterator[RankFrame]:
    """The last frames of the ranks, as far as they can be read."""
    ranks = range(min(info.world_size, _RANKS_READ))
    for start in range(0, len(ranks), _AT_ONCE):
        keys = [rank_key(info.run_id, rank) for rank in ranks[start : start + _AT_ONCE]]
        for key, data in zip(keys, store.get_many(keys), strict=True):
            try:
                if data is not None:
                    yield decode(key, data, RankFrame)
            except FrameError:
                continue


def _ended(info: RunInfo, frames: Sequence[RankFrame]) -> Attempt:
    """How an attempt ended, as its ranks told."""
    failed = sorted((frame for frame in frames if frame.state == "failed"), key=_blame)
    mute = [frame.rank for frame in frames if frame.state not in ("failed", "finished")]
    return Attempt(
        run_id=info.run_id,
        restart=info.restart,
        world_size=info.world_size,
        ended_at=max((frame.sent_at for frame in frames if 0 < frame.sent_at < _LATEST), default=None),
        step=max((frame.step for frame in frames), default=-1),
        failed=[FailedRank(frame.rank, _reason(frame)) for frame in failed[:MOST_ENDS]],
        failed_count=len(failed),
        vanished=mute[:MOST_ENDS],
        vanished_count=len(mute),
    )


def _blame(frame: RankFrame) -> tuple[bool, int]:
    """Sorts those that failed by themselves before those that followed, and the earliest of each first."""
    failure = frame.failure
    return role_of(failure) != "cause", frame.step if failure is None else failure.step


def _reason(frame: RankFrame) -> str:
    return "" if frame.failure is None else f"{frame.failure.kind}: {frame.failure.message}"[:200]
