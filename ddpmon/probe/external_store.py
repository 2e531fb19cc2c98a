"""A rank's way to an external store (DDPMON_STORE): no rank hosts a store, all publish to that one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from threading import Event

from ddpmon.probe.identity import run_id, uses_rendezvous
from ddpmon.probe.uplink import Uplink, say
from ddpmon.schema import encode
from ddpmon.store.base import RUNS_KEY, Store, StoreUnavailable, TargetError, run_key
from ddpmon.store.connect import external_store_of_environment
from ddpmon.store.redis import RedisStore, load_redis, ttl_of_environment
from ddpmon.store.redis_url import RedisAddress, redacted
from ddpmon.store.signed import signed


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
    text = os.environ.get("DDPMON_STORE", "")
    if not text or uses_rendezvous():
        return None
    target = external_store_of_environment()
    if target is None or target.redis is None:
        raise TargetError(
            f"DDPMON_STORE={redacted(text)[:80]!r} is not a store that ranks can publish to; expected redis://host"
        )
    load_redis()
    return ExternalStore(target.redis, ttl_of_environment())


@dataclass(slots=True)
class ExternalUplink(Uplink):
    """Connects to the external store and puts frames. Rank 0 names the run to the others, and again and again there.

    Attributes:
        external: where to publish; a rank 0 that hosts a store is followed all the same.
    """

    external: ExternalStore | None = None
    _complained: bool = False

    def connect(self) -> bool:
        """Join the external store; False while the run's id is not known yet.

        Raises:
            StoreUnavailable: it cannot be reached at present.
        """
        if not self.run and not (self._name_run() if self.identity.rank == 0 else self._learn()):
            return False
        if self._address is not None:
            return Uplink.connect(self)
        if self._store is None:
            self._join_external()
        return True

    def drop(self) -> None:
        """Let go of a connection that has failed."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def linger(self, seconds: float, leaving: Event) -> None:
        """The store stays, so that nobody waits for watchers."""

    def _name_run(self) -> bool:
        assert self.external is not None
        self.run = run_id(self.name)
        self._info = encode(self.describe(self.run))
        self._hand_over(f"{self.external.address.url} - {self.run}")
        return True

    def _published_elsewhere(self, _url: str) -> bool:
        """The others publish to an external store, and so does this rank."""
        self.training = None
        return True

    def _join_external(self) -> None:
        assert self.external is not None
        try:
            store = signed(RedisStore(self.external.address, ttl_s=self.external.ttl_s), self.signer)
        except StoreUnavailable as error:
            if not self._complained and speaks_for_its_host(self.identity.rank):
                say(f"{error}; training goes on, and the store is tried again")
            self._complained = True
            raise
        self._store = store
        if self.identity.rank == 0:
            self._register(store)
            if not self._url:
                password = " (the password is taken from DDPMON_STORE)" if self.external.address.password else ""
                self._announce(self.external.address.url_of(self.run), password)

    def _register(self, store: Store) -> None:
        """Name the run in the store, where it may have expired or been lost."""
        store.put(run_key(self.run), self._info)
        store.put(RUNS_KEY, self.run.encode())


def speaks_for_its_host(rank: int) -> bool:
    """Whether this rank says what all ranks of its host would say alike."""
    return rank == 0 or os.environ.get("LOCAL_RANK") == "0"
