"""Runs as `ddpmon ls` lists them, here and on another host: what each says of itself, and how it is doing."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Annotated
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct

from ddpmon.commands.console import printable
from ddpmon.commands.looks import USUAL_MOST_S, Looks
from ddpmon.commands.read_once import look_once
from ddpmon.parts import MAX_RANKS, Count, JobIds, Number, Text
from ddpmon.report.verdicts import figures_now, headline
from ddpmon.snapshot import Snapshot
from ddpmon.store.base import StoreUnavailable, TargetError, is_run_id
from ddpmon.store.connect import Target, connect, external_store_of_environment, list_runs, parse_target
from ddpmon.store.discovery import Announcement, PastRun, discover, has_rank_0, is_restarting
from ddpmon.store.tcp_connection import knock
from ddpmon.version import __version__

SCHEMA_VERSION = 1
AT_ONCE = 16
KNOCK_S = 3.0
MAX_BYTES = 4 << 20
RUNS_SHOWN = 256
_ID = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}$")  # what `probe.identity.run_id` puts behind a run's name


class WorstFinding(Struct, frozen=True, kw_only=True):
    """What the first line of a run's dashboard says: the finding that stops the job, else the worst that lasts."""

    kind: Text
    severity: Text
    summary: Annotated[str, Meta(max_length=1024)] = ""


class Listed(Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        url: its store, as the host that lists it reaches it.
        host: where its rank 0 is.
        state: as its ranks tell; "gone" where its store has ended, though it is announced; before they are read "lost"
            where its rank 0 was killed, and "restarting" where its launcher then lives and has attempts left.
        hosts: where its ranks are; None where its frames were not read.
        elapsed_s: how long it has been running.
        worst: its worst finding; None where there is none, or its frames were not read.
        trouble: why its frames were not read, "" where they were or nobody tried.
        jobs: what schedulers and launchers call its job; empty where it was not announced on a host.
    """

    id: Text
    name: Text | None = None
    url: Text
    host: Text | None = None
    state: Text | None = None
    world_size: Annotated[int, Meta(ge=1, le=MAX_RANKS)] | None = None
    hosts: Annotated[list[Text], Meta(max_length=MAX_RANKS)] | None = None
    step: Count | None = None
    step_ms: Number | None = None
    elapsed_s: Number | None = None
    worst: WorstFinding | None = None
    trouble: Annotated[str, Meta(max_length=1024)] = ""
    jobs: JobIds = {}

    @property
    def target(self) -> str:
        """The TARGET that means this run and no other, where it is listed."""
        return run_address(self.url, self.id)


class Listing(Struct, frozen=True, kw_only=True):
    """What `ddpmon ls --json` prints on its one line.

    Attributes:
        past: the runs of that host that did not end cleanly within the last day; None where they were not looked for.
    """

    schema_version: int = SCHEMA_VERSION
    release: Text = ""
    runs: Annotated[list[Listed], Meta(max_length=RUNS_SHOWN)]
    past: Annotated[list[PastRun], Meta(max_length=RUNS_SHOWN)] | None = None


_decoder = msgspec.json.Decoder(Listing)


def read_listing(line: bytes) -> Listing:
    """A listing as another ddpmon printed it.

    Raises:
        ValueError: it is none, or of another schema version.
    """
    if len(line) > MAX_BYTES:
        raise ValueError(f"{len(line)} bytes")
    try:
        listing = _decoder.decode(line)
    except RecursionError:
        raise ValueError("too deep") from None
    if listing.schema_version != SCHEMA_VERSION:
        there = f"ddpmon {printable(listing.release)}" if listing.release else "another release"
        raise ValueError(
            f"it is {there} and lists runs in version {listing.schema_version}; this is ddpmon {__version__} and reads "
            f"version {SCHEMA_VERSION}: install the same release on both"
        )
    return listing


def joined(listings: Sequence[Listing]) -> Listing:
    """The listings of several hosts as one, without what can be no run."""
    runs = [run for listing in listings for run in listing.runs if is_run_id(run.id)]
    told = [listing.past for listing in listings if listing.past is not None]
    complete = bool(told) and len(told) == len(listings)
    return Listing(runs=runs, past=[run for past in told for run in past] if complete else None)


def runs_here() -> list[Listed]:
    """What the runs on this host say of themselves, newest first; no store is read."""
    return [_announced(run) for run in discover() if is_run_id(run.run_id)][:RUNS_SHOWN]


def runs_of(url: str) -> list[Listed]:
    """The runs that a store holds, newest first.

    Raises:
        TargetError: the address makes no sense.
        StoreUnavailable: the store cannot be reached.
    """
    return runs_in(parse_target(url))


def runs_in(target: Target) -> list[Listed]:
    """The runs that a store holds, newest first.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    store = connect(target)
    try:
        ids = [target.run_id] if target.run_id else list_runs(store)[: -RUNS_SHOWN - 1 : -1]
    finally:
        store.close()
    return [Listed(id=run_id, url=target.url) for run_id in ids if is_run_id(run_id)]


def runs_of_environment(known: Sequence[Listed]) -> tuple[list[Listed], str]:
    """The runs in the store of DDPMON_STORE, which outlive their processes, without those that are `known`; a trouble.

    A run is called as its id begins: that is its name made safe for a key.
    """
    try:
        external = external_store_of_environment()
        found = [] if external is None else runs_in(external)
    except (TargetError, StoreUnavailable) as error:
        return [], str(error)
    ids = {run.id for run in known}
    named = [msgspec.structs.replace(run, name=_ID.sub("", run.id)) for run in found if run.id not in ids]
    return named[: RUNS_SHOWN - len(ids)], ""


def looked_at(runs: Sequence[Listed], store: str | None = None) -> list[Listed]:
    """The runs with how they are doing, read from `store` or each from its own; a run that cannot be read says why.

    What is pending in a run is waited for, but only within `USUAL_MOST_S` of the start for all of them.
    """
    from concurrent.futures import ThreadPoolExecutor  # it loads `logging`, which `status` has no use for

    until = time.monotonic() + USUAL_MOST_S

    def look(run: Listed) -> Listed:
        return _looked_at(run, store or run.url, Looks(most_s=max(0.0, until - time.monotonic())))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(look, runs))


