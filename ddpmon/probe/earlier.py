"""The runs that a store lists, as rank 0 reads and writes them; whoever can write there can name any, and many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from ddpmon.schema import FrameError, RunInfo, decode
from ddpmon.store.base import Store, history_key, node_key, rank_key, run_key
from ddpmon.store.connect import list_runs
from ddpmon.store.signed import Checks, token_of_environment

_RUNS_KEPT = 64  # ids that one store lists
_KEYS_FREED = 1 << 16


def listed(store: Store) -> list[str]:
    """The newest runs that a store lists, 64 at most; none where the list is longer than a megabyte.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    return list_runs(store)[-_RUNS_KEPT:]


def listing(others: Iterable[str], own: str) -> bytes:
    """What a store is to list: its own run as the newest."""
    return "\n".join([*others, own][-_RUNS_KEPT:]).encode()


def forget(store: Store, runs: Sequence[str]) -> None:
    """Free what the frames of earlier runs take, as before an elastic restart; one that lives on fills them again.

    It goes by their descriptions, the newest first, and frees 65,536 keys at most; with a token only by signed ones.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    checks = Checks(token_of_environment())
    for key in islice((key for run in reversed(runs) for key in _keys_of(store, run, checks)), _KEYS_FREED):
        store.put(key, b"")


def frame_keys(run: str, world_size: int, node_keys: Iterable[int]) -> Iterator[str]:
    """The keys of all frames of a run."""
    for rank in range(world_size):
        yield rank_key(run, rank)
        yield history_key(run, rank)
    for node in node_keys:
        yield node_key(run, node)


def _keys_of(store: Store, run: str, checks: Checks) -> Iterator[str]:
    """The keys of the frames of a run, as its description tells; none where that is not believed."""
    (data,) = store.get_many([run_key(run)])
    content = None if data is None else checks.open(run_key(run), data)
    with suppress(FrameError):
        if content is not None:
            info = decode(run_key(run), content, RunInfo)
            yield from frame_keys(run, info.world_size, info.node_keys)
