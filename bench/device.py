"""How right the verdicts are on devices whose hosts run ahead: simulated devices, no GPU.

    python bench/device.py cells [--cells PATTERN,PATTERN] [--seeds N]
    python bench/device.py quiet [--seeds N]
    python bench/device.py replay CELL SEED

Hosts, launch queues, devices and reductions are simulated (device_job.py); marks go through the probe's own log,
replay and frames, and a watcher judges them. The truth of the gain is the same job, with the same noise, without its
fault. A cell is ranks, noise, kind of job, synchronisation and fault: n4-3%-host-never-host-1.3. Kinds: kernels of
2.5 us (host), 4.5 us (half) and 20 us (device), launched every 5 us. Jobs that never synchronise evaluate every 50
steps.
"""

from __future__ import annotations

import argparse
import fnmatch
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from detection_truth import Tick
from device_cells import QUIET, Cell, all_cells
from device_job import ONSET, simulate
from device_play import watch

from ddpmon.diagnose.alert import at_or_above
from ddpmon.diagnose.kinds import KINDS
from ddpmon.snapshot import Finding

SHORT = "n4-3%-*"
DUE_PCT = 5.0  # from so much true gain on a verdict is due
DRAWN_WORLDS = (*(2, 4, 8) * 5, 64)  # 64 ranks take as long to simulate as all others together
_BATCH = 10  # seeds simulated together
_NEAR_PCT = 3.0  # a warning is true where the gain is no further below what makes it one
HEAD = (
    f"{'cell':<36} {'seeds':>5} {'true gain':>9} {'recall':>6} {'rank':>6} {'phase':>6} {'error':>11} {'inside':>6} "
    f"{'untrue/1000':>11}"
)
LEGEND = f"""recall: named in a finding of any severity, %, where the true gain is {DUE_PCT:.0f} % or more; rank, phase:
of those named, the right one, %; error: |said - true gain|, points, median/p90; inside: error within 6 points, or truth
inside the range that is said, %; untrue: warnings on anybody else, or without a gain, per 1,000 steps."""


@dataclass(frozen=True)
class Outcome:
    """One run: its true gain in percent; whether and how it was said; untrue warnings by their sentences."""

    gain: float
    named: bool | None = None
    rank: bool | None = None
    phase: bool | None = None
    error: float | None = None
    inside: bool | None = None
    untrue: tuple[str, ...] = ()
    steps: int = 0


def judge(cell: Cell, ticks: Sequence[Tick], gain: float) -> Outcome:
    """Compare what was said with the truth; a verdict is that of the last tick that named anybody."""
    untrue = {_key(f): f.summary for tick in ticks for f in _open(tick) if _is_untrue(cell, f, tick, gain)}
    steps = ticks[-1].step
    if not cell.guilty or gain < DUE_PCT:
        return Outcome(gain, untrue=tuple(untrue.values()), steps=steps)
    after = [finding for tick in ticks if tick.step >= ONSET for finding in _open(tick)]
    said = [finding for finding in after if KINDS[finding.kind].late and finding.cost_pct is not None]
    right = [f for f in said if set(f.ranks) == set(cell.guilty)]
    if not said:
        return Outcome(gain, named=False, untrue=tuple(untrue.values()), steps=steps)
    found = right[-1] if right else said[-1]
    least = found.cost_pct or 0.0
    most = max(least, float(found.evidence.get("cost_most_pct", 0.0)))
    error = abs(least - gain)
    return Outcome(
        gain,
        named=True,
        rank=bool(right),
        phase=found.phase == cell.phase if right else None,
        error=error if right else None,
        inside=(error <= 6 or least <= gain <= most) if right else None,
        untrue=tuple(untrue.values()),
        steps=steps,
    )


def _open(tick: Tick) -> list[Finding]:
    return [finding for finding in tick.findings if finding.cleared_at_step is None]


def _key(finding: Finding) -> tuple[str, tuple[int, ...]]:
    return finding.kind, finding.ranks


def _is_untrue(cell: Cell, finding: Finding, tick: Tick, gain: float) -> bool:
    kind = KINDS[finding.kind]
    if not at_or_above(finding.severity, "warning") or not (kind.late or kind.slower):
        return False
    if kind.slower:
        return not cell.job.fault.ranks  # with a fault the job is slower
    innocent = not set(finding.ranks) <= set(cell.guilty)
    return innocent or tick.step < ONSET or gain < DUE_PCT - _NEAR_PCT


def outcomes_of(cell: Cell, seeds: int) -> list[Outcome]:
    """All seeds of a cell."""
    outcomes = []
    for first in range(0, seeds, _BATCH):
        part = range(first, min(seeds, first + _BATCH))
        trace, mended = simulate(cell.job, part), simulate(cell.job.mended(), part)
        gains = 100 * (1 - mended.step_ms(ONSET) / trace.step_ms(ONSET)) if cell.guilty else np.zeros(len(part))
        for at in range(len(part)):
            outcomes.append(judge(cell, [*watch(trace, at)], float(gains[at])))
    return outcomes


