"""`ddpmon inject`: watches a training that runs already and was started without ddpmon."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

import ddpmon
from ddpmon.commands.console import OK, USAGE, complain

PAYLOAD = Path(ddpmon.__file__).resolve().parent / "autoattach" / "injected.py"
FAILED = 3
_TORCH = "libtorch_python"
_HELPERS = ("pt_data_worker", "pt_elastic")  # as torch names its DataLoader workers and its launcher
_OLDER = (
    "inject needs Python 3.14 or newer, here and in the training, and this is {}: stop the training at its next "
    "checkpoint and start it again with `ddpmon run -- COMMAND`"
)


def inject(pids: Sequence[int], *, every: bool) -> int:
    """Ask these processes, or all of this user's that use torch, to watch their models; returns the exit code."""
    if every == bool(pids):
        complain("inject needs the numbers of all ranks of the training on this host, or --all")
        return USAGE
    remote_exec: Callable[[int, str], None] | None = getattr(sys, "remote_exec", None)
    if remote_exec is None:
        complain(_OLDER.format(".".join(map(str, sys.version_info[:2]))))
        return USAGE
    asked = [*processes()] if every else [*pids]
    if not asked:
        complain("no process of this user uses torch")
        return FAILED
    refused = [pid for pid in asked if not _ask(remote_exec, pid)]
    if len(refused) < len(asked):
        done = ", ".join(str(pid) for pid in asked if pid not in refused)
        print(
            f"asked {done}: a training is watched a few seconds after all of its ranks, on all hosts, were asked; they "
            "must be within 5 min"
        )
    if refused:
        complain("a training of which a rank cannot be asked is not watched; after 5 min its log says who was missing")
    return FAILED if refused else OK


def processes() -> Iterator[int]:
    """This user's processes that have loaded torch, without DataLoader workers and launchers."""
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.uids().real != os.getuid() or process.name() in _HELPERS:
                continue
            if any(_TORCH in mapped.path for mapped in process.memory_maps()):
                yield process.pid
        except (psutil.Error, OSError):
            continue


def _ask(remote_exec: Callable[[int, str], None], pid: int) -> bool:
    """Have a process run the payload as soon as its main thread comes back to Python; says why if it will not."""
    if not psutil.pid_exists(pid):
        complain(f"pid {pid}: there is no such process on this host")
        return False
    try:
        remote_exec(pid, str(PAYLOAD))
    except PermissionError:
        complain(
            f"pid {pid}: not allowed: it must be yours, and /proc/sys/kernel/yama/ptrace_scope must be 0; else use sudo"
        )
    except Exception as error:  # the interpreter's own words for another version, another program, no support
        version = ".".join(map(str, sys.version_info[:2]))
        complain(f"pid {pid}: {error}; it must be a Python {version}, as this one is, with remote debugging allowed")
    else:
        return True
    return False
