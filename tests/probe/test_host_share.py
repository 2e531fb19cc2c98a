"""Real ranks of a host hand their figures to one of them, and publish by themselves whenever that one does not write.

Rank 0, which hosts the store, is on a host of its own: the others may be stopped and killed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
from ddpmon.run.model import Run
from ddpmon.snapshot import Snapshot
from ddpmon.watcher.observer import Observer
from tests.live import watch_until
from tests.probe.probe_ranks import private_runs
from tests.ranks import Group, running

RANKS = 4


@contextmanager
def idle_ranks(folder: Path, *arguments: str, **environment: str) -> Iterator[tuple[Group, Observer]]:
    """The ranks, and a watcher that finds them by itself."""
    with private_runs(folder):
        group = Group(
            RANKS, "tests.probe.idle_ranks", [str(folder), *arguments], [folder / "log"], together=False,
            environment=environment,
        )  # fmt: skip
        observer = Observer(None)
        try:
            with running(group):
                yield group, observer
        finally:
            observer.close()


class Watching:
    """What the ranks of the second host are told by, as a watcher sees it."""

    def __init__(self, folder: Path, observer: Observer) -> None:
        self.log, self.observer = folder / "log", observer

    @property
    def run(self) -> Run:
        assert self.observer.run is not None
        return self.observer.run

    def until_carried(self, ranks: tuple[int, ...] = (1, 2, 3)) -> int:
        """Wait until one rank writes for all of these, and their figures come by its host frames; which it is."""

        def carried(_: Snapshot) -> bool:
            if self.observer.run is None or len(self.run.states) < RANKS:
                return False
            latest, chosen = self.run.latest, list(ranks)
            writers = {*latest.writer[chosen].tolist()}
            return len(writers) == 1 and writers <= {*ranks} and bool((latest.seq > latest.whole_seq)[chosen].all())

        watch_until(self.observer, carried, log=self.log)
        return int(self.run.latest.writer[ranks[0]])

    def until_alone(self, ranks: tuple[int, ...]) -> None:
        """Wait until each of these ranks publishes whole frames by itself."""
        self.until_new(ranks)
        watch_until(self.observer, lambda _: bool((self.run.latest.writer[list(ranks)] < 0).all()), log=self.log)

    def until_new(self, ranks: tuple[int, ...]) -> None:
        """Wait until each of these ranks has been heard of a few times more."""
        chosen = list(ranks)
        before = self.run.latest.seq[chosen]
        watch_until(self.observer, lambda _: bool((self.run.latest.seq[chosen] >= before + 3).all()), log=self.log)


def test_the_writer_is_stopped_goes_on_and_is_killed_and_the_others_are_heard_throughout(tmp_path: Path) -> None:
    with idle_ranks(tmp_path, DDPMON_TOKEN="secret") as (group, observer), pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDPMON_TOKEN", "secret")
        observer.close()
        observer = Observer(None)
        watching = Watching(tmp_path, observer)
        writer = watching.until_carried()
        others = tuple(rank for rank in (1, 2, 3) if rank != writer)
        os.kill(group.processes[writer].pid, signal.SIGSTOP)
        watching.until_alone(others)
        os.kill(group.processes[writer].pid, signal.SIGCONT)
        assert watching.until_carried() == writer
        os.kill(group.processes[writer].pid, signal.SIGKILL)
        heir = watching.until_carried(others)
        assert heir != writer
        watching.until_new((0, *others))
        last = watch_until(observer, lambda snapshot: "lost" in states(snapshot), log=watching.log)
        assert [rank for rank, state in enumerate(states(last)) if state == "lost"] == [writer]
        assert last.notices == ()
        (tmp_path / "end").touch()
        ended = watch_until(
            observer, lambda snapshot: states(snapshot).count("finished") == RANKS - 1, log=watching.log
        )
        assert "ddpmon: " not in (tmp_path / "log").read_text().replace("ddpmon: to watch this run", "")
        assert ended.ranks is not None
        assert np.isfinite(ended.ranks.age_s[[0, *others]]).all()
        observer.close()


def states(snapshot: Snapshot) -> tuple[str, ...]:
    return () if snapshot.ranks is None else snapshot.ranks.state


def test_ranks_that_share_no_folder_publish_each_for_itself(tmp_path: Path) -> None:

    with idle_ranks(tmp_path, "PRIVATE") as (_, observer):
        until = time.monotonic() + 240
        url = ""
        while not url and time.monotonic() < until:
            said = (tmp_path / "log").read_text().split()
            url = next((word for word in said if word.startswith("tcp://")), "")
            time.sleep(0.1)
        observer.close()
        watching = Watching(tmp_path, Observer(url))
        watch_until(watching.observer, lambda s: states(s) == ("running",) * RANKS, log=watching.log)
        watching.until_new((0, 1, 2, 3))
        assert (watching.run.latest.writer < 0).all()
        watching.observer.close()
