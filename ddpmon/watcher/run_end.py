"""How a run came to its end, as far as a watcher can tell: its store has ended, or no rank writes to it any more."""

from __future__ import annotations

import socket

import numpy as np
from numpy.typing import NDArray

from ddpmon.format import age
from ddpmon.report.run_life import may_restart
from ddpmon.report.wording import clean
from ddpmon.run.model import LOST_S, Run
from ddpmon.snapshot import RunState
from ddpmon.store.discovery import discover, left_behind


def store_gone(run: Run, reason: str) -> tuple[RunState, str]:
    """The state and the sentence of a run whose own store has ended; `reason` says why it cannot be read."""
    failed, mute = _failed(run), _mute(run)
    again = f"; {next_one}" if (next_one := may_restart(run.info)) else ""
    if not run.states:
        return "lost", f"{reason}; the run ended or became unreachable before any of its ranks reported here"
    if failed:
        return "failed", f"the run has failed: {_how(failed, mute)}; this is its last state{again}"
    if left_behind(run.info.run_id):
        host = f"rank 0 (pid {run.info.pid} on {clean(run.info.host)})"
        which = "the output of the launcher shows which rank ended first"
        return "lost", f"the run was killed or crashed: {host} disappeared without a message; {which}{again}"
    if not mute or run.info.host == socket.gethostname():
        return "finished", "the run has ended; this is its last state"
    return "lost", f"{reason}; the run has ended or its host is disconnected; ddpmon keeps trying"


def is_over(run: Run, ages: NDArray[np.float64]) -> bool:
    """Whether nobody speaks any more: every rank that was heard of has said that it ends, or has been lost."""
    heard = ~np.isnan(ages)
    return bool(heard.any() and (run.latest.ended | (np.nan_to_num(ages) > LOST_S))[heard].all())


def remembered(run: Run, ages: NDArray[np.float64]) -> tuple[RunState, str]:
    """The state and the sentence of a run that is over and that its store remembers."""
    failed, mute = _failed(run), _mute(run)
    when = f"{age(float(np.nanmin(ages)))} ago"
    memory = "this is its last state, as the store keeps it"
    if failed:
        return "failed", f"the run failed {when}: {_how(failed, mute)}; {memory}"
    if mute:
        everyone = "every rank" if len(mute) == len(run.ranks) else _ranks(mute)
        return "lost", f"{everyone} disappeared without a message, the last {when}: killed or disconnected; {memory}"
    return "finished", f"the run ended {when}; {memory}"


def still_announced(run: Run) -> bool:
    """Whether the run's discovery file is on this host, and its rank 0 or its store lives."""
    return any(announcement.run_id == run.info.run_id for announcement in discover())


def _failed(run: Run) -> list[int]:
    return [rank for rank, state in enumerate(run.ranks) if state is not None and state.frame.state == "failed"]


def _mute(run: Run) -> list[int]:
    """The ranks that have not said how they end."""
    states = [(rank, state.frame.state) for rank, state in enumerate(run.ranks) if state is not None]
    return [rank for rank, state in states if state not in ("failed", "finished")]


def _how(failed: list[int], mute: list[int]) -> str:
    vanished = f"{_ranks(mute)} disappeared without a message, " if mute else ""
    return f"{vanished}{_ranks(failed)} ended with an error"


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"
