"""`python -m trainer compare`: the same work by one process, and by several ranks in different ways, in turns.

All ranks are started once. Each variant trains on some of them while the others wait. In every round each variant makes
a few steps, so that a slower moment of the machine falls on all of them. The batch of a step is the same everywhere.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist

import ddpmon

from .config import Config, ConfigError, Parser, number, parse_args
from .data import Batch
from .launch import Place, place, spawn
from .loop import Trainer
from .rank import STOPPED, end_even_if_stuck, listen_for_signals, refuse
from .variants_chart import svg, table

_WARM_UP, _MEETINGS = 2, 10  # steps and barriers that are not counted, and that are
_DESCRIPTION = "Train the same batches on one process and, in several ways, on several ranks; print a table."


@dataclass(frozen=True)
class Variant:
    """One way to do the work: on how many ranks, and with which options of the trainer."""

    name: str
    ranks: int
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What is compared."""

    nproc: int
    backend: str
    rounds: int
    steps: int
    samples: int
    only: str
    out: str


@dataclass
class Measured:
    """What one variant took, in milliseconds: each step, each reduction of all gradients, each barrier."""

    name: str
    ranks: int
    samples: int
    step_ms: list[float] = field(default_factory=list)
    reduce_ms: list[float] = field(default_factory=list)
    barrier_ms: list[float] = field(default_factory=list)


def variants(plan: Plan) -> list[Variant]:
    """One process; all numbers of ranks that are powers of two; and on two ranks the settings."""
    counts = [2**power for power in range(1, plan.nproc.bit_length()) if 2**power <= plan.nproc]
    found = [Variant("one process", 1), *(Variant(f"DDP, {ranks} ranks", ranks) for ranks in counts)]
    if torch.cuda.device_count() > 1:
        found.append(Variant("DataParallel", 1, ("--dp",)))
    for name, *options in (
        ("bucket_cap_mb 0.1", "--bucket-cap-mb=0.1"),
        ("bucket_cap_mb 25", "--bucket-cap-mb=25"),
        ("gradient_as_bucket_view", "--bucket-view"),
        ("static_graph", "--static-graph"),
        ("4 micro-batches, no_sync", "--accumulate=4"),
        ("4 micro-batches, each reduced", "--accumulate=4", "--sync-every"),
        ("autocast bf16", "--amp"),
        ("fp16 compression", "--comm-hook=fp16"),
        ("PowerSGD", "--comm-hook=powersgd"),
        ("2 DataLoader workers", "--workers=2"),
        ("ZeroRedundancyOptimizer", "--zero"),
        ("FSDP2", "--fsdp"),
    ):
        found.append(Variant(name, 2, tuple(options)))
    return [variant for variant in found if variant.ranks == 1 or plan.only in variant.name]


class Cell:
    """One variant on the ranks that take part in it; those that do not have none."""

    def __init__(self, variant: Variant, plan: Plan, here: Place, group: dist.ProcessGroup | None) -> None:
        self.config = _config(variant, plan)
        self.group = group
        self.measured = Measured(variant.name, variant.ranks, plan.samples)
        self._trainer = Trainer(self.config, Place(here.rank, variant.ranks, here.device), group)
        self._trainer.monitor = ddpmon.Monitor(self._trainer.ddp)  # one that is attached to nothing
        self._batches: Iterator[Batch] = self._trainer.stream.read(0, lambda _: 0.0)
        self._step = 0

    def play(self, steps: int) -> None:
        """Train some steps, and then reduce and meet without any work."""
        for turn in range(_WARM_UP + steps):
            took = _timed(self._train, self._trainer.device)
            if turn >= _WARM_UP:
                self.measured.step_ms.append(took)
        if self.measured.ranks > 1:
            self._communicate()

    def _train(self) -> None:
        self._trainer.train_step(self._step, self._batches)
        self._step += 1

    def _communicate(self) -> None:
        sent = torch.float16 if self.config.comm_hook == "fp16" else torch.float32
        count = sum(parameter.numel() for parameter in self._trainer.model.parameters())
        gradients = torch.zeros(count, dtype=sent, device=self._trainer.device)
        for turn in range(_WARM_UP + _MEETINGS):
            barrier = _timed(lambda: dist.barrier(self.group), self._trainer.device)
            reduce = _timed(lambda: dist.all_reduce(gradients, group=self.group), self._trainer.device)
            if turn >= _WARM_UP:
                self.measured.barrier_ms.append(barrier)
                self.measured.reduce_ms.append(reduce)


