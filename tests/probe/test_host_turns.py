"""What ranks of one host put in which turn: whole frames at first, then rows, and whole ones without a writer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

pytest.importorskip("torch")
import torch

from ddpmon.probe.host_share import HostShare, Word
from ddpmon.probe.identity import Identity
from ddpmon.probe.record import StepRow
from ddpmon.run.host_rows import gather
from ddpmon.schema import HostFrame, RankFrame, StepColumns
from ddpmon.store.base import StoreUnavailable
from tests.made_frames import RUN_ID, rank_frame


@dataclass
class Shelf:
    """An uplink that keeps what is put in a turn, and a machine that has the lease of its host or not."""

    has_turn: bool = False
    run: str = RUN_ID
    whole: list[RankFrame] = field(default_factory=list)
    hosts: list[HostFrame] = field(default_factory=list)
    gone: bool = False

    def put_rank(self, frame: RankFrame) -> None:
        if self.gone:
            raise StoreUnavailable("gone")
        self.whole.append(frame)

    def put_host(self, frame: HostFrame) -> None:
        if self.gone:
            raise StoreUnavailable("gone")
        self.hosts.append(frame)

    def take_over(self) -> None:
        """Signatures are another test's."""

    def taken(self) -> tuple[list[RankFrame], list[HostFrame]]:
        """What has been put since this was last asked."""
        found, self.whole, self.hosts = (self.whole, self.hosts), [], []
        return found


class Rank:
    """One rank of a host; its turns come when the test says so."""

    def __init__(self, rank: int, *, has_turn: bool = False) -> None:
        self.rank, self.seq, self.shelf = rank, 0, Shelf(has_turn)
        me = Identity(rank, 3, rank, 0, (0,), "host", 7, torch.device("cpu"), None, "gloo")
        shelf: Any = self.shelf
        self.share = HostShare(me, shelf, shelf)

    def turn(self, *, whole: bool = False, **news: Any) -> tuple[list[RankFrame], list[HostFrame]]:
        """What it puts in its next turn."""
        self.seq += 1
        frame = rank_frame(self.rank, self.seq, StepColumns(), sent_at=time.time(), **news)
        rows = [StepRow(10 * self.seq + at, monotonic(), [100.0, *[1.0] * 11]) for at in range(3)]
        self.share.put(Word(frame, rows), monotonic() + 1.0, whole=whole)
        return self.shelf.taken()


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Rank]]:
    """Three ranks of a host; the first has its lease."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    found = [Rank(rank, has_turn=rank == 0) for rank in range(3)]
    yield found
    for rank in found:
        rank.share.close()


def settle(ranks: list[Rank]) -> None:
    """A few turns, after which the first writes for all."""
    for _ in range(3):
        for rank in (*ranks[1:], ranks[0]):
            rank.turn()


def carried(hosts: list[HostFrame]) -> list[int]:
    rows, bad = gather(hosts, lambda _: False, 3)
    assert not bad
    return sorted(rows.ranks.tolist())


def test_the_first_turns_are_whole_and_name_the_writer_and_then_rows_suffice(ranks: list[Rank]) -> None:
    first, second, third = ranks
    whole, hosts = first.turn()
    assert ([frame.writer for frame in whole], hosts) == ([-1], []), "nobody has come yet"
    assert [frame.writer for frame in second.turn()[0] + third.turn()[0]] == [-1, -1], "no receipt has come yet"
    whole, hosts = first.turn()
    assert [frame.writer for frame in whole] == [0]
    assert carried(hosts) == [0, 1, 2]
    assert [frame.writer for frame in second.turn()[0] + third.turn()[0]] == [0, 0], "it is said once"
    for _ in range(3):
        whole, hosts = first.turn()
        assert whole == []
        assert carried(hosts) == [0, 1, 2]
        assert second.turn() == third.turn() == ([], [])
    assert len(second.turn(whole=True)[0]) == 1


def test_what_figures_cannot_say_goes_out_whole_and_the_row_says_so(ranks: list[Rank]) -> None:
    settle(ranks)
    first, second, _ = ranks
    (whole,), _ = second.turn(notes=["news"])
    assert (whole.notes, whole.writer) == (["news"], 0)
    assert len(whole.steps) == 3
    ranks[2].turn()
    rows, _ = gather(first.turn()[1], lambda _: False, 3)
    assert dict(zip(rows.ranks.tolist(), rows.column("whole").tolist(), strict=True))[1] == whole.seq
    assert second.turn(notes=["news"]) == ([], [])


@pytest.mark.parametrize("place", [0, 1])
def test_a_rank_with_a_count_that_no_row_holds_publishes_whole(ranks: list[Rank], place: int) -> None:
    settle(ranks)
    news: list[dict[str, Any]] = [{"dropped_steps": 1 << 60} if rank.rank == place else {} for rank in ranks]
    for _ in range(3):
        others = [rank.turn(**said)[0] for rank, said in zip(ranks[1:], news[1:], strict=True)]
        own, hosts = ranks[0].turn(**news[0])
        rows, _ = gather(hosts, lambda _: False, 3)
        assert [bool(frames) for frames in (own, *others)][place]
        assert {0, 1, 2} - {place} <= {*rows.ranks.tolist()}
    assert place not in rows.ranks


def test_without_a_receipt_a_rank_puts_its_own_frame_in_the_next_turn(ranks: list[Rank]) -> None:
    settle(ranks)
    first, second, third = ranks
    assert second.turn() == third.turn() == ([], [])
    assert [frame.writer for frame in second.turn()[0]] == [-1], "the writer is stopped"
    assert [frame.writer for frame in second.turn()[0]] == [-1]
    assert carried(first.turn()[1]) == [0, 1, 2], "it goes on"
    assert [frame.writer for frame in second.turn()[0]] == [0]


def test_a_writer_that_ends_is_followed_by_the_next(ranks: list[Rank]) -> None:
    settle(ranks)
    first, second, third = ranks
    first.share.close()
    second.turn()
    third.turn()
    second.shelf.has_turn = True
    assert [frame.writer for frame in second.turn()[0]] == [-1]
    assert [frame.writer for frame in third.turn()[0]] == [-1]
    whole, hosts = second.turn()
    assert [frame.writer for frame in whole] == [1]
    assert carried(hosts) == [1, 2]
    assert [frame.writer for frame in third.turn()[0]] == [1]


def test_a_writer_that_nobody_comes_to_puts_whole_frames_of_its_own(ranks: list[Rank]) -> None:
    settle(ranks)
    first = ranks[0]
    first.turn()
    for _ in range(2):
        whole, hosts = first.turn()
        assert ([frame.writer for frame in whole], hosts) == ([-1], [])


def test_a_writer_without_a_store_sends_no_receipts(ranks: list[Rank]) -> None:
    settle(ranks)
    first, second, third = ranks
    second.turn()
    third.turn()
    first.shelf.gone = True
    with pytest.raises(StoreUnavailable):
        first.turn()
    first.share.forget()
    assert [frame.writer for frame in second.turn()[0]] == [-1]
    first.shelf.gone = False
    whole, hosts = first.turn()
    assert len(whole) == 1, "the store may have come back empty"
    assert carried(hosts) == [0, 1]


def test_the_others_have_their_turns_a_little_before_the_writer(ranks: list[Rank]) -> None:
    settle(ranks)
    first, second, _ = ranks
    assert first.share.wait_s(0.7) == 0.7
    assert 0.5 <= second.share.wait_s(1.0) <= 1.5
    assert Rank(2).share.wait_s(0.9) == 0.9, "who has no receipt keeps its own time"
