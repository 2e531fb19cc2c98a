"""`ddpmon demo`: real ranks, one of them made slow, and the monitor that has to name it."""

from __future__ import annotations

import importlib.util
import os
import time
from typing import TYPE_CHECKING

from ddpmon.commands.console import NO_RUN, OK, USAGE, complain, printable, shows_dashboards
from ddpmon.commands.training import FAULT_FROM, Plan, Training, running
from ddpmon.format import plural
from ddpmon.snapshot import Finding, Snapshot

if TYPE_CHECKING:
    from ddpmon.store.discovery import Announcement

JUDGED_STEPS, SHOWN_STEPS = 180, 600
START_LIMIT_S = 180.0
LINE_EVERY_S = 3.0
ONSET_TOLERANCE = 20
LOG_LINES = 30
GRACE_S = 1.0
FAILED = 1


def demo(nproc: int, fault: str, steps: int | None) -> int:
    """Train with a slow rank and watch; returns the exit code."""
    if importlib.util.find_spec("torch") is None:
        complain("the demo needs torch, which is not installed: pip install torch")
        return USAGE
    plan = Plan(nproc, steps or (SHOWN_STEPS if shows_dashboards(os.environ) else JUDGED_STEPS), fault)
    with running(plan) as training:
        print(f"Starting {plural(plan.nproc, 'rank')}; {_trouble(plan)}.", flush=True)
        code = _accompany(plan, training)
        if code == FAILED:
            _show_log(training)
        return code


def _trouble(plan: Plan) -> str:
    where = "host code" if plan.fault == "host" else plan.fault
    return f"from step {FAULT_FROM} on, rank {plan.slow_rank} is slowed down by {plan.delay_ms} ms a step in {where}"


def _accompany(plan: Plan, training: Training) -> int:
    if shows_dashboards(os.environ):
        return _show(training)
    run = training.wait_until_announced(START_LIMIT_S)
    if run is None:
        complain("the training did not start")
        return FAILED
    return _judge(plan, training, _follow(training, run))


def _show(training: Training) -> int:
    """The dashboard at once: it waits for the ranks better than an empty terminal does."""
    from ddpmon.commands.awaited import Awaited
    from ddpmon.commands.watch import show_live

    shown = show_live(lambda recorder: Awaited(training, recorder))
    failed = FAILED if training.exit_code() else OK
    return failed if shown in (OK, NO_RUN) else shown


def _follow(training: Training, run: Announcement) -> Finding | None:
    """Print where the run is until it ends; returns the last straggler that the monitor named."""
    from ddpmon.commands.status_text import figures_line, verdict
    from ddpmon.watcher.observer import Observer

    observer, named, printed = Observer(f"{run.url}/{run.run_id}"), None, 0.0
    try:
        while training.exit_code() is None:
            snapshot = observer.tick()
            named = _straggler(snapshot) or named
            moving = snapshot.run is not None and snapshot.run.step is not None
            if moving and time.monotonic() - printed >= LINE_EVERY_S:
                print(f"{figures_line(snapshot)}   {verdict(snapshot)}", flush=True)
                printed = time.monotonic()
            time.sleep(1.0)
    finally:
        observer.close()
    return named


def _straggler(snapshot: Snapshot) -> Finding | None:
    lasting = (finding for finding in snapshot.findings if finding.cleared_at_step is None)
    return next((finding for finding in lasting if finding.kind == "straggler"), None)


def _judge(plan: Plan, training: Training, named: Finding | None) -> int:
    phase = "other" if plan.fault == "host" else plan.fault
    print(f"expected: rank {plan.slow_rank}, {phase}, since step {FAULT_FROM} (within {ONSET_TOLERANCE})")
    print(f"found:    {_described(named)}")
    if training.exit_code() != 0:
        complain(f"the training ended with exit code {training.exit_code()}")
        return FAILED
    return OK if named is not None and _is_right(plan.slow_rank, phase, named) else FAILED


def _described(named: Finding | None) -> str:
    if named is None:
        return "no straggler"
    ranks = ", ".join(map(str, named.ranks))
    return f"rank {ranks}, {named.phase}, since step {named.since_step}: {printable(named.summary)}"


def _is_right(slow_rank: int, phase: str, named: Finding) -> bool:
    onset = named.since_step is not None and abs(named.since_step - FAULT_FROM) <= ONSET_TOLERANCE
    return named.ranks[:1] == (slow_rank,) and named.phase == phase and onset


def _show_log(training: Training) -> None:
    time.sleep(GRACE_S)  # whoever ends the training by a signal mostly sends us one too, which ends us here, quietly
    if training.was_signalled:
        complain("the training was ended by a signal")
        return
    complain("the last lines of the training's log:")
    for line in training.last_lines(LOG_LINES):
        complain(f"  {line}")
