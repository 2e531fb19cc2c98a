"""The safety net of a refactoring: every verdict of every tick, recorded before and compared after.

    python bench/verdict_net.py record FILE [--cells PATTERN,PATTERN] [--devices PATTERN,PATTERN] [--seeds N]
    python bench/verdict_net.py compare BEFORE AFTER

`record` plays the made-up jobs of bench/detection.py (cells) and the simulated devices of bench/device.py (devices),
and writes one line of JSON a tick: the cell, its seed, the step, and of each finding its kind, severity, ranks, hosts,
phase, onset, cost, and the step at which it was over. `compare` prints the ticks that differ and exits 1 if there are
any. Sentences are not recorded: they may get better. 400 seeds of every cell take some hours.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import detection_cells
import detection_play
import device_cells
import device_play
from detection_synthetic import seeds_of
from detection_truth import Tick
from device_job import simulate

from ddpmon.snapshot import Finding

_CELLS, _DEVICES = "n4-cv2-*,n8-cv5-*,n2-cv5-*,n64-cv5-healthy", "n4-3%-host-*,n4-3%-device-never-*"
_PROCESSES = 2
_SHOWN = 20
Work = tuple[str, str, int]


def _work(cells: Sequence[str], devices: Sequence[str], seeds: int) -> Iterator[Work]:
    for cell in detection_cells.all_cells():
        if _matches(cell.name, cells):
            yield from (("cell", cell.name, seed) for seed in range(seeds_of(cell, seeds)))
    for device in device_cells.all_cells():
        if _matches(device.name, devices):
            yield from (("device", device.name, seed) for seed in range(seeds))


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _lines(work: Work) -> list[str]:
    kind, name, seed = work
    return [json.dumps([name, seed, tick.step, _said(tick)]) for tick in _ticks(kind, name, seed)]


def _ticks(kind: str, name: str, seed: int) -> Iterator[Tick]:
    if kind == "cell":
        cell = next(cell for cell in detection_cells.all_cells() if cell.name == name)
        return detection_play.watch(cell.job(seed))
    device = next(cell for cell in device_cells.all_cells() if cell.name == name)
    return device_play.watch(simulate(device.job, range(seed, seed + 1)), 0)


def _said(tick: Tick) -> list[list[Any]]:
    return [_measures(finding) for finding in tick.findings]


def _measures(finding: Finding) -> list[Any]:
    return [
        finding.kind,
        finding.severity,
        list(finding.ranks),
        list(finding.nodes),
        finding.phase,
        finding.since_step,
        finding.cost_pct,
        finding.cleared_at_step,
    ]


def record(path: Path, work: Iterable[Work]) -> None:
    """Play all of `work` and write its ticks."""
    ticks = 0
    with multiprocessing.Pool(_PROCESSES) as pool, path.open("w") as file:
        for lines in pool.imap(_lines, work, chunksize=4):
            file.writelines(f"{line}\n" for line in lines)
            ticks += len(lines)
    print(f"{ticks:,} ticks recorded in {path}")


def compare(before: Path, after: Path) -> int:
    """Print where two records differ; returns how many ticks do."""
    ticks = differing = 0
    with before.open() as old, after.open() as new:
        for was, now in zip_longest(old, new, fillvalue=""):
            ticks += 1
            if was != now:
                differing += 1
                if differing <= _SHOWN:
                    print(f"before: {was.strip() or '(nothing)'}\nafter:  {now.strip() or '(nothing)'}\n")
    print(f"{differing:,} of {ticks:,} ticks differ")
    return differing


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record")
    one.add_argument("file", type=Path)
    one.add_argument("--cells", default=_CELLS, help="patterns of cells of bench/detection.py")
    one.add_argument("--devices", default=_DEVICES, help="patterns of cells of bench/device.py")
    one.add_argument("--seeds", type=int, default=2)
    two = commands.add_parser("compare")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.command == "record":
        record(options.file, _work(options.cells.split(","), options.devices.split(","), options.seeds))
    elif compare(options.before, options.after):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
