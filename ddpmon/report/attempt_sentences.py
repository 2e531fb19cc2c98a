"""The sentences on the attempts of an elastic run: how those before this one ended, and whether another may come."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ddpmon.failure_role import role_of
from ddpmon.parts import Attempt, FailedRank, Failure
from ddpmon.report.wording import clean
from ddpmon.schema import RunInfo

_SHOWN = 3  # attempts, the newest
_RANKS = 8


def of_run(info: RunInfo) -> list[str]:
    """What is to be known of the attempts before this one, in sentences; none in the first."""
    said = [_attempt(attempt, info) for attempt in info.attempts[-_SHOWN:]]
    if info.restart:
        how = "" if info.attempts else "; how the attempt before it ended is not known here"
        begun = attempt_of(info.restart, info.max_restarts)
        said.insert(0, f"{begun}, begun by its launcher: steps, loss and throughput begin again{how}")
    return said


def may_restart(info: RunInfo) -> str:
    """That the launcher may start the ranks again; "" where it does not."""
    if info.max_restarts is None or info.restart >= info.max_restarts:
        return ""
    return f"its launcher may restart it ({attempt_of(info.restart + 1, info.max_restarts)})"


def attempt_of(restart: int, most: int | None) -> str:
    """The number of the attempt after so many restarts, of those that the launcher may make."""
    return f"attempt {restart + 1:,}{'' if most is None else f' of {most + 1:,}'}"


def _attempt(attempt: Attempt, info: RunInfo) -> str:
    at = "" if attempt.ended_at is None else f", {time.strftime('%H:%M:%S', time.localtime(attempt.ended_at))}"
    where = f"at step {attempt.step:,}" if attempt.step >= 0 else "before its first step"
    return f"{attempt_of(attempt.restart, info.max_restarts)} ended {where}{at}: {how(attempt)}"


def how(attempt: Attempt) -> str:
    """Which ranks ended it, in words."""
    failed = listed(sorted(end.rank for end in attempt.failed), attempt.failed_count)
    reason = attempt.failed[0].reason if attempt.failed else ""
    if reason and attempt.failed_count > 1:
        reason = _of_first(attempt.failed[0])
    return ended_by(listed(attempt.vanished, attempt.vanished_count), failed, reason)


def _of_first(rank: FailedRank) -> str:
    """The reason with its rank, which is called the first only if the error does not follow from another rank's end."""
    kind, _, message = rank.reason.partition(": ")
    is_cause = role_of(Failure(kind, message, step=-1)) == "cause"
    return f"first rank {rank.rank}, {rank.reason}" if is_cause else f"rank {rank.rank}: {rank.reason}"


def ended_by(mute: str, failed: str, reason: str = "") -> str:
    """How a run ended, in words.

    Args:
        mute: the ranks that said nothing of their end, in words; "" for none.
        failed: those that ended with an error, likewise.
        reason: the first error.
    """
    said = [f"{mute} disappeared without a message"] if mute else []
    said += [f"{failed} ended with an error{f' ({clean(reason)})' if reason else ''}"] if failed else []
    return ", ".join(said) or "no rank said why"


def listed(ranks: Sequence[int], count: int) -> str:
    """The first of so many ranks, in words; "" for none."""
    shown = ", ".join(map(str, ranks[:_RANKS]))
    more = f" and {count - len(ranks[:_RANKS]):,} more" if count > len(ranks[:_RANKS]) else ""
    return f"rank{'s' if count > 1 else ''} {shown}{more}" if count else ""
