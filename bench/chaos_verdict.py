"""Whether a watcher is right: what it says beside what is true."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from chaos_stage import RANKS, STRAGGLER, Stage
from watcher import Seen, Watcher

from ddpmon.diagnose.kinds import KINDS

_FRESH_S = 4.0


@dataclass(frozen=True)
class Truth:
    """What holds since the fault was undone: each rank's process, the steps by then, and if others use the cores."""

    pids: dict[int, int]
    step: int
    busy: bool


def truth_of(stage: Stage) -> Truth:
    """As the ranks themselves have written it down."""
    crew = stage.crew()
    return Truth({rank: life.pid for rank, life in crew.items()}, min(life.steps for life in crew.values()), stage.busy)


def wrong(seen: Seen, truth: Truth) -> str:
    """What is not right in a look, empty if all is."""
    status = seen["status"]
    if seen["link"][0] != "live" or status["run"] is None:
        return f"the link is {seen['link']}"
    doubts = [*_of_the_run(status, truth), *_of_the_findings(status["findings"], truth.busy)]
    return doubts[0] if doubts else ""


def _of_the_run(status: dict[str, Any], truth: Truth) -> list[str]:
    run, ranks, nodes = status["run"], status["ranks"], status["nodes"]
    checks = {
        f"it is at step {run['step']}, the ranks were at {truth.step}": (run["step"] or -1) >= truth.step - 1,
        f"the ranks are {[rank['pid'] for rank in ranks]}": {r["rank"]: r["pid"] for r in ranks} == truth.pids,
        f"the run is {run['state']}": run["state"] == "running",
        f"the ranks are {[rank['state'] for rank in ranks]}": all(rank["state"] == "running" for rank in ranks),
        f"the coverage is {status['coverage']}": status["coverage"]["reporting"] == len(ranks) == RANKS,
        f"the hosts are {run['nodes']}": run["nodes"] == ["host0", "host1"],
        f"the nodes' ages are {[node['age_s'] for node in nodes]}": all((n["age_s"] or 99) < _FRESH_S for n in nodes),
        f"the nodes' ranks are {[node['ranks'] for node in nodes]}": [n["ranks"] for n in nodes] == [[0, 1], [2, 3]],
    }
    return [what for what, holds in checks.items() if not holds]


def _of_the_findings(findings: list[dict[str, Any]], busy: bool) -> list[str]:
    doubts = [f"{found['kind']}: {found['summary']}" for found in findings if _is_false(found, busy)]
    named = [(found["ranks"], found["phase"], found["nodes"]) for found in findings if found["kind"] == "straggler"]
    if ([STRAGGLER], "input", ["host1"]) not in named:
        said = [(found["kind"], found["ranks"], found["phase"], found["nodes"]) for found in findings]
        doubts.append(f"the straggler is not named: {said}")
    return doubts


def _is_false(found: dict[str, Any], busy: bool) -> bool:
    """Whether a finding does not belong here; where others take the cores, ranks and transfers may truly be slower."""
    if found["kind"] == "straggler":
        return STRAGGLER not in found["ranks"] and found["severity"] != "info"
    if found["kind"] == "slow_network":
        return not busy and found["severity"] != "info"
    if found["kind"] == "monitor_degraded":
        return bool(found["ranks"])
    # What no fault may leave behind. What a busy machine does to a rank (its cores, its pauses) may be true.
    return KINDS[found["kind"]].broken > 0 or found["kind"] in ("loss_jump", "slow_node")


def right_after(watcher: Watcher, truth: Truth, since: float, deadline_s: float) -> tuple[float | None, str]:
    """Seconds from `since` (monotonic) to the first of two right looks on end, None if too late; and the last doubt."""
    after, first, doubt = since, None, "it does not answer"
    while after < since + deadline_s:
        seen = watcher.look(after, max(0.1, since + deadline_s - time.monotonic()))
        if seen is None:
            return None, doubt
        after = float(seen["taken"])
        now_wrong = wrong(seen, truth)
        if now_wrong:
            first, doubt = None, now_wrong
        elif first is not None:
            return first - since, doubt
        else:
            first = after
    return None, doubt
