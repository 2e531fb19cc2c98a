"""How soon a rank that hangs or breaks is named: real runs of four ranks over Gloo, watched at 1 Hz.

    python bench/troubles.py [--seeds N] [--cases A,B]

A line a run: the seconds from the last step that the trainer told of (its log, looked at every 50 ms) to the first
verdict that names the kind, the rank and, of a hang, the line of the program, then the verdict's sentence. At the end
medians and worst cases. `skip` and `nan` happen in
the course of a step or behind it, so their seconds hold that step, too.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from detection_launch import Training, training

from ddpmon.diagnose.kinds import KindName
from ddpmon.snapshot import Finding
from ddpmon.watcher.observer import Observer

RANKS = 4
FROM = 60
_PATIENCE_S = 90.0
_TRAINER = ("--layers=1", "--width=32", "--heads=2", "--batch=2", "--context=32", "--log-every=1", "--steps=100000")


@dataclass(frozen=True)
class Case:
    """A fault of the trainer, the verdict that is right, and what it has to show."""

    fault: str
    kind: KindName
    shows: str


CASES = (
    Case("hang_input", "hang", "in come_late: time.sleep"),
    Case("hang_forward", "hang", "in _loop: while True:"),
    Case("skip", "hang", "rank {rank} took another path"),
    Case("raise", "rank_failed", "in _raise"),
    Case("nan", "nonfinite_loss", ""),
    Case("end", "uneven_inputs", ""),
)


class Clock(threading.Thread):
    """Notes when the trainer told of its last step."""

    def __init__(self, run: Training) -> None:
        super().__init__(daemon=True)
        self.training, self.step, self.seconds, self.over = run, 0, time.monotonic(), threading.Event()

    def run(self) -> None:
        """Look at the log until the run is over."""
        while not self.over.wait(0.05):
            if (step := self.training.step) != self.step:
                self.step, self.seconds = step, time.monotonic()


def one_run(case: Case, rank: int) -> tuple[float | None, str]:
    """Seconds until the right verdict and its sentence; None, and what was said instead, if it never came."""
    with tempfile.TemporaryDirectory(prefix="ddpmon-bench-") as name:
        os.environ["XDG_RUNTIME_DIR"] = name
        fault = f"--fault={case.fault}:rank={rank},from={FROM}"
        with training("torchrun", Path(name), RANKS, [*_TRAINER, fault]) as run:
            clock, observer = Clock(run), Observer(None)
            clock.start()
            try:
                return _watch(case, rank, clock, observer)
            finally:
                clock.over.set()
                observer.close()


def _watch(case: Case, rank: int, clock: Clock, observer: Observer) -> tuple[float | None, str]:
    said = "nothing"
    at_step = FROM if case.fault in ("nan", "skip") else FROM - 1
    happened: float | None = None
    while time.monotonic() < clock.seconds + _PATIENCE_S:
        began = time.monotonic()
        findings = observer.tick().findings
        if clock.step >= at_step and happened is None:
            happened = clock.seconds
        for finding in findings:
            if finding.kind == case.kind and happened is not None:
                said = finding.summary
                if is_right(finding, case, rank):
                    return time.monotonic() - happened, said
        time.sleep(max(0.0, began + 1.0 - time.monotonic()))
    return None, said


def is_right(finding: Finding, case: Case, rank: int) -> bool:
    """Whether it names the rank, and shows what it has to."""
    shown = f"{finding.summary}\n{finding.evidence.get('stack', '')}"
    return finding.ranks == (rank,) and case.shows.format(rank=rank) in shown


def main(cases: Sequence[Case], seeds: int) -> None:
    """Run the cases, a line a run, and print the times of each case."""
    for case in cases:
        times: list[float] = []
        for seed in range(seeds):
            rank = random.Random(f"{case.fault} {seed}").randrange(RANKS)
            seconds, said = one_run(case, rank)
            times += [] if seconds is None else [seconds]
            print(f"  {case.fault} of rank {rank}: {'missed' if seconds is None else f'{seconds:.1f} s'}: {said}")
        worst = f"median {np.median(times):.1f} s, worst {max(times):.1f} s" if times else "-"
        print(f"{case.fault}: {len(times)} of {seeds} right, {worst}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cases", default=",".join(case.fault for case in CASES))
    options = parser.parse_args()
    wanted = options.cases.split(",")
    if unknown := set(wanted) - {case.fault for case in CASES}:
        raise SystemExit(f"no case {', '.join(sorted(unknown))}: {', '.join(case.fault for case in CASES)}")
    main([case for case in CASES if case.fault in wanted], options.seeds)
