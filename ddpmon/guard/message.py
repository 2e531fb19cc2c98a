"""What a channel is given: the JSON object of a notice, and its forms for Slack and Discord."""

from __future__ import annotations

import secrets
import shlex
import socket
from datetime import datetime, timezone
from typing import Any, Literal

from ddpmon.commands.listing import run_address
from ddpmon.format import age, clean, json_line, plural
from ddpmon.guard.ledger import Notice
from ddpmon.guard.memory import RunMemory
from ddpmon.probe.ways import by_ssh
from ddpmon.snapshot import RunView
from ddpmon.store.base import TargetError
from ddpmon.store.discovery import discover, is_loopback

SCHEMA_VERSION = 1
Form = Literal["json", "slack", "discord"]
_DISCORD_MOST = 2000  # characters that a message may have there
_SLACK_MOST = 3000  # that Slack shows of a text without a fold


def message_of(notice: Notice, run: RunMemory, wall: float) -> dict[str, Any]:
    """The notice as one JSON object; `wall` is Unix time."""
    alert = notice.alert
    return {
        "schema_version": SCHEMA_VERSION,
        "id": secrets.token_hex(8),
        "event": notice.event,
        "time": datetime.fromtimestamp(wall, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "alert": None if alert is None else alert.alert,
        "lasted_s": None if alert is None or notice.event == "firing" else round(max(0.0, wall - alert.began_at), 1),
        "reason": notice.reason,
        "withheld": notice.withheld,
        "run": {
            "id": run.id,
            "name": run.name,
            "state": run.state,
            "world_size": run.world_size,
            "step": run.step,
            "source": run.address,
        },
        "finding": None if alert is None else alert.finding,
        "watch": run.elsewhere or f"ddpmon watch {shlex.quote(_address(run))}",
    }


def from_elsewhere(run: RunView) -> str:
    """The command for a reader on another host; "" where the address of the run's store says enough, or all there is.

    Nobody else reaches a store on this host's loopback: a run of Slurm is found by its job, and any other by ssh.
    """
    if not is_loopback(run.source):
        return ""
    if job := dict(run.jobs).get("slurm"):
        return f"ddpmon watch --slurm {shlex.quote(job)} {shlex.quote(run.id)}"
    is_here = any(each.run_id == run.id for each in discover())
    return f"{by_ssh(socket.gethostname())} {shlex.quote(run.id)}" if is_here else ""


def line_of(message: dict[str, Any]) -> str:
    """The message in one line of plain text; all of it is data and cleaned of what is not printable."""
    run, finding = message["run"], message["finding"]
    if finding is None:
        count = plural(message["withheld"], "more finding")
        return clean(f"{run['name']}: {count} kept back, because there were too many messages; {message['watch']}")
    what = finding["severity"] if message["event"] == "firing" else "resolved"
    words = f"[{what}] {run['name']}: {finding['summary']}"
    if message["event"] == "resolved":
        return clean(f"{words} (after {age(message['lasted_s'])}: {message['reason']})")
    return clean(words)


def body_of(message: dict[str, Any], form: Form) -> bytes:
    """The body of a web request."""
    if form == "json":
        return json_line(message).encode()
    lines = [line_of(message)]
    if message["event"] == "firing" and message["finding"] is not None:
        lines += [line for line in (clean(message["finding"]["advice"]), message["watch"]) if line]
    text = "\n".join(lines)
    if form == "discord":
        return json_line({"content": text[:_DISCORD_MOST], "allowed_mentions": {"parse": []}}).encode()
    return json_line({"text": _escaped(text[:_SLACK_MOST])}).encode()


def _escaped(text: str) -> str:
    """As Slack wants it, so that a run's name cannot mention a channel."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _address(run: RunMemory) -> str:
    try:
        return run_address(run.address, run.id)
    except TargetError:
        return run.id
