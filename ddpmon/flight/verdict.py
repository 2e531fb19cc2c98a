"""Who did not join which collective, from the dumps of all ranks.

The collectives of a group are numbered, and every member enters them in the same order. Where a group stands still, the
member that has entered the fewest is the one that the others wait for; unless it waits in another group itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ddpmon.flight.dumps import Dump, Dumps, Entry
from ddpmon.report.wording import format_ranks
from ddpmon.snapshot import Finding

_SAME_SIZE = ("all_reduce", "allreduce", "broadcast", "barrier")  # whose sizes must agree
_EVERYBODY = ("default_pg",)
_INSTALLED = ("/site-packages/", "/dist-packages/", "/lib/python")


@dataclass(frozen=True, slots=True)
class Group:
    """One process group over all dumps.

    Attributes:
        name: as the ranks call it.
        members: its ranks, as far as dumps tell.
        entries: rank -> number -> collective.
        last: rank -> the number of the last collective that it has entered, 0 for none.
        waits_in: rank -> the oldest collective that it has entered and that has not completed.
    """

    name: str
    members: tuple[int, ...]
    entries: Mapping[int, Mapping[int, Entry]]
    last: Mapping[int, int]
    waits_in: Mapping[int, Entry]


def groups_of(dumps: Dumps) -> list[Group]:
    """All groups with collectives, those of most ranks first."""
    members: dict[tuple[str, str], set[int]] = {}
    entries: dict[tuple[str, str], dict[int, dict[int, Entry]]] = {}
    for rank, dump in dumps.of.items():
        for known in dump.groups:
            members.setdefault((known.group, known.purpose), set()).update(known.ranks)
        for entry in dump.entries:
            if entry.number >= 0 and not entry.is_p2p:
                entries.setdefault((entry.group, entry.purpose), {}).setdefault(rank, {})[entry.number] = entry
    found = []
    for key, of in entries.items():
        everybody = set(dumps.of) if key[1] in _EVERYBODY else set()
        found.append(_group(key, members.get(key, set()) | everybody | set(of), of, dumps.of))
    return sorted(found, key=lambda group: -len(group.members))


def _group(
    key: tuple[str, str], members: set[int], entries: dict[int, dict[int, Entry]], dumps: Mapping[int, Dump]
) -> Group:
    last, waits_in = {}, {}
    for rank, of in entries.items():
        status = max((dumps[rank].status.get(entry.pg_id, -1) for entry in of.values()), default=-1)
        last[rank] = max([status, *of])
        pending = [number for number, entry in of.items() if not entry.is_done]
        if pending:
            waits_in[rank] = of[min(pending)]
    for rank in members & set(dumps) - set(entries):
        last[rank] = 0
    name, purpose = key
    shown = f"{name} ({purpose})" if purpose and purpose != "undefined" else name
    return Group(shown, tuple(sorted(members)), entries, last, waits_in)


def judge_dumps(dumps: Dumps) -> list[Finding]:
    """What the dumps show, the root of the stop first."""
    groups = groups_of(dumps)
    waiting = {rank for group in groups for rank in group.waits_in}
    found = [*(finding for group in groups for finding in _of_group(group, waiting, set(dumps.of)))]
    return sorted(found, key=lambda finding: (finding.severity != "critical", -len(str(finding.evidence["waiting"]))))


def _of_group(group: Group, waiting: set[int], dumped: set[int]) -> Iterator[Finding]:
    if not group.waits_in:
        return
    number = min(entry.number for entry in group.waits_in.values())
    if (unlike := _unlike(group, number)) is not None:
        yield unlike
        return
    silent = [rank for rank in group.members if rank not in dumped]
    behind = [rank for rank in group.members if rank in dumped and group.last[rank] < number]
    if behind or silent:
        yield _missing(group, number, behind, silent, waiting)
    else:
        yield _all_there(group, number)


def _missing(group: Group, number: int, behind: list[int], silent: list[int], waiting: set[int]) -> Finding:
    """Some have not entered it: they left no dump, wait in another group, or never came."""
    others = [rank for rank, entry in group.waits_in.items() if entry.number == number]
    entry = group.waits_in[others[0]]
    free = [rank for rank in behind if rank not in waiting]
    named = free or behind or silent
    what = f"{_operation(entry)}, number {number} of group {group.name}"
    summary = f"{format_ranks(named)} did not join {what}; {_wait(others)} in it"
    if named is silent:
        summary = f"{format_ranks(named)} left no dump, and {what} waits for {_them(named)}: {_wait(others)} in it"
    elif not free:
        summary += f". {format_ranks(named)} {'wait' if len(named) > 1 else 'waits'} in another group"
    before = group.entries.get(named[0], {}).get(group.last.get(named[0], 0))
    if before is not None:
        summary += f". The last that rank {named[0]} joined is {_operation(before)}, number {before.number}"
        summary += f"{_place(before)}"
    extra = {} if named is silent or not silent else {"no_dump": format_ranks(silent)}
    advice = "look at what this rank did after that: its log, its data, a branch that the others did not take"
    if named is silent:
        advice = "look whether the rank was killed, and for its dump on its own host"
    is_root = bool(free) or named is silent
    return _finding(group, entry, "critical" if is_root else "warning", summary, named, others, advice, **extra)


def _unlike(group: Group, number: int) -> Finding | None:
    """The ranks have entered different collectives under one number."""
    entered = {rank: of[number] for rank, of in group.entries.items() if number in of}
    counted = Counter(_signature(entry) for entry in entered.values())
    if len(counted) < 2:
        return None
    usual = counted.most_common(1)[0][0]
    named = [rank for rank, entry in entered.items() if _signature(entry) != usual]
    others = [rank for rank in entered if rank not in named]
    own, theirs = entered[named[0]], entered[others[0]]
    summary = (
        f"{format_ranks(named)} called {_operation(own)}{_place(own)} where {format_ranks(others)} called "
        f"{_operation(theirs)}{_place(theirs)}: number {number} of group {group.name}"
    )
    advice = "the ranks took different branches: every rank must call the same collectives in the same order"
    return _finding(group, theirs, "critical", summary, named, others, advice)


def _all_there(group: Group, number: int) -> Finding:
    """All have entered it: the devices or the network do not get it done."""
    entries = {rank: of[number] for rank, of in group.entries.items() if number in of}
    idle = [rank for rank, entry in entries.items() if entry.state == "scheduled"]
    started = [rank for rank, entry in entries.items() if entry.state == "started"]
    entry = next(iter(entries.values()))
    all_of = f"all {len(entries)} ranks have entered {_operation(entry)}, number {number} of group {group.name}"
    if idle and started:
        summary = f"{all_of}, but on {format_ranks(idle)} its device has not begun it"
        advice = "look at this device: it is still busy with earlier work, or it has stopped (Xid in dmesg)"
        return _finding(group, entry, "critical", summary, idle, started, advice)
    advice = "look at the network: ports of interfaces and switches, NCCL_DEBUG=INFO, Xid errors in dmesg"
    summary = f"{all_of}, and it has not completed on {format_ranks([*group.waits_in])}: no rank is missing"
    return _finding(group, entry, "critical", summary, [], [*group.waits_in], advice)


def _finding(
    group: Group, entry: Entry, severity: str, summary: str, ranks: list[int], others: list[int], advice: str,
    **more: str,
) -> Finding:  # fmt: skip
    stack = "\n".join(f"{file}:{line} in {function}" for file, line, function in reversed(entry.frames))
    return Finding(
        kind="hang",
        severity="critical" if severity == "critical" else "warning",
        summary=f"{summary}.",
        ranks=tuple(ranks),
        advice=advice,
        evidence={
            "group": group.name,
            "number": entry.number,
            "operation": _operation(entry),
            "waiting": format_ranks(others),
            **({"stack": stack} if stack else {}),
            **more,
        },
    )


def _signature(entry: Entry) -> tuple[str, str]:
    kind = entry.operation.rpartition(":")[2]
    return kind, str(entry.sizes) if kind.startswith(_SAME_SIZE) else ""


def _operation(entry: Entry) -> str:
    sizes = " ".join(str(shape) for shape in entry.sizes[:2])
    return f"{entry.operation.rpartition(':')[2] or 'a collective'}{f' {sizes}' if sizes else ''}"


def _place(entry: Entry) -> str:
    """Where the user's code has called it."""
    for file, line, function in entry.frames:
        if file and not any(part in file for part in _INSTALLED):
            return f" ({file}:{line} in {function})"
    return ""


def _wait(ranks: list[int]) -> str:
    return f"{format_ranks(ranks)} {'wait' if len(ranks) != 1 else 'waits'}"


def _them(ranks: list[int]) -> str:
    return "them" if len(ranks) != 1 else "it"
