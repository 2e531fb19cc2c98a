"""How a run came to its end, as far as a watcher can tell: its store has ended, or no rank writes to it any more."""

from __future__ import annotations

import socket

import numpy as np
from numpy.typing import NDArray

from ddpmon.format import age, plural
from ddpmon.report.attempt_sentences import attempt_of, ended_by, may_restart
from ddpmon.report.wording import clean, format_ranks
from ddpmon.run.model import LOST_S, SILENT_S, Run
from ddpmon.snapshot import RunState
from ddpmon.store.discovery import PastRun, discover, has_rank_0, past_runs
from ddpmon.watcher.way import Fate

_LAST = "this is its last state"
_CELLS = 76  # of a terminal of 80


def fate_here(run: Run) -> Fate | None:
    """What has become of a run, as this host's files and processes tell; None where they do not."""
    announced = next((each for each in discover() if each.run_id == run.info.run_id), None)
    if announced is not None and has_rank_0(announced):
        return Fate("running")
    # It may have died since it was announced: only what is looked up from here on knows that its launcher lives.
    past = next((each for each in past_runs() if each.id == run.info.run_id), None)
    if past is not None:
        return fate_of(past)
    if announced is not None:
        return Fate("killed")
    return Fate("finished") if run.info.host == socket.gethostname() else None


def fate_of(past: PastRun) -> Fate:
    """What has become of a run whose processes are dead; its launcher may be about to start the next attempt."""
    if past.state in ("restarting", "restarted"):
        return Fate("restarting", attempt_of(past.restart + 1, past.max_restarts))
    return Fate("killed")


def may_follow(run: Run, fate: Fate | None) -> str:
    """That another attempt may follow one that is over, where nobody can say whether it does; "" where none may."""
    is_known = fate is not None and fate.state != "unknown"
    return "" if is_known or not (_failed(run) or _mute(run)) else may_restart(run.info)


def no_word(run: Run, fate: Fate | None, silences: NDArray[np.float64], *, is_asked: bool) -> str:
    """What is known of a run whose store answers and whose ranks do not report; "" where all have said how they end.

    Args:
        run: what was read of it.
        fate: what has become of it; None where nobody knows.
        silences: [world] seconds since each rank was heard; NaN of one that never was.
        is_asked: whether somebody who can look has been asked.
    """
    known = []
    if _mute(run):
        lives = ", and rank 0's process runs" if fate is not None and fate.state == "running" else ""
        known += [f"every rank has been silent for {age(float(np.nanmin(silences)))}", f"the store answers{lives}"]
        if fate is not None:
            known.append("" if lives else fate.why)
        elif is_asked:
            known.append("ddpmon looks there what has become of the run")
    return "; ".join(filter(None, [*known, may_follow(run, fate)]))


def store_gone(run: Run, reason: str, fate: Fate | None) -> tuple[RunState, str]:
    """The state and the sentence of a run whose store has ended; who ended and how fits into 76 cells, then comes more.

    Args:
        run: what was read of it.
        reason: why its store cannot be read.
        fate: what has become of it; None where nobody can look.
    """
    failed, mute = _failed(run), _mute(run)
    known, why = ("unknown", "") if fate is None else (fate.state, fate.why)
    fact = f"; {why}" if why else ""
    again = f"; {may}" if (may := may_follow(run, fate)) else ""
    if known == "restarting":
        return "restarting", f"restarting, {why}: {_how(failed, mute)}; the launcher still runs"
    if failed:
        return "failed", f"{_how(failed, mute)}{fact}; {_LAST}{again}"
    if run.states and not mute:
        return "finished", f"the run has ended; {_LAST}"
    if known == "killed":
        which = f"(pid {run.info.pid} on {clean(run.info.host)}); the launcher's output shows which rank ended first"
        return "killed", f"the run was killed or crashed: rank 0 ended without a message {which}"
    if known in ("cancelled", "failed"):
        return known, f"the run has ended: {why}; {_LAST}"  # type: ignore[return-value]  # mypy forgets the narrowing
    if not run.states:
        return "lost", f"{reason}; the run ended or became unreachable before any of its ranks reported here"
    if known == "finished":
        return "finished", f"the run has ended{fact}; {_LAST}"
    return "lost", f"{reason}; the run may go on{fact}{again}; ddpmon keeps trying"


def after_outage(run: Run, now: float, all_read_since: float) -> str:
    """That the store answers again, and how many ranks have not come back to it yet; "" where all have.

    Of many ranks a tick reads a part: nothing is said before all of them have been read after the outage.
    """
    began, ended = run.outages.last or (now, now)
    if ended - began < SILENT_S or all_read_since < ended:
        return ""
    with np.errstate(invalid="ignore"):
        late = int(((run.latest.heard_at < ended) & ~run.latest.ended & (run.silences(now) <= LOST_S)).sum())
    ranks = f"{late:,} of {plural(run.info.world_size, 'rank')} {'has' if late == 1 else 'have'}"
    return f"the store answers again after {age(ended - began)}; {ranks} not reported since" if late else ""


def is_over(run: Run, silences: NDArray[np.float64], after_s: float = LOST_S) -> bool:
    """Whether nobody speaks any more: every rank that was heard of has said that it ends, or is silent for so long."""
    heard = ~np.isnan(silences)
    return bool(heard.any() and (run.latest.ended | (np.nan_to_num(silences) > after_s))[heard].all())


def remembered(run: Run, ages: NDArray[np.float64]) -> tuple[RunState, str]:
    """The state and the sentence of a run that is over and that its store remembers."""
    failed, mute = _failed(run), _mute(run)
    when = f"{age(float(np.nanmin(ages)))} ago"
    memory = "this is its last state, as the store keeps it"
    if failed:
        return "failed", f"the run failed {when}: {_how(failed, mute)}; {memory}"
    if mute:
        everyone = "every rank" if len(mute) == len(run.ranks) else format_ranks(mute)
        return "lost", f"{everyone} disappeared without a message, the last {when}: killed or disconnected; {memory}"
    return "finished", f"the run ended {when}; {memory}"


def _failed(run: Run) -> list[int]:
    return [rank for rank, state in enumerate(run.ranks) if state is not None and state.frame.state == "failed"]


def _mute(run: Run) -> list[int]:
    """The ranks that have not said how they end."""
    states = [(rank, state.frame.state) for rank, state in enumerate(run.ranks) if state is not None]
    return [rank for rank, state in states if state not in ("failed", "finished")]


def _how(failed: list[int], mute: list[int]) -> str:
    """Who ended and how. Where that is too long, only how many ranks did so."""
    whole, short = (ended_by(of(mute), of(failed)) for of in (_ranks, _number))
    return whole if len(whole) <= _CELLS else short


def _ranks(ranks: list[int]) -> str:
    return format_ranks(ranks) if ranks else ""


def _number(ranks: list[int]) -> str:
    return plural(len(ranks), "rank") if len(ranks) > 1 else _ranks(ranks)
