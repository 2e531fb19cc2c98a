"""Tables as others would make them: from the rings of a run, or from a made job."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ddpmon.run.model import Run
from ddpmon.table.verdict import TableVerdict, judge_table
from tests.made_frames import MadeJob

QUANTITIES = (
    "duration",
    "work",
    "exposed",
    "input",
    "forward",
    "backward",
    "optimizer",
    "barrier",
    "gc",
    "marked",
)


def judged(text: str | bytes, source: str = "t.csv") -> TableVerdict:
    """The verdict on a table's text."""
    data = text.encode() if isinstance(text, str) else text
    return judge_table(io.BufferedReader(io.BytesIO(data)), source)


def write_table(run: Run, path: Path) -> None:
    """Export the records that a run's rings hold."""
    rings = run.rings
    lines = [",".join(["step,rank,node", *(f"{name}_ms" for name in QUANTITIES), "loss,samples"])]
    for rank, state in enumerate(run.ranks):
        host = "" if state is None else state.frame.host
        steps = np.sort(rings.step[rank][rings.step[rank] >= 0]).astype(np.int64)
        columns = rings.takes((*QUANTITIES, "loss", "samples"), steps, np.array([rank]))[:, 0]
        for step, figures in zip(steps.tolist(), columns.T.tolist(), strict=True):
            cells = ["" if np.isnan(figure) else repr(figure) for figure in figures]
            lines.append(",".join([str(step), str(rank), host, *cells]))
    path.write_text("\n".join(lines) + "\n")


def rows_of(
    job: MadeJob, names: Iterable[str] = ("duration", "exposed"), first: int = 0, numbers: list[int] | None = None
) -> list[str]:
    """A made job as rows, the heading first, in order of step and rank.

    Args:
        job: what the ranks do.
        names: quantities, each a column in ms.
        first: the number of the first step.
        numbers: rank numbers, by default from 0.
    """
    tables = {**job.phases, "work": job.work, "exposed": job.wait, "duration": job.work + job.wait}
    names = [*names]
    rows = [",".join(["step,rank", *(f"{name}_ms" for name in names)])]
    for step in range(job.steps):
        for rank in range(job.ranks):
            cells = [f"{tables[name][rank, step]:.4f}" for name in names]
            rows.append(",".join([str(first + step), str(rank if numbers is None else numbers[rank]), *cells]))
    return rows


def text_of(rows: Iterable[str]) -> str:
    """Rows as one text."""
    return "\n".join(rows) + "\n"


def slow(
    phase: str = "backward", ranks: int = 4, rank: int = 2, since: int = 60, until: int | None = None, steps: int = 200
) -> MadeJob:
    """A job with one rank that loses 60 ms a step in a phase."""
    from tests.made_frames import healthy_phases

    phases = healthy_phases(ranks, steps)
    phases[phase][rank, since:until] += 60.0
    return MadeJob(phases)
