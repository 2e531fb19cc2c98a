"""The runs on this host: one small private file a run, so that `ddpmon watch` needs no address.

A run in a container, whose processes or whose loopback address mean nothing here, is mentioned and not listed. A file
lies in `$XDG_RUNTIME_DIR/ddpmon/` where that variable names a folder of this user's, or else in `ddpmon-<uid>/`
in the temporary folder. A clean end withdraws it. The file of a run that was killed is set aside for a day, which is
how a watcher learns that the end was not clean.
"""

from __future__ import annotations

import os
import shlex
import socket
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ddpmon.parts import MAX_RANKS, Count, JobIds, Text
from ddpmon.store.liveness import started
from ddpmon.store.namespaces import machine, network
from ddpmon.store.private import Folder, existing_folders, folders, stem

MAX_FILE_BYTES = 16 << 10
_REFRESH_S = 60.0  # between two words of a run that it lives; chosen: a file's time is not news to anybody for long
_LIVES_S = 3 * _REFRESH_S


class Announcement(Struct, frozen=True, kw_only=True):
    """One run on this host.

    Attributes:
        pid: rank 0's process.
        store_pid: the process of the store that rank 0 hosts; 0 where it hosts none. It outlives a rank 0 that was
            killed (`server_process.start`).
        pid_started, store_started: when those processes started, in clock ticks since boot, so that a reused pid does
            not mislead; `announce` fills them in.
        machine: the kernel and pid namespace in which the pid means something; `announce` fills it in.
        network: the network namespace in which a loopback address means something; `announce` fills it in.
        launch: what the launcher calls all attempts of this run together; "" without one.
        launcher_pid: its process, which starts the ranks again if they fail; 0 without one.
        launcher_started: when that process started; `announce` fills it in.
        restart, max_restarts: how often it has started them again, and how often it may; None without one.
        jobs: as the description of the run has them.
    """

    run_id: Text
    name: Text
    url: Text
    pid: Count
    host: Text
    world_size: Annotated[int, Meta(ge=1, le=MAX_RANKS)]
    started_at: float
    pid_started: float = 0.0
    store_pid: Count = 0
    store_started: float = 0.0
    machine: Text = ""
    network: Text = ""
    launch: Text = ""
    launcher_pid: Count = 0
    launcher_started: float = 0.0
    restart: Count = 0
    max_restarts: Count | None = None
    jobs: JobIds = {}


class PastRun(Struct, frozen=True, kw_only=True):
    """A run of this host whose processes are dead and that has not withdrawn its file, within the last day.

    Attributes:
        state: "restarting" where its launcher lives and has attempts left, "restarted" where it has begun the next one,
            else "killed": that it failed, and its launcher ended rank 0 then, is known to its store alone.
        restart, max_restarts: as in its announcement.
    """

    id: Text
    state: Text
    restart: Count = 0
    max_restarts: Count | None = None


_decoder = msgspec.json.Decoder(Announcement)


def announce(announcement: Announcement) -> Path | None:
    """Write the run's file (atomic, mode 0600); None when no private folder can be used. Never raises."""
    for path in folders():
        with suppress(Exception), Folder(path, make=True) as folder:
            return _write(folder, announcement)
    return None


