"""Wall clocks that jump: a preloaded library shifts a rank's time of day, and never its monotonic clock."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("chaos_clock.c")


class WallClocks:
    """The ranks' wall clocks, right at first.

    Args:
        folder: where the library and the offsets lie.
        ranks: how many.

    Raises:
        RuntimeError: there is no C compiler, or it fails.
    """

    def __init__(self, folder: Path, ranks: int) -> None:
        self._path, library = folder / "clock", folder / "clock.so"
        for rank in range(ranks):
            self.set(rank, 0)
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise RuntimeError("jumping clocks need a C compiler (cc or gcc)")
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the library of the clocks could not be built: {done.stderr}")
        self.environment = {"LD_PRELOAD": str(library), "WALL_CLOCK": str(self._path)}

    def set(self, rank: int, offset_s: int) -> None:
        """From now on a rank's clock is off by so much."""
        with Path(f"{self._path}.{rank}").open("r+b" if Path(f"{self._path}.{rank}").exists() else "wb") as file:
            file.write(struct.pack("<q", offset_s))
