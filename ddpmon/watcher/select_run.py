"""Which run of a store is watched, and the sentence that says why none is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ddpmon import __version__
from ddpmon.codec import decode
from ddpmon.schema import FrameError, RunInfo, SchemaMismatchError
from ddpmon.store.base import StoreUnavailable, run_key
from ddpmon.store.connect import Target, list_runs
from ddpmon.store.signed import CheckedStore

_MOST_TRIED = 20
_NAMED = 5


def select_run(store: CheckedStore, target: Target, kept: str | None) -> tuple[RunInfo, int]:
    """The run that is asked for, or the newest that is believed; and how many newer ones were not.

    Args:
        store: where it is.
        target: what was asked for.
        kept: the run that is followed and goes on, whichever others there are by now.

    Raises:
        StoreUnavailable: there is no such run; the message says what there is.
        FrameError: its description cannot be read, or is of another run.
    """
    known = target.run_id or kept
    ids = [] if known is not None else _listed(store, target)
    wanted = [known] if known is not None else ids[: -_MOST_TRIED - 1 : -1]
    counted, doubts = store.checks.refused.copy(), Counter[str]()
    for passed_over, run_id in enumerate(wanted):
        data, doubt = store.look_at(run_key(run_id))
        store.checks.refused = counted.copy()  # these are not the run's own
        if data is not None:
            return _read(run_id, data), passed_over
        if doubt:
            doubts[doubt] += 1
    ids = ids or _listed(store, target)
    if known is not None and not doubts and (successor := _successor(store, ids[-1], known)) is not None:
        return successor, 0
    raise StoreUnavailable(_why_none(target, ids, wanted, doubts))


def _successor(store: CheckedStore, newest: str, wanted: str) -> RunInfo | None:
    """The newest run, if it is a later attempt of the one that is wanted."""
    data, _ = store.look_at(run_key(newest))
    if data is None:
        return None
    info = _read(newest, data)
    return info if wanted in (attempt.run_id for attempt in info.attempts) else None


def _listed(store: CheckedStore, target: Target) -> list[str]:
    """The runs that the store lists.

    Raises:
        StoreUnavailable: there is none.
    """
    if ids := list_runs(store):
        return ids
    raise StoreUnavailable(f"the store at {target.url} holds no ddpmon run")


def _why_none(target: Target, ids: Sequence[str], wanted: Sequence[str], doubts: Counter[str]) -> str:
    where = f"the store at {target.url}"
    if doubts and len(wanted) == 1:
        return f"run {wanted[0]} in {where} is {next(iter(doubts))}"
    if doubts:
        reasons = "; ".join(f"{count} {'are' if count > 1 else 'is'} {doubt}" for doubt, count in doubts.items())
        return f"none of the {len(wanted)} newest runs in {where} can be trusted: {reasons}"
    if len(wanted) > 1:
        return f"{where} lists {len(ids):,} runs, but does not describe any of the newest {len(wanted)}"
    if wanted[0] in ids and target.redis is None:
        return f"{where} lists run {wanted[0]}, but does not describe it"
    expired = " (it may have expired)" if target.redis is not None else ""
    return f"{where} does not hold run {wanted[0]}{expired}{_others(ids, wanted[0])}"


def _others(ids: Sequence[str], wanted: str) -> str:
    others = [run_id for run_id in reversed(ids) if run_id != wanted]
    more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
    return f"; it holds {', '.join(others[:_NAMED])}{more}" if others else ""


def _read(run_id: str, data: bytes) -> RunInfo:
    """The description of this run.

    Raises:
        FrameError: it cannot be read here, or is of another one.
    """
    try:
        info = decode(run_key(run_id), data, RunInfo)
    except SchemaMismatchError as error:
        raise SchemaMismatchError(f"{error} (this is ddpmon {__version__})") from None
    if info.run_id != run_id:
        raise FrameError(
            f"{run_key(run_id)}: it describes another run, {info.run_id!r}: another process has overwritten it"
        )
    return info
