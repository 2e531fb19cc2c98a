"""What a watcher says after its store could not be read for a while, and over links on which each answer takes long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ddpmon.recording.player import Player
from ddpmon.recording.reader import Recording
from ddpmon.report.verdicts import firing
from ddpmon.simulate.plan import Plan
from ddpmon.snapshot import Snapshot
from ddpmon.store.base import StoreSilent, host_key, rank_key
from ddpmon.watcher.observer import Observer
from tests.recording.made_recordings import RUN_ID, Said, SimulatedRun, simulated

Read = Callable[[Sequence[str]], list[bytes | None]]
ABSENT = 1


def silent(keys: Sequence[str]) -> list[bytes | None]:
    raise StoreSilent(f"no answer to {len(keys)} questions")


def without(read: Read, ranks: Sequence[int]) -> Read:
    """A store that was emptied: these ranks have not come back to it."""
    absent = {key(RUN_ID, rank) for key in (rank_key, host_key) for rank in ranks}
    return lambda keys: [None if key in absent else value for key, value in zip(keys, read(keys), strict=True)]


def kinds(snapshot: Snapshot) -> set[str]:
    return {finding.kind for finding in snapshot.findings if finding.kind not in ("advice", "straggler")}


def looks(run: SimulatedRun, seconds: int) -> list[Snapshot]:
    seen: list[Snapshot] = []
    run.go(seconds, seen.append)
    return seen


def test_a_rank_is_not_silent_while_nobody_could_have_heard_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Said] = []

    def recorder() -> Said:
        made.append(Said(tmp_path / "run.ddpmon"))
        return made[0]

    with simulated(Plan(ranks=3, hosts=3), make=recorder) as run:
        run.go(10)
        read = run.get_many
        monkeypatch.setattr(run, "get_many", silent)
        assert {each.link.state for each in looks(run, 15)} == {"silent"}
        monkeypatch.setattr(run, "get_many", without(read, [ABSENT]))
        back = looks(run, 9)
        assert {each.link.state for each in back} == {"live"}
        assert "the store answers again after 16 s; 1 of 3 ranks has not reported since" in back[0].link.message
        assert [kinds(each) for each in back[:3]] == [set()] * 3
        assert back[0].ranks is not None
        assert back[0].ranks.age_s[ABSENT] == 16, "what is shown is as old as it is"
        (lost,) = (finding for finding in looks(run, 3)[-1].findings if finding.kind == "rank_lost")
        assert lost.ranks == (ABSENT,)
        monkeypatch.setattr(run, "get_many", read)
        last = looks(run, 2)[-1]
        assert (last.link.message, {finding.kind for finding in firing(last.findings)} - {"straggler"}) == ("", set())
    made[0].close()
    player, played = Player(Recording(tmp_path / "run.ddpmon")), []
    while player.step():
        played.append(player.findings)
    said = [findings for _, _, findings in made[0].said]
    assert [each for at, each in enumerate(played) if at == 0 or each != played[at - 1]] == [
        each for at, each in enumerate(said) if at == 0 or each != said[at - 1]
    ]


@pytest.mark.parametrize("before_s", [10, 11])  # the first tick afterwards reads a part, or all
def test_nothing_is_said_of_ranks_that_were_not_read_yet(before_s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpmon.watcher.feed.RANKS_AT_ONCE", 4)
    with simulated(Plan(ranks=8, hosts=2)) as run:
        run.go(before_s)
        read = run.get_many
        monkeypatch.setattr(run, "get_many", silent)
        run.go(15)
        monkeypatch.setattr(run, "get_many", without(read, [4, 5, 6, 7]))
        said = {each.link.message for each in looks(run, 6)} - {""}
        assert said == {"the store answers again after 16 s; 4 of 8 ranks have not reported since"}


def test_all_ranks_are_counted_where_every_answer_takes_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated(Plan(ranks=2, hosts=2)) as run:
        read = run.get_many

        def late(keys: Sequence[str]) -> list[bytes | None]:
            run.clock.now += 1.5
            run.publish()
            answer = read(keys)
            run.clock.now += 1.5
            return answer

        run.go(3)
        monkeypatch.setattr(run, "get_many", late)
        observer = Observer("tcp://127.0.0.1:1")
        for snapshot in (observer.tick(), observer.tick()):
            assert snapshot.coverage is not None
            assert snapshot.coverage.reporting == 2
            assert (snapshot.coverage.oldest_age_s or 0.0) > 4.0, "the picture is as old as it is"
