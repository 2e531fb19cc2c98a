"""A report as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ddpmon.format import UNKNOWN, clean, figure, local_time
from ddpmon.report.evidence import evidence_blocks, evidence_words
from ddpmon.report.host_summary import summarise_host
from ddpmon.report.peers import ShownLateness
from ddpmon.report.run_report import Event, RunReport, configuration, cost_words, facts, when_words
from ddpmon.report.verdicts import marked_ranks
from ddpmon.snapshot import Ranks

MOST_RANKS, MOST_HOSTS = 32, 64
RANK_COLUMNS = (
    ("work ms", "work_ms"),
    ("wait ms", "wait_ms"),
    ("late ms", "lateness_ms"),
    ("input", "input_ms"),
    ("forward", "forward_ms"),
    ("backward", "backward_ms"),
    ("optimizer", "optimizer_ms"),
    ("other", "other_ms"),
)
_ESCAPED = str.maketrans({char: f"\\{char}" for char in "\\`*_{}[]<>|#"})


def markdown(report: RunReport) -> str:
    """The whole report; foreign text is escaped."""
    return "\n".join(_lines(report)) + "\n"


def text(words: str) -> str:
    """Foreign text for Markdown: on one line, without any mark-up of its own."""
    return clean(words).translate(_ESCAPED)


def advice_text(words: str) -> str:
    """Advice: its commands, which stand between backticks, stay as they are."""
    parts = clean(words).split("`")
    return "`".join(part if at % 2 else text(part) for at, part in enumerate(parts)) if len(parts) % 2 else text(words)


def _lines(report: RunReport) -> Iterator[str]:
    yield f"# {text(report.title)}"
    yield ""
    yield f"**{text(report.verdict)}**"
    yield ""
    yield from _pairs(facts(report))
    for note in report.notes:
        yield f"> {text(note)}"
        yield ""
    yield from _events(report)
    yield from _ranks(report)
    yield from _hosts(report)
    yield "## Configuration"
    yield ""
    yield from _pairs(configuration(report))


def _pairs(pairs: Iterator[tuple[str, str]]) -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    yield from (f"| {text(name)} | {text(value)} |" for name, value in pairs)
    yield ""


def _events(report: RunReport) -> Iterator[str]:
    yield "## What happened"
    yield ""
    for said in report.preface:
        yield text(said)
        yield ""
    for event in report.troubles:
        yield from _event(event, report)
    if report.advice:
        yield "## Settings to try"
        yield ""
        for event in report.advice:
            yield f"- {text(event.summary)} {advice_text(event.advice)}".rstrip()
        yield ""


def _event(event: Event, report: RunReport) -> Iterator[str]:
    over = "" if event.lasts else " (over)"
    yield f"### {event.severity}{over}: {text(event.summary)}"
    yield ""
    said = (
        ("when", when_words(event)),
        ("cost", cost_words(event, report)),
        ("evidence", evidence_words(event.evidence, is_over=not event.lasts)),
    )
    yield from (f"- {name}: {text(words)}" for name, words in said if words)
    if event.to_do:
        yield f"- to do: {advice_text(event.to_do)}"
    yield ""
    for name, rows in evidence_blocks(event.evidence):
        yield f"{text(name)}:"
        yield ""
        yield from (f"    {clean(row)}" for row in rows)
        yield ""


def worst_ranks(report: RunReport) -> list[int]:
    """The ranks that lasting findings name, the worst first, then those that work longest: at most 32."""
    ranks = report.snapshot.ranks
    if ranks is None:
        return []
    known = np.flatnonzero(np.isfinite(ranks.work_ms))
    by_work: list[int] = known[np.argsort(-ranks.work_ms[known], kind="stable")].tolist()
    there = {*by_work}
    named = [rank for rank in marked_ranks(report.snapshot.findings) if rank in there]
    return [*dict.fromkeys([*named, *by_work])][:MOST_RANKS]


def which_ranks(report: RunReport, chosen: Sequence[int]) -> str:
    """`32 of 64 ranks: those that findings name, then those that work longest`; empty where all are shown."""
    ranks = report.snapshot.ranks
    if ranks is None or len(chosen) == len(ranks):
        return ""
    named = "those that findings name, then " if marked_ranks(report.snapshot.findings) else ""
    return f"{len(chosen)} of {len(ranks):,} ranks: {named}those that work longest"


def rank_cells(report: RunReport, ranks: Ranks, chosen: Sequence[int]) -> Iterator[list[str]]:
    """The cells of some ranks in `RANK_COLUMNS`; the lateness as every view shows it."""
    lateness = ShownLateness(report.snapshot)
    for rank in chosen:
        late = {"lateness_ms": lateness.words([rank], UNKNOWN)}
        yield [late.get(name) or figure(float(ranks.column(name)[rank])) for _, name in RANK_COLUMNS]


def notable_hosts(report: RunReport) -> list[tuple[str, str]]:
    """(host, what stands out on it) of the hosts where something does, at most 64; not cleaned."""
    snapshot = report.snapshot
    said = ((node.host, "; ".join(summarise_host(node, snapshot.ranks))) for node in snapshot.nodes)
    return [(host, words) for host, words in said if words][:MOST_HOSTS]


def _ranks(report: RunReport) -> Iterator[str]:
    ranks, chosen = report.snapshot.ranks, worst_ranks(report)
    if ranks is None or not chosen:
        return
    yield "## Ranks at the end"
    yield ""
    if which := which_ranks(report, chosen):
        yield f"{which}; medians over 20 steps."
        yield ""
    yield f"| rank | host | state | {' | '.join(name for name, _ in RANK_COLUMNS)} |"
    yield f"|---|---|---|{'---|' * len(RANK_COLUMNS)}"
    for rank, cells in zip(chosen, rank_cells(report, ranks, chosen), strict=True):
        yield f"| {rank} | {text(ranks.host[rank])} | {text(ranks.state[rank])} | {' | '.join(cells)} |"
    yield ""


def _hosts(report: RunReport) -> Iterator[str]:
    if hosts := notable_hosts(report):
        yield "## Hosts at the end"
        yield ""
        yield from (f"- {text(host)}: {text(words)}" for host, words in hosts)
        yield ""
    yield f"Written at {local_time(report.ended_at)} of the run."
    yield ""
