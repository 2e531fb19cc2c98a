"""What the ranks of a chaos job wrote down of their losses, and whether it is what an unmonitored run computes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

Losses = dict[int, str]  # step -> loss in hex


@dataclass(frozen=True)
class Life:
    """One process of a rank, and its file."""

    rank: int
    pid: int
    path: Path

    @property
    def steps(self) -> int:
        """How many steps it has made."""
        return self.path.read_bytes().count(b"\n")

    def losses(self) -> Losses:
        """All that it has computed; a last line that is torn is left out."""
        lines = self.path.read_text().rpartition("\n")[0].splitlines()
        return {int(step): loss for step, _, loss in (line.partition(" ") for line in lines)}


def lives(folder: Path) -> list[Life]:
    """All processes of all ranks that have written anything, the earliest first."""
    files = sorted((path for path in folder.iterdir() if path.stat().st_size), key=lambda path: path.stat().st_ctime)
    names = [path.name.split("-") for path in files]
    return [Life(int(rank), int(pid), path) for (rank, pid), path in zip(names, files, strict=True)]


def differences(told: list[Life], reference: list[Life]) -> tuple[int, list[str]]:
    """How many losses were compared, and those that differ or have nothing to be compared with, in words."""
    true = {life.rank: life.losses() for life in reference}
    compared, wrong = 0, list[str]()
    for life in told:
        for step, loss in life.losses().items():
            compared += 1
            if true.get(life.rank, {}).get(step) != loss:
                wrong.append(f"rank {life.rank} (pid {life.pid}) at step {step}")
    return compared, wrong
