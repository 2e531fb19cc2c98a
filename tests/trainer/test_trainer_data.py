from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import Tensor

from trainer.config import ConfigError, parse_args
from trainer.data import CORPUS_BYTES, Batch, Stream, read_corpus, split

TEXT = (torch.arange(2000) % 251).to(torch.uint8)


def stream(*options: str, rank: int = 0, world_size: int = 2) -> Stream:
    return Stream(parse_args(["--batch", "2", "--context", "8", *options]), TEXT, rank, world_size)


def take(source: Stream, step: int, count: int) -> list[Batch]:
    return list(islice(source.read(step, lambda _step: 0.0), count))


def equal(a: list[Batch], b: list[Batch]) -> bool:
    return all(torch.equal(x, y) for one, other in zip(a, b, strict=True) for x, y in zip(one, other, strict=True))


def test_a_batch_is_text_and_the_same_text_one_byte_on() -> None:
    x, y = take(stream(), 0, 1)[0]
    assert x.shape == y.shape == (2, 8)
    assert x.dtype == torch.int64
    assert torch.equal(x[:, 1:], y[:, :-1])


def test_an_epoch_deals_each_sample_to_one_rank() -> None:
    def starts(rank: int) -> set[int]:
        source = stream(rank=rank)
        source.windows.text = torch.arange(2000, dtype=torch.int32)
        return {int(x[0]) for batch in take(source, 0, len(source.loader)) for x in batch[0]}

    a, b = starts(0), starts(1)
    assert not a & b
    assert len(a | b) == 4 * len(stream().loader)


def test_epochs_differ_and_are_repeatable() -> None:
    source = stream()
    epoch = len(source.loader)
    batches = take(source, 0, 2 * epoch)
    assert not equal(batches[:epoch], batches[epoch:])
    assert equal(batches, take(stream(), 0, 2 * epoch))


@pytest.mark.parametrize("options", [(), ("--accumulate", "3"), ("--workers", "2")])
def test_reading_goes_on_at_any_step(options: tuple[str, ...]) -> None:
    source = stream(*options)
    whole = take(source, 0, 3 * len(source.loader))
    for step in (1, 5, len(source.loader) // source.config.accumulate + 2):
        position = step * source.config.accumulate
        assert equal(take(source, step, 10), whole[position : position + 10])


def test_the_standard_library_is_read_up_to_the_bound() -> None:
    text = read_corpus(None)
    assert text.dtype == torch.uint8
    assert len(text) == CORPUS_BYTES
    assert torch.equal(text, read_corpus(None))


def test_a_folder_is_read_in_order_without_binary_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name, content in (("b.txt", b"two "), ("a.md", b"one "), ("c.bin", b"\0"), ("sub/d", b"three")):
        (tmp_path / name).write_bytes(content)
    assert bytes(read_corpus(tmp_path).tolist()) == b"one two three"


def test_too_little_text_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no text"):
        read_corpus(tmp_path)
    with pytest.raises(ConfigError, match="too few for one batch"):
        Stream(parse_args([]), TEXT[:100], 0, 4)


@pytest.mark.parametrize("size", [1, 9, 10, 1000])
def test_split_loses_nothing(size: int) -> None:
    parts: tuple[Tensor, Tensor] = split(TEXT[:size])
    assert torch.equal(torch.cat(parts), TEXT[:size])
    assert len(parts[0]) >= 9 * len(parts[1])
