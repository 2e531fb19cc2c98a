"""`ddpmon doctor`: before a run, what on this host, or on all of its hosts, would hurt it."""

from __future__ import annotations

from ddpmon.checkup.gather import UnreachableError, find_place, gather
from ddpmon.checkup.report import as_lines, as_object, examine, worst
from ddpmon.checkup.survey import survey
from ddpmon.commands.console import complain, printable
from ddpmon.format import json_line

OK, WARNINGS, WILL_FAIL = 0, 1, 2


def doctor(nproc: int | None, port: int | None, as_json: bool) -> int:
    """Look at this host, meet the others where there are some, and print; returns the exit code.

    A launcher takes any other code than 0 for a crash: under one, warnings are no reason for it.
    """
    try:
        place = find_place()
        if not place.speaks:
            return OK
        hosts, missing = gather(place, survey(place, nproc, port), complain)
    except (ValueError, UnreachableError) as error:
        complain(str(error))
        return WILL_FAIL
    if place.host != 0:
        return OK
    checks = examine(hosts, missing)
    if as_json:
        print(json_line(as_object(hosts, checks)), flush=True)
    else:
        print("\n".join(map(printable, as_lines(hosts, checks))), flush=True)
    code = worst(checks)
    return OK if place.launched and code == WARNINGS else code
