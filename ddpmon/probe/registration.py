"""How rank 0 makes its run known: the keys in the store, a file on this host, and one line on stderr."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from ddpmon.codec import decode, encode
from ddpmon.probe.run_life import launch
from ddpmon.probe.ways import ways
from ddpmon.schema import FrameError, RunInfo
from ddpmon.store.base import RUNS_KEY, Store, history_key, host_key, node_key, rank_key, run_key
from ddpmon.store.connect import list_runs
from ddpmon.store.discovery import Announcement, announce, anybody_finds, refresh, withdraw
from ddpmon.store.signed import Checks, token_of_environment

_RUNS_KEPT = 64  # ids that one store lists
_KEYS_FREED = 1 << 16
_LONGEST_LINE = 2000


def lay_out(store: Store, info: RunInfo) -> None:
    """Create every key of a run empty before the run's own says that they are there: reads block on a missing key.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    earlier = _listed(store)
    forget(store, earlier)
    for key in _frame_keys(info.run_id, info.world_size, info.node_keys):
        store.put(key, b"")
    store.put(run_key(info.run_id), encode(info))
    store.put(RUNS_KEY, _listing(earlier, info.run_id))


def register_again(store: Store, info: RunInfo) -> None:
    """Say again which run is the newest in a store of its own: whoever reaches the store can overwrite that.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    store.put(run_key(info.run_id), encode(info))
    store.put(RUNS_KEY, _listing((run for run in _listed(store) if run != info.run_id), info.run_id))


def _listed(store: Store) -> list[str]:
    """The newest runs that a store lists, 64 at most; none where the list is longer than a megabyte."""
    return list_runs(store)[-_RUNS_KEPT:]


def _listing(others: Iterable[str], own: str) -> bytes:
    """What a store is to list: its own run as the newest."""
    return "\n".join([*others, own][-_RUNS_KEPT:]).encode()


def forget(store: Store, runs: Sequence[str]) -> None:
    """Free what the frames of earlier runs take, as before an elastic restart; one that lives on fills them again.

    It goes by their descriptions, the newest first, and frees 65,536 keys at most; with a token only by signed ones.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    checks = Checks(token_of_environment())
    for key in islice((key for run in reversed(runs) for key in _keys_of(store, run, checks)), _KEYS_FREED):
        store.put(key, b"")


def _frame_keys(run: str, world_size: int, node_keys: Iterable[int]) -> Iterator[str]:
    """The keys of all frames of a run."""
    for rank in range(world_size):
        yield rank_key(run, rank)
        yield history_key(run, rank)
        yield host_key(run, rank)
    for node in node_keys:
        yield node_key(run, node)


def _keys_of(store: Store, run: str, checks: Checks) -> Iterator[str]:
    """The keys of the frames of a run, as its description tells; none where that is not believed."""
    (data,) = store.get_many([run_key(run)])
    content = None if data is None else checks.open(run_key(run), data)
    with suppress(FrameError):
        if content is not None:
            info = decode(run_key(run), content, RunInfo)
            yield from _frame_keys(run, info.world_size, info.node_keys)


@dataclass(slots=True)
class Announcer:
    """Announces one run on this host: once in words, which `remark` ends, and in a file for as long as it lives."""

    name: str
    world_size: int
    remark: str = ""
    _announcement: Announcement | None = None
    _file: Path | None = None

    def announce(self, run: str, url: str, hint: str = "", *, store_pid: int = 0) -> None:
        """Write the file and say how to watch the run; later calls only name another process of its store.

        Args:
            run: its id.
            url: where its store is.
            hint: ends the line.
            store_pid: the process of the store, where rank 0 hosts one.
        """
        if self._announcement is not None:
            self._rename_store(store_pid)
            return
        job = launch()
        self._announcement = Announcement(
            run_id=run,
            name=self.name,
            url=url,
            pid=os.getpid(),
            host=socket.gethostname(),
            world_size=self.world_size,
            started_at=time.time(),
            store_pid=store_pid,
            launch=job.name,
            launcher_pid=job.pid,
            restart=job.restart,
            max_restarts=job.most,
            slurm_job=os.environ.get("SLURM_JOB_ID", "")[:64],
        )
        self._file = announce(self._announcement)
        is_found = self._file is not None and anybody_finds(self._file)
        say(
            f"to watch this run: {ways(self._announcement, is_found=is_found)}{hint}{self.remark and '; '}{self.remark}"
        )

    def _rename_store(self, store_pid: int) -> None:
        if self._announcement is not None and self._announcement.store_pid != store_pid:
            self._announcement = replace(self._announcement, store_pid=store_pid)
            self._file = announce(self._announcement)

    def renew(self) -> None:
        """Say that the run lives; write the file again if it is missing: the disk was full, or the folder cleared."""
        if self._announcement is not None and (self._file is None or not refresh(self._file)):
            self._file = announce(self._announcement)

    def withdraw(self) -> None:
        """Remove the file."""
        if self._file is not None:
            withdraw(self._file)
            self._file = None


def say(text: str) -> None:
    """One line on stderr, if there is still one; what a terminal would obey is made visible. Never raises."""
    text = text[:_LONGEST_LINE].replace("\n", " ")
    line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    with suppress(Exception):  # a closed stderr must not stop training
        if sys.stderr is not None:  # print would take stdout instead
            print(f"ddpmon: {line}", file=sys.stderr, flush=True)
