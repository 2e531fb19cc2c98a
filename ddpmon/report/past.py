"""Findings of a run that is over, told as things of the past.

The sentences of findings are written in the present tense, since most of them are told while they hold. Here the verbs
of these sentences are put into the past tense; what stands in brackets or backticks is foreign text and stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from ddpmon.shell_command import Advice
from ddpmon.snapshot import Finding

NEXT_RUN, GOES_ON = "before the next run, ", "if the run goes on, "
_FOREIGN = re.compile(r"\([^()]*(?:\([^()]*\)[^()]*)*\)|`[^`]*`")
_QUOTING = ("rank_failed",)  # kinds whose sentences quote exceptions, and are of the past already
_WORDS = {
    "is": "was", "are": "were", "has": "had", "have": "had", "cannot": "could not", "may only": "could only",
    "costs": "cost", "saves": "would have saved", "could be saved": "could have been saved",
    "is full in": "would have been full in", "works": "worked", "waits": "waited", "takes": "took", "gets": "got",
    "sets": "set", "grows": "grew", "holds": "held", "uses": "used", "shares": "shared", "throttles": "throttled",
    "retransmits": "retransmitted", "explains": "explained", "spend": "spent", "overlaps": "overlapped",
    "belong": "belonged", "continue": "continued", "disagree": "disagreed", "follows": "followed", "goes": "went",
    "needs": "needed", "answers": "answered", "allows": "allowed", "describe": "described", "pass": "passed",
    "so do": "so did",
}  # fmt: skip
# Plurals are nouns, too, or follow another verb: they are verbs only before these words.
_PLURALS = {
    r"work(?= \d)": "worked", r"wait(?= (?:for|in|\d))": "waited", r"take(?= (?:\d|part|it))": "took",
    r"hold(?= (?:a|\d))": "held", r"use(?= \d)": "used", r"share(?= (?:one|CPU|\d))": "shared",
    r"run(?= (?:at|\d))": "ran", r"need(?= (?:more|is))": "needed", r"follow(?= from)": "followed",
    r"go(?= (?:on|from))": "went", r"publish(?= as)": "published", r"reduce(?= through)": "reduced",
}  # fmt: skip
_VERB = re.compile(
    r"(?<!not )(?<!the )(?<!would )(?<!could )(?:\b(?:does|do) not\b|\b(?:"
    + "|".join([*sorted(map(re.escape, _WORDS), key=len, reverse=True), *_PLURALS])
    + r")\b)",
    re.IGNORECASE,
)
_PLURAL_FORMS = {pattern.partition("(")[0]: past for pattern, past in _PLURALS.items()}


def in_past(finding: Finding, *, may_go_on: bool) -> Finding:
    """The finding as it was at the end of its run; its advice is for the next run.

    Args:
        finding: as it was told while the run went on.
        may_go_on: whether the run is only out of sight, so that the advice may still be of use to it.
    """
    lead = "" if finding.kind == "advice" or not finding.advice else GOES_ON if may_go_on else NEXT_RUN
    advice = _with_lead(lead, finding.advice)
    if finding.kind in _QUOTING:
        return replace(finding, advice=advice)
    told: Callable[[str], str] = _at_the_end if finding.brief else past_tense  # a brief one names lines of code
    cause = None if finding.cause is None else past_tense(finding.cause)
    return replace(finding, summary=told(finding.summary), brief=told(finding.brief), cause=cause, advice=advice)


def _with_lead(lead: str, advice: Advice) -> Advice:
    return f"{lead}{advice}" if isinstance(advice, str) else (lead, *advice)


def _at_the_end(said: str) -> str:
    """A sentence that holds code, in which no verb can be told from a name."""
    return f"at the end of what was seen: {said}" if said else ""


def past_tense(said: str) -> str:
    """`rank 1 was late by 41 ms a step` of `rank 1 is late by 41 ms a step`."""
    parts, end = [], 0
    for foreign in _FOREIGN.finditer(said):
        parts += [_VERB.sub(_past, said[end : foreign.start()]), foreign[0]]
        end = foreign.end()
    return "".join([*parts, _VERB.sub(_past, said[end:])])


def _past(verb: re.Match[str]) -> str:
    word = verb[0].lower()
    if word in ("does not", "do not"):
        return "did not"
    past = _WORDS.get(word) or _PLURAL_FORMS[word]
    return past.capitalize() if verb[0][0].isupper() else past
