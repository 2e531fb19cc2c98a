"""The store as those who publish use it: signed where there is a token, and without a thread of its own."""

from __future__ import annotations

from ddpmon.store.base import RUNS_KEY, Store, history_key, host_key, node_key, rank_key, run_key
from ddpmon.store.connect import Target, list_runs
from ddpmon.store.signed import signed, signer_of_environment
from ddpmon.store.tcp_client import TcpClient


def open_store(target: Target) -> Store:
    """Connect to the store at `target`; thousands of frames a second go through it.

    Raises:
        StoreUnavailable: it cannot be reached.
        TargetError: DDPMON_TTL_S is no number of seconds.
    """
    if target.redis is not None:
        from ddpmon.store.redis import RedisStore, ttl_of_environment

        return signed(RedisStore(target.redis, ttl_s=ttl_of_environment()), signer_of_environment())
    return signed(TcpClient(target.host, target.port), signer_of_environment())


def lay_out(store: Store, target: Target, run_id: str, info: bytes, ranks: int, nodes: int) -> None:
    """Name the run; in a TCPStore, whose reads block on a missing key, first create every key empty."""
    if target.redis is None:
        for rank in range(ranks):
            store.put(rank_key(run_id, rank), b"")
            store.put(history_key(run_id, rank), b"")
            store.put(host_key(run_id, rank), b"")
        for node in range(nodes):
            store.put(node_key(run_id, node), b"")
    name_run(store, target, run_id, info)


def name_run(store: Store, target: Target, run_id: str, info: bytes) -> None:
    """Say which run this is, and list it beside those that are there; again where that has expired or been lost."""
    store.put(run_key(run_id), info)
    if target.redis is not None:
        store.put(RUNS_KEY, run_id.encode())
    elif run_id not in (runs := list_runs(store)):
        store.put(RUNS_KEY, "\n".join([*runs, run_id]).encode())


def address_of(target: Target, run_id: str) -> str:
    """Where one run of the store at `target` can be watched, without a password."""
    return f"{target.url}/{run_id}" if target.redis is None else target.redis.url_of(run_id)
