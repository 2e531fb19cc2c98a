"""`ddpmon status`: one look at a run, for a person or a script."""

from __future__ import annotations

from ddpmon.commands.console import FOUND, NO_RUN, OK, USAGE, complain
from ddpmon.commands.read_once import look_once
from ddpmon.commands.status_json import status_object
from ddpmon.commands.target import reached
from ddpmon.diagnose.alert import Severity, at_or_above
from ddpmon.format import json_line
from ddpmon.snapshot import Snapshot
from ddpmon.store.base import StoreUnavailable, TargetError


def status(
    target: str | None, as_json: bool, fail_on: Severity | None, ssh: str | None = None, slurm: str | None = None
) -> int:
    """Print the status of a run here, on an ssh host or of a Slurm job; returns the exit code."""
    try:
        with reached(target, ssh, slurm) as address:
            snapshot = look_once(address)
    except TargetError as error:
        complain(str(error))
        return USAGE
    except StoreUnavailable as error:
        complain(str(error))
        return NO_RUN
    if snapshot.run is None or snapshot.link.state not in ("live", "gone"):  # gone, and remembered by its store
        complain(snapshot.link.message or "no run was found")
        return NO_RUN
    print(json_line(status_object(snapshot)) if as_json else _for_a_person(snapshot))
    return FOUND if fail_on is not None and _found(snapshot, fail_on) else OK


def _found(snapshot: Snapshot, floor: Severity) -> bool:
    lasting = (finding for finding in snapshot.findings if finding.cleared_at_step is None)
    return any(at_or_above(finding.severity, floor) for finding in lasting)


def _for_a_person(snapshot: Snapshot) -> str:
    from ddpmon.commands.status_text import status_lines

    return "\n".join(status_lines(snapshot))
