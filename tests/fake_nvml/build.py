"""Builds the simulated NVML with the machine's own C compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"
_SOURCE = Path(__file__).with_name("nvml.c")


class SimulationError(RuntimeError):
    """GPUs cannot be simulated here; the message is a sentence for a person."""


def build(folder: Path, missing: Sequence[str] = ()) -> Path:
    """Build the library into `folder` without the functions `missing`, as in an older driver; returns its path.

    Raises:
        SimulationError: there is no C compiler, or it fails.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SimulationError("simulated GPUs need a C compiler (cc or gcc), and there is none here")
    library = folder / LIBRARY
    renamed = [f"-D{name}=absent_{name}" for name in missing]
    command = [compiler, "-shared", "-fPIC", "-O1", *renamed, "-o", str(library), str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        first = next(iter(done.stderr.splitlines()), f"exit code {done.returncode}")
        raise SimulationError(f"the simulated NVML could not be built: {first}")
    return library


def environment(library: Path, scenario: Path) -> dict[str, str]:
    """The variables with which a new process finds this NVML and this scenario file."""
    earlier = os.environ.get("LD_LIBRARY_PATH")
    folders = [str(library.parent), *([earlier] if earlier else [])]
    return {"LD_LIBRARY_PATH": os.pathsep.join(folders), "DDPMON_FAKE_NVML": str(scenario)}
