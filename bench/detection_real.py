"""The real half of the bench: the trainer under injected faults, watched at 1 Hz.

All ranks' steps are stretched by the same sleeps (30 ms in forward, 50 ms in backward), so that ranks which share few
cores do not disturb each other and a run repeats; "contended" and "short-steps" are the cases that really compute.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from detection_launch import training
from detection_plan import FAULTY, Case, Plan, read_cases
from detection_table import HEAD, LEGEND, row, summary
from detection_truth import Outcome, Tick, reports_of, score
from detection_watch import Watched, watch_run
from network import Network, network, why_not

_SLOW_MBIT_S = 200  # the bridge itself carries gigabits
SHORT = ("healthy", "forward-1.3", "backward-1.15", "spike")


@dataclass
class Throttle:
    """Slows the second host's link when the watcher sees the faulty stretch begin, and frees it at its end.

    Attributes:
        plan: says when.
        net: the two hosts; None where there is no network between the ranks.
        steps: the steps at which it was slowed and freed.
    """

    plan: Plan
    net: Network | None = None
    steps: list[int] = field(default_factory=list)

    def __call__(self, tick: Tick) -> None:
        """Look at the watcher's newest step."""
        due = (self.plan.on, self.plan.on + FAULTY)
        if self.net is None or len(self.steps) == len(due) or tick.step < due[len(self.steps)]:
            return
        if self.steps:
            self.net.release(1)
        else:
            self.net.throttle(1, mbit_s=_SLOW_MBIT_S)
        self.steps.append(tick.step)


def run_cases(names: Sequence[str], worlds: Sequence[int], seeds: int, say: bool) -> None:
    """Run the cases named (or all) on worlds of these sizes, print a row each, then the totals."""
    cases = [case for case in read_cases() if "all" in names or case.name in names]
    unknown = set(names) - {case.name for case in cases} - {"all"}
    if unknown or not cases:
        raise SystemExit(f"no case {', '.join(sorted(unknown))}: see bench/detection_cases.toml")
    if min(worlds) < 2:
        raise SystemExit("--ranks: at least 2")
    print(f"{LEGEND}\n\n{HEAD}", flush=True)
    faulty: list[Outcome] = []
    quiet: list[Outcome] = []
    for ranks in worlds:
        clean_ms = calibrate(ranks)
        print(f"{ranks} ranks, a clean step of {clean_ms:.1f} ms", flush=True)
        for case in cases:
            if ranks in case.ranks:
                outcomes = [o for seed in range(seeds) if (o := one_run(Plan(case, ranks, seed, clean_ms), say))]
                (quiet if case.quiet else faulty).extend(outcomes)
                print(row(f"n{ranks}-{case.name}", outcomes), flush=True)
    print()
    for title, outcomes in (("all faults", faulty), ("must not alarm", quiet)):
        if outcomes:
            print(summary(title, outcomes))


def calibrate(ranks: int) -> float:
    """The median duration in ms of a clean step."""
    plan = Plan(Case("calibration"), ranks, 0, 1.0)
    seen = watch_plan(plan, Throttle(plan), steps=90)
    return float(np.median(seen.step_ms[30:]))


def one_run(plan: Plan, say: bool) -> Outcome | None:
    """Run, watch and score one plan; None, with a line that says why, where it cannot run or does not end well."""
    name = f"n{plan.ranks}-{plan.case.name} seed {plan.seed}"
    if plan.case.launch == "link" and (reason := why_not()):
        print(f"  {name}: skipped, {reason}")
        return None
    throttle = Throttle(plan)
    try:
        seen = watch_plan(plan, throttle)
    except Exception as error:  # one bad run is a line of the table, not its end
        print(f"  {name}: {type(error).__name__}: {error}", flush=True)
        return None
    episodes = plan.episodes(seen.step_ms, seen.work_ms)
    if len(throttle.steps) == 2:
        episodes = [replace(episode, on=throttle.steps[0], off=throttle.steps[1]) for episode in episodes]
    outcome = score(seen.ticks, episodes, plan.case.natural, seen.ended.tolist())
    if seen.error:
        print(f"  {name}: {seen.error}", flush=True)
    if say or outcome.false_alarms or any(found.required and not found.hit for found in outcome.found):
        _tell(name, plan, seen, outcome)
    return outcome


def watch_plan(plan: Plan, throttle: Throttle, steps: int = 0) -> Watched:
    """Run a plan and watch it; `steps` cuts it short.

    Raises:
        OSError, subprocess.SubprocessError: it could not be started.
    """
    attach_at = plan.on + FAULTY // 2 if plan.case.late else 0
    with contextlib.ExitStack() as stack:
        if plan.case.launch == "link":
            throttle.net = stack.enter_context(network(2))
            throttle.net.join()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ddpmon-bench-")))
        arguments = [*plan.arguments(folder), *([f"--steps={steps}"] if steps else [])]
        run = stack.enter_context(training(plan.case.launch, folder, plan.ranks, arguments, throttle.net))
        return watch_run(run, folder, attach_at, throttle)


def _tell(name: str, plan: Plan, seen: Watched, outcome: Outcome) -> None:
    """What was said in a run, word by word where severity or rank changed."""
    who = f"a = {plan.who['a'][0]}, b = {plan.who['b'][0]}, faulty from step {plan.on}"
    print(f"  {name} ({who}, {float(np.median(seen.step_ms)):.0f} ms a step): false {outcome.false_alarms}")
    for report in reports_of(seen.ticks):
        _, finding = report.words[-1]
        ended = "to the end" if report.ended_at is None else f"to step {report.ended_at}"
        print(f"    from step {report.first.step} {ended}: {finding.severity} {finding.kind}: {finding.summary}")
