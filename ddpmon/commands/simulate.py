"""`ddpmon simulate`: ranks that are not there, in a store that is."""

from __future__ import annotations

import contextlib
import importlib.util
import shlex
import signal
from typing import Any, NoReturn

from ddpmon.commands.console import OK, USAGE, complain
from ddpmon.format import plural
from ddpmon.simulate.plan import MOST_WITH_BUCKETS, Plan, PlanError
from ddpmon.store.base import StoreUnavailable, TargetError
from ddpmon.store.connect import Target, parse_target

FAILED = 3


def simulate(store: str | None, *, ranks: int, hosts: int | None, processes: int | None, **options: Any) -> int:
    """Publish until the time is over or the user ends it; returns the exit code.

    Without a store it hosts one. Without `hosts` there are 8 ranks on each. Without `processes` two publish.
    """
    hosts = -(-ranks // 8) if hosts is None else hosts
    processes = min(2, max(ranks, 1)) if processes is None else processes
    try:
        plan = Plan(ranks, hosts, processes=processes, bucket_detail=ranks <= MOST_WITH_BUCKETS, **options)
        target = None if store is None else parse_target(store)
    except (PlanError, TargetError) as error:
        complain(str(error))
        return USAGE
    if target is None and importlib.util.find_spec("torch") is None:
        complain("hosting a store needs torch, which is not installed: pip install torch, or use --store URL")
        return USAGE
    try:
        return _publish(plan, target)
    except (StoreUnavailable, TargetError) as error:
        complain(f"{error}{_how_to_host(target)}" if isinstance(error, StoreUnavailable) else str(error))
        return FAILED


def _how_to_host(target: Target | None) -> str:
    """What to do where the store of --store is not there; nothing where none was named."""
    if target is None:
        return ""
    start = "another `ddpmon simulate`" if target.redis is None else "redis-server"
    return f"; --store needs one that runs: {start} starts one, and without --store this command hosts its own"


def _publish(plan: Plan, target: Target | None) -> int:
    from ddpmon.simulate import simulated_host

    signal.signal(signal.SIGTERM, _interrupt)
    with simulated_host.simulate(plan, target) as simulation:
        print(
            f"simulating {plural(plan.ranks, 'rank')} on {plural(plan.nodes, 'host')} (scenario {plan.scenario}); "
            f"to watch: ddpmon watch {shlex.quote(simulation.url)}",
            flush=True,
        )
        with contextlib.suppress(KeyboardInterrupt):
            simulation.wait(plan.seconds)
        done = simulation.end()
    print(
        f"published {plural(done.rank_frames, 'rank frame')}, {plural(done.history_frames, 'history frame')}, "
        f"{plural(done.host_frames, 'host frame')} and {plural(done.node_frames, 'frame')} of sensors, "
        f"{done.bytes / 1e6:,.1f} MB in all; {plural(done.missed, 'frame')} could not be sent in time"
    )
    if done.error:
        complain(done.error)
    return FAILED if done.error else OK


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt
