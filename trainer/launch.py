"""Where a rank runs, how ranks are started, and how they leave together."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, start_processes

from .config import ConfigError

_LONGEST_TEMPDIR = 64  # bytes: the server's socket lies there, and a socket's path has 107 at most


@dataclass(frozen=True)
class Place:
    """A rank's place in the run."""

    rank: int
    world_size: int
    device: torch.device


class Launch(Protocol):
    """What is started: how many ranks on this host, and with which backend."""

    @property
    def nproc(self) -> int:
        """Ranks."""

    @property
    def backend(self) -> str:
        """The backend: "auto", "gloo" or "nccl"."""


L = TypeVar("L", bound=Launch)


def spawn(run: Callable[[L], int], config: L) -> int:
    """Start `config.nproc` ranks on this host and wait for them.

    The rendezvous store lives in this process: its port is bound before anybody is told, and it outlives all ranks.

    Returns:
        The exit code: 0, or that of the rank that failed first.
    """
    # What happened is said below; that the others are then ended needs no warning.
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(store.port), TORCHELASTIC_USE_AGENT_STORE="True")
    ranks = start_processes(_enter, (run, config), config.nproc, join=False, start_method=_start_method())
    try:
        while not ranks.join():
            pass
    except ProcessExitedException as error:
        if error.exit_code < 0:
            print(f"trainer: rank {error.error_index} was ended by signal {-error.exit_code}", file=sys.stderr)
        return error.exit_code if error.exit_code > 0 else 128 - error.exit_code
    except ProcessRaisedException as error:
        print(f"trainer: rank {error.error_index} failed{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        for process in ranks.processes:
            process.terminate()
        for process in ranks.processes:
            process.join()
        raise
    return 0


def _start_method() -> str:
    """How ranks are started: from a server that has imported torch once for all of them, where there can be one."""
    if len(os.fsencode(tempfile.gettempdir())) > _LONGEST_TEMPDIR:
        return "spawn"
    # torch._dynamo is what DDP and the optimizer import, for seconds, when they are made.
    multiprocessing.set_forkserver_preload(["torch._dynamo", f"{__package__}.loop"])
    return "forkserver"


def _enter(rank: int, run: Callable[[L], int], config: L) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    os.environ.update(WORLD_SIZE=str(config.nproc), LOCAL_WORLD_SIZE=str(config.nproc))
    threading.Thread(target=_end_with_launcher, daemon=True).start()
    sys.exit(run(config))


def _end_with_launcher() -> None:
    """A rank is the server's child: that its launcher has been killed it must find out itself."""
    launcher = multiprocessing.parent_process()
    if launcher is not None:
        launcher.join()
        os.kill(os.getpid(), signal.SIGTERM)


def pick_device(backend: str) -> torch.device:
    """Choose this rank's GPU if the backend wants one and every rank of the host has one, else the CPU.

    Raises:
        ConfigError: nccl was asked for and there are not enough GPUs.
    """
    needed, found = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if backend == "nccl" and found < needed:
        raise ConfigError(
            f"--backend nccl needs a GPU for each of the {needed} ranks on this host, and there are {found}: use gloo"
        )
    if backend == "gloo" or found < needed:
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


@contextmanager
def place(config: Launch) -> Iterator[Place]:
    """Join the process group, if a launcher set RANK, and leave it together with all other ranks.

    Raises:
        ConfigError: the launcher's environment is incomplete.
    """
    device = pick_device(config.backend)
    if "RANK" not in os.environ:
        yield Place(0, 1, device)
        return
    try:
        store, rank, world_size = next(rendezvous("env://"))
    except ValueError as error:
        raise ConfigError(f"{error}: start the ranks with torchrun or --nproc") from None
    # A launcher's store outlives a restart, and with it the addresses of ranks that are dead by now.
    store = PrefixStore(f"trainer/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", store=store, rank=rank, world_size=world_size)
    yield Place(rank, world_size, device)
    leave(store, rank, world_size)


def leave(store: Store, rank: int, world_size: int) -> None:
    """Leave when everybody has finished, the host of the store last.

    A collective barrier cannot end a run: the first rank out of it may close its sockets while the last one still
    reads from them. The store is a third party, so meeting there has no such race.
    """
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    _arrive(store, "finished", world_size)
    store.wait(["finished/all"])
    dist.destroy_process_group()
    _arrive(store, "left", world_size)
    if rank == 0:
        store.wait(["left/all"])


def _arrive(store: Store, what: str, world_size: int) -> None:
    if store.add(what, 1) == world_size:
        store.set(f"{what}/all", "1")