def anybody_finds(path: Path) -> bool:
    """Whether this user's other shells look where `announce` wrote: a job's own TMPDIR is not theirs."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return path.parent in (Path(runtime) / "ddpmon", Path("/tmp") / f"ddpmon-{os.geteuid()}")


def withdraw(path: Path | None) -> None:
    """Remove what `announce` wrote: the run has ended cleanly. Never raises."""
    if path is not None:
        with suppress(OSError), Folder(path.parent) as folder:
            folder.remove(path.name)


def withdraw_run(run_id: str) -> None:
    """Remove the files of a run of this user: whoever looks for it takes it for one that has ended cleanly."""
    for folder in existing_folders():
        for ending in (".json", ".dead"):
            folder.remove(f"{stem(run_id)}{ending}")


def discover() -> list[Announcement]:
    """The runs on this host that live or can still be read, newest first; clears away what is stale. Never raises.

    Runs whose rank 0 was killed come last.
    """
    found: list[Announcement] = []
    for folder in existing_folders():
        found += [run for name in folder.names(".json") if (run := _live(folder, name)) is not None]
        for name in (*folder.names(".dead"), *folder.names(".tmp")):
            if folder.is_stale(name):
                folder.remove(name)
    return sorted(found, key=lambda run: (has_rank_0(run), run.started_at), reverse=True)


def refresh(path: Path) -> bool:
    """Say by its time that the run of this file lives, once a minute; whether the file is there. Never raises."""
    try:
        with Folder(path.parent) as folder:
            age_s = folder.age_s(path.name)
            if age_s is not None and age_s > _REFRESH_S:
                folder.touch(path.name)
            return age_s is not None
    except FileNotFoundError:
        return False
    except OSError:  # a networked folder may fail for a while: nobody finds the run then, and frames go on
        return True


def in_containers() -> list[Announcement]:
    """The runs that containers announce in a folder that this host shares with them, newest first. Never raises.

    Their processes cannot be seen from here; these have said within the last minutes that they live.
    """
    found: list[Announcement] = []
    for folder in existing_folders():
        for name in folder.names(".json"):
            run = _read(folder, name)
            if run is not None and (folder.age_s(name) or 0.0) < _LIVES_S:
                found += [run] if run.machine != machine() or (_alive(run) and _is_cut_off(run)) else []
    return sorted(found, key=lambda run: run.started_at, reverse=True)


def told_of_containers() -> str:
    """What there is in containers, and how to watch it, as the rest of a sentence; "" for nothing. Never raises."""
    runs = in_containers()
    if not runs:
        return ""
    first, more = runs[0], f" ({len(runs)} such runs)" if len(runs) > 1 else ""
    is_near = not is_loopback(first.url) or first.network == network()
    how = (
        f"ddpmon watch {shlex.quote(first.url)}"
        if is_near
        else "run ddpmon inside it, or set DDPMON_LISTEN for the run"
    )
    return f"run {first.name} is in a container that shares a folder with this host{more}: {how}"


def left_over(launch: str, name: str) -> Announcement | None:
    """The newest run of this name and launch here whose rank 0 has ended uncleanly; None for none. Never raises."""
    ended = [run for run in _of_this_machine() if (run.launch, run.name) == (launch, name) and not has_rank_0(run)]
    return max(ended, key=lambda run: run.started_at, default=None)


def past_runs() -> list[PastRun]:
    """The runs of this host whose rank 0 disappeared within the last day and did not end cleanly. Never raises.

    A run whose store can still be read is among them only if its launcher is about to start it again.
    """
    known = _of_this_machine()
    return [_past(run, known) for run in known if not _alive(run) or is_restarting(run)]


def _of_this_machine() -> list[Announcement]:
    """The runs of this machine that have not withdrawn their files, those that are set aside among them."""
    found: list[Announcement] = []
    for folder in existing_folders():
        runs = (_read(folder, file) for file in (*folder.names(".json"), *folder.names(".dead")))
        found += [run for run in runs if run is not None and run.machine == machine()]
    return found


def is_restarting(run: Announcement) -> bool:
    """Whether the run's rank 0 is dead, and its launcher lives and may start the ranks again."""
    launcher_lives = run.launcher_pid > 0 and started(run.launcher_pid) == run.launcher_started
    return launcher_lives and not has_rank_0(run) and run.max_restarts is not None and run.restart < run.max_restarts


def _past(run: Announcement, known: Sequence[Announcement]) -> PastRun:
    state = "killed"
    if is_restarting(run):
        job = [each for each in known if (each.launch, each.name) == (run.launch, run.name)]
        state = "restarted" if any(each.restart > run.restart for each in job) else "restarting"
    return PastRun(id=run.run_id, state=state, restart=run.restart, max_restarts=run.max_restarts)


def _live(folder: Folder, name: str) -> Announcement | None:
    run = _read(folder, name)
    if run is None or (run.machine != machine() and (_before_a_reboot(run) or folder.is_stale(name))):
        folder.remove(name)
        return None
    if run.machine != machine():
        return None  # another container's or host's: not ours to judge
    if _alive(run):
        return None if _is_cut_off(run) else run
    with suppress(OSError):
        folder.rename(name, name.replace(".json", ".dead"))
    return None


def _write(folder: Folder, announcement: Announcement) -> Path:
    complete = msgspec.structs.replace(
        announcement,
        pid_started=started(announcement.pid) or 0.0,
        store_started=started(announcement.store_pid) or 0.0,
        launcher_started=started(announcement.launcher_pid) or 0.0,
        machine=machine(),
        network=network(),
    )
    name = stem(announcement.run_id)
    try:
        with os.fdopen(folder.open(f"{name}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(msgspec.json.encode(complete))
        folder.rename(f"{name}.tmp", f"{name}.json")
    except BaseException:
        folder.remove(f"{name}.tmp")
        raise
    folder.remove(f"{name}.dead")
    return folder.path / f"{name}.json"


def _read(folder: Folder, name: str) -> Announcement | None:
    try:
        with os.fdopen(folder.open(name, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_size > MAX_FILE_BYTES:
                return None
            return _decoder.decode(file.read(MAX_FILE_BYTES + 1))
    except (OSError, ValueError, RecursionError):
        return None


def has_rank_0(run: Announcement) -> bool:
    """Whether the run's rank 0 lives."""
    return started(run.pid) == run.pid_started


def _alive(run: Announcement) -> bool:
    """Whether the run can be read, or will be again: rank 0 starts its store again if that has died."""
    return has_rank_0(run) or (run.store_pid > 0 and started(run.store_pid) == run.store_started)


def _is_cut_off(run: Announcement) -> bool:
    """Whether its store listens on the loopback of another network namespace."""
    return is_loopback(run.url) and "" not in (run.network, network()) and run.network != network()


def is_loopback(url: str) -> bool:
    """Whether a store of this URL is reached from its own host only."""
    return url.startswith(("tcp://127.", "tcp://localhost:", "tcp://[::1]:"))


def _before_a_reboot(run: Announcement) -> bool:
    """Whether its process was on this host, and the host has rebooted since."""
    theirs, ours = run.machine.partition("/")[0], machine().partition("/")[0]
    return bool(theirs and ours) and theirs != ours and run.host == socket.gethostname()
