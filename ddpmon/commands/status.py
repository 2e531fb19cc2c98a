"""`ddpmon status`: the state of a run, for a person or a script."""

from __future__ import annotations

from ddpmon.commands.console import FOUND, NO_RUN, OK, USAGE, complain
from ddpmon.commands.looks import Looks, found
from ddpmon.commands.read_once import look_once
from ddpmon.commands.target import reached
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
) -> int:
    """Print the status of a run here, on an ssh host or of a Slurm job; returns the exit code.

    It looks at the run for `for_s` seconds, by default as long as what is pending needs.
    """
    try:
        with reached(target, ssh, slurm) as route:
            snapshot = look_once(route.target, Looks(for_s, fail_on=fail_on), route.way)
    except TargetError as error:
        complain(str(error))
        return USAGE
    except StoreUnavailable as error:
        complain(str(error))
        return NO_RUN
    if snapshot.run is None or snapshot.link.state not in ("live", "gone"):  # gone, and remembered by its store
        complain(snapshot.link.message or "no run was found")
        return NO_RUN
    print(_for_a_script(snapshot) if as_json else _for_a_person(snapshot))
    return FOUND if fail_on is not None and found(snapshot, fail_on) else OK


def _for_a_script(snapshot: Snapshot) -> str:
    from ddpmon.commands.status_json import status_object
    from ddpmon.format import json_line

    return json_line(status_object(snapshot))


def _for_a_person(snapshot: Snapshot) -> str:
    from ddpmon.commands.status_text import status_lines

    return "\n".join(status_lines(snapshot))
