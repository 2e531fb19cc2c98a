"""Marks of simulated devices as the text of a table."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache

import numpy as np
from device_job import Job, Trace, simulate

from ddpmon.table.trace_marks import MARKS

Edit = Callable[[int, int, str, float, float], tuple[float, float]]


@cache
def trace_of(job: Job) -> Trace:
    """The job's first seed; simulated once for all tests that ask."""
    return simulate(job, range(1))


def as_they_are(_step: int, _rank: int, _mark: str, host: float, device: float) -> tuple[float, float]:
    """No change."""
    return host, device


def rows_of(trace: Trace, timed: Collection[int] | None = None, first: int = 0, edit: Edit = as_they_are) -> list[str]:
    """One row a mark, the heading first; the ranks' device clocks count from zeros of their own.

    Args:
        trace: a simulated job, of which the first seed is taken.
        timed: ranks with device times, by default all.
        first: the first step.
        edit: (step, rank, mark, host ms, device ms) -> the times to write.
    """
    rows = ["step,rank,mark,host_ms,device_ms"]
    for step in range(first, trace.job.steps):
        for rank in range(trace.job.ranks):
            for mark in MARKS:
                host = float(trace.host["loaded" if mark == "input" else mark][step, 0, rank])
                device = np.nan if mark == "input" else float(trace.device[mark][step, 0, rank]) - 1e5 * rank
                host, device = edit(step, rank, mark, host, device)
                there = device == device and (timed is None or rank in timed)
                rows.append(f"{step},{rank},{mark},{host:.4f},{f'{device:.4f}' if there else ''}")
    return rows
