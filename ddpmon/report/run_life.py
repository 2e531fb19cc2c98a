"""The sentences on the attempts of an elastic run: how those before this one ended, and whether another may come."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ddpmon.parts import Attempt
from ddpmon.report.wording import clean
from ddpmon.schema import RunInfo
from ddpmon.snapshot import RunState

_SHOWN = 3  # attempts, the newest
_RANKS = 8


def of_run(info: RunInfo, state: RunState) -> list[str]:
    """What is to be known of the life of a run that stands so, in sentences; none where there was one attempt."""
    said = [_attempt(attempt, info) for attempt in info.attempts[-_SHOWN:]]
    if info.restart:
        how = "" if info.attempts else "; how the attempt before it ended is not known here"
        said.insert(0, f"{_restart(info)} by its launcher: steps, loss and throughput begin again{how}")
    if state in ("failed", "lost") and (next_one := may_restart(info)):
        said.insert(0, next_one)
    return said


def may_restart(info: RunInfo) -> str:
    """That the launcher may start the ranks again; "" where it does not."""
    if info.max_restarts is None or info.restart >= info.max_restarts:
        return ""
    return f"its launcher may restart it (restart {info.restart + 1} of {info.max_restarts})"


def _restart(info: RunInfo) -> str:
    most = "" if info.max_restarts is None else f" of {info.max_restarts}"
    return f"restart {info.restart}{most}"


def _attempt(attempt: Attempt, info: RunInfo) -> str:
    total = "" if info.max_restarts is None else f" of {info.max_restarts + 1}"
    at = "" if attempt.ended_at is None else f", {time.strftime('%H:%M:%S', time.localtime(attempt.ended_at))}"
    where = f"at step {attempt.step:,}" if attempt.step >= 0 else "before its first step"
    return f"attempt {attempt.restart + 1}{total} ended {where}{at}: {how(attempt)}"


def how(attempt: Attempt) -> str:
    """Which ranks ended it, in words."""
    said = []
    if attempt.vanished_count:
        said.append(f"{_ranks(attempt.vanished, attempt.vanished_count)} vanished without a message")
    if attempt.failed_count:
        reason = attempt.failed[0].reason if attempt.failed else ""
        ranks = _ranks([end.rank for end in attempt.failed], attempt.failed_count)
        said.append(f"{ranks} ended with an error{f' ({clean(reason)})' if reason else ''}")
    return ", ".join(said) or "no rank said why"


def _ranks(ranks: Sequence[int], count: int) -> str:
    shown = ", ".join(map(str, ranks[:_RANKS]))
    more = f" and {count - len(ranks[:_RANKS])} more" if count > len(ranks[:_RANKS]) else ""
    return f"rank{'s' if count > 1 else ''} {shown}{more}"
