"""Samples and tokens of a forward, as the sizes of what the model is given. No tensor's contents are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch

from ddpmon.probe.event_log import EventLog

SAMPLES_FROM = "first dimension of the model's input"
_IDS = "input_ids"  # what Hugging Face's models call their tokens
_DEEPEST = 6
_MOST_LOOKED_AT = 64  # parts of a batch


def counting(recorder: EventLog) -> Callable[[tuple[Any, ...], dict[str, Any]], None]:
    """What counts the samples of every forward of the watched model; its loss belongs to the same step."""

    def count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        recorder.forwards += 1
        samples, tokens = sizes_of(args, kwargs)
        if samples is not None:
            recorder.logged(None, samples, tokens)

    return count


def sizes_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The samples and the tokens in what a forward gets; None where they cannot be told.

    Samples are the first dimension of the first tensor that has one. It holds tokens if it has whole numbers and two
    dimensions: [samples, tokens]. A tensor of another kind, such as a nested one, may raise when asked for its shape.
    """
    try:
        return _sizes_of(args, kwargs)
    except Exception:
        return None, None


def _sizes_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[int | None, int | None]:
    found = kwargs.get(_IDS)
    tensor = found if isinstance(found, torch.Tensor) else next(_tensors((args, kwargs)), None)
    if tensor is None:
        return None, None
    shape = tensor.shape
    holds_tokens = len(shape) == 2 and tensor.dtype in (torch.int64, torch.int32)
    return int(shape[0]), int(shape[0]) * int(shape[1]) if holds_tokens else None


def _tensors(batch: Any) -> Iterator[torch.Tensor]:
    """The tensors with a first dimension, in the order in which a reader meets them."""
    stack, looked_at = [(batch, 0)], 0
    while stack and looked_at < _MOST_LOOKED_AT:
        part, depth = stack.pop()
        looked_at += 1
        if isinstance(part, torch.Tensor):
            if part.ndim:
                yield part
        elif depth < _DEEPEST:
            inner = part.values() if isinstance(part, Mapping) else part if isinstance(part, tuple | list) else ()
            stack += [(each, depth + 1) for each in reversed([*islice(inner, _MOST_LOOKED_AT)])]
