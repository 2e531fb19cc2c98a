"""A rank's uplink: it connects to its run's store by the way that fits the rank, and puts frames.

Rank 0 starts a small process that hosts the store, and the others learn its address from the training's own store. With
DDPMON_STORE=rendezvous nobody hosts one: frames go to the server of the training's own store. With another DDPMON_STORE
all go there (`probe/external_store.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Protocol
from urllib.parse import urlsplit

from ddpmon.codec import encode
from ddpmon.probe.identity import rendezvous_server, run_id, uses_rendezvous
from ddpmon.probe.listening import Listening, in_question, listening
from ddpmon.probe.registration import Announcer, lay_out, register_again, say
from ddpmon.probe.run_life import RunLife, launch, read_life
from ddpmon.schema import HistoryFrame, HostFrame, NodeFrame, RankFrame, RunInfo
from ddpmon.store.base import (
    Store,
    StoreRefuses,
    StoreUnavailable,
    TargetError,
    history_key,
    host_key,
    node_key,
    rank_key,
    tcp_url,
)
from ddpmon.store.discovery import discover
from ddpmon.store.server import FIRST_PORT, PORTS_TO_TRY
from ddpmon.store.server_process import StoreProcess, end_left_over, start
from ddpmon.store.signed import SignedStore, Signer, signed, signer_of_environment
from ddpmon.store.tcp_client import TcpClient

_LONGEST_URL = 300
_ASKED = 16  # others that are looked at
_STILL_S = 8.0  # between two looks: each puts a whole frame at least every 6.5 s, on a busy host a little later


class Way(Protocol):
    """How a rank comes to its run's store.

    Attributes:
        run: the run's id, "" until it is known.
        server: the store's process, where this rank has started it.
    """

    run: str
    server: StoreProcess | None

    def connect(self) -> Store | None:
        """The store; None while its address is not known yet.

        Raises:
            StoreUnavailable: it cannot be reached at present.
        """

    def renew(self, store: Store) -> None:
        """Say again which run this is, where the store may have lost that: rank 0 does."""


@dataclass(slots=True)
class Handover:
    """The training's own store, by which rank 0 tells the others where to publish; it is released after that.

    Attributes:
        training: that store, None where there is none, or it is released.
        key: where in it the address stands.
    """

    training: Any
    key: str

    def tell(self, address: str) -> None:
        """Leave the address there.

        Raises:
            StoreUnavailable: the store of the training does not take it.
        """
        try:
            if self.training is not None:
                self.training.set(self.key, address)
        except Exception as error:
            raise StoreUnavailable(f"the store of the training accepts no address: {error}") from None
        finally:
            self.training = None

    def ask(self) -> tuple[str, str, str] | None:
        """Host (or URL), port and run id, as rank 0 has left them; None while it has not. Never waits.

        Raises:
            StoreUnavailable: the store of the training is gone.
        """
        if self.training is None:
            return None
        try:
            if not self.training.check([self.key]):
                return None
            host, port, run = self.training.get(self.key).decode().split(" ")
        except Exception as error:
            self.training = None
            raise StoreUnavailable(f"the store of the training is gone: {error}") from None
        return host, port, run


@dataclass(slots=True)
class Uplink:
    """Connects once and puts frames. Only the publisher's thread calls it.

    Attributes:
        world_size: of the run.
        missed_ports: port -> what rank 0 wanted it for, of those that it did not get.
        complain: says once that the store refuses what it is asked for; None where it is one of ddpmon's own.
    """

    way: Way
    handover: Handover
    announcer: Announcer
    world_size: int
    missed_ports: dict[int, str]
    complain: Callable[[StoreUnavailable], None] | None = None
    _store: Store | None = None

    @property
    def run(self) -> str:
        """The run's id, "" until it is known."""
        return self.way.run

    @property
    def connected(self) -> bool:
        """Whether frames can be put."""
        return self._store is not None

    def connect(self) -> bool:
        """Connect; False while the store's address is not known yet.

        Raises:
            StoreUnavailable: it cannot be reached at present.
        """
        if self._store is None:
            self._store = self.way.connect()
        return self._store is not None

    def put_rank(self, frame: RankFrame) -> None:
        """Publish this rank's frame."""
        self._put(rank_key(self.run, frame.rank), encode(frame))

    def put_history(self, frame: HistoryFrame) -> None:
        """Publish this rank's past; rank 0 also says again which run this is, in the store and on its host."""
        self._put(history_key(self.run, frame.rank), encode(frame))
        if self._store is not None:
            self.way.renew(self._store)
            self.announcer.renew()

    def put_host(self, frame: HostFrame) -> None:
        """Publish the newest figures of some ranks of this host."""
        self._put(host_key(self.run, frame.rank), encode(frame))

    def take_over(self) -> None:
        """This rank speaks for its host from now on: its signatures are newer than those of the one before it."""
        if isinstance(self._store, SignedStore):
            self._store.begin()

    def put_node(self, frame: NodeFrame) -> None:
        """Publish this rank's host."""
        self._put(node_key(self.run, frame.node), encode(frame))

    def _put(self, key: str, value: bytes) -> None:
        if self._store is None:
            raise StoreUnavailable("not connected")
        self._store.put(key, value)

    def drop(self, why: StoreUnavailable | None = None) -> None:
        """Let go of a connection that has failed; that the store refuses something is said."""
        if isinstance(why, StoreRefuses) and self.complain is not None:
            self.complain(why)
        if self._store is not None:
            self._store.close()
            self._store = None

    def linger(self, seconds: float, leaving: Event) -> None:
        """Keep a store that was started here up for watchers to read the end, and for ranks that still publish.

        Once the process is `leaving` only the `seconds` count.
        """
        if self.way.server is None or self._store is None:
            return
        time.sleep(seconds)
        before: list[bytes | None] = []
        while not leaving.is_set() and (now := self._last_words(self._store)) != before:
            before = now
            leaving.wait(_STILL_S)

    def _last_words(self, store: Store) -> list[bytes | None]:
        """The newest frames of some other ranks, only to be compared: they change while the rank lives."""
        others = range(1, self.world_size, -(-self.world_size // _ASKED))
        return store.get_many([rank_key(self.run, rank) for rank in others])

    def close(self, *, to_successor: bool = False) -> None:
        """Withdraw the run's file, close the store, and end its process.

        All that is left `to_successor`, where the run has failed with its process and its launcher may restart it.
        """
        self.handover.training = None
        if self._store is not None:
            self._store.close()
            self._store = None
        if not (to_successor and launch().may_restart):
            self.announcer.withdraw()
            if self.way.server is not None:
                self.way.server.end()


@dataclass(slots=True)
class Hosting:
    """Rank 0 starts the store, or takes the training's server; it lays out the run's keys and announces the run."""

    handover: Handover
    announcer: Announcer
    describe: Callable[[str], RunInfo]
    missed_ports: dict[int, str]
    signer: Signer | None = field(default_factory=signer_of_environment)
    run: str = ""
    server: StoreProcess | None = None
    _life: RunLife | None = None
    _listening: Listening | None = None
    _address: tuple[str, int] | None = None
    _info: RunInfo | None = None
    _is_laid_out: bool = False
    _complained: bool = False

    def connect(self) -> Store | None:
        """The store, which is begun at the first call, and again where its process has died."""
        if self._address is None:
            self._address = self._begin()
        elif self.server is not None and not self.server.is_running:
            self.server, self._is_laid_out = self._begin_again(self._address[1]), False
        store = signed(TcpClient(*self._address), self.signer)
        try:
            if not self._is_laid_out:
                self._lay_out(store, *self._address)
        except StoreUnavailable:
            store.close()
            raise
        return store

    def renew(self, store: Store) -> None:
        """Say again which run this is, in a store of its own."""
        if self.server is not None and self._info is not None:
            register_again(store, self._info)

    def _lay_out(self, store: Store, host: str, port: int) -> None:
        """Describe and announce the run, and tell the other ranks."""
        if self._info is None:
            self.run = run_id(self.announcer.name)
            self._info = (self._life or RunLife()).told_by(self.describe(self.run))
        lay_out(store, self._info)
        self._is_laid_out = True
        others = host if self._listening is None else self._listening.others
        pid = 0 if self.server is None else self.server.pid
        try:  # the others first: the line asks for this user's name, which a directory may be slow to give
            self.handover.tell(f"{host} {port} {self.run}")
        finally:
            self.announcer.announce(self.run, tcp_url(others, port), store_pid=pid)

    def _begin(self) -> tuple[str, int]:
        """The address of the run's store: a server of ours, or the training's."""
        self._life = self._life or read_life(self.announcer.name)  # once: the store that it reads is ended then
        if uses_rendezvous():
            return rendezvous_server(self.handover.training)
        try:
            self._listening = at = listening()
            port = self._left_by_predecessor(at.others) or at.port or FIRST_PORT
            self.server = self._start(at.port or port, is_fixed=at.port is not None)
        except (OSError, StoreUnavailable, TargetError) as error:
            raise self._cannot(error) from None
        if at.port is None and not FIRST_PORT <= self.server.port < FIRST_PORT + PORTS_TO_TRY:
            self.missed_ports[FIRST_PORT] = "this run's store"
        return at.ranks, self.server.port

    def _left_by_predecessor(self, host: str) -> int:
        """The port of a run of this name whose rank 0 was killed here, once its store has ended; 0 for none.

        Watchers look for a job that is restarted where it was before.
        """
        for run in discover():
            at = urlsplit(run.url)
            if run.name == self.announcer.name and at.hostname == host and end_left_over(run):
                return at.port or 0
        return 0

    def _begin_again(self, port: int) -> StoreProcess:
        """The store where the other ranks look for it: its process was killed, such as for want of memory."""
        return self._start(port, is_fixed=True)

    def _start(self, port: int, *, is_fixed: bool) -> StoreProcess:
        """Start the store at `port`, or at the next free one unless it `is_fixed`.

        Raises:
            StoreUnavailable: it cannot be started.
        """
        assert self._listening is not None
        job, ranks = launch(), self.announcer.world_size
        try:
            server = start(self._listening.host, port, ranks=ranks, launcher=job.pid if job.may_restart else 0)
        except StoreUnavailable as error:
            raise StoreUnavailable(f"{error}{in_question()}") from None
        if is_fixed and server.port != port:
            server.end()
            asked = ", which DDPMON_LISTEN asks for," if self._listening.port is not None else ""
            raise StoreUnavailable(f"the store's port {port}{asked} is taken")
        return server

    def _cannot(self, error: Exception) -> StoreUnavailable:
        """Say once why there is no store; it is tried again."""
        why = str(error) if isinstance(error, StoreUnavailable) else f"no store can be hosted here: {error}"
        if not self._complained:
            say(f"{why}; training goes on unwatched")
        self._complained = True
        return StoreUnavailable(why)


@dataclass(slots=True)
class Following:
    """Every other rank reads where rank 0 publishes, and joins that store.

    Attributes:
        join_external: connects to the external store; None where DDPMON_STORE is not set for this rank.
    """

    rank: int
    handover: Handover
    join_external: Callable[[], Store] | None = None
    signer: Signer | None = field(default_factory=signer_of_environment)
    run: str = ""
    server: StoreProcess | None = None
    _address: tuple[str, int] | None = None
    _elsewhere: bool = False

    def connect(self) -> Store | None:
        """Join the store; None while rank 0 has not said where."""
        if self._address is None and not self._elsewhere:
            self._learn()
        if self._elsewhere:
            return None if self.join_external is None else self.join_external()
        return None if self._address is None else self._join(self._address)

    def _join(self, address: tuple[str, int]) -> Store:
        """Connect to rank 0's store; until that has worked once, a dead address is asked for again."""
        try:
            store = signed(TcpClient(*address), self.signer)
        except StoreUnavailable:
            if self.handover.training is not None:
                self._address = None
            raise
        self.handover.training = None
        return store

    def _learn(self) -> None:
        told = self.handover.ask()
        if told is None:
            return
        host, port, self.run = told
        if "://" not in host:
            self._address = rendezvous_server(self.handover.training) if uses_rendezvous() else (host, int(port))
            return
        self._elsewhere, self.handover.training = True, None
        if self.join_external is None:
            there = host[:_LONGEST_URL]
            say(f"rank {self.rank} is not watched: the others publish to {there}, and DDPMON_STORE is not set here")

    def renew(self, store: Store) -> None:
        """Do nothing: rank 0 says it."""
