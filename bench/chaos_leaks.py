"""What processes hold over time: file descriptors, threads and memory."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

_MB = 1 << 20
_MOST_MORE = 8  # descriptors or threads more than at first: what a moment may hold


@dataclass(frozen=True)
class Sample:
    """What one process held at one moment."""

    fds: int
    threads: int
    mb: float

    def __str__(self) -> str:
        return f"{self.fds} fds {self.threads} threads {self.mb:.0f} MB"


class Leaks:
    """Samples by process, under what it is."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, int], list[Sample]] = {}

    def note(self, processes: Mapping[str, Sequence[psutil.Process]]) -> None:
        """Take down what each holds now."""
        for name, several in processes.items():
            for process in several:
                with contextlib.suppress(psutil.NoSuchProcess):
                    self._samples.setdefault((name, process.pid), []).append(sample(process))

    def lines(self) -> list[str]:
        """For each kind the process that was seen most often: first, last, and how it went."""
        longest = {name: max((s for (n, _), s in self._samples.items() if n == name), key=len) for name in self._names}
        return [
            f"{name:14} {first_to_last(samples)}; {slope([s.mb for s in samples]) * 1024:+.0f} kB a fault "
            f"over {len(samples)}"
            for name, samples in longest.items()
        ]

    def found(self) -> list[str]:
        """The processes that held more and more descriptors or threads."""
        return [
            f"{name} (pid {pid}) leaks: {first_to_last(samples)}"
            for (name, pid), samples in self._samples.items()
            if min(s.fds for s in samples[-3:]) - samples[0].fds > _MOST_MORE
            or min(s.threads for s in samples[-3:]) - samples[0].threads > _MOST_MORE
        ]

    @property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self._samples))


def sample(process: psutil.Process) -> Sample:
    """What a process holds now."""
    return Sample(process.num_fds(), process.num_threads(), process.memory_info().rss / _MB)


def first_to_last(samples: Sequence[Sample]) -> str:
    """The first and the last in words."""
    return f"{samples[0]} -> {samples[-1]}"


def slope(values: Sequence[float]) -> float:
    """By how much each is greater than the one before, in the least-squares sense."""
    n = len(values)
    mean_x, mean_y = (n - 1) / 2, sum(values) / n
    spread = sum((x - mean_x) ** 2 for x in range(n))
    return sum((x - mean_x) * (y - mean_y) for x, y in enumerate(values)) / spread if spread else 0.0
