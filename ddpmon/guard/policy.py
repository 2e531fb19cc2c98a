"""When the guard speaks: its thresholds, each with its unit and its reason."""

from __future__ import annotations

from msgspec import Struct

from ddpmon.diagnose.alert import Severity


class GuardPolicy(Struct, frozen=True):
    """When an alert is told, when its end is, and how often.

    Attributes:
        min_severity: alerts below it are not told.
        silence_s: seconds without a word from any rank after which the run is reported as silent. A store that is
            started again is back within seconds; 60 s are six times what makes a rank lost.
        hold_s: seconds for which an alert must be gone before its end is told, where its rule does not say that it is
            over. Rules without lives judge afresh at every tick and may flicker. Chosen, not measured.
        rejudged_steps: steps that must also have been made since, where the rule keeps lives: after a restart of ranks
            all rules begin again, and 200 steps are what the end of a life takes where every tenth step is judged.
        cause_s: seconds for which the beginning of a lateness is held back while its cause is not known. What the
            rank's host says comes after the first late steps: some 4 s after them, in the runs that were looked at.
        burst: messages on a run that may follow each other at once. Chosen: ten fit on a phone's screen.
        reserve: the last of these are for critical alerts, so that warnings cannot use them up. Chosen.
        refill_s: seconds after which another message is allowed. Chosen: sixty an hour is the most that a run causes.
        leave_s: seconds for which a run that has ended is still looked at.
        lost_leave_s: the same for one that was lost; its network may come back. Chosen, not measured.
        keep_s: seconds for which the guard remembers a run that it has not seen since. Chosen: a week.
    """

    min_severity: Severity = "warning"
    silence_s: float = 60.0
    hold_s: float = 30.0
    rejudged_steps: int = 200
    cause_s: float = 5.0
    burst: int = 10
    reserve: int = 4
    refill_s: float = 60.0
    leave_s: float = 60.0
    lost_leave_s: float = 3600.0
    keep_s: float = 7 * 86400.0
