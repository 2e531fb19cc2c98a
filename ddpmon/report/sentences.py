"""Where alerts become findings: each gets its sentence, its evidence and its advice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace as replace_fields

from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert, Cause, Measures
from ddpmon.report import (
    advice_sentences,
    cpu_sentences,
    failure_sentences,
    gpu_sentences,
    hang_sentences,
    host_sentences,
    job_sentences,
    late_sentences,
)
from ddpmon.report.past import asks
from ddpmon.report.tense import during
from ddpmon.report.wording import Evidence, Sentence, Words, brief_line, format_line
from ddpmon.shell_command import Advice
from ddpmon.snapshot import Finding

SENTENCES: Mapping[type[Measures], Sentence] = {
    **advice_sentences.SENTENCES,
    **cpu_sentences.SENTENCES,
    **failure_sentences.SENTENCES,
    **gpu_sentences.SENTENCES,
    **hang_sentences.SENTENCES,
    **host_sentences.SENTENCES,
    **job_sentences.SENTENCES,
    **late_sentences.SENTENCES,
}


def in_words(alerts: Iterable[Alert]) -> tuple[Finding, ...]:
    """The alerts as findings, in their order."""
    return tuple(map(tell, alerts))


def tell(alert: Alert) -> Finding:
    """The alert in words."""
    words = _words(alert.measures, alert)
    why = None if alert.cause is None else _of_cause(alert.cause, alert)
    is_over = alert.cleared_at_step is not None
    when = f" ({during(alert)})" if is_over and not (words.tells_end or words.tells_moment) else ""
    summary = f"{words.said}{when}{_because(alert.cause, why)}{f'. {words.rest}' if words.rest else ''}"
    advice = (words.advice if why is None else why.advice) if asks(alert.kind, is_over=is_over) else ""
    cause = words.cause if why is None or alert.cause is None else f"{why.because} ({_strength(alert.cause)})"
    evidence = {**words.evidence, **_evidence(alert.cause, why)}
    found = _finding(alert, summary, cause, evidence, advice, words.tells_moment)
    return replace_fields(found, brief=_in_brief(found.summary, words)) if words.lines else found


def _in_brief(summary: str, words: Words) -> str:
    """The summary with each line of code as `train.py:88`."""
    for line in words.lines:
        summary = summary.replace(format_line(line), brief_line(line))
    return summary


def _finding(
    alert: Alert, summary: str, cause: str | None, evidence: Evidence, advice: Advice, tells_moment: bool
) -> Finding:
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
        id=alert.id,
        tells_moment=tells_moment,
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
