"""The door at which alerts become findings: each with its sentence, its evidence and its advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ddpmon.diagnose.alert import Alert, Cause, Measures
from ddpmon.diagnose.cause import TextCause
from ddpmon.diagnose.finding import Finding
from ddpmon.report import cpu_sentences, gpu_sentences, host_sentences
from ddpmon.report.words import Evidence, Sentence, Words


def _text_cause(cause: TextCause, _alert: Alert) -> Words:
    evidence = {name.removeprefix("cause_"): value for name, value in cause.evidence}
    return Words("", advice=cause.advice, evidence=evidence, because=cause.because)


SENTENCES: Mapping[type[Measures], Sentence] = {
    TextCause: _text_cause,
    **cpu_sentences.SENTENCES,
    **gpu_sentences.SENTENCES,
    **host_sentences.SENTENCES,
}


def tell(alert: Alert) -> Finding:
    """The alert in words."""
    if type(alert.measures) is Measures:
        return alert
    words = _words(alert.measures, alert)
    why = None if alert.why is None else _of_cause(alert.why, alert)
    summary = f"{words.said}{_because(alert.why, why)}{f'. {words.rest}' if words.rest else ''}"
    over = "" if alert.cleared_at_step is None else f"over since step {alert.cleared_at_step:,}: "
    advice = words.advice if why is None else why.advice
    return replace(
        alert,
        summary=f"{over}{summary}",
        cause=words.cause if why is None or alert.why is None else f"{why.because} ({_strength(alert.why)})",
        evidence={**words.evidence, **_evidence(alert.why, why)},
        advice="" if over else advice,
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
