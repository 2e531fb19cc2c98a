"""The key figures as a strip: the job's numbers, each with the course that it has taken."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import product

import numpy as np
from rich.segment import Segment
from rich.style import Style

from ddpmon.diagnose.kinds import KINDS
from ddpmon.format import age, count, figure, known, loss_words, pct, plural
from ddpmon.report.job_progress import progress_words, throughput_unit
from ddpmon.report.last_word import last_step_s
from ddpmon.report.overdue import is_last_step_old
from ddpmon.report.verdicts import figures_now, firing
from ddpmon.snapshot import Floats, JobView, Snapshot
from ddpmon.tui.lines import Line, fit, joined, width_of
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState

# (cells of each course, whether the figures of less worth are there, gap) from the widest screen to the narrowest
ROOMS = (
    (12, True, 3),
    (8, True, 3),
    (12, False, 3),
    (8, False, 3),
    (5, False, 3),
    (5, False, 2),
    (3, False, 2),
    (0, False, 2),
)
PROGRESS = 140  # cells from which the job's own progress is told in full
RANKS = 100  # cells from which the ranks waited for are named, where all figures have room beside them
NAMED = 3  # ranks, and hosts, that are named
CALM_SPAN = 0.1  # of the largest value: a course that varies by less is drawn as nearly flat


def figures_line(picture: ViewState, width: int) -> Line:
    """`step 1,204   ▁▁▇▇ 333 ms/step   loss ▇▃▁ 2.314   ▇▇▃ 1,482 samples/s   waiting 41 %   busy 56 %`."""
    look = picture.look
    job = figures_now(picture.snapshot)
    for brief, (cells, extras, gap) in product(dict.fromkeys((width < RANKS, True)), ROOMS):
        waiting, more = _waiting(picture.snapshot, job, look, brief=brief), _extras(job, look) if extras else []
        parts = [*_figures(picture.snapshot, look, cells, width), waiting, *more]
        line = [Segment(" ", look.text), *joined(parts, Segment(" " * gap, look.text))]
        if width_of(line) < width:
            return fit(line, width)
    while width_of(line) >= width and len(parts) > 1:
        parts = parts[:-1]
        line = [Segment(" ", look.text), *joined(parts, Segment(" " * gap, look.text))]
    return fit(line, width)


def spark(values: Floats, cells: int, look: Look) -> str:
    """A course in so many cells, from the lowest to the highest of the eight heights; blank where nothing is known."""
    means = _means(values, cells)
    given = [mean for mean in means if math.isfinite(mean)]
    if not given:
        return " " * cells
    low, high = min(given), max(given)
    span = max(high - low, CALM_SPAN * max(abs(high), abs(low)), 1e-12)
    top = len(look.glyphs.spark) - 1
    return "".join(look.glyphs.spark[round((m - low) / span * top)] if math.isfinite(m) else " " for m in means)


def _means(values: Floats, cells: int) -> list[float]:
    """The mean of each of so many parts of nearly one length, NaN where none is known; fewer values are their own."""
    if len(values) < cells:
        return [*values.tolist(), *[math.nan] * (cells - len(values))]
    starts = np.arange(cells) * (len(values) // cells) + np.minimum(np.arange(cells), len(values) % cells)
    known = np.isfinite(values)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts)
    counts = np.add.reduceat(known, starts, dtype=np.float64)
    return [total / count if count else math.nan for total, count in zip(sums.tolist(), counts.tolist(), strict=True)]


def _figures(snapshot: Snapshot, look: Look, cells: int, width: int) -> list[Line]:
    """The figures in order of worth; one that no run of this kind has is left out, one of a hang is unknown."""
    job, series = figures_now(snapshot), snapshot.series
    step = snapshot.run.step if snapshot.run else None
    parts = [[Segment("step ", look.dim), _value(f"{count(step, look.unknown):>7}", look.strong, look)]]
    if words := progress_words(job, brief=width < PROGRESS):
        parts += [[Segment(words, look.text)]]
    parts += [_last_step(snapshot, look)] if is_last_step_old(snapshot) else []

    def course(name: str) -> Line:
        drawn = spark(getattr(series, name), cells, look) if series is not None and cells else ""
        return [Segment(f"{drawn} ", look.line)] if drawn.strip() else []

    loss = loss_words(job.loss, look.unknown)
    step_ms = f"{figure(job.step_ms, look.unknown):>5}"
    parts += [
        [*course("step_ms"), _value(step_ms, look.text, look), Segment(" ms/step", look.dim)],
        [Segment("loss ", look.dim), *course("loss"), _value(f"{loss:<5}", look.text, look)],
        [*course("throughput"), _value(f"{figure(job.throughput, look.unknown):>5} ", look.text, look),
         Segment(look.clean(throughput_unit(job)), look.dim)],
    ]  # fmt: skip
    return parts


def _value(text: str, style: Style, look: Look) -> Segment:
    """A figure in its style; the dash of what is not known is dim."""
    return Segment(text, look.dim if text.strip() == look.unknown else style)


def _extras(job: JobView, look: Look) -> list[Line]:
    """What a narrow screen leaves out."""
    parts: list[Line] = []
    if known(job.tokens_per_s):
        parts += [[Segment(f"{figure(job.tokens_per_s)} ", look.text), Segment("tokens/s", look.dim)]]
    if known(job.allreduce_ms):
        parts += [[Segment("all-reduce ", look.dim), Segment(f"{figure(job.allreduce_ms)} ms", look.text)]]
    if known(job.sync_efficiency):
        parts += [[Segment("busy ", look.dim), Segment(f"{(job.sync_efficiency or 0.0) * 100:.0f} %", look.text)]]
    return parts


def _last_step(snapshot: Snapshot, look: Look) -> Line:
    """How long ago a step was finished, once that is longer than a step should take."""
    return [Segment(f"last step {age(last_step_s(snapshot), look.unknown)} ago", look.accent)]


def _waiting(snapshot: Snapshot, job: JobView, look: Look, *, brief: bool) -> Line:
    """`waiting 21 %, mostly on rank 341`; brief without the ranks."""
    name, share = Segment("waiting ", look.dim), job.lost_to_waiting_pct
    if share is None or not known(share):
        return [name, Segment(look.unknown, look.dim)]
    notable = share >= 5 and bool(job.waiting_for)
    said = Segment(f"{pct(share)} %", look.accent if notable else look.text)
    if not notable or brief:
        return [name, said]
    whom = look.clean(_waited_for(snapshot, job.waiting_for))
    return [name, said, Segment(f"{_part_on(snapshot, share)} {whom}", look.accent)]


def _part_on(snapshot: Snapshot, share: float) -> str:
    """` on` where the findings on late ranks cost all that is waited, else `, mostly on` or, below half, `, partly on`.

    The rest is waiting by chance.
    """
    costs = [finding.cost_pct for finding in firing(snapshot.findings) if KINDS[finding.kind].late]
    caused = sum(share if cost is None else cost for cost in costs) if costs else share
    return " on" if round(caused) >= round(share) else ", mostly on" if caused >= share / 2 else ", partly on"


def _waited_for(snapshot: Snapshot, who: Sequence[int]) -> str:
    """`rank 42 and node0002`: the ranks, the worst first, and a host for all of its ranks."""
    host_of = () if snapshot.ranks is None else snapshot.ranks.host
    here: dict[str, list[int]] = {}
    for rank in who if host_of else ():
        here.setdefault(host_of[rank], []).append(rank)
    sizes = _sizes(host_of) if here else Counter[str]()
    hosts = [host for host, ranks in here.items() if host and 1 < len(ranks) == sizes[host]]
    whole = {rank for host in hosts for rank in here[host]}
    single = [rank for rank in who if rank not in whole]
    more = f" and {len(single) - NAMED} more" if len(single) > NAMED else ""
    ranks = f"rank{'s' if len(single) > 1 else ''} {', '.join(map(str, single[:NAMED]))}{more}" if single else ""
    named = ", ".join(hosts[:NAMED]) + (f" and {plural(len(hosts) - NAMED, 'more host')}" if len(hosts) > NAMED else "")
    parts = [ranks, named] if who[0] in single else [named, ranks]
    return " and ".join(filter(None, parts))


@lru_cache(maxsize=1)  # the ranks stay where they are
def _sizes(hosts: tuple[str, ...]) -> Counter[str]:
    """How many ranks each host has."""
    return Counter(hosts)
