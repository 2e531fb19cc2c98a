"""Who a rank is: host, process, GPU, state, and the CPUs, threads and workers that it runs with."""

from __future__ import annotations

import numpy as np
from rich.segment import Segment

from ddpmon.format import age, amount, count, figure, plural
from ddpmon.machine import GpuFigures, ProcessFigures
from ddpmon.snapshot import Ranks, Snapshot
from ddpmon.tui.lines import Line, clip, fit, joined, spread, width_of
from ddpmon.tui.look import Look

CPUS_MOST = 24  # cells of a list of CPUs


def identity_lines(snapshot: Snapshot, ranks: Ranks, rank: int, width: int, look: Look) -> list[Line]:
    """The first lines of the detail screen."""
    run = snapshot.run
    facts = [
        look.clean(ranks.host[rank]) or look.unknown,
        f"pid {_plain(ranks.pid[rank], look)}",
        f"local rank {_plain(ranks.local_rank[rank], look)}",
        _gpu(ranks.gpu[rank], look),
    ]
    state = look.clean(ranks.state[rank])
    inside = f" in {look.clean(ranks.phase[rank])}" if ranks.phase[rank] and state in ("running", "stalled") else ""
    styles = {"lost": look.broken, "failed": look.broken, "stalled": look.accent}
    right = [
        Segment(f"{state}{inside}", styles.get(state, look.text)),
        Segment(f"   step {count(int(ranks.step[rank]), look.unknown)}", look.text),
        Segment(f"   heard {age(float(ranks.age_s[rank]), look.unknown)} ago ", look.dim),
    ]
    total = f" of {run.world_size:,}" if run else ""
    name: Line = [Segment(f" rank {rank}", look.strong), Segment(total, look.dim)]
    between = Segment(f" {look.glyphs.dot} " if not look.ascii_only else " | ", look.faint)
    who = joined([name, *([Segment(fact, look.text)] for fact in facts)], between)
    more = _process(ranks.process[rank], between, width, look)
    if width_of(who) + width_of(right) + 2 <= width:
        return [spread(who, right, width), *more]
    return [fit(who, width), fit([Segment(" ", look.text), *right], width), *more]


def _process(process: ProcessFigures | None, between: Segment, width: int, look: Look) -> list[Line]:
    """Where it may run, with how many threads and workers, and what limits it; nothing where nothing is known."""
    facts = process_facts(process) if process is not None else []
    if not facts:
        return []
    line = joined([[Segment(look.clean(fact), look.accent if loud else look.dim)] for fact, loud in facts], between)
    return [fit([Segment(" ", look.text), *line], width)]


def process_facts(process: ProcessFigures) -> list[tuple[str, bool]]:
    """`CPUs 0-11`, `12 compute threads`, `4 workers (180 % CPU)`, `quota 8 CPUs`; each with whether it stands out."""
    facts: list[tuple[str, bool]] = []
    if process.cpus is not None:
        facts.append((f"CPUs {clip(process.cpus, CPUS_MOST)}", False))
    if process.compute_threads is not None:
        facts.append((plural(process.compute_threads, "compute thread"), False))
    if process.workers is not None:
        busy = f" ({process.workers_cpu_pct:.0f} % CPU)" if process.workers and process.workers_cpu_pct else ""
        facts.append((plural(process.workers, "worker") + busy, False))
    if process.quota_cpus is not None:
        facts.append((f"quota {process.quota_cpus:.3g} CPUs", False))
    if process.throttled_pct:
        facts.append((f"throttled {figure(process.throttled_pct)} % of the time", process.throttled_pct >= 1))
    if process.oom_kills:
        facts.append((f"{process.oom_kills:,} killed for memory", True))
    return facts


def _plain(number: np.int64, look: Look) -> str:
    return str(int(number)) if number >= 0 else look.unknown


def _gpu(gpu: GpuFigures | None, look: Look) -> str:
    if gpu is None:
        return "no GPU"
    memory = f", {amount(gpu.memory_used, look.unknown)} used" if gpu.memory_used is not None else ""
    return f"GPU {gpu.index} {look.clean(gpu.name or '')}{memory}".rstrip()
