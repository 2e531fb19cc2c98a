"""The door at which alerts become findings: each with its sentence, its evidence and its advice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ddpmon.diagnose.alert import Alert, Cause, Measures
from ddpmon.diagnose.cause import TextCause
from ddpmon.report import advice_sentences, failure_sentences, hang_sentences, job_sentences, late_sentences
from ddpmon.report.words import Evidence, Sentence, Words
from ddpmon.snapshot import Finding


def _text_cause(cause: TextCause, _alert: Alert) -> Words:
    return Words("", advice=cause.advice, evidence=dict(cause.evidence), because=cause.because)


SENTENCES: Mapping[type[Measures], Sentence] = {
    TextCause: _text_cause,
    **advice_sentences.SENTENCES,
    **failure_sentences.SENTENCES,
    **hang_sentences.SENTENCES,
    **job_sentences.SENTENCES,
    **late_sentences.SENTENCES,
    **hang_sentences.SENTENCES,
    **job_sentences.SENTENCES,
    **late_sentences.SENTENCES,
}


def in_words(alerts: Iterable[Alert]) -> tuple[Finding, ...]:
    """The alerts as findings, in their order."""
    return tuple(map(tell, alerts))


def tell(alert: Alert) -> Finding:
    """The alert in words."""
    if type(alert.measures) is Measures:
        return _finding(alert, alert.summary, alert.cause, alert.evidence, alert.advice)
    words = _words(alert.measures, alert)
    why = None if alert.why is None else _of_cause(alert.why, alert)
    summary = f"{words.said}{_because(alert.why, why)}{f'. {words.rest}' if words.rest else ''}"
    over = "" if alert.cleared_at_step is None else f"over since step {alert.cleared_at_step:,}: "
    advice = words.advice if why is None else why.advice
    cause = words.cause if why is None or alert.why is None else f"{why.because} ({_strength(alert.why)})"
    evidence = {**words.evidence, **_evidence(alert.why, why)}
    return _finding(alert, f"{over}{summary}", cause, evidence, "" if over else advice)


def _finding(alert: Alert, summary: str, cause: str | None, evidence: Evidence, advice: str) -> Finding:
    return Finding(
        kind=alert.kind,
        severity=alert.severity,
        summary=summary,
        ranks=alert.ranks,
        nodes=alert.nodes,
        phase=alert.phase,
        cause=cause,
        since_step=alert.since_step,
        since_is_bound=alert.since_is_bound,
        cost_pct=alert.cost_pct,
        evidence=evidence,
        advice=advice,
        cleared_at_step=alert.cleared_at_step,
    )


def _words(measures: Measures, alert: Alert) -> Words:
    return SENTENCES[type(measures)](measures, alert)


def _of_cause(cause: Cause, alert: Alert) -> Words:
    """The words of the cause's own measures, as if it stood in an alert of its own."""
    return _words(cause.measures, replace(alert, ranks=cause.ranks, nodes=(cause.host,) if cause.host else ()))


def _because(cause: Cause | None, words: Words | None) -> str:
    if cause is None or words is None:
        return ""
    return f", {'' if cause.certain else 'likely '}because of {words.because}"


def _strength(cause: Cause) -> str:
    return "certain" if cause.certain else "likely"


def _evidence(cause: Cause | None, words: Words | None) -> Evidence:
    """What the cause rests on, under names of its own."""
    if cause is None or words is None:
        return {}
    share = {} if cause.share is None else {"cause_share": min(1.0, cause.share)}
    return {
        **{f"cause_{name}": value for name, value in words.evidence.items()},
        **share,
        "cause_strength": _strength(cause),
    }