def _timed(run: Callable[[], object], device: torch.device) -> float:
    """The milliseconds that it takes, with what a GPU has left to do."""
    began = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - began) * 1e3


def _config(variant: Variant, plan: Plan) -> Config:
    """The trainer's options: micro-batches of such a size that a step has the plan's samples on all ranks together."""
    options = [*variant.options, f"--backend={plan.backend}"]
    parts = variant.ranks * parse_args(options).accumulate
    if plan.samples % parts:
        raise ConfigError(f"--samples {plan.samples} cannot be divided among {parts} micro-batches: use a multiple")
    return parse_args([*options, f"--batch={plan.samples // parts}"])


def _run_rank(plan: Plan) -> int:
    """Play every variant in every round, as one rank; rank 0 writes what was measured. Returns the exit code."""
    listen_for_signals()
    end_even_if_stuck()
    torch.set_num_threads(1)
    try:
        with place(plan) as here:
            _play(plan, here)
    except ConfigError as error:
        return refuse(error)
    except KeyboardInterrupt:
        os._exit(STOPPED)
    return 0


def _play(plan: Plan, here: Place) -> None:
    cells = []
    for variant in variants(plan):
        group = dist.new_group([*range(variant.ranks)])  # all ranks take part in making it
        mine = here.rank < variant.ranks
        cells.append(Cell(variant, plan, here, group if variant.ranks > 1 else None) if mine else None)
        dist.barrier()
    for turn in range(plan.rounds):
        for cell in cells:
            if cell is not None:
                cell.play(plan.steps)
            dist.barrier()
        if here.rank == 0:
            print(f"round {turn + 1} of {plan.rounds}", file=sys.stderr, flush=True)
    if here.rank == 0:
        Path(plan.out).write_text(json.dumps([asdict(cell.measured) for cell in cells if cell is not None]))


def compare(argv: Sequence[str]) -> int:
    """Compare the variants on this host, print the table and draw the picture; return the exit code."""
    listen_for_signals()
    parser = Parser(prog=f"python -m {__package__} compare", description=_DESCRIPTION)
    count = number(int, 1)
    parser.add_argument("--nproc", type=number(int, 2), default=4, help="the most ranks")
    parser.add_argument("--rounds", type=count, default=5, help="how often each variant has its turn")
    parser.add_argument("--steps", type=count, default=8, help="measured steps of a turn")
    parser.add_argument("--samples", type=count, default=32, help="samples of a step, on all ranks together")
    parser.add_argument("--only", default="", metavar="WORD", help="only variants whose name has this in it")
    parser.add_argument("--backend", choices=("auto", "gloo", "nccl"), default="auto")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the throughputs into this file")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "measured.json")
        try:
            options = vars(parser.parse_args(argv))
            picture: Path | None = options.pop("svg")
            plan = Plan(**options, out=str(out))
            _check(plan, picture)
        except ConfigError as error:
            return refuse(error)
        try:
            code = spawn(_run_rank, plan)
        except KeyboardInterrupt:
            return STOPPED
        if code:
            return code
        found = [Measured(**each) for each in json.loads(out.read_text())]
    print(table(found))
    if picture is not None:
        picture.write_text(svg(found), "utf-8")
    return 0


def _check(plan: Plan, picture: Path | None) -> None:
    """Refuse what cannot be done before any rank is started.

    Raises:
        ConfigError: the samples cannot be divided, no variant has such a name, or the picture has no folder.
    """
    found = variants(plan)
    if not [variant for variant in found if variant.ranks > 1]:
        raise ConfigError(f"--only {plan.only}: no variant has that in its name")
    for variant in found:
        _config(variant, plan)
    if picture is not None and not picture.parent.is_dir():
        raise ConfigError(f"--svg {picture} cannot be written: there is no folder {picture.parent}")