def row(title: str, outcomes: Sequence[Outcome]) -> str:
    """One line over all runs of a cell."""
    steps = sum(outcome.steps for outcome in outcomes)
    untrue = 1000 * sum(len(outcome.untrue) for outcome in outcomes) / steps
    gain = np.mean([outcome.gain for outcome in outcomes])
    return (
        f"{title:<36} {len(outcomes):>5} {gain:>8.1f}% {_pct(o.named for o in outcomes)} "
        f"{_pct(o.rank for o in outcomes)} {_pct(o.phase for o in outcomes)} {_spread(o.error for o in outcomes):>11} "
        f"{_pct(o.inside for o in outcomes)} {untrue:>11.2f}"
    )


def _pct(values: Iterable[bool | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * sum(known) / len(known):>6.1f}" if known else f"{'-':>6}"


def _spread(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return "{:.1f}/{:.1f}".format(*np.percentile(known, [50, 90])) if known else "-"


def run(patterns: Sequence[str], seeds: int) -> None:
    """Judge the cells whose names match, a line each, and the totals."""
    cells = [cell for cell in all_cells() if any(fnmatch.fnmatch(cell.name, pattern) for pattern in patterns)]
    if not cells:
        raise SystemExit("no such cell: a name is like n4-3%-host-never-host-1.3, a pattern like n4-*")
    print(f"simulated devices, no GPU: {len(cells)} cells, {seeds} seeds each\n{LEGEND}\n\n{HEAD}", flush=True)
    began, totals = time.monotonic(), dict[str, list[Outcome]]()
    for cell in cells:
        outcomes = outcomes_of(cell, seeds)
        print(row(cell.name, outcomes), flush=True)
        sync = next(word for word in cell.name.split("-") if word in ("never", "sync1", "sync10", "sync50"))
        totals.setdefault(f"{'faults' if cell.guilty else 'must not alarm'}, {sync}", []).extend(outcomes)
    print()
    for title, outcomes in sorted(totals.items()):
        print(row(title, outcomes))
    print(f"{time.monotonic() - began:.0f} s")


def run_quiet(seeds: int) -> None:
    """Judge every kind of job that must not alarm with `seeds` seeds, each in a cell that is drawn, and say who did."""
    cells = {cell.name: cell for cell in all_cells() if not cell.guilty and cell.job.ranks in DRAWN_WORLDS}
    draw = random.Random(0)
    print(f"simulated devices, no GPU: {seeds} seeds of each kind, in cells that are drawn\n\n{HEAD}", flush=True)
    for kind in QUIET:
        outcomes = []
        for seed in range(seeds):
            ranks = draw.choice(DRAWN_WORLDS)
            cell = cells[draw.choice([n for n in cells if n.startswith(f"n{ranks}-") and n.endswith(f"-{kind}")])]
            trace = simulate(cell.job, range(seed, seed + 1))
            outcomes.append(judge(cell, [*watch(trace, 0)], 0.0))
            for sentence in outcomes[-1].untrue:
                print(f"{cell.name} {seed}: {sentence}", flush=True)
        print(row(kind, outcomes), flush=True)


def replay(name: str, seed: int) -> None:
    """Print the truth of one run, and what was said of it over time."""
    cell = next((cell for cell in all_cells() if cell.name == name), None)
    if cell is None:
        raise SystemExit(f"no cell {name}")
    seeds = range(seed, seed + 1)
    trace = simulate(cell.job, seeds)
    gain = 100 * (1 - simulate(cell.job.mended(), seeds).step_ms(ONSET)[0] / trace.step_ms(ONSET)[0])
    print(f"truth: {cell.job.fault}, step {trace.step_ms(ONSET)[0]:.2f} ms, gain {gain:.1f} %")
    before: set[str] = set()
    for tick in watch(trace, 0):
        now = {f"{finding.severity:<8} {finding.summary}" for finding in _open(tick) if finding.kind != "advice"}
        for line in sorted(now - before):
            print(f"{tick.step:>5} {line}")
        before = now


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    many = commands.add_parser("cells")
    many.add_argument("--cells", default=SHORT, help="patterns of names")
    many.add_argument("--seeds", type=int, default=3, help="runs of a cell")
    quiet = commands.add_parser("quiet")
    quiet.add_argument("--seeds", type=int, default=100, help="runs of a kind")
    again = commands.add_parser("replay")
    again.add_argument("cell")
    again.add_argument("seed", type=int)
    options = parser.parse_args()
    if options.command == "cells":
        run(options.cells.split(","), options.seeds)
    elif options.command == "quiet":
        run_quiet(options.seeds)
    else:
        replay(options.cell, options.seed)


if __name__ == "__main__":
    main()
