"""`ddpmon status`: one look at a run, for a person or a script."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue

from ddpmon.commands.plain import complain
from ddpmon.commands.status_json import dumps, status_object
from ddpmon.commands.target import check_unambiguous
from ddpmon.diagnose.finding import Severity, at_or_above
from ddpmon.snapshot import Snapshot
from ddpmon.store.base import StoreUnavailable, TargetError

LIMIT_S = 10.0
OK, FOUND, USAGE, NO_RUN = 0, 1, 2, 3


def status(target: str | None, as_json: bool, fail_on: Severity | None) -> int:
    """Print the run's status; returns the exit code."""
    try:
        check_unambiguous(target)
        snapshot = look_once(target)
    except TargetError as error:
        complain(str(error))
        return USAGE
    except StoreUnavailable as error:
        complain(str(error))
        return NO_RUN
    if snapshot.run is None or snapshot.link.state not in ("live", "gone"):  # gone, and remembered by its store
        complain(snapshot.link.message or "no run found")
        return NO_RUN
    print(dumps(status_object(snapshot)) if as_json else _for_a_person(snapshot))
    return FOUND if fail_on is not None and _found(snapshot, fail_on) else OK


def look_once(target: str | None) -> Snapshot:
    """One snapshot of the run, read in a thread of its own so that a store that hangs cannot hang us.

    Raises:
        TargetError: a TARGET that makes no sense.
        StoreUnavailable: nothing was read within the limit.
    """
    answers: SimpleQueue[Snapshot | BaseException] = SimpleQueue()
    threading.Thread(target=_look, args=(target, answers), daemon=True).start()
    try:
        answer = answers.get(timeout=LIMIT_S)
    except Empty:
        raise StoreUnavailable(f"the store did not answer within {LIMIT_S:.0f} s") from None
    if isinstance(answer, TargetError):
        raise answer
    if isinstance(answer, BaseException):
        raise StoreUnavailable(f"the run could not be read: {answer}") from answer
    return answer


def _look(target: str | None, answers: SimpleQueue[Snapshot | BaseException]) -> None:
    try:
        from ddpmon.observe import Observer

        observer = Observer(target)
        answers.put(observer.tick())
        observer.close()
    except BaseException as error:  # whatever it is, the main thread tells it in a sentence
        answers.put(error)


def _found(snapshot: Snapshot, floor: Severity) -> bool:
    lasting = (finding for finding in snapshot.findings if finding.cleared_at_step is None)
    return any(at_or_above(finding.severity, floor) for finding in lasting)


def _for_a_person(snapshot: Snapshot) -> str:
    from ddpmon.commands.status_text import status_lines

    return "\n".join(status_lines(snapshot))
