"""How long ago the last word came and the last step ended: one number for all parts of a screen."""

from __future__ import annotations

import numpy as np

from ddpmon.format import age
from ddpmon.report.verdicts import firing, is_past, is_standing_still, stops_job
from ddpmon.run.model import SILENT_S
from ddpmon.snapshot import Snapshot

_FRAMES_S = 2.0  # by so much what a rank says of a standstill may differ from the age of its word


def newest_word_s(snapshot: Snapshot) -> float | None:
    """How many seconds ago any rank was heard from last; None where that is not known."""
    if snapshot.ranks is None or not np.isfinite(snapshot.ranks.age_s).any():
        return None
    return float(np.nanmin(snapshot.ranks.age_s))


def known_until(snapshot: Snapshot) -> float:
    """The Unix time up to which a picture tells of its run: the last word of one that has ended or is out of sight."""
    return snapshot.taken_at - ((newest_word_s(snapshot) or 0.0) if is_past(snapshot) else 0.0)


def last_heard_s(snapshot: Snapshot, age_s: float | None) -> float | None:
    """How long ago a rank or a host was heard that is `age_s` old by itself; None where that is not known.

    In a run of the past it is how long ago any rank was, as the first line says: each is read at a moment of its own.
    One that had fallen silent before the others keeps its own age.
    """
    newest = newest_word_s(snapshot)
    if age_s is None or newest is None or not is_past(snapshot) or not abs(age_s - newest) <= SILENT_S:
        return age_s  # also NaN, of a rank that was never heard
    return newest


def last_step_s(snapshot: Snapshot) -> float | None:
    """How long ago a step ended; None where that is not known.

    While the run stands still it is what the finding says, as soon as both are the same but for when they were read.
    """
    own = None if snapshot.run is None else snapshot.run.step_age_s
    if own is None or not is_standing_still(snapshot):
        return own
    told = (each.evidence.get("seconds") for each in firing(snapshot.findings) if stops_job(each))
    known = (float(each) for each in told if isinstance(each, float | int))
    return next((each for each in known if abs(each - own) < _FRAMES_S), own)


def still_words(snapshot: Snapshot) -> str:
    """`no step for 29 s` while the run stands still; empty otherwise, and once nothing of it goes on."""
    seconds = last_step_s(snapshot) if is_standing_still(snapshot) and not is_past(snapshot) else None
    return "" if seconds is None else f"no step for {age(seconds)}"
