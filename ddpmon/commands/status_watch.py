"""`ddpmon status --watch`: a line whenever something has changed, until the run is over."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime

from ddpmon.commands.console import FOUND, INTERRUPTED, OK, printable
from ddpmon.commands.looks import found
from ddpmon.commands.run_end import RunEnd
from ddpmon.commands.target import Route
from ddpmon.diagnose.alert import Severity
from ddpmon.diagnose.kinds import KINDS
from ddpmon.format import count, figure, json_line
from ddpmon.report.attempt_sentences import may_restart
from ddpmon.report.attempt_sentences import of_run as attempts_of
from ddpmon.report.status_json import Object, finding_object, status_object
from ddpmon.report.verdicts import figures_now, firing, identity, names_others
from ddpmon.snapshot import Finding, RunView, Snapshot
from ddpmon.watcher.observer import Observer

EVERY_S = 1.0


def watch_status(route: Route, as_json: bool, fail_on: Severity | None, for_s: float | None) -> int:
    """Print until the run is over, or for so many seconds; returns the exit code.

    Where there is no run yet, it waits for one. With `fail_on` it ends at the first such finding.

    Raises:
        TargetError: an address that makes no sense.
    """
    observer, changes, end = Observer(route.target, route.way), Changes(), RunEnd()
    until = None if for_s is None else time.monotonic() + for_s
    try:
        while True:
            snapshot = observer.tick()
            for line in _lines(snapshot, changes, as_json):
                print(line, flush=True)
            if found(snapshot, fail_on):
                return FOUND
            if _is_finished(snapshot) or end.is_reached(snapshot) or (until is not None and time.monotonic() >= until):
                return OK
            time.sleep(EVERY_S)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        observer.close()


def _is_finished(snapshot: Snapshot) -> bool:
    return snapshot.run is not None and snapshot.run.state == "finished"


def _lines(snapshot: Snapshot, changes: Changes, as_json: bool) -> Iterator[str]:
    """With JSON one object for whatever is new, a finished step included; else a line a change."""
    found, stepped = changes.take(snapshot), changes.has_stepped
    if as_json:
        if found or stepped:
            yield json_line({**status_object(snapshot), "changes": found})
        return
    for change in found:
        yield printable(f"{datetime.now().isoformat(' ', 'seconds')}  {_figures(snapshot)}{_words(change)}")


def _figures(snapshot: Snapshot) -> str:
    run, job = snapshot.run, figures_now(snapshot)
    return "" if run is None else f"{run.name}  step {count(run.step)}  {figure(job.step_ms)} ms/step  "


def _words(change: Object) -> str:
    finding = change.get("finding")
    if finding is None:
        why = f" ({change['message']})" if change.get("message") else ""
        return f"{change['event']}: {change['state']}{why}"
    return f"{'over' if change['event'] == 'resolved' else finding['severity']}: {finding['summary']}"


def _of_attempts(run: RunView, *, is_new: bool) -> str:
    """How the attempts before this one ended, once it begins; whether another may follow, once it has failed."""
    if run.info is None:
        return ""
    return "; ".join(attempts_of(run.info)) if is_new else may_restart(run.info) if run.state == "failed" else ""


class Changes:
    """Compares each picture with the one before.

    Attributes:
        has_stepped: whether a step has been finished since.
    """

    def __init__(self) -> None:
        self.has_stepped = False
        self._link: str | None = None
        self._run: tuple[str, str] | None = None
        self._step: int | None = None
        self._findings: dict[tuple[object, ...], Finding] = {}

    def take(self, snapshot: Snapshot) -> list[Object]:
        """What has changed, as objects for JSON."""
        return [*self._standing(snapshot), *self._found(snapshot)]

    def _standing(self, snapshot: Snapshot) -> Iterator[Object]:
        link, run = snapshot.link, snapshot.run
        if link.state != self._link:
            self._link = link.state
            yield {"event": "link", "state": link.state, "message": link.message}
        stood = None if run is None else (run.id, run.state)
        if run is not None and stood != self._run:
            is_new = self._run is None or self._run[0] != run.id
            self._run = stood
            yield {"event": "run", "state": run.state, "id": run.id, "message": _of_attempts(run, is_new=is_new)}
        step = None if run is None else run.step
        self.has_stepped, self._step = step != self._step, step

    def _found(self, snapshot: Snapshot) -> Iterator[Object]:
        before, self._findings = self._findings, {identity(finding): finding for finding in firing(snapshot.findings)}
        for key, finding in self._findings.items():
            if key not in before or _is_news(finding, before[key]):
                yield {"event": "firing", "finding": finding_object(finding)}
        for key, finding in before.items():
            if key not in self._findings:
                yield {"event": "resolved", "finding": finding_object(_as_over(finding, snapshot.findings))}


def _as_over(finding: Finding, findings: Sequence[Finding]) -> Finding:
    """The resolved form of a finding that was firing; the finding itself if the picture has no resolved form."""
    began = finding.since_step or 0
    over = [each for each in findings if each.cleared_at_step is not None and each.cleared_at_step >= began]
    same = [each for each in over if _name(each) == _name(finding)]
    return max(same, key=lambda each: each.cleared_at_step or 0, default=finding)


def _name(finding: Finding) -> tuple[object, ...]:
    """What a finding has in common with its resolved form: numbers begin again in another run."""
    return finding.kind, finding.id, finding.ranks[:1], finding.nodes[:1]


def _is_news(finding: Finding, before: Finding) -> bool:
    """Whether a finding that was told is told again: its severity has changed, or it stops the job and names others."""
    is_corrected = KINDS[finding.kind].stops_job is not None and names_others(finding.ranks, before.ranks)
    return finding.severity != before.severity or is_corrected
