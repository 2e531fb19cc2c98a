"""`ddpmon guard`: what its arguments mean."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from ddpmon.commands.choose import fitting
from ddpmon.commands.console import OK, USAGE, complain, printable
from ddpmon.commands.listing import Listed, run_address, runs_here, runs_in, runs_of_environment
from ddpmon.commands.user_folders import state_folder
from ddpmon.diagnose.alert import Severity
from ddpmon.guard.channels import Command, Webhook
from ddpmon.guard.courier import Courier, Sender
from ddpmon.guard.fleet import Fleet
from ddpmon.guard.guard import Guard
from ddpmon.guard.memory import Channel, StateFile
from ddpmon.guard.message import Form
from ddpmon.guard.policy import GuardPolicy
from ddpmon.snapshot import is_over
from ddpmon.store.base import StoreUnavailable, TargetError
from ddpmon.store.connect import external_store_of_environment, lacks_scheme, parse_target
from ddpmon.store.discovery import past_runs

WEBHOOK_VARIABLE = "DDPMON_WEBHOOK"
Finder = Callable[[], list[str]]


def guard(
    targets: Sequence[str],
    on_finding: str | None,
    webhook: str | None,
    form: Form,
    min_severity: Severity,
    silence_s: float,
    state: str | None,
) -> int:
    """Look after the runs until SIGTERM or SIGINT; returns the exit code."""
    webhook = webhook or os.environ.get(WEBHOOK_VARIABLE) or None
    try:
        find = finder_of(targets)
        senders: dict[Channel, Sender] = {} if on_finding is None else {"command": Command(on_finding)}
        if webhook is not None:
            senders["webhook"] = Webhook(webhook, form)
        elif form != "json":
            raise TargetError(f"--{form} says what is sent to a webhook: give --webhook URL, or {WEBHOOK_VARIABLE}")
        words = [*targets, on_finding or "", webhook or "", form, min_severity]
        file = StateFile(Path(state) if state else _usual_file(words))
    except TargetError as error:
        complain(str(error))
        return USAGE
    to = " and ".join(["here", *(f"to the {channel}" for channel in senders)])
    _say(f"guards {_watched(targets)}; tells {to} of {_told(min_severity, silence_s)}")
    _guard(GuardPolicy(min_severity=min_severity, silence_s=silence_s), find, senders, file)
    return OK


def _watched(targets: Sequence[str]) -> str:
    """Which runs are followed, without a password of their addresses."""
    if not targets:
        with suppress(TargetError):  # it is complained of where runs are looked for
            store = external_store_of_environment()
            return f"all runs on this host{f' and in {store.url}' if store is not None else ''}, and those to come"
        return "all runs on this host, and those to come"
    return ", ".join(_place(text) if "://" in text else _named(text) for text in targets)


def _named(name: str) -> str:
    """A run's name, and whether there is none yet that is called so."""
    with suppress(StoreUnavailable):  # it is complained of where runs are looked for
        return name if fitting(_runs_here(), name) else f"{name} (there is no such run yet)"
    return name


def _place(address: str) -> str:
    target = parse_target(address)
    return f"run {target.run_id} in {target.url}" if target.run_id else target.url


def _told(min_severity: Severity, silence_s: float) -> str:
    worst = "critical findings" if min_severity == "critical" else f"findings of severity {min_severity} or worse"
    return f"{worst}, and of {silence_s:g} s without a word from a run"


def _guard(policy: GuardPolicy, find: Finder, senders: dict[Channel, Sender], file: StateFile) -> None:
    guard = Guard(policy, file, _say, complain, _ended_uncleanly)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: guard.stop())
    guard.employ([Courier(channel, sender, guard.hand, complain) for channel, sender in senders.items()])
    guard.run(Fleet(find, guard.hand, complain))


def _ended_uncleanly(run_id: str) -> bool:
    """Whether the run of this host ended without a word, and its launcher does not go on with it."""
    return any(run.id == run_id and is_over(run.state) for run in past_runs())


def finder_of(targets: Sequence[str]) -> Finder:
    """What names the addresses of all runs that the targets mean; without any those of this host and DDPMON_STORE.

    It may raise StoreUnavailable.

    Raises:
        TargetError: one of the targets makes no sense.
    """
    finders = [_finder(target) for target in targets] or [_all_here]

    def find() -> list[str]:
        return list(dict.fromkeys(address for each in finders for address in each()))

    return find


def _finder(text: str) -> Finder:
    if text == "":
        raise TargetError("a TARGET is empty: leave it out for all runs on this host")
    if "://" not in text:
        if lacks_scheme(text):
            raise TargetError(f"{text!r} lacks its scheme: write tcp://{text}")
        return lambda: [run.target for run in fitting(_runs_here(), text)]
    target = parse_target(text)
    if target.redis is None or target.run_id is not None:
        return lambda: [text]
    return lambda: [run_address(text, run.id) for run in runs_in(target)]


def _all_here() -> list[str]:
    return [run.target for run in _runs_here()]


def _runs_here() -> list[Listed]:
    """The runs on this host, and those in the store of DDPMON_STORE.

    Raises:
        StoreUnavailable: that cannot be asked, and no run is on this host.
    """
    runs = runs_here()
    more, trouble = runs_of_environment(runs)
    if trouble and not runs:
        raise StoreUnavailable(trouble)
    return [*runs, *more]


def _usual_file(words: Sequence[str]) -> Path:
    """Where a guard with these arguments remembers; another one with other arguments has another file.

    Raises:
        TargetError: this user has no home directory.
    """
    folder = state_folder()
    if folder is None:
        raise TargetError("this user has no home directory: say where the guard remembers with --state FILE")
    name = hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return folder / f"guard-{name}.json"


def _say(line: str) -> None:
    print(f"{datetime.now().isoformat(' ', 'seconds')} {printable(line)}", flush=True)
