"""The status for a person without a screen: verdict first, then the run, figures, and the ranks that matter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ddpmon.commands.console import printable
from ddpmon.commands.status_ranks import figure, rank_lines
from ddpmon.diagnose.pending import Pending
from ddpmon.format import age, clock, local_time, loss_words, plural
from ddpmon.report.host_summary import summarise_host
from ddpmon.report.job_progress import progress_words, throughput_unit
from ddpmon.report.past import kill_of
from ddpmon.report.trace import collectives, fewer, frame_text, last_lines, main_stack
from ddpmon.report.verdicts import (
    calm_sentence,
    figures_now,
    firing,
    headline,
)
from ddpmon.report.wording import format_ranks
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Coverage, Finding, JobView, Ranks, ReplayView, RunView, Snapshot, is_over

MAX_HOSTS = 8
MAX_PENDING = 3
STACK_ROWS, TRACE_ROWS = 12, 8


def status_lines(snapshot: Snapshot, *, all_ranks: bool = False) -> Iterator[str]:
    """The lines to print; ranks that work like the others are counted only, unless `all_ranks` is set."""
    yield from _verdicts(snapshot)
    if snapshot.pending:
        yield printable(f"not confirmed yet: {_pending(snapshot.pending)}")
    if snapshot.run is not None:
        yield _headline(snapshot.run)
    if snapshot.replay is not None:
        yield from _recorded(snapshot.replay, snapshot.run)
    if snapshot.link.state == "gone":
        yield f"not live: {printable(snapshot.link.message)}"
        if (kill := kill_of(snapshot)) is not None:
            yield f"    {printable(advice_text(kill.advice))}"
    yield figures_line(snapshot)
    yield from _progress(snapshot)
    yield _more_figures(figures_now(snapshot))
    if snapshot.ranks is not None:
        yield ""
        yield from rank_lines(snapshot, snapshot.ranks, all_ranks=all_ranks)
        yield ""
    yield f"{_coverage(snapshot.coverage)}   {_monitor(snapshot.job)}"
    yield from _hosts(snapshot)
    yield from (f"note: {printable(notice)}" for notice in snapshot.notices)


def _recorded(replay: ReplayView, run: RunView | None) -> Iterator[str]:
    """When the moment was that is shown, and what of the recording is damaged."""
    goes_on = "" if run is None or is_over(run.state) else ", when the run had not ended"
    yield f"recorded: {clock(replay.length)} until {local_time(replay.wall)}{goes_on}"
    yield from (f"note: {printable(note)}" for note in replay.notes)


def verdict(snapshot: Snapshot) -> str:
    """The sentence that the dashboard has on top: the worst finding that lasts, or that there is none."""
    worst = headline(snapshot.findings)
    return printable(worst.summary if worst else calm_sentence(snapshot))


def figures_line(snapshot: Snapshot) -> str:
    """Where the run is and how fast, in one line."""
    job, step = figures_now(snapshot), snapshot.run.step if snapshot.run else None
    throughput = f"{figure(job.throughput, 1)} {printable(throughput_unit(job))}"
    last = age(snapshot.run.step_age_s if snapshot.run else None, "-")
    return (
        f"step {'-' if step is None else f'{step:,}'}   last step {last} ago   "
        f"{figure(job.step_ms, 1)} ms/step   {throughput}   "
        f"loss {loss_words(job.loss, '-')}"
    )


def _progress(snapshot: Snapshot) -> Iterator[str]:
    """How far the job is by its own count, its tokens, and where losses and samples are read; nothing if unknown."""
    job, run = figures_now(snapshot), snapshot.run
    words = [progress_words(job), *([] if job.tokens_per_s is None else [f"{job.tokens_per_s:,.0f} tokens/s"])]
    if run is not None and run.loss_from:
        words += [f"loss: {run.loss_from}", f"samples: {run.samples_from}"]
    if any(words):
        yield printable("   ".join(filter(None, words)))


def _headline(run: RunView) -> str:
    where = f"{plural(run.world_size, 'rank')} on {plural(len(run.nodes), 'host')}"
    elapsed = "" if run.elapsed_s is None else f"   {int(run.elapsed_s // 60)} min {int(run.elapsed_s % 60)} s"
    return printable(f"{run.name}   {run.state}   {where}   {run.backend}{elapsed}   {run.source}")


def _verdicts(snapshot: Snapshot) -> Iterator[str]:
    if headline(snapshot.findings) is None:
        yield printable(calm_sentence(snapshot))
    for finding in firing(snapshot.findings):
        yield f"{finding.severity}: {printable(finding.summary)}"
        if finding.advice:
            yield f"    {printable(advice_text(finding.advice, snapshot.own_host))}"
        if snapshot.ranks is not None:
            yield from (f"    {printable(line.expandtabs(2))}" for line in _trace(finding, snapshot.ranks))


def _pending(pending: Sequence[Pending]) -> str:
    words = [_would_be(each) for each in pending[:MAX_PENDING]]
    more = len(pending) - len(words)
    return "; ".join([*words, *([f"and {more} more"] if more else [])])


def _would_be(pending: Pending) -> str:
    """Which finding it would be, on whom, and when: "cpu_contention on node0, rank 2 (at least 4 s more)"."""
    named = [*pending.nodes, *([format_ranks(pending.ranks)] if pending.ranks else [])]
    whom = f" on {', '.join(named)}" if named else ""
    return f"{pending.kind}{whom} (at least {math.ceil(pending.seconds)} s more)"


def _trace(finding: Finding, ranks: Ranks) -> Iterator[str]:
    """Where the first rank that a hang names is stuck; how the first that has failed ended."""
    rank = finding.ranks[0] if finding.ranks else -1
    if not 0 <= rank < len(ranks):
        return
    stall, failure = ranks.stall[rank], ranks.failure[rank]
    if finding.kind == "hang" and stall is not None:
        stack = main_stack(stall)
        frames = [] if stack is None else fewer(stack.frames, STACK_ROWS)
        yield f"rank {rank}, most recent call last; {collectives(stall) or 'no collective on record'}"
        yield from (f"  {frame_text(frame)}" for frame in frames)
    if finding.kind == "rank_failed" and failure is not None:
        yield f"rank {rank}, most recent call last"
        yield from (f"  {line}" for line in last_lines(failure, TRACE_ROWS))


def _more_figures(job: JobView) -> str:
    efficiency = None if job.sync_efficiency is None else 100 * job.sync_efficiency
    return (
        f"busy {figure(efficiency, 0)} %   waiting {figure(job.lost_to_waiting_pct, 0)} %   "
        f"all-reduce {figure(job.allreduce_ms, 1)} ms   exposed {figure(job.exposed_ms, 1)} ms   "
        f"bus bandwidth {figure(job.busbw_gb_s, 2)} GB/s"
    )


def _coverage(coverage: Coverage | None) -> str:
    if coverage is None:
        return "no rank has reported"
    told = f"{coverage.reporting:,}/{plural(coverage.expected, 'rank')} reporting"
    return f"{told}, oldest {figure(coverage.oldest_age_s, 1)} s"


def _monitor(job: JobView) -> str:
    return f"probe {figure(job.monitor_us, 0)} µs/step, {plural(job.dropped, 'record')} dropped"


def _hosts(snapshot: Snapshot) -> Iterator[str]:
    """A line for each host of which something stands out."""
    said = [(node.host, summarise_host(node, snapshot.ranks)) for node in snapshot.nodes]
    loud = [(host, words) for host, words in said if words]
    for host, words in loud[:MAX_HOSTS]:
        yield printable(f"{host or '-'}: {'; '.join(words)}")
    if len(loud) > MAX_HOSTS:
        yield f"and {plural(len(loud) - MAX_HOSTS, 'more host')}"