def run_address(store: str, run_id: str) -> str:
    """The address of one run in the store at an address, in which the run may stand already.

    Raises:
        TargetError: the address makes no sense.
    """
    target = parse_target(store)
    if target.run_id is not None:
        return store
    if target.redis is None:
        return f"{target.url}/{run_id}"
    return f"{store}{'&' if '?' in store else '?'}run={quote(run_id)}"


def _announced(run: Announcement) -> Listed:
    return Listed(
        id=run.run_id,
        name=run.name,
        url=run.url,
        host=run.host,
        state=None if has_rank_0(run) else "restarting" if is_restarting(run) else "lost",
        world_size=run.world_size,
        jobs=run.jobs,
        elapsed_s=_rounded(max(0.0, time.time() - run.started_at)),
    )


def _looked_at(run: Listed, store: str, looks: Looks) -> Listed:
    try:
        snapshot = look_once(run_address(store, run.id), looks)
    except (StoreUnavailable, TargetError) as error:
        return msgspec.structs.replace(run, trouble=str(error)[:1024])
    if snapshot.run is None and _is_gone(run, store):
        return msgspec.structs.replace(run, state="gone", trouble=snapshot.link.message[:1024])
    return _filled_in(run, snapshot)


def _is_gone(run: Listed, store: str) -> bool:
    """Whether nothing is left of it: nobody listens at its store's address, or by now another run's store does."""
    target = parse_target(store)
    try:
        knock(target.host, target.port, KNOCK_S)
        return target.redis is None and run.id not in {found.id for found in runs_of(target.url)}
    except ConnectionRefusedError:
        return True
    except OSError:  # it cannot be told
        return False


def _filled_in(run: Listed, snapshot: Snapshot) -> Listed:
    seen = snapshot.run
    if seen is None or snapshot.link.state not in ("live", "gone"):  # gone, and remembered by its store
        return msgspec.structs.replace(run, trouble=snapshot.link.message[:1024])
    return msgspec.structs.replace(
        run,
        name=seen.name,
        state=seen.state,
        world_size=seen.world_size,
        hosts=list(seen.nodes),
        step=seen.step,
        step_ms=_rounded(figures_now(snapshot).step_ms),
        elapsed_s=_rounded(seen.elapsed_s),
        worst=_worst(snapshot),
    )


def _worst(snapshot: Snapshot) -> WorstFinding | None:
    finding = headline(snapshot.findings)
    if finding is None:
        return None
    return WorstFinding(kind=finding.kind, severity=finding.severity, summary=finding.summary[:1024])


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
