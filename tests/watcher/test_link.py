"""The way to a run over links that are slow, or that refuse now and then."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

from ddpmon.report.overdue import overdue_words
from ddpmon.report.verdicts import figures_now
from ddpmon.run.model import SILENT_S, Run
from ddpmon.simulate.plan import Plan
from ddpmon.snapshot import Link
from ddpmon.store.base import Through
from ddpmon.store.connect import Target
from ddpmon.store.discovery import Announcement, PastRun
from ddpmon.store.tcp_client import TcpClient
from ddpmon.tui.picture_reader import tells_the_same
from ddpmon.watcher import run_end
from ddpmon.watcher.observer import Observer
from ddpmon.watcher.way import Fate
from tests.external_runs import RANKS, MadeRun
from tests.live import watch_until
from tests.made_frames import run_info
from tests.made_store import MadeStore
from tests.recording.made_recordings import simulated
from tests.store.half_open import Gate
from tests.store.served import ALONE, HOME, begin, end, serve

MAY_FOLLOW = "its launcher may restart it (attempt 2 of 3)"


@pytest.fixture
def port() -> Iterator[int]:
    """A store with a run whose ranks have spoken."""
    store, found = serve()
    MadeRun(store).speak()
    yield found
    store.close()


@pytest.mark.parametrize(("path", "questions"), [("", 8), ("/made-run", 6)])
def test_the_first_picture_takes_few_round_trips(port: int, path: str, questions: int) -> None:
    with closing(Gate(port)) as gate, closing(Observer(f"tcp://{HOME}:{gate.port}{path}")) as observer:
        picture = observer.tick()
        assert picture.coverage is not None
        assert picture.coverage.reporting == RANKS
        assert gate.questions <= questions, "the greeting, the run, the histories, the ranks, the hosts"
        assert observer.tick().link.state == "live"


def test_between_two_turns_of_many_ranks_the_last_snapshot_is_given_again(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddpmon.watcher.feed.RANKS_AT_ONCE", RANKS // 2)  # so that these ranks are many
    with closing(Observer(f"tcp://{HOME}:{port}")) as observer:
        pictures = [observer.tick() for _ in range(4)]
        same = [tells_the_same(one, other) for one, other in pairwise(pictures)]
        assert pictures[0].ranks is not None
        assert sorted(same[1:]) == [False, True]
        assert all(one.taken_monotonic < other.taken_monotonic for one, other in pairwise(pictures))
        observer.focus = 0
        assert all(observer.tick().detail is not None for _ in range(2))


@pytest.mark.parametrize("looks", [2, 3])
def test_while_the_store_of_many_ranks_is_gone_the_ages_go_on(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpmon.watcher.feed.RANKS_AT_ONCE", RANKS // 2)  # so that these ranks are many
    store, port = serve(ALONE)
    MadeRun(store).speak()
    with closing(Observer(f"tcp://{ALONE}:{port}")) as observer:
        for _ in range(looks):
            observer.tick()
        store.close()
        pictures = [observer.tick() for _ in range(4)]
        assert all(one.ranks is not other.ranks for one, other in pairwise(pictures))


class Way:
    """Leads to one store after the other; nobody knows more of their runs."""

    def __init__(self, target: Target) -> None:
        self.leads_to = target

    def target(self) -> Target:
        return self.leads_to

    def waits_for(self) -> str:
        return ""

    def trouble(self) -> str:
        return ""

    def refusal(self) -> str:
        return ""

    def fate(self, run_id: str, since: float) -> None:  # noqa: ARG002
        return None


def test_a_run_whose_tunnel_was_closed_for_that_of_the_next_is_left(tmp_path: Path) -> None:
    with ExitStack() as stack:
        targets, gates = list[Target](), list[Gate]()
        for name in ("first", "second"):
            store, port = serve()
            stack.callback(store.close)
            MadeRun(store, name).speak()
            path = str(tmp_path / name)
            targets.append(Target(HOME, port, name, through=Through(path, "there")))
            gates.append(stack.enter_context(closing(Gate(port, path))))
        way = Way(targets[0])
        observer = stack.enter_context(closing(Observer(None, way)))
        assert observer.tick().link.state == "live"
        (tmp_path / "first").unlink()
        gates[0].close()
        seen = observer.tick()
        assert seen.link.state == "silent"
        assert "does not answer" in seen.link.message
        way.leads_to = targets[1]
        seen = watch_until(observer, lambda seen: seen.link.state == "live")
        assert seen.run is not None
        assert seen.run.id == "second"


def test_keys_that_are_not_there_after_all_are_asked_for(port: int) -> None:
    with closing(TcpClient(HOME, port, timeout_s=60.0)) as client:
        client.expect("ddpmon/made-run/")
        found = client.get_many(["ddpmon/made-run/rank/0", "ddpmon/made-run/rank/9"])
        assert found[0]
        assert found[1] is None


def test_a_port_that_refuses_once_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    held = socket.socket()
    held.bind((HOME, 0))
    free = held.getsockname()[1]

    def begin_meanwhile(_seconds: float) -> None:
        held.close()
        assert begin(HOME, free) == free

    monkeypatch.setattr("ddpmon.store.tcp_client.sleep", begin_meanwhile)
    TcpClient(HOME, free, timeout_s=60.0).close()
    end(free)


def test_a_launcher_that_starts_silent_ranks_again_is_told_before_they_count_as_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fate = Fate("restarting", "attempt 2 of 4")
    monkeypatch.setattr("ddpmon.watcher.run_end.fate_here", lambda _run: fate)
    with simulated(Plan(ranks=2)) as run:
        run.go(5)
        run.clock.now += SILENT_S + 0.5
        seen = run.observer.tick()
    assert seen.run is not None
    assert (seen.run.state, seen.link.state) == ("restarting", "gone")
    assert "monitor_degraded" not in {finding.kind for finding in seen.findings}


@pytest.mark.parametrize(
    ("fate", "known"),
    [
        (Fate("running"), ", and rank 0's process runs"),
        (Fate("unknown", "node7 cannot be asked"), f"; node7 cannot be asked; {MAY_FOLLOW}"),
        (None, f"; {MAY_FOLLOW}"),
    ],
)
def test_of_a_run_whose_ranks_fall_silent_what_is_known_is_said(
    monkeypatch: pytest.MonkeyPatch, fate: Fate | None, known: str
) -> None:
    monkeypatch.setattr("ddpmon.watcher.run_end.fate_here", lambda _run: fate)
    with simulated(Plan(ranks=2)) as run:
        run.go(5)
        assert run.observer.run is not None
        info = run.observer.run.info
        run.observer.run.info = structs.replace(info, max_restarts=2)
        run.clock.now += SILENT_S + 0.5
        seen = run.observer.tick()
    assert (seen.link.state, seen.link.message) == (
        "live",
        f"every rank has been silent for 4.5 s; the store answers{known}",
    )
    (said,) = [finding for finding in seen.findings if finding.kind == "monitor_degraded"]
    assert said.summary.startswith("every rank has been silent for 4.5 s, though the store answers: they have ended")


def test_a_rank_0_that_dies_during_the_look_is_restarted_and_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    run, looked = Run(run_info(2)), list[str]()
    here = Announcement(
        run_id=run.info.run_id, name="made", url="tcp://127.0.0.1:1", pid=1, host="node0", world_size=2, started_at=1.0
    )

    def dies(announced: Announcement) -> bool:
        looked.append(announced.run_id)
        return False

    monkeypatch.setattr(run_end, "discover", lambda: [here])
    monkeypatch.setattr(run_end, "has_rank_0", dies)
    known = PastRun(id=run.info.run_id, state="restarting", restart=0, max_restarts=3)
    monkeypatch.setattr(run_end, "past_runs", lambda: [known] if looked else [])
    assert run_end.fate_here(run) == Fate("restarting", "attempt 2 of 4")


def test_a_slow_answer_of_the_store_is_no_overdue_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took the tick away, and `throughput` in JSON was unknown."""
    with simulated(Plan(ranks=4, hosts=2, scenario="healthy")) as run:
        run.go(40)
        fast, run.clock.now = run.get_many, run.clock.now + 1.0
        run.publish()

        def slow(keys: Sequence[str]) -> list[bytes | None]:
            run.clock.now += 4.0
            return fast(keys)

        monkeypatch.setattr(run, "get_many", slow)
        seen = run.observer.tick()
        assert seen.link.state == "live"
        assert overdue_words(seen) == ""
        assert figures_now(seen).throughput is not None


def test_what_the_watcher_takes_after_reading_is_no_silence_of_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 30.0)  # the verdicts on what was read took so long
    monkeypatch.setattr("ddpmon.watcher.link.time", later)
    made = MadeStore()
    made.begin()
    with closing(Observer(made.url)) as observer:
        assert observer.tick().link == Link("live")
    made.close()
