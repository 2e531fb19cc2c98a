"""The text, cut into samples, dealt to the ranks and read in an order that depends on the seed alone."""

from __future__ import annotations

import math
import os
import sysconfig
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from .config import Config, ConfigError
from .faults import come_late

Batch = list[Tensor]
CORPUS_BYTES = 1 << 20
EVAL_SHARE = 0.1


def read_corpus(folder: Path | None) -> Tensor:
    """Read up to 1 MiB of text: `folder`'s files in sorted order, or the standard library's source.

    Returns:
        uint8 tensor [bytes].

    Raises:
        ConfigError: the folder holds too little text.
    """
    root, suffix = (Path(sysconfig.get_paths()["stdlib"]), ".py") if folder is None else (folder, "")
    text = bytearray()
    for content in walk_text(root, suffix):
        text += content
        if len(text) >= CORPUS_BYTES:
            break
    if not text:
        raise ConfigError(f"{root} holds no text to train on: name another folder with --text")
    return torch.frombuffer(text[:CORPUS_BYTES], dtype=torch.uint8)


def walk_text(root: Path, suffix: str) -> Iterator[bytes]:
    """Yield the contents of the files under `root` that end in `suffix`; binary files (with a NUL) are left out."""
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if name.endswith(suffix) and path.is_file():
                with path.open("rb") as file:
                    content = file.read(CORPUS_BYTES)
                if b"\0" not in content:
                    yield content


def split(text: Tensor) -> tuple[Tensor, Tensor]:
    """Return the text to train on and the held-out rest."""
    end = len(text) - int(len(text) * EVAL_SHARE)
    return text[:end], text[end:]


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Sample i is the i-th stretch of `context` bytes, and the same stretch one byte on.

    `delays` maps samples to the seconds by which they come late (injected faults).
    """

    def __init__(self, text: Tensor, context: int) -> None:
        self.text = text
        self.context = context
        self.delays: dict[int, float] = {}

    def __len__(self) -> int:
        return (len(self.text) - 1) // self.context

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index in self.delays:
            come_late(self.delays[index])
        window = self.text[index * self.context : (index + 1) * self.context + 1].long()
        return window[:-1], window[1:]


class ResumableSampler(DistributedSampler[Any]):
    """A DistributedSampler that leaves out the first `skip` samples of this rank's epoch, and those from `stop` on."""

    skip = 0
    stop: int | None = None

    def __iter__(self) -> Iterator[int]:
        return islice(super().__iter__(), self.skip, self.stop)


class Stream:
    """This rank's micro-batches, without end; epochs follow each other, each shuffled again."""

    def __init__(self, config: Config, text: Tensor, rank: int, world_size: int) -> None:
        self.config = config
        self.windows = Windows(text, config.context)
        self.sampler = ResumableSampler(self.windows, world_size, rank, seed=config.seed, drop_last=True)
        self.loader = DataLoader(
            self.windows,
            config.batch,
            sampler=self.sampler,
            num_workers=config.workers,
            # Ranks started by --nproc would otherwise spawn their workers too, and each would import torch again.
            multiprocessing_context="fork" if config.workers else None,
            persistent_workers=config.keep_workers,
            drop_last=True,
            pin_memory=torch.cuda.is_available(),
        )
        if not len(self.loader):
            raise ConfigError(f"{len(text)} bytes of text are too few for one batch of every rank: give more text")

    def read(self, step: int, delay_ms: Callable[[int], float], end_step: int | None = None) -> Iterator[Batch]:
        """Yield [x, y], int64 [batch, context] each, from optimizer step `step` on.

        The position within the epoch follows from the step, so a resumed run reads on where it stopped.
        `delay_ms` tells by how many milliseconds a step's first micro-batch shall be late; the data ends
        before step `end_step` (both are injected faults).
        """
        position = step * self.config.accumulate
        end = math.inf if end_step is None else end_step * self.config.accumulate
        while position < end:
            epoch, done = divmod(position, len(self.loader))
            self.sampler.set_epoch(epoch)
            self.sampler.skip = done * self.config.batch
            left = min(len(self.loader) - done, end - position)
            self.sampler.stop = self.sampler.skip + int(left) * self.config.batch
            self.windows.delays = self._delays(position, delay_ms)
            yield from self.loader
            position += int(left)

    def _delays(self, position: int, delay_ms: Callable[[int], float]) -> dict[int, float]:
        """Find the sample that opens each step, so that worker processes that read ahead delay the right step."""
        delays = {}
        for offset, sample in enumerate(islice(self.sampler, None, None, self.config.batch)):
            step, micro = divmod(position + offset, self.config.accumulate)
            if micro == 0 and (ms := delay_ms(step)):
                delays[sample] = ms / 1000
        return delays
