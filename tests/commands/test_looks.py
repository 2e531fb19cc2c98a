"""How often a command looks at a run before it answers."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("torch")
from ddpmon.codec import encode
from ddpmon.commands.looks import Looks
from ddpmon.diagnose.alert import Severity
from ddpmon.diagnose.pending import Pending
from ddpmon.machine import Disk, HostFigures
from ddpmon.report.verdicts import calm_sentence, is_judged
from ddpmon.schema import HistoryFrame, StepColumns
from ddpmon.snapshot import Finding, Snapshot
from ddpmon.store.base import history_key, node_key, rank_key
from ddpmon.watcher.observer import Observer
from tests.made_frames import RUN_ID, MadeJob, healthy_phases, node_frame, rank_frame
from tests.made_store import MadeStore
from tests.store.served import ALONE

STEPS = 120


class Scene:
    """A run of two ranks in a real store, which publishes once before each look at it.

    Attributes:
        looks: how many there have been.
        low: whether the disk of its host is nearly full.
    """

    def __init__(self, store: MadeStore, *, low: bool) -> None:
        self.store, self.low, self.looks = store, low, 0
        self.job = MadeJob(healthy_phases(2, STEPS))
        self.observer = Observer(store.url)
        store.describe()
        store.name(RUN_ID)
        for rank in range(2):
            frame = HistoryFrame(run_id=RUN_ID, rank=rank, recent=self.job.columns(rank, 0, STEPS), older=StepColumns())
            store.hold(history_key(RUN_ID, rank), encode(frame))

    def look(self) -> Snapshot:
        """The next frames, and a look at them."""
        self.looks += 1
        for rank in range(2):
            part = self.job.columns(rank, STEPS - 20, STEPS)
            frame = rank_frame(rank, self.looks, part, sent_at=time.time())
            self.store.hold(rank_key(RUN_ID, rank), encode(frame))
        free = 5 << 30 if self.low else 500 << 30
        figures = HostFigures(disks=[Disk("/work", ["checkpoints"], 1000 << 30, free, reads=self.looks)])
        self.store.hold(node_key(RUN_ID, 0), encode(node_frame(0, self.looks, figures=figures)))
        return self.observer.tick()


@contextlib.contextmanager
def scene(*, low: bool) -> Iterator[Scene]:
    with contextlib.closing(MadeStore()) as store:
        made = Scene(store, low=low)
        with contextlib.closing(made.observer):
            yield made


def kinds(snapshot: Snapshot) -> tuple[list[str], list[str]]:
    """What is found, and what is pending."""
    return [finding.kind for finding in snapshot.findings], [pending.kind for pending in snapshot.pending]


@pytest.mark.parametrize("fail_on", [None, "info"])
def test_a_healthy_run_is_answered_at_once(fail_on: Severity | None) -> None:
    with scene(low=False) as made:
        assert kinds(Looks(fail_on=fail_on).at(made.look)) == ([], [])
        assert made.looks == 1


@pytest.mark.parametrize(
    ("looks", "count"),
    [
        (Looks(), 3),
        (Looks(fail_on="info"), 3),
        (Looks(for_s=60.0, fail_on="info"), 3),
        (Looks(for_s=0.0), 1),
        (Looks(most_s=3.0), 1),
    ],
)
def test_what_is_pending_is_waited_for_if_it_can_be_confirmed_in_time(looks: Looks, count: int) -> None:
    with scene(low=True) as made:
        answer = kinds(looks.at(made.look))
        assert answer == ((["disk_low"], []) if count == 3 else ([], ["disk_low"]))
        assert made.looks == count


def test_what_begins_too_late_to_be_confirmed_is_not_waited_for() -> None:
    with scene(low=False) as made:

        def look() -> Snapshot:
            made.low = made.looks > 0
            if made.looks == 0:
                return dataclasses.replace(made.look(), pending=(Pending("hang", (), (), None, 0.0),))
            time.sleep(3.0)
            return made.look()

        assert kinds(Looks().at(look)) == ([], ["disk_low"])
        assert made.looks == 2


def test_what_is_confirmed_by_a_reading_is_waited_for_between_two_readings() -> None:
    with scene(low=True) as made:
        seen = made.look()

        def look() -> Snapshot:
            made.looks += 1
            return seen if made.looks < 6 else dataclasses.replace(seen, pending=())

        assert Looks().at(look).pending == ()
        assert made.looks == 6


@pytest.mark.parametrize("looks", [Looks(fail_on="warning"), Looks(for_s=60.0, fail_on="warning")], ids=["", "for 60"])
@pytest.mark.parametrize(
    ("pending", "count"),
    [
        (Pending("gpu_shared", (1,), ("node0",), 1, 0.0), 3),
        (Pending("disk_slow", (), ("node0",), 1, 0.0), 3),
        (Pending("gpu_shared", (0,), ("node0",), 1, 0.0), 1),
        (Pending("disk_slow", (), ("node1",), 1, 0.0), 1),
        (Pending("gpu_shared", (1,), ("node0",), 9, 9.0), 1),
    ],
    ids=["the rank", "its host", "another rank", "another host", "too late"],
)
def test_an_answer_of_fail_on_waits_for_what_may_be_the_cause(looks: Looks, pending: Pending, count: int) -> None:
    late = Finding(kind="straggler", severity="warning", summary="", ranks=(1,), nodes=("node0",))
    with scene(low=False) as made:
        seen = dataclasses.replace(made.look(), findings=(late,), pending=(pending,))

        def look() -> Snapshot:
            made.looks += 1
            return seen if made.looks <= 3 else dataclasses.replace(seen, pending=())

        looks.at(look)
        assert made.looks == 1 + count


def test_a_run_is_looked_at_for_as_long_as_is_asked_for() -> None:
    with scene(low=False) as made:
        began = time.monotonic()
        assert kinds(Looks(for_s=1.2).at(made.look)) == ([], [])
        assert time.monotonic() - began >= 1.2
        assert made.looks >= 2


def test_a_store_that_has_ended_is_not_looked_at_again() -> None:
    made = Scene(MadeStore(address=ALONE), low=True)
    assert made.look().pending
    made.store.close()
    ticks = []

    def tick() -> Snapshot:
        ticks.append(made.observer.tick())
        return ticks[-1]

    assert Looks().at(tick).link.state == "gone"
    assert len(ticks) == 1
    made.observer.close()


def test_an_answer_waits_until_the_past_of_all_ranks_has_been_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpmon.watcher.feed._HISTORIES_FIRST", 1)
    monkeypatch.setattr("ddpmon.watcher.feed._HISTORIES_S", 0.0)
    with scene(low=False) as made:
        first = made.look()
        assert first.coverage is not None
        assert first.coverage.unread_histories == 2
        assert calm_sentence(first) == "no verdict yet: the past of 2 of 2 ranks is still being read"
        assert not is_judged(first)
        last = Looks(for_s=0.0).at(made.look)
        assert last.coverage is not None
        assert last.coverage.unread_histories == 0
        assert calm_sentence(last).startswith("healthy: ")
        assert made.looks == 3
