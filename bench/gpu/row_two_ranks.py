"""Row 11: two ranks on one GPU, through Gloo: three faults, from the rank to `ddpmon status --json`.

NCCL refuses two ranks on one board, so Gloo reduces their CUDA tensors. From step 60 on rank 1 is 60 ms late in input
(its data), 20 ms in forward, or 20 ms in backward (its device is busy). Each fault is a run of its own; the command is
asked every two seconds until it names the right rank and phase, for 45 s at most. On a GPU 2 minutes.

    python bench/gpu/row_two_ranks.py [--rehearse]
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from course_device import Device
from course_figures import Figures, run_row
from course_job import Delayed, Delays
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import ddpmon
from ddpmon.diagnose.kinds import KINDS

_FAULTS = {"input": 60.0, "forward": 20.0, "backward": 20.0}  # ms
_LATE, _FROM = 1, 60
_WIDTH, _BATCH = 256, 64
_ASK_S, _PATIENCE_S, _REHEARSED_S = 2.0, 45.0, 75.0


class Data(Dataset[Tensor]):
    """Batches, which come late from a step on."""

    def __init__(self, late_ms: float) -> None:
        self._late_ms = late_ms

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(self._late_ms / 1e3 if index >= _FROM else 0.0)
        return torch.randn(_BATCH, _WIDTH)


def play(fault: str, rehearse: bool) -> None:
    """Train as one of the two ranks until the row ends it."""
    device, rank = Device(rehearse), int(os.environ["RANK"])
    dist.init_process_group("gloo")
    late_ms = _FAULTS[fault] if rank == _LATE else 0.0
    delays = Delays()
    torch.manual_seed(0)
    net = Delayed(nn.Sequential(*(nn.Linear(_WIDTH, _WIDTH) for _ in range(6))), device, delays).to(device.at)
    ddp = DistributedDataParallel(net, device_ids=device.ids)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-4)
    monitor = ddpmon.attach(ddp, name=fault)
    data = Data(late_ms if fault == "input" else 0.0)
    for step, x in enumerate(DataLoader(data, batch_size=None)):
        if step == _FROM and fault != "input":
            setattr(delays, fault, late_ms)
        loss = ddp(x.to(device.at)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        monitor.log(loss=loss.detach(), samples=_BATCH)


@contextmanager
def ranks(fault: str, folder: Path, rehearse: bool) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Both ranks, until the end of the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, __file__, "play", fault, *(["--rehearse"] if rehearse else [])]
    processes = [
        subprocess.Popen(command, env={**os.environ, **common, **own, "XDG_RUNTIME_DIR": str(folder)})
        for own in ({"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2))
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def status(folder: Path, name: str) -> dict[str, Any]:
    """What `ddpmon status --json` prints of the run of that name; {} while it finds none.

    Raises:
        SystemExit: the command does not work here.
    """
    command = [sys.executable, "-m", "ddpmon.cli", "status", "--json", name]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if "Error" in done.stderr and not done.stdout:
        raise SystemExit(done.stderr.strip().splitlines()[-1][:300])
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {}
    return found


def watch(fault: str, folder: Path, rehearse: bool, figures: Figures) -> str:
    """Ask until the right rank and phase are named; returns what is wrong with the last answer, or nothing."""
    began, problem = time.monotonic(), "nobody is named"
    with ranks(fault, folder, rehearse) as processes:
        while time.monotonic() - began < (_REHEARSED_S if rehearse else _PATIENCE_S):
            time.sleep(_ASK_S)
            if any(process.poll() is not None for process in processes):
                return "a rank has ended"
            said = status(folder, fault)
            loud = [each for each in said.get("findings", ()) if each["severity"] != "info"]
            named = [each for each in loud if KINDS[each["kind"]].late]
            problem = compare(fault, named[0], said, figures) if named else problem
            if not problem:
                break
    return problem


def compare(fault: str, finding: dict[str, Any], said: dict[str, Any], figures: Figures) -> str:
    """Whether the straggler is the late rank, and its phase the fault's."""
    figures.put({f"{fault}: said": finding["summary"], f"{fault}: cost %": finding["cost_pct"]})
    for rank in said["ranks"]:
        shown = {"work": rank["work_ms"], "exposed": rank["exposed_ms"], **rank["phases_ms"]}
        words = ", ".join(f"{name} {ms:.1f}" for name, ms in shown.items() if ms is not None)
        figures.put({f"{fault}: rank {rank['rank']}, ms": words})
    if finding["ranks"] != [_LATE]:
        return f"ranks {finding['ranks']} are named"
    return "" if finding["phase"] == fault else f"the phase is said to be {finding['phase']}"


def measure(figures: Figures, rehearse: bool) -> None:
    """Play the three faults."""
    wrong: dict[str, str] = {}
    for fault in _FAULTS:
        with tempfile.TemporaryDirectory(prefix="ddpmon-course-") as name:
            problem = watch(fault, Path(name), rehearse, figures)
        figures.say(f"{fault}: {problem or 'rank 1, right phase'}")
        wrong |= {fault: problem} if problem else {}
    shown = "; ".join(f"{fault}: {problem}" for fault, problem in wrong.items())
    figures.conclude(not wrong, shown or "rank and phase are right for all three")


if __name__ == "__main__":
    if sys.argv[1:2] == ["play"]:
        play(sys.argv[2], "--rehearse" in sys.argv)
    run_row(measure, __doc__)
