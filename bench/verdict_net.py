"""The safety net of a refactoring: every verdict of every tick, recorded before and compared after.

    python bench/verdict_net.py record FILE [--cells PATTERN,PATTERN] [--devices PATTERN,PATTERN] [--seeds N]
    python bench/verdict_net.py scenes FILE [FOLDER ...]
    python bench/verdict_net.py compare BEFORE AFTER

`record` plays the made-up jobs of bench/detection.py (cells) and the simulated devices of bench/device.py (devices),
and writes one line of JSON a tick: the cell, its seed, the step, and of each finding its kind, severity, ranks, hosts,
phase, onset, cost, the step at which it was over, and the strength and share of its cause. `scenes` runs the tests in
these folders (tests/diagnose and tests/table) and writes the same of every tick that they judge: the test, and the
number of the tick in it. `compare` prints the ticks that differ, counts those that only one record has, and exits 1 if
any differs. Sentences are not recorded: they may get better. 400 seeds of every cell take some hours.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import detection_cells
import detection_play
import device_cells
import device_play
import numpy as np
import pytest
from detection_synthetic import seeds_of
from detection_truth import Tick
from device_job import simulate
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.judge import Judge
from ddpmon.run.model import Run
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


def _measures(finding: Finding | Alert) -> list[Any]:
    return [
        finding.kind,
        finding.severity,
        list(finding.ranks),
        list(finding.nodes),
        finding.phase,
        finding.since_step,
        finding.cost_pct,
        finding.cleared_at_step,
        _cause(finding),
    ]


def _cause(finding: Finding | Alert) -> list[Any] | None:
    """Whether something explains it, how surely, and by how much."""
    if isinstance(finding, Finding):
        strength, share = finding.evidence.get("cause_strength"), finding.evidence.get("cause_share")
        return None if strength is None else [strength, share]
    cause = finding.cause
    if cause is None:
        return None
    return ["certain" if cause.certain else "likely", None if cause.share is None else min(1.0, cause.share)]


def record(path: Path, work: Iterable[Work]) -> None:
    """Play all of `work` and write its ticks."""
    ticks = 0
    with multiprocessing.Pool(_PROCESSES) as pool, path.open("w") as file:
        for lines in pool.imap(_lines, work, chunksize=4):
            file.writelines(f"{line}\n" for line in lines)
            ticks += len(lines)
    print(f"{ticks:,} ticks recorded in {path}")


class _Scenes:
    """A pytest plugin that records what every Judge of every test says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._test, self._ticks = "", 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._test, self._ticks = item.nodeid, 0

    def pytest_sessionstart(self) -> None:
        judge, file = Judge.__call__, self.path.open("w", buffering=1)

        def listening(self_: Judge, run: Run, ages: NDArray[np.float64]) -> tuple[Alert, ...]:
            said = judge(self_, run, ages)
            self._ticks += 1
            file.write(json.dumps([self._test, 0, self._ticks, [_measures(alert) for alert in said]]) + "\n")
            return said

        setattr(Judge, "__call__", listening)  # noqa: B010 (mypy: a method is not assigned to)


def scenes(path: Path, folders: Sequence[str]) -> int:
    """Run the tests in these folders and write what they judge; returns pytest's exit code."""
    return int(pytest.main(["-n", "0", "-p", "no:cacheprovider", *folders], plugins=[_Scenes(path)]))


def compare(before: Path, after: Path) -> int:
    """Print where two records differ; returns how many ticks do."""
    was, now = _read(before), _read(after)
    differing = [key for key in was if key in now and was[key] != now[key]]
    for key in differing[:_SHOWN]:
        print(f"{key}\nbefore: {json.dumps(was[key])}\nafter:  {json.dumps(now[key])}\n")
    alone = len(was.keys() ^ now.keys())
    print(f"{len(differing):,} of {len(was):,} ticks differ" + (f"; {alone:,} are in one record only" if alone else ""))
    return len(differing)


def _read(path: Path) -> dict[tuple[str, int, int, int], Any]:
    """(cell or test, seed, step, how often that step was judged before) -> what was said."""
    before, found = Counter[tuple[str, int, int]](), dict[tuple[str, int, int, int], Any]()
    with path.open() as lines:
        for name, seed, step, said in map(json.loads, lines):
            found[name, seed, step, before[name, seed, step]] = said
            before[name, seed, step] += 1
    return found


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record")
    one.add_argument("file", type=Path)
    one.add_argument("--cells", default=_CELLS, help="patterns of cells of bench/detection.py")
    one.add_argument("--devices", default=_DEVICES, help="patterns of cells of bench/device.py")
    one.add_argument("--seeds", type=int, default=2)
    of_tests = commands.add_parser("scenes")
    of_tests.add_argument("file", type=Path)
    of_tests.add_argument("folders", nargs="*", default=["tests/diagnose", "tests/table"])
    two = commands.add_parser("compare")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.command == "record":
        record(options.file, _work(options.cells.split(","), options.devices.split(","), options.seeds))
    elif options.command == "scenes":
        raise SystemExit(scenes(options.file, options.folders))
    elif compare(options.before, options.after):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
