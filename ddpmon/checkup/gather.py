"""All hosts' facts in one place: through the launcher's own store, as far as hosts answer in time."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec

from ddpmon.checkup.facts import Facts
from ddpmon.checkup.place import Place

WAIT_S = 60.0
_HOSTED_S = 5.0
_PREFIX = "ddpmon/check"


class UnreachableError(Exception):
    """The store that the hosts should meet at cannot be reached; the message says from where and what to do."""


def gather(place: Place, mine: Facts, wait_s: float = WAIT_S) -> tuple[list[Facts], list[int]]:
    """Hand in this host's facts; host 0 gets all that came in time, and the numbers of the hosts that are missing.

    The others get their own facts alone.

    Raises:
        UnreachableError: the store cannot be reached.
    """
    if place.meeting is None:
        return [mine], []
    store = _meet(place, wait_s)
    try:
        store.set(f"{_PREFIX}/{place.host}", msgspec.msgpack.encode(mine))
        if place.host != 0:
            return [mine], []
        found = {0: mine} | _others(store, place.hosts)
    except Exception as error:
        raise UnreachableError(_sentence(place, error)) from None
    missing = [host for host in range(place.hosts) if host not in found]
    return _told_apart(found), missing


def _told_apart(found: dict[int, Facts]) -> list[Facts]:
    """The hosts in order of number, which stands with the names of those that are called alike."""
    alike = Counter(facts.host for facts in found.values())
    return [
        msgspec.structs.replace(facts, host=f"{facts.host} (host {number})") if alike[facts.host] > 1 else facts
        for number, facts in sorted(found.items())
    ]


def _meet(place: Place, wait_s: float) -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    assert place.meeting is not None
    address, port = place.meeting
    serves = place.host == 0 and not place.hosted
    patience = timedelta(seconds=_HOSTED_S if place.hosted else wait_s)  # a launcher's store is up by now
    try:
        store = TCPStore(address, port, is_master=serves, timeout=patience, wait_for_workers=False)
        store.set_timeout(timedelta(seconds=wait_s))
        return store
    except Exception as error:
        raise UnreachableError(_sentence(place, error)) from None


def _others(store: Any, hosts: int) -> dict[int, Facts]:
    found: dict[int, Facts] = {}
    for host in range(1, hosts):
        try:
            found[host] = msgspec.msgpack.decode(store.get(f"{_PREFIX}/{host}"), type=Facts)
        except Exception:  # late, gone, or of another release: it is told as missing
            store.set_timeout(timedelta(seconds=1))  # who waited this long for one does not wait again for each
    return found


def _sentence(place: Place, error: Exception) -> str:
    address, port = place.meeting or ("", 0)
    words = (str(error) or type(error).__name__).splitlines()[0][:160]
    return (
        f"host {place.host} cannot reach the others at {address}:{port} ({words}): "
        "the ranks could not either; check the address, the port and the firewall"
    )
