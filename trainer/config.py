"""The command line of the trainer: every option, its default and its checks."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from .fault import FAULT_HELP, Fault, parse_fault

_DESCRIPTION = "Train a small byte-level GPT with DistributedDataParallel."


class ConfigError(Exception):
    """The user asked for something that cannot be done; the text is one sentence to show."""


@dataclass(frozen=True)
class Config:
    """One run's options; sizes are per rank, counts of steps are optimizer steps."""

    text: Path | None
    steps: int
    batch: int
    context: int
    layers: int
    heads: int
    width: int
    lr: float
    seed: int
    name: str
    backend: str
    nproc: int
    accumulate: int
    workers: int
    keep_workers: bool
    bucket_cap_mb: float
    comm_hook: str
    bucket_view: bool
    static_graph: bool
    sync_every: bool
    zero: bool
    fsdp: bool
    dp: bool
    amp: bool
    compile: bool
    buckets: bool
    eval_every: int
    log_every: int
    checkpoint: Path | None
    checkpoint_every: int
    dump: Path | None
    fault: tuple[Fault, ...]


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises, so that one rank can speak for all."""

    def error(self, message: str) -> NoReturn:
        """Raise `ConfigError` where argparse would print the usage and exit."""
        raise ConfigError(message)


def number(kind: type[int] | type[float], least: float) -> Callable[[str], float]:
    """Make an argparse type that takes numbers of `kind` from `least` on."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = kind(-1)
        if not least <= value < float("inf"):
            noun = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"'{text}' is not {noun} of at least {least:g}")
        return value

    return parse


def fault(text: str) -> Fault:
    """Parse one `--fault` for argparse."""
    try:
        return parse_fault(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def build_parser() -> Parser:
    """Return the parser of all options."""
    parser = Parser(prog=f"python -m {__package__}", description=_DESCRIPTION)
    model_options(parser)
    run_options(parser)
    output_options(parser)
    return parser


def model_options(parser: Parser) -> None:
    """Add what is learned: the text, the model and the optimisation."""
    count, add = number(int, 1), parser.add_argument_group("model and data").add_argument
    add("--text", type=Path, metavar="FOLDER", help="train on this folder's text (default: Python's standard library)")
    add("--steps", type=count, default=600, help="number of optimizer steps")
    add("--batch", type=count, default=8, help="samples per rank and micro-batch")
    add("--context", type=count, default=64, help="bytes per sample")
    add("--layers", type=count, default=4)
    add("--heads", type=count, default=4)
    add("--width", type=count, default=128)
    add("--lr", type=number(float, 0), default=1e-3, help="learning rate of AdamW")
    add("--seed", type=number(int, 0), default=0)
    add("--accumulate", type=count, default=1, metavar="N", help="micro-batches per step")


def run_options(parser: Parser) -> None:
    """Add how it runs: the processes, the communication and the injected faults."""
    add = parser.add_argument_group("distribution").add_argument
    add("--nproc", type=number(int, 0), default=0, help="start this many ranks here, without torchrun")
    add(
        "--backend",
        choices=("auto", "gloo", "nccl"),
        default="auto",
        help="auto: nccl if every rank has a GPU, else gloo",
    )
    add("--workers", type=number(int, 0), default=0, metavar="N", help="DataLoader workers per rank")
    add("--bucket-cap-mb", type=number(float, 0.001), default=1.0, metavar="MB", help="size of a gradient bucket")
    add("--keep-workers", action="store_true", help="keep the DataLoader workers from epoch to epoch")
    add("--comm-hook", choices=("none", "fp16", "powersgd"), default="none", help="compress gradients")
    add("--bucket-view", action="store_true", help="gradients are views of the buckets: one copy less")
    add("--static-graph", action="store_true", help="tell DDP that the graph never changes")
    add("--sync-every", action="store_true", help="reduce after every micro-batch, without no_sync()")
    add("--zero", action="store_true", help="ZeroRedundancyOptimizer: each rank has a part of the optimizer's state")
    add("--dp", action="store_true", help="DataParallel: one process for all GPUs")
    add("--fsdp", action="store_true", help="shard the parameters with FSDP2 instead of DDP")
    add("--amp", action="store_true", help="autocast: bf16, or fp16 with loss scaling on older GPUs")
    add("--compile", action="store_true", help="torch.compile the model")
    add("--fault", type=fault, action="append", default=[], metavar="FAULT", help=f"inject a fault: {FAULT_HELP}")


def output_options(parser: Parser) -> None:
    """Add what a run prints and leaves behind."""
    count, every = number(int, 1), number(int, 0)
    add = parser.add_argument_group("output").add_argument
    add("--name", default="trainer", help="the run's name in the monitor")
    add("--buckets", action="store_true", help="let the monitor time each gradient bucket")
    add("--log-every", type=count, default=20, metavar="K", help="steps between two lines of progress")
    add("--eval-every", type=every, default=0, metavar="K", help="steps between evaluations (0: none)")
    add(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="write checkpoints to this file, and resume from it if it exists",
    )
    add("--checkpoint-every", type=count, default=100, metavar="K", help="steps between checkpoints")
    add("--dump", type=Path, metavar="FILE", help="write exact losses and a hash of the parameters (JSON)")


def parse_args(argv: Sequence[str] | None = None) -> Config:
    """Read the command line.

    Raises:
        ConfigError: an option is unknown, malformed or contradicts another.
    """
    options = vars(build_parser().parse_args(argv))
    config = Config(**{**options, "fault": tuple(options["fault"])})
    if config.width % config.heads:
        raise ConfigError(f"--width {config.width} cannot be divided among --heads {config.heads}: use a multiple")
    if config.text is not None and not config.text.is_dir():
        raise ConfigError(f"--text {config.text} is not a folder: name a folder that holds text files")
    if config.dump is not None and not config.dump.parent.is_dir():
        raise ConfigError(f"--dump {config.dump} cannot be written: there is no folder {config.dump.parent}")
    if (config.fsdp or config.zero) and (config.checkpoint or config.dump):
        raise ConfigError("--checkpoint and --dump write what one rank has: leave --fsdp and --zero out")
    if config.dp and (config.nproc > 1 or config.fsdp or config.zero):
        raise ConfigError("--dp is one process: leave --nproc, --fsdp and --zero out")
    if config.keep_workers and not config.workers:
        raise ConfigError("--keep-workers needs --workers")
    if config.seed >= 2**31:
        raise ConfigError(f"--seed {config.seed} is too large: it must be below {2**31}")
    return config
