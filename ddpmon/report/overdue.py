"""A step that should have ended by now, long before a finding says that no step finishes."""

from __future__ import annotations

from collections import Counter

from ddpmon.diagnose.waiting import BUILT_IN
from ddpmon.format import age, count, ms
from ddpmon.report.wording import phase_words
from ddpmon.snapshot import Snapshot, is_over

# Seconds, and usual steps, without a new one. A rank tells of its steps once a second; of 64 simulated ranks with steps
# of 0.5 s on two busy cores the last step was 1.2 s old at most, over a minute.
OVERDUE_S, OVERDUE_STEPS = 3.0, 4


def is_last_step_old(snapshot: Snapshot) -> bool:
    """Whether the last step that was heard of ended several steps' time ago, in a run that has not ended."""
    run, step_ms = snapshot.run, snapshot.job.step_ms
    if run is None or is_over(run.state) or run.step_age_s is None:
        return False
    return run.step_age_s > max(OVERDUE_S, OVERDUE_STEPS * (step_ms or 0.0) / 1e3)


def is_overdue(snapshot: Snapshot) -> bool:
    """Whether the next step should have ended by now, as ranks tell that are heard."""
    return snapshot.link.state == "live" and snapshot.job.step_ms is not None and is_last_step_old(snapshot)


def overdue_words(snapshot: Snapshot) -> str:
    """`no step for 7.0 s, usually 503 ms: 8 ranks are in eval`; empty where none is overdue."""
    run, step_ms = snapshot.run, snapshot.job.step_ms
    if run is None or step_ms is None or not is_overdue(snapshot):
        return ""
    return f"no step for {age(run.step_age_s)}, usually {ms(step_ms)}{_where(snapshot)}"


def _where(snapshot: Snapshot) -> str:
    """Who is in the phase that the script has named, if anybody is: an evaluation takes its time."""
    phases = () if snapshot.ranks is None else snapshot.ranks.phase
    named = Counter(phase for phase in phases if phase and phase not in BUILT_IN).most_common(1)
    return "".join(f": {_ranks(number)} {phase_words(phase)}" for phase, number in named)


def _ranks(number: int) -> str:
    return f"{count(number)} {'rank is' if number == 1 else 'ranks are'}"
