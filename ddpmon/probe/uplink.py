"""A rank's way to its run's store: rank 0 hosts it, the others learn its address from the training's own store.

With DDPMON_STORE=rendezvous nobody hosts one: frames go to the server of the training's own store.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any

from ddpmon.probe.identity import Identity, rendezvous_server, run_id, store_address, uses_rendezvous
from ddpmon.schema import FrameError, HistoryFrame, NodeFrame, RankFrame, RunInfo, decode, encode
from ddpmon.store.base import RUNS_KEY, Store, StoreUnavailable, history_key, node_key, rank_key, run_key
from ddpmon.store.connect import list_runs
from ddpmon.store.discovery import Announcement, announce, anybody_finds, discover, withdraw
from ddpmon.store.signed import Checks, Signer, signed, signer_of_environment, token_of_environment
from ddpmon.store.tcp import FIRST_PORT, TcpStore, serve

_RUNS_KEPT = 64  # ids that one store lists
_KEYS_FREED = 1 << 16
_LONGEST_URL, _LONGEST_LINE = 300, 2000
_ASKED, _STILL_S = 16, 2.0  # others that are looked at, and how long an end is waited for; frames come once a second


def listed(store: Store) -> list[str]:
    """The newest runs that a store lists, 64 at most; none where the list is longer than a megabyte.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    return list_runs(store)[-_RUNS_KEPT:]


def listing(others: Iterable[str], own: str) -> bytes:
    """What a store is to list: its own run as the newest."""
    return "\n".join([*others, own][-_RUNS_KEPT:]).encode()


