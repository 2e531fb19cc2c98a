"""Where a check stands among the processes that were started with it, by torchrun's variables or Slurm's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_PORT = 29500


@dataclass(frozen=True, slots=True)
class Place:
    """This process among those of the check.

    Attributes:
        host, hosts: this host's number and how many there are.
        speaks: whether this process speaks for its host.
        ranks: how many were started on this host; None where nothing but this shell was.
        meeting: (address, port) of the store to meet at, None on one host.
        hosted: whether a launcher already hosts that store; else host 0's process must.
    """

    host: int = 0
    hosts: int = 1
    speaks: bool = True
    ranks: int | None = None
    meeting: tuple[str, int] | None = None
    hosted: bool = False

    @property
    def launched(self) -> bool:
        """Whether a launcher has started this process."""
        return self.ranks is not None


def find_place(environment: Mapping[str, str] = os.environ) -> Place:
    """Read it from the launcher's variables.

    Raises:
        ValueError: a launcher's variable is missing or no number.
    """
    if "GROUP_RANK" in environment:
        return _torchrun(environment)
    if "SLURM_PROCID" in environment and "SLURM_STEP_ID" in environment:
        return _slurm(environment)
    return Place()


def _torchrun(environment: Mapping[str, str]) -> Place:
    hosts = _number(environment, "GROUP_WORLD_SIZE", default=1)
    return Place(
        host=_number(environment, "GROUP_RANK"),
        hosts=hosts,
        speaks=_number(environment, "LOCAL_RANK") == 0,
        ranks=_number(environment, "LOCAL_WORLD_SIZE"),
        meeting=(environment.get("MASTER_ADDR", ""), _number(environment, "MASTER_PORT")) if hosts > 1 else None,
        hosted=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


def _slurm(environment: Mapping[str, str]) -> Place:
    hosts = _number(environment, "SLURM_NNODES", default=1)
    port = _number(environment, "MASTER_PORT", default=DEFAULT_PORT)
    return Place(
        host=_number(environment, "SLURM_NODEID", default=0),
        hosts=hosts,
        speaks=_number(environment, "SLURM_LOCALID", default=0) == 0,
        ranks=max(1, _number(environment, "SLURM_NTASKS", default=1) // hosts),
        meeting=(environment.get("MASTER_ADDR") or _first_host(environment), port) if hosts > 1 else None,
    )


def _first_host(environment: Mapping[str, str]) -> str:
    """The first host of the job, as Slurm's own command spells the list out."""
    hosts = environment.get("SLURM_JOB_NODELIST", "")
    try:
        command = ["scontrol", "show", "hostnames", hosts]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        raise ValueError("the first host is unknown: set MASTER_ADDR to it") from None


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    value = environment.get(name)
    if value is None and default is not None:
        return default
    try:
        return int(value or "")
    except ValueError:
        raise ValueError(
            f"{name}={value or ''} is not a number: start this under torchrun or srun, or by itself"
        ) from None
