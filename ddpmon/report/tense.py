"""The tense of the sentences on alerts: what lasts is told in the present, what is over in the past."""

from __future__ import annotations

from collections.abc import Mapping

from ddpmon.diagnose.alert import Alert

_PAST: Mapping[str, str] = {  # the verbs of all sentences on what may be over, as they stand in the present
    "answers": "answered",
    "are": "were",
    "belong": "belonged",
    "cannot": "could not",
    "continue": "continued",
    "Costs": "Cost",
    "costs": "cost",
    "could be": "could have been",
    "describe": "described",
    "disagree": "disagreed",
    "do": "did",
    "does": "did",
    "explains": "explained",
    "gets": "got",
    "go": "went",
    "goes": "went",
    "grows": "grew",
    "has": "had",
    "has been": "was",
    "has fallen": "fell",
    "has finished": "finished",
    "has finished its first step (still compiling?)": "had finished its first step",
    "has never": "never",
    "has not answered": "did not answer",
    "has replayed": "replayed",
    "has reported": "reported",
    "has restarted": "restarted",
    "has taken": "took",
    "has waited": "waited",
    "have": "had",
    "have been": "were",
    "have fallen": "fell",
    "have finished steps since": "finished steps meanwhile",
    "have grown": "grew",
    "have never": "never",
    "have not answered": "did not answer",
    "have replayed": "replayed",
    "have restarted": "restarted",
    "have taken": "took",
    "have waited": "waited",
    "hold": "held",
    "holds": "held",
    "is": "was",
    "may": "could",
    "may pass": "may have passed",
    "need": "needed",
    "needs": "needed",
    "now": "then",
    "overlaps": "overlapped",
    "pass": "passed",
    "publish": "published",
    "reduce": "reduced",
    "replay": "replayed",
    "replays": "replayed",
    "report now": "reported",
    "retransmits": "retransmitted",
    "run": "ran",
    "runs": "ran",
    "sets": "set",
    "share": "shared",
    "shares": "shared",
    "take": "took",
    "takes": "took",
    "throttles": "throttled",
    "use": "used",
    "uses": "used",
    "wait": "waited",
    "waits": "waited",
    "work": "worked",
    "works": "worked",
}


def during(alert: Alert) -> str:
    """`since step 60`, of a bound `since before step 60`; of what is over `from step 60 to 200`."""
    over, since = alert.cleared_at_step, alert.since_step
    began = f"{'before ' if alert.since_is_bound else ''}step {since or 0:,}"
    if over is None:
        return f"since {began}"
    if since is None or (since == over and alert.since_is_bound):
        return f"until step {over:,}"
    return f"at {began}" if since == over else f"from {began} to {over:,}"


def tense(alert: Alert, verb: str) -> str:
    """The past of `verb`, which is given in the present, if the alert is over; else `verb`."""
    return in_tense(verb, is_over=alert.cleared_at_step is not None)


def in_tense(verb: str, *, is_over: bool) -> str:
    """The past of `verb`, which is given in the present, if the finding is over; else `verb`."""
    return _PAST.get(verb, verb) if is_over else verb
