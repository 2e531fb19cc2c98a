"""What was found, for a person and for a script."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import msgspec
from msgspec.structs import asdict

from ddpmon.checkup.facts import Check, Facts, Level
from ddpmon.checkup.gpu_checks import check_gpus
from ddpmon.checkup.host_checks import check_alike, check_host, check_network

SCHEMA_VERSION = 1
LEVELS: tuple[Level, ...] = ("ok", "warning", "failure")  # the exit code is the worst one's place here
_GLYPHS = {"ok": "  ok  ", "warning": "! warn", "failure": "x fail"}
_NAME_WIDTH = 14


def examine(hosts: Sequence[Facts], missing: Sequence[int] = ()) -> list[Check]:
    """Every check of every host, then those that compare hosts."""
    checks = [
        msgspec.structs.replace(check, host=facts.host)
        for facts in hosts
        for examiner in (check_gpus, check_host, check_network)
        for check in examiner(facts)
    ]
    checks += check_alike(hosts)
    for host in missing:
        checks.append(Check("hosts", "failure", f"host number {host} has not answered", "read its own output"))
    return checks


def worst(checks: Sequence[Check]) -> int:
    """0 clean, 1 warnings, 2 will fail."""
    return max((LEVELS.index(check.level) for check in checks), default=0)


def as_lines(hosts: Sequence[Facts], checks: Sequence[Check]) -> list[str]:
    """A table: host by host, a line a check and one below it with what to do."""
    lines: list[str] = []
    for host in dict.fromkeys([*(facts.host for facts in hosts), *(check.host for check in checks)]):
        lines.append(host or "all hosts")
        for check in checks:
            if check.host == host:
                lines.append(f"  {_GLYPHS[check.level]}  {check.name:<{_NAME_WIDTH}}  {check.text}")
                if check.advice:
                    lines.append(f"  {'':6}  {'':<{_NAME_WIDTH}}  -> {check.advice}")
        lines.append("")
    counts = [sum(check.level == level for check in checks) for level in LEVELS]
    verdict = ("no problem found", "the run will start, but not run well", "the run will fail")[worst(checks)]
    lines.append(f"{verdict}: {counts[0]} ok, {_of(counts[1], 'warning')}, {_of(counts[2], 'failure')}")
    return lines


def _of(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def as_object(hosts: Sequence[Facts], checks: Sequence[Check]) -> dict[str, Any]:
    """The same as one JSON object, with the figures that it rests on."""
    return {
        "schema_version": SCHEMA_VERSION,
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "verdict": LEVELS[worst(checks)],
        "checks": [msgspec.to_builtins(check) for check in checks],
        "hosts": [{**msgspec.to_builtins(facts), "process": asdict(facts.process)} for facts in hosts],
    }
