"""Train: `torchrun --nproc-per-node 4 -m trainer`, or `python -m trainer [--nproc 4]`; or `python -m trainer compare`.

These are the commands in a checkout. Where ddpmon is installed the trainer is `ddpmon.trainer`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from .config import Config, ConfigError, parse_args
from .launch import spawn
from .rank import STOPPED, listen_for_signals, refuse, run_rank


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line and train, as one rank or as the parent of several; return the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    if [*argv[:1]] == ["compare"]:
        from .variants import compare

        return compare(argv[1:])
    try:
        config = parse_args(argv)
        check_world(config)
    except ConfigError as error:
        return refuse(error)
    if config.nproc == 0:
        return run_rank(config)
    listen_for_signals()
    try:
        return spawn(run_rank, config)
    except KeyboardInterrupt:
        return STOPPED


def check_world(config: Config) -> None:
    """Refuse options that do not fit the number of ranks.

    Raises:
        ConfigError: two launchers at once, ranks that would train without each other, no ranks to shard over, or a
            fault for a rank that does not exist.
    """
    if config.nproc and "RANK" in os.environ:
        raise ConfigError("--nproc starts the ranks itself: omit it under torchrun")
    ranks = config.nproc or int(os.environ.get("WORLD_SIZE", "1"))
    if config.dp and ranks > 1:
        raise ConfigError(f"--dp is one process for all GPUs: start it without torchrun, which starts {ranks} ranks")
    if (config.fsdp or config.zero) and not config.nproc and "RANK" not in os.environ:
        raise ConfigError("--fsdp and --zero spread the model over ranks: start these with torchrun or --nproc")
    for fault in config.fault:
        if max(fault.ranks) >= ranks:
            raise ConfigError(f"--fault names rank {max(fault.ranks)}, but the last rank of this run is {ranks - 1}")


if __name__ == "__main__":
    sys.exit(main())
