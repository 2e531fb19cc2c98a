"""What rank 0's line says beside `ddpmon watch`: the way from another host, and from outside of a container."""

from __future__ import annotations

import shlex
from urllib.parse import urlsplit

from ddpmon.store.namespaces import in_container
from ddpmon.store.server import FIRST_PORT


def from_elsewhere(url: str, *, is_hosted: bool, is_said: bool) -> str:
    """The end of rank 0's line; "" where there is no other way.

    Args:
        url: the store's.
        is_hosted: whether rank 0 hosts the store.
        is_said: whether the line gives the address already.
    """
    there = f"ddpmon watch {shlex.quote(url)}"
    if is_hosted and in_container():
        return f" (inside this container; outside of it: {_outside(url, there)})"
    return "" if is_said or is_local(url) else f" (from another host: {there})"


def _outside(url: str, there: str) -> str:
    port = urlsplit(url).port
    if is_local(url):
        asked = f"DDPMON_LISTEN=0.0.0.0:{FIRST_PORT}"
        return f"{there} if it shares the host's network, else start it with {asked} and publish that port"
    return f"{there}, or the host's port that you have published for {port}"


def is_local(url: str) -> bool:
    """Whether only this host reaches it."""
    return url.startswith(("tcp://127.", "tcp://localhost:", "tcp://[::1]:"))
