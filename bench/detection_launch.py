"""Real trainings for the bench: ranks under torchrun, as two hosts by name, or in two network namespaces."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
from network import INTERFACE, Network

ROOT = Path(__file__).resolve().parent.parent
Command = list[str]


class Training:
    """The processes of one run and their log; `environment` comes once a process."""

    def __init__(self, folder: Path, commands: Sequence[Command], environments: Sequence[dict[str, str]]) -> None:
        self.log = folder / "training.log"
        common = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_RUNTIME_DIR": str(folder), "PYTHONPATH": str(ROOT)}
        with self.log.open("wb") as log:
            self.processes = [
                subprocess.Popen(
                    command, env={**common, **extra}, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                )
                for command, extra in zip(commands, environments, strict=True)
            ]  # fmt: skip

    @property
    def ended(self) -> bool:
        """Whether every process has gone."""
        return all(process.poll() is not None for process in self.processes)

    @property
    def step(self) -> int:
        """The last step that the trainer's own log tells of."""
        told = re.findall(r"^step (\d+)", self.log.read_text(errors="replace"), re.MULTILINE)
        return int(told[-1]) if told else 0

    @property
    def failure(self) -> str:
        """What went wrong, empty if nothing did."""
        codes = [process.poll() for process in self.processes]
        if all(code == 0 for code in codes):
            return ""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        telling = [line for line in lines if "Error" in line] or lines[-1:] or ["no output"]
        return f"exit codes {codes}: {telling[0][:160]}"

    def end(self) -> None:
        """Kill every process and its children."""
        for process in self.processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def training(
    launch: str, folder: Path, ranks: int, arguments: Sequence[str], net: Network | None = None
) -> Iterator[Training]:
    """Start the trainer; nothing of it is left at the end.

    Args:
        launch: torchrun; nodes: half of the ranks on host0, half on host1, by name; link: so, on the hosts of `net`.
        folder: for the log and the discovery file.
        ranks: how many.
        arguments: the trainer's.
        net: two hosts.
    """
    if launch == "torchrun":
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        run = Training(folder, [[sys.executable, *torchrun, "-m", "trainer", *arguments]], [{}])
    else:
        extra = {"MASTER_ADDR": net.address(0), "GLOO_SOCKET_IFNAME": INTERFACE} if net else {}
        places = [place(rank, ranks, extra) for rank in range(ranks)]
        prefixes = [net.enter(rank * 2 // ranks) if net else [] for rank in range(ranks)]
        commands = [[*prefix, sys.executable, "-m", "trainer", *arguments] for prefix in prefixes]
        run = Training(folder, commands, places)
    try:
        yield run
    finally:
        run.end()


def place(rank: int, ranks: int, extra: dict[str, str]) -> dict[str, str]:
    """A launcher's environment for one rank of two hosts."""
    half = ranks // 2
    host = rank // half
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank % half),
        "LOCAL_WORLD_SIZE": str(half),
        "GROUP_RANK": str(host),
        "GROUP_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port(rank)),
        "DDPMON_HOSTNAME": f"host{host}",
        **extra,
    }


_ports: list[int] = []


def free_port(rank: int) -> int:
    """A port that nobody listens at; rank 0 asks for a new one, the others get the same."""
    if rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            _ports.append(free.getsockname()[1])
    return _ports[-1]