def forget(store: Store, runs: Sequence[str]) -> None:
    """Free what the frames of earlier runs take, as before an elastic restart; one that lives on fills them again.

    It goes by their descriptions, the newest first, and frees 65,536 keys at most; with a token only by signed ones.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    checks = Checks(token_of_environment())
    for key in islice((key for run in reversed(runs) for key in _keys_of(store, run, checks)), _KEYS_FREED):
        store.put(key, b"")


def frame_keys(run: str, world_size: int, node_keys: Iterable[int]) -> Iterator[str]:
    """The keys of all frames of a run."""
    for rank in range(world_size):
        yield rank_key(run, rank)
        yield history_key(run, rank)
    for node in node_keys:
        yield node_key(run, node)


def _keys_of(store: Store, run: str, checks: Checks) -> Iterator[str]:
    """The keys of the frames of a run, as its description tells; none where that is not believed."""
    (data,) = store.get_many([run_key(run)])
    content = None if data is None else checks.open(run_key(run), data)
    with suppress(FrameError):
        if content is not None:
            info = decode(run_key(run), content, RunInfo)
            yield from frame_keys(run, info.world_size, info.node_keys)


@dataclass(slots=True)
class Uplink:
    """Connects once and puts frames.

    Attributes:
        training: the training's rendezvous store; it carries the address, and is let go of as soon as that has worked.
        handover_key: where in it the address stands.
        describe: makes the RunInfo for a run id, on rank 0.
        missed_ports: those that rank 0 wanted for the store and did not get, with what for; not where another run of
            this user has it, since then the next free one is as good.
        signer: signs what this process puts, if there is a token.
    """

    identity: Identity
    name: str
    training: Any
    handover_key: str
    describe: Callable[[str], RunInfo]
    run: str = ""
    missed_ports: dict[int, str] = field(default_factory=dict)
    signer: Signer | None = field(default_factory=signer_of_environment)
    _address: tuple[str, int] | None = None
    _store: Store | None = None
    _server: TcpStore | None = None
    _serves: bool = False
    _info: bytes = b""
    _url: str = ""
    _missed: str = ""
    _announced_at: float = 0.0  # Unix seconds
    _file: Path | None = None

    @property
    def connected(self) -> bool:
        """Whether frames can be put."""
        return self._store is not None

    def connect(self) -> bool:
        """Host the store, or join it; False while its address is not known yet.

        Raises:
            StoreUnavailable: it cannot be reached at present.
        """
        if self._address is None and not (self._host() if self.identity.rank == 0 else self._learn()):
            return False
        if self._store is None and self._address is not None:
            self._join(self._address)
        return self._store is not None

    def _join(self, address: tuple[str, int]) -> None:
        """Connect to rank 0's store; until that has worked once, a dead address is asked for again."""
        try:
            self._store = signed(TcpStore(*address), self.signer)
        except StoreUnavailable:
            if self.training is not None:
                self._address = None
            raise
        self.training = None

    def put_rank(self, frame: RankFrame) -> None:
        """Publish this rank's frame."""
        self._put(rank_key(self.run, frame.rank), encode(frame))

    def put_history(self, frame: HistoryFrame) -> None:
        """Publish this rank's past; rank 0 also says again which run this is, because its store may have lost that."""
        self._put(history_key(self.run, frame.rank), encode(frame))
        if self.identity.rank == 0 and self._store is not None:
            self._register(self._store)
            self._review_ports()
            with suppress(OSError):  # a networked folder may fail for a while: nobody knows then, and frames go on
                if self._url and (self._file is None or not self._file.exists()):  # the disk was full, or was cleared
                    self._file = self._write_file()

    def put_node(self, frame: NodeFrame) -> None:
        """Publish this rank's host."""
        self._put(node_key(self.run, frame.node), encode(frame))

    def drop(self) -> None:
        """Let go of a connection that has failed; one that is the server itself stays."""
        if self._store is not None and not self._serves:
            self._store.close()
            self._store = None

    def linger(self, seconds: float, leaving: Event) -> None:
        """Whoever hosts the store keeps it up for watchers to read the end, and for ranks that still publish.

        Once the process is `leaving` only the `seconds` count.
        """
        if not self._serves:
            return
        time.sleep(seconds)
        before: list[bytes | None] = []
        while not leaving.is_set() and (now := self._last_words()) != before:
            before = now
            leaving.wait(_STILL_S)

    def close(self) -> None:
        """Withdraw the run's file and close the store."""
        if self._file is not None:
            withdraw(self._file)
            self._file = None
        self.training = None
        if self._store is not None:
            self._store.close()
            self._store = self._server = None

    def _last_words(self) -> list[bytes | None]:
        """The newest frames of some other ranks, only to be compared: they change while the rank lives."""
        world = self.identity.world_size
        others = range(1, world, -(-world // _ASKED))
        return self._server.get_many([rank_key(self.run, rank) for rank in others]) if self._server else []

    def _put(self, key: str, value: bytes) -> None:
        if self._store is None:
            raise StoreUnavailable("not connected")
        self._store.put(key, value)

    def _host(self) -> bool:
        """Rank 0: start the store, lay out its keys, tell the other ranks and this host."""
        unsigned, host, port = self._begin()
        self.run, store = run_id(self.name), signed(unsigned, self.signer)
        self._lay_out(store)
        self._store, self._address = store, (host, port)
        self._announce(_url(host, port))
        self._hand_over(f"{host} {port} {self.run}")
        return True

    def _begin(self) -> tuple[Store, str, int]:
        """The run's store with its address: a server of ours, or the training's."""
        if uses_rendezvous():
            address = rendezvous_server(self.training)
            return TcpStore(*address), *address
        try:
            host = store_address()
            store, port = serve(host, FIRST_PORT)
        except OSError as error:
            raise StoreUnavailable(f"no store can be hosted here: {error}") from None
        if port != FIRST_PORT:
            self.missed_ports[FIRST_PORT], self._missed = "this run's store", _url(host, FIRST_PORT)
            self._review_ports()
        self._serves, self._server = True, store
        return store, host, port

    def _review_ports(self) -> None:
        """Runs that begin together announce themselves only once each has its port."""
        if self.missed_ports and any(run.url == self._missed for run in discover()):
            self.missed_ports.clear()

    def _lay_out(self, store: Store) -> None:
        """Create every key empty before `run` says that they are there: TCPStore's reads block on a missing key."""
        earlier = listed(store)
        forget(store, earlier)
        for key in frame_keys(self.run, self.identity.world_size, self.identity.node_keys):
            store.put(key, b"")
        self._info = encode(self.describe(self.run))
        store.put(run_key(self.run), self._info)
        store.put(RUNS_KEY, listing(earlier, self.run))

    def _register(self, store: Store) -> None:
        """Say again which run this is in a store of its own, as the newest: whoever reaches it can overwrite that."""
        if self._serves:
            store.put(run_key(self.run), self._info)
            store.put(RUNS_KEY, listing((run for run in listed(store) if run != self.run), self.run))

    def _hand_over(self, address: str) -> None:
        try:
            if self.training is not None:
                self.training.set(self.handover_key, address)
        except Exception as error:
            raise StoreUnavailable(f"the store of the training accepts no address: {error}") from None
        finally:
            self.training = None

    def _learn(self) -> bool:
        """The other ranks: read the address, without ever waiting for it."""
        if self.training is None:
            return False
        try:
            if not self.training.check([self.handover_key]):
                return False
            host, port, self.run = self.training.get(self.handover_key).decode().split(" ")
        except Exception as error:
            self.training = None
            raise StoreUnavailable(f"the store of the training is gone: {error}") from None
        if "://" in host:
            return self._published_elsewhere(host)
        self._address = rendezvous_server(self.training) if uses_rendezvous() else (host, int(port))
        return True

    def _published_elsewhere(self, url: str) -> bool:
        """Rank 0 has a DDPMON_STORE and this rank has none."""
        self.training = None
        rank, there = self.identity.rank, url[:_LONGEST_URL]
        say(f"rank {rank} is not watched: the others publish to {there}, and DDPMON_STORE is not set here")
        return False

    def _announce(self, url: str, hint: str = "") -> None:
        self._url, self._announced_at = url, time.time()
        self._file = self._write_file()
        there = f"ddpmon watch {shlex.quote(url)}"
        how = "ddpmon watch" if self._file is not None and anybody_finds(self._file) else there
        elsewhere = f" (from another host: {there})" if how != there and not _is_local(url) else ""
        say(f"to watch this run: {how}{elsewhere}{hint}")

    def _write_file(self) -> Path | None:
        """Announce the run on this host."""
        return announce(
            Announcement(
                run_id=self.run,
                name=self.name,
                url=self._url,
                pid=os.getpid(),
                host=socket.gethostname(),
                world_size=self.identity.world_size,
                started_at=self._announced_at,
            )
        )


def _url(host: str, port: int) -> str:
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _is_local(url: str) -> bool:
    return url.startswith(("tcp://127.", "tcp://localhost:"))


def say(text: str) -> None:
    """One line on stderr, if there is still one; what a terminal would obey is made visible."""
    text = text[:_LONGEST_LINE].replace("\n", " ")
    line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    with suppress(Exception):  # a closed stderr must not stop training
        if sys.stderr is not None:  # print would take stdout instead
            print(f"ddpmon: {line}", file=sys.stderr, flush=True)
