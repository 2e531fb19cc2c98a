"""A finding as text, to be pasted into a ticket or a chat."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.format import clean, count, local_time, plural
from ddpmon.report.evidence import evidence_blocks, evidence_words
from ddpmon.report.finding_rows import cost_share, costs_word, kind_words
from ddpmon.report.verdicts import calm_sentence
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding, RunView, Snapshot


def finding_text(snapshot: Snapshot, finding: Finding | None) -> str:
    """The sentence, what is known, the evidence, what to do, and which run it is; without a finding the verdict.

    It ends with a newline; control characters are left out.
    """
    said = _of(finding, costs_word(snapshot, finding)) if finding is not None else [calm_sentence(snapshot)]
    lines = [*said, *([] if snapshot.run is None else [_run(snapshot.run, snapshot.taken_at)])]
    return "".join(f"{clean(line)}\n" for line in lines)


def _of(finding: Finding, costs: str) -> Iterator[str]:
    yield finding.summary
    yield "; ".join(_facts(finding, costs))
    words = evidence_words(finding.evidence, is_over=finding.cleared_at_step is not None)
    if words:
        yield f"evidence: {words}"
    for name, rows in evidence_blocks(finding.evidence):
        yield f"{name}:"
        yield from (f"    {row.expandtabs(4)}" for row in rows)
    if finding.advice:
        yield f"what to do: {advice_text(finding.advice)}"


def _facts(finding: Finding, costs: str) -> Iterator[str]:
    yield f"{finding.severity} {kind_words(finding)}"
    if finding.since_step is not None:
        yield f"{'before' if finding.since_is_bound else 'since'} step {count(finding.since_step)}"
    if finding.cleared_at_step is not None:
        yield f"over at step {count(finding.cleared_at_step)}"
    if words := cost_share(finding):
        yield f"{costs} {words}"
    if finding.phase:
        yield f"phase {finding.phase}"
    if finding.cause:
        yield f"cause: {finding.cause}"


def _run(run: RunView, wall: float) -> str:
    where = f", step {count(run.step)}" if run.step is not None else ""
    return f"run {run.name}{where}, {plural(run.world_size, 'rank')}, {local_time(wall)}, {run.source}"
