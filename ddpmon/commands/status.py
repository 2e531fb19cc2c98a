"""`ddpmon status`: the state of a run, for a person or a script."""

from __future__ import annotations

from ddpmon.commands.console import FOUND, NO_RUN, OK, USAGE, complain
from ddpmon.commands.looks import Looks, found
from ddpmon.commands.read_once import look_at_recording, look_once
from ddpmon.commands.recordings import recording_at
from ddpmon.commands.target import Route, reached
from ddpmon.diagnose.alert import Severity
from ddpmon.snapshot import Snapshot
from ddpmon.store.base import StoreUnavailable, TargetError


def status(
    target: str | None,
    as_json: bool,
    fail_on: Severity | None,
    ssh: str | None = None,
    slurm: str | None = None,
    for_s: float | None = None,
    goes_on: bool = False,
    k8s: str | None = None,
    job: str | None = None,
    all_ranks: bool = False,
) -> int:
    """Print the status of a run here, on an ssh host, of a job or recorded; returns the exit code.

    It looks at a live run for `for_s` seconds, by default as long as what is pending needs. If it `goes_on`, it prints
    a line whenever something has changed, by default until the run is over. The text leaves out ranks that work like
    the others, unless `all_ranks` is set.
    """
    from ddpmon.recording.layout import RecordingError

    try:
        path = recording_at(target) if ssh is slurm is k8s is job is None else None
        if path is not None and goes_on:
            raise TargetError(f"{str(path)!r} is a recording, which does not change: leave --watch out")
        if path is not None:
            snapshot = look_at_recording(path)
        else:
            with reached(target, ssh, slurm, k8s, job, waits=goes_on) as route:
                if goes_on:
                    return _watch(route, as_json, fail_on, for_s)
                snapshot = look_once(route.target, Looks(for_s, fail_on=fail_on), route.way)
    except (TargetError, RecordingError) as error:
        complain(str(error))
        return USAGE
    except StoreUnavailable as error:
        complain(str(error))
        return NO_RUN
    known = snapshot.link.state in ("live", "gone") or snapshot.replay is not None  # gone, and remembered by its store
    if snapshot.run is None or not known:
        complain(snapshot.link.message or "no run was found")
        return NO_RUN
    print(_for_a_script(snapshot) if as_json else _for_a_person(snapshot, all_ranks))
    return FOUND if found(snapshot, fail_on) else OK


def _for_a_script(snapshot: Snapshot) -> str:
    from ddpmon.format import json_line
    from ddpmon.report.status_json import status_object

    return json_line(status_object(snapshot))


def _watch(route: Route, as_json: bool, fail_on: Severity | None, for_s: float | None) -> int:
    from ddpmon.commands.status_watch import watch_status

    return watch_status(route, as_json, fail_on, for_s)


def _for_a_person(snapshot: Snapshot, all_ranks: bool) -> str:
    from ddpmon.commands.status_text import status_lines

    return "\n".join(status_lines(snapshot, all_ranks=all_ranks))
