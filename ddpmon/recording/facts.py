"""The tables `runs`, `ranks`, `hosts` and `alerts` of a recording: what changes seldom, as it stands now."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from ddpmon.codec import encode
from ddpmon.diagnose.alert import SEVERITIES, Alert
from ddpmon.machine import GpuFigures
from ddpmon.report.sentences import tell
from ddpmon.run.model import Run
from ddpmon.schema import RunInfo
from ddpmon.shell_command import advice_text, of_the_past
from ddpmon.snapshot import Finding
from ddpmon.watcher.tap import Tick

HOSTS_EVERY_S = 15.0  # four rows a minute and host: enough for a curve of hours
RANKS_EVERY_S = 10.0
Identity = tuple[object, ...]
RankMark = tuple[np.ndarray | None, float]


class AlertRow(NamedTuple):
    """An alert that lasts.

    Attributes:
        number: of its row in the table.
        worst: its worst severity so far, as a place among all.
        alert: how it was said last.
        last_step: the step of the run then.
    """

    number: int
    worst: int
    alert: Alert
    last_step: int


AlertMark = dict[Identity, AlertRow]


def insert_run(book: sqlite3.Connection, run: int, info: RunInfo, wall: float) -> None:
    """A run that begins to be recorded."""
    values = (
        run, info.run_id, info.name, info.world_size, info.backend, info.device, info.host, info.started_at, wall, wall,
        "running", "", encode(info),
    )  # fmt: skip
    book.execute(f"INSERT INTO runs VALUES (?{', ?' * (len(values) - 1)})", values)


def update_run(book: sqlite3.Connection, run: int, tick: Tick) -> None:
    """How the run stands."""
    book.execute(
        "UPDATE runs SET last_at = ?, state = ?, source = ? WHERE run = ?",
        (tick.wall, tick.ended or tick.link.state, tick.source, run),
    )


class RankRows:
    """Writes who the ranks are: at once if one changes, and all of them every ten seconds.

    Args:
        run: the run's number in the recording. model: the run.
    """

    def __init__(self, run: int, model: Run) -> None:
        self._run, self._model = run, model
        self._before: np.ndarray | None = None
        self._next = 0.0

    def mark(self) -> RankMark:
        """What has been written, for `go_back`."""
        return self._before, self._next

    def go_back(self, mark: RankMark) -> None:
        """What was written since has been rolled back."""
        self._before, self._next = mark

    def write(self, book: sqlite3.Connection, tick: Tick) -> None:
        """Write what is due at this tick."""
        latest = self._model.latest
        now = np.stack([latest.column("state"), np.array(latest.pid, np.float64), latest.restarts])
        if self._before is None or tick.read_at >= self._next:
            due = latest.known
            self._next = tick.read_at + RANKS_EVERY_S
        else:
            due = latest.known & (now != self._before).any(axis=0)
        self._before = now
        steps = latest.step
        rows = [self._row(rank, int(steps[rank]), tick) for rank in np.flatnonzero(due).tolist()]
        book.executemany("INSERT OR REPLACE INTO ranks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def _row(self, rank: int, step: int, tick: Tick) -> tuple[object, ...]:
        latest = self._model.latest
        seen_at = tick.wall - (tick.read_at - float(latest.heard_at[rank]))
        return (
            self._run, rank, latest.host[rank], latest.node[rank], latest.local_rank[rank], latest.pid[rank],
            latest.gpu_uuid[rank], latest.state[rank], step, int(latest.restarts[rank]), seen_at,
        )  # fmt: skip


class HostRows:
    """Writes what the hosts use, four times a minute.

    Args:
        run: the run's number in the recording. model: the run.
    """

    def __init__(self, run: int, model: Run) -> None:
        self._run, self._model = run, model
        self._next = 0.0

    def mark(self) -> float:
        """When the next rows are due, for `go_back`."""
        return self._next

    def go_back(self, mark: float) -> None:
        """What was written since has been rolled back."""
        self._next = mark

    def write(self, book: sqlite3.Connection, tick: Tick) -> None:
        """Write what is due at this tick."""
        if tick.read_at < self._next or not self._model.nodes:
            return
        self._next = tick.read_at + HOSTS_EVERY_S
        step = int(self._model.latest.step.max())
        rows = []
        for node, (frame, _) in self._model.nodes.items():
            own = frame.figures
            figures = (own.cpu_pct, own.load_1m, own.memory_used, own.memory_total, *_of_gpus(frame.gpus))
            rows.append((None, self._run, node, frame.host, tick.wall, step, *figures))
        book.executemany("INSERT INTO hosts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def _of_gpus(gpus: Sequence[GpuFigures]) -> tuple[float | None, float | None, int | None]:
    """Mean utilisation in percent, power of all in W, memory used of all in bytes; None where none tells."""
    busy = [gpu.utilization_pct for gpu in gpus if gpu.utilization_pct is not None]
    power = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    memory = [gpu.memory_used for gpu in gpus if gpu.memory_used is not None]
    return sum(busy) / len(busy) if busy else None, sum(power) if power else None, sum(memory) if memory else None


class AlertRows:
    """Writes the lives of alerts: since when each was said, how it was said last, and when it was over.

    Args:
        run: the run's number in the recording.
    """

    def __init__(self, run: int) -> None:
        self._run = run
        self._rows: dict[Identity, AlertRow] = {}  # of those that last

    def mark(self) -> AlertMark:
        """The alerts that last, for `go_back`."""
        return {**self._rows}

    def go_back(self, mark: AlertMark) -> None:
        """What was written since has been rolled back."""
        self._rows = mark

    def write(self, book: sqlite3.Connection, tick: Tick, step: int) -> None:
        """Take in what was said at this tick, when the run was at `step`."""
        lasting: dict[Identity, tuple[Alert, Finding]] = {}
        over: dict[Identity, tuple[Alert, Finding]] = {}
        for alert, finding in zip(tick.alerts, tick.findings, strict=True):
            if alert.cleared_at_step is None:
                lasting[_identity(alert)] = alert, finding
            else:
                over.setdefault(_identity(alert), (alert, finding))  # the newest comes first
        for identity, (alert, finding) in lasting.items():
            self._put(book, identity, alert, finding, tick, step)
        for identity in [*self._rows.keys() - lasting.keys()]:
            _end(book, self._rows.pop(identity), over.get(identity), tick.wall)

    def _put(
        self, book: sqlite3.Connection, identity: Identity, alert: Alert, finding: Finding, tick: Tick, step: int
    ) -> None:
        before = self._rows.get(identity)
        if before is None:
            cursor = book.execute(
                "INSERT INTO alerts (run, kind, first_at, first_step, finding_id) VALUES (?, ?, ?, ?, ?)",
                (self._run, alert.kind, tick.wall, step, alert.id),
            )
            before = AlertRow(cursor.lastrowid or 0, 0, alert, step)
        worst = max(before.worst, SEVERITIES.index(alert.severity))
        row = self._rows[identity] = AlertRow(before.number, worst, alert, step)
        values = (
            alert.severity, SEVERITIES[worst], finding.summary, json.dumps(finding.ranks), json.dumps(finding.nodes),
            finding.phase, finding.cause, finding.since_step, finding.cost_pct, json.dumps(dict(finding.evidence)),
            advice_text(of_the_past(finding.advice)), tick.wall, step, row.number,
        )  # fmt: skip
        book.execute(
            "UPDATE alerts SET severity = ?, worst = ?, summary = ?, ranks = ?, nodes = ?, phase = ?, cause = ?, "
            "since_step = ?, cost_pct = ?, evidence = ?, advice = ?, last_at = ?, last_step = ? WHERE id = ?",
            values,
        )


def _end(book: sqlite3.Connection, row: AlertRow, over: tuple[Alert, Finding] | None, wall: float) -> None:
    """Write until when it was said, and its sentence in the past.

    Args:
        book: the tables.
        row: how it was said last.
        over: how its rule says it now; None where the rule has dropped it without a word on its end.
        wall: the Unix time at which it is no longer said.
    """
    cleared = None if over is None else over[0].cleared_at_step
    last = max(row.last_step, row.alert.since_step or 0)
    finding = tell(replace(row.alert, cleared_at_step=last)) if over is None else over[1]
    book.execute(
        "UPDATE alerts SET cleared_at_step = ?, ended_at = ?, summary = ?, cause = ? WHERE id = ?",
        (cleared, wall, finding.summary, finding.cause, row.number),
    )


def _identity(alert: Alert) -> Identity:
    """What stays the same of a trouble while it lasts: its life, or its kind and whom it names."""
    return (alert.kind, alert.id) if alert.id else (alert.kind, alert.ranks, alert.nodes)
