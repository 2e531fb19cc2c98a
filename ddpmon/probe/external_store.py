"""Chooses how a rank connects to its run's store, and connects to an external one (DDPMON_STORE)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from ddpmon.codec import encode
from ddpmon.probe.identity import Identity, run_id
from ddpmon.probe.listening import parse_listen
from ddpmon.probe.registration import Announcer, say
from ddpmon.probe.run_life import read_life
from ddpmon.probe.uplink import Following, Handover, Hosting, Uplink, Way
from ddpmon.schema import RunInfo
from ddpmon.store.base import RUNS_KEY, Store, StoreUnavailable, run_key
from ddpmon.store.connect import external_store_of_environment
from ddpmon.store.redis import RedisStore, load_redis, ttl_of_environment
from ddpmon.store.redis_url import RedisAddress
from ddpmon.store.server_process import StoreProcess
from ddpmon.store.signed import Signer, signed, signer_of_environment


@dataclass(frozen=True, slots=True)
class ExternalStore:
    """Where DDPMON_STORE says that all ranks publish, and how long a run is kept there."""

    address: RedisAddress
    ttl_s: int


def external_store() -> ExternalStore | None:
    """The external store of this process; None where DDPMON_STORE is not set.

    Raises:
        TargetError: it makes no sense, or DDPMON_TTL_S does not; the message holds no password.
        StoreUnavailable: redis-py is not installed.
    """
    target = external_store_of_environment()
    if target is None or target.redis is None:
        return None
    load_redis()
    return ExternalStore(target.redis, ttl_of_environment())


@dataclass(slots=True)
class Joining:
    """Connects this rank to the external store; what is wrong with it is said once a host.

    Attributes:
        signer: signs what this process puts, if there is a token.
    """

    external: ExternalStore
    rank: int
    signer: Signer | None = field(default_factory=signer_of_environment)
    _complained: bool = False

    def __call__(self) -> Store:
        """Connect.

        Raises:
            StoreUnavailable: it cannot be reached at present.
        """
        try:
            return signed(RedisStore(self.external.address, ttl_s=self.external.ttl_s), self.signer)
        except StoreUnavailable as error:
            self.complain(error)
            raise

    def complain(self, error: StoreUnavailable) -> None:
        """Say what is wrong with the store, the first time and once a host."""
        if not self._complained and speaks_for_its_host(self.rank):
            say(f"{error}; training goes on, and the store is tried again")
        self._complained = True


@dataclass(slots=True)
class Naming:
    """Rank 0 names the run to the others, and in the external store again and again, where it may expire or be lost."""

    join: Joining
    handover: Handover
    announcer: Announcer
    describe: Callable[[str], RunInfo]
    run: str = ""
    server: StoreProcess | None = None
    _info: bytes = b""

    def connect(self) -> Store | None:
        """Join the external store and register the run in it."""
        address = self.join.external.address
        if not self.run:
            self.run = run_id(self.announcer.name)
            self._info = encode(read_life(self.announcer.name).told_by(self.describe(self.run)))
            self.handover.tell(f"{address.url_of(None)} - {self.run}")
        store = self.join()
        try:
            self.renew(store)
        except StoreUnavailable:
            store.close()
            raise
        password = " (DDPMON_STORE holds the login)" if address.password else ""
        self.announcer.announce(self.run, address.url_of(self.run), password)
        return store

    def renew(self, store: Store) -> None:
        """Name the run in the store, where it may have expired or been lost."""
        store.put(run_key(self.run), self._info)
        store.put(RUNS_KEY, self.run.encode())


def uplink_of(
    me: Identity,
    name: str,
    handover: Handover,
    describe: Callable[[str], RunInfo],
    external: ExternalStore | None = None,
    remark: str = "",
) -> Uplink:
    """The uplink of this rank.

    Args:
        me: which rank this is.
        name: what the run is called.
        handover: how ranks tell each other where to publish.
        describe: makes the RunInfo for a run id, on rank 0.
        external: the external store that DDPMON_STORE names; a rank 0 that hosts a store is followed all the same.
        remark: ends the line by which rank 0 announces the run.

    Raises:
        TargetError: DDPMON_LISTEN makes no sense.
    """
    announcer, missed_ports = Announcer(name, me.world_size, remark), dict[int, str]()
    join = None if external is None else Joining(external, me.rank)
    way: Way
    if me.rank != 0:
        way = Following(me.rank, handover, join)
    elif join is not None:
        way = Naming(join, handover, announcer, describe)
    else:
        if text := os.environ.get("DDPMON_LISTEN", ""):
            parse_listen(text)  # now, since nothing is hosted where it makes no sense
        way = Hosting(handover, announcer, describe, missed_ports)
    complain = None if join is None else join.complain
    return Uplink(way, handover, announcer, me.world_size, missed_ports, complain)


def speaks_for_its_host(rank: int) -> bool:
    """Whether this rank says what all ranks of its host would say alike."""
    return rank == 0 or "0" in (os.environ.get("LOCAL_RANK"), os.environ.get("HOROVOD_LOCAL_RANK"))
