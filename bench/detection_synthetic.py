"""The synthetic half of the bench: cells of made-up jobs over many seeds, on two processes."""

from __future__ import annotations

import fnmatch
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from detection_cells import QUIET, Cell, all_cells
from detection_play import judge_cell, step_ends, watch
from detection_table import HEAD, LEGEND, row, summary
from detection_truth import Outcome, Report, hits, reports_of, score

SHORT = (
    "n4-cv2-*",
    "n8-cv5-*",
    "n2-cv5-healthy",
    "n2-cv5-*1.15",
    "n8-cv12-healthy",
    "n8-cv12-*1.15",
    "n64-cv5-healthy",
)
_PROCESSES = 2
_CHUNK = 10
Work = tuple[Cell, range]


def run_cells(patterns: Sequence[str], seeds: int) -> None:
    """Judge the cells whose names match, print a row each, then the totals."""
    cells = [cell for cell in all_cells() if any(fnmatch.fnmatch(cell.name, pattern) for pattern in patterns)]
    if not cells:
        raise SystemExit("no such cell: a name is like n8-cv5-forward-1.15, a pattern like n8-*")
    print(f"{len(cells)} cells, {seeds:,} seeds each (fewer from 64 ranks on)\n{LEGEND}\n\n{HEAD}", flush=True)
    worst: Counter[str] = Counter()
    done: dict[Cell, list[Outcome]] = {}
    for cell, outcomes in _judged(cells, seeds):
        done[cell] = outcomes
        print(row(cell.name, outcomes), flush=True)
        worst.update({f"{cell.name} {seed}": len(o.false_alarms) for seed, o in enumerate(outcomes) if o.false_alarms})
        missed = [seed for seed, o in enumerate(outcomes) if any(f.required and not f.hit for f in o.found)]
        worst.update({f"{cell.name} {seed} (missed)": 1 for seed in missed[:1]})
    print()
    for title, wanted in TOTALS.items():
        chosen = [outcome for cell, outcomes in done.items() if wanted(cell) for outcome in outcomes]
        if chosen:
            print(summary(title, chosen))
    if worst:
        print("\nto replay (python bench/detection.py replay CELL SEED):")
        print("\n".join(f"  {what}: {count}" for what, count in worst.most_common(20)))


TOTALS: dict[str, Callable[[Cell], bool]] = {
    "must not alarm, CV <= 5 %, n >= 4": lambda cell: _calm(cell) and cell.case in QUIET,
    "1.15x, CV <= 5 %, n >= 4": lambda cell: _calm(cell) and cell.case.endswith("-1.15"),
    "all faults, CV <= 5 %, n >= 4": lambda cell: _calm(cell) and cell.case not in QUIET,
    "must not alarm, n = 2": lambda cell: cell.ranks == 2 and cell.case in QUIET,
    "all faults, n = 2": lambda cell: cell.ranks == 2 and cell.case not in QUIET,
    "must not alarm, CV 8 and 12 %, n >= 4": lambda cell: _wild(cell) and cell.case in QUIET,
    "all faults, CV 8 and 12 %, n >= 4": lambda cell: _wild(cell) and cell.case not in QUIET,
}


def _calm(cell: Cell) -> bool:
    return cell.ranks >= 4 and cell.cv <= 0.05


def _wild(cell: Cell) -> bool:
    return cell.ranks >= 4 and cell.cv > 0.05


def _judged(cells: Sequence[Cell], seeds: int) -> Iterator[tuple[Cell, list[Outcome]]]:
    """Each cell with its outcomes by seed, in order."""
    work = [(cell, part) for cell in cells for part in _parts(seeds_of(cell, seeds))]
    with multiprocessing.Pool(_PROCESSES) as pool:
        outcomes: list[Outcome] = []
        for (cell, part), judged in zip(work, pool.imap(_judge, work), strict=True):
            outcomes += judged
            if part.stop == seeds_of(cell, seeds):
                yield cell, outcomes
                outcomes = []


def seeds_of(cell: Cell, seeds: int) -> int:
    """How many seeds a cell gets: large worlds cost more and vary less."""
    return max(1, seeds * 8 // cell.ranks) if cell.ranks >= 64 else seeds


def _parts(seeds: int) -> list[range]:
    return [range(first, min(seeds, first + _CHUNK)) for first in range(0, seeds, _CHUNK)]


def _judge(work: Work) -> list[Outcome]:
    cell, seeds = work
    return [judge_cell(cell, seed) for seed in seeds]


def replay(name: str, seed: int) -> None:
    """Print the truth of one run, what was said of it over time, and the score.

    Raises:
        SystemExit: there is no such cell.
    """
    cell = next((cell for cell in all_cells() if cell.name == name), None)
    if cell is None:
        raise SystemExit(f"no cell {name}: a name is like n8-cv5-forward-1.15")
    job = cell.job(seed)
    for episode in job.episodes:
        cost = "" if episode.cost is None else f", true cost {episode.cost(episode.on, episode.off - 1):.1f} %"
        who = ", ".join(map(str, sorted(episode.ranks)[:8])) or "nobody in particular"
        print(
            f"truth: {episode.kinds[0]}, {who}, {'/'.join(episode.phases)}, steps {episode.on}-{episode.off - 1}{cost}"
        )
    ticks = list(watch(job))
    for report in reports_of(ticks):
        right = any(hits(report, episode) for episode in job.episodes)
        _tell(report, "right" if right else "natural" if report.finding.kind in job.natural else "other")
    print(score(ticks, job.episodes, job.natural, step_ends(job).tolist()))


def _tell(report: Report, verdict: str) -> None:
    ended = "stands at the end" if report.ended_at is None else f"over at step {report.ended_at}"
    print(f"\n[{verdict}] {report.finding.kind}, raised at step {report.first.step}, {ended}")
    before = ""
    for tick, finding in report.words:
        if finding.severity + finding.summary != before:
            print(f"  {tick.step:>5} {finding.severity:<8} {finding.summary}")
        before = finding.severity + finding.summary
