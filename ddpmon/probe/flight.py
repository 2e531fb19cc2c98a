"""What torch's flight recorder knows: the collectives that this rank has entered and those that have completed.

Gloo and NCCL keep a ring of their last collectives each. Neither call waits for a collective: that is what makes them
readable while one hangs.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from ddpmon.parts import Flight
from ddpmon.probe.text import plain

_DUMPS = ("_dump_fr_trace", "_dump_nccl_trace")  # every backend with host events (torch 2.13); NCCL (torch 2.6)
_MAX_FLIGHTS = 8
_MAX_NUMBER = 1 << 48


class FlightRecorder:
    """Reads torch's recorders during one stall: their counters at every look, their entries once.

    A dump of the entries holds the GIL for up to 20 ms (a ring of 2,000), and so does unpickling it; the counters take
    some 0.1 ms. Entries are read again only where the counters have changed since, and have come to rest.
    """

    def __init__(self) -> None:
        self._counters: Any = None
        self._entries_of: Any = None
        self._flights: list[Flight] = []

    def clear(self) -> None:
        """The stall is over."""
        self._counters = self._entries_of = None

    def look(self) -> list[Flight]:
        """One summary a process group, nothing where torch records none, or while collectives go on.

        Raises:
            Exception: whatever the recorder raises.
        """
        before, self._counters = self._counters, [_status(dump) for dump in _read(entries=False)]
        known = self._entries_of is not None and any(self._counters)
        if known and self._counters == self._entries_of:
            return self._flights
        if known and self._counters != before:
            return []
        found = [flight for dump in _read(entries=True) for flight in summarise(dump)]
        self._entries_of, self._flights = self._counters, found[:_MAX_FLIGHTS]
        return self._flights


def _read(*, entries: bool) -> Iterator[Any]:
    """What each recorder says."""
    for name in _DUMPS:
        dump = getattr(getattr(torch._C, "_distributed_c10d", None), name, None)
        if dump is not None:
            yield pickle.loads(dump(includeCollectives=entries, includeStackTraces=False))


def _status(dump: Any) -> Any:
    """The counters of all process groups; None where there are none."""
    return dump.get("pg_status") if isinstance(dump, Mapping) else None


def summarise(dump: Any) -> list[Flight]:
    """One summary a process group from an unpickled dump; what is malformed in it is passed over."""
    dump = dump if isinstance(dump, Mapping) else {}
    status = _status(dump)
    known = {str(number): value for number, value in status.items()} if isinstance(status, Mapping) else {}
    groups: dict[str, list[Mapping[str, Any]]] = {number: [] for number in known}
    for entry in _collectives(dump.get("entries")):
        groups.setdefault(str(entry.get("pg_id")), []).append(entry)
    order = sorted(groups, key=lambda number: (len(number), number))
    return [_flight(number, groups[number], known.get(number)) for number in order]


def _collectives(entries: Any) -> Iterable[Mapping[str, Any]]:
    """The entries that count: point-to-point calls have numbers of their own."""
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and not entry.get("is_p2p") and _number(entry.get("collective_seq_id")) >= 0:
            yield entry


def _flight(number: str, entries: list[Mapping[str, Any]], status: Any) -> Flight:
    status = status if isinstance(status, Mapping) else {}
    last = max(entries, key=_sequence, default=None)
    enqueued = max(_number(status.get("last_enqueued_collective")), -1 if last is None else _sequence(last))
    pending = [_sequence(entry) for entry in entries if not _done(entry)]
    completed = min(pending) - 1 if pending else _number(status.get("last_completed_collective"))
    return Flight(
        group=number if last is None else _name(last, number),
        last_enqueued=enqueued,
        last_completed=max(-1, completed),
        operation="" if last is None else _operation(last),
    )


def _sequence(entry: Mapping[str, Any]) -> int:
    return _number(entry.get("collective_seq_id"))


def _number(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value <= _MAX_NUMBER else -1


def _done(entry: Mapping[str, Any]) -> bool:
    """Gloo only retires what is done; NCCL's state says so before its watchdog retires it."""
    return bool(entry.get("retired")) or entry.get("state") == "completed"


def _name(entry: Mapping[str, Any], number: str) -> str:
    """The group's name, the same on all its ranks, with what it is for: such as "0 (default_pg)"."""
    group = entry.get("process_group")
    name, purpose = (*group, "", "")[:2] if isinstance(group, tuple | list) else ("", "")
    return plain(f"{name or number} ({purpose})" if purpose and purpose != "undefined" else f"{name or number}")


def _operation(entry: Mapping[str, Any]) -> str:
    """Such as "gloo:all_reduce [3, 2]"."""
    sizes = entry.get("input_sizes")
    shown = " ".join(str(size) for size in sizes[:4]) if isinstance(sizes, list) else ""
    return plain(f"{entry.get('profiling_name', '')} {shown}".strip())
