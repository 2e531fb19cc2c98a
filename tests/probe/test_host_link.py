"""Handing over: packets, receipts, and sockets that are full, squatted, gone or foreign. Nobody ever waits."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from msgspec.structs import replace

from ddpmon.figures import FIGURES
from ddpmon.host_frames import RankRow
from ddpmon.probe.host_link import HostDesk, HostLink
from ddpmon.store.private import Folder, stem

HOST = "run/0/host"
NEXT = 1234.5


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    return tmp_path / "ddpmon"


def row(rank: int, seq: int, pid: int = 7, run: str = "run") -> RankRow:
    figures = struct.pack(f"<{len(FIGURES)}d", *[0.0] * len(FIGURES))
    return RankRow(run, rank, pid, seq, figures, "forward", 1, b"\0" * 16, b"\0" * 8, b"")


def test_rows_arrive_and_receipts_come_back() -> None:
    links = [HostLink() for _ in range(3)]
    with HostDesk(HOST) as desk:
        for rank, link in enumerate(links):
            link.hand(HOST, row(rank, 1))
            link.hand(HOST, row(rank, 2))
        rows = desk.collect("run")
        assert rows == [row(rank, 2) for rank in range(3)], "the newest counts"
        assert links[0].receipt() is None
        desk.acknowledge(rows[:2], 5, NEXT)
        first, second, third = (link.receipt() for link in links)
        assert first is not None
        assert second is not None
        assert (first.writer, first.seq, first.next_at) == (5, 2, NEXT) == (second.writer, second.seq, second.next_at)
        assert third is None, "its row was left out"
        assert desk.collect("run") == []


def test_of_two_processes_that_claim_one_rank_neither_is_written_for() -> None:
    one, other, again = HostLink(), HostLink(), HostLink()
    with HostDesk(HOST) as desk:
        one.hand(HOST, row(1, 1))
        other.hand(HOST, row(1, 9, pid=8))
        again.hand(HOST, row(2, 4))
        assert desk.collect("run") == [row(2, 4)]
        other.close()
        one.hand(HOST, row(1, 2))
        again.close()
        again.hand(HOST, row(2, 5))
        assert desk.collect("run") == [row(1, 2), row(2, 5)], "a rank may come by another connection"


def test_what_is_no_row_of_the_run_is_not_written() -> None:
    with HostDesk(HOST) as desk, Folder(Path(desk._path)) as private:
        other = private.reach(f"{stem(HOST)}.sock")
        wrong = HostLink()
        for packet in (b"", b"\xc1", b"nonsense", b"\x00" * 4096):
            other.send(packet)
        wrong.hand(HOST, row(1, 1, run="another"))
        assert desk.collect("run") == []
        wrong.hand(HOST, replace(row(1, 2), figures=b"short"))
        assert desk.collect("run") == []
        wrong.hand(HOST, replace(row(1, 3), values=b"\0" * 12))
        assert desk.collect("run") == []
        wrong.hand(HOST, replace(row(1, 4), figures=row(1, 4).figures[:-8] + struct.pack("<d", 2.0)))
        assert desk.collect("run") == [], "1 says that a pass has ended, 2 says nothing"
        other.close()


def test_a_desk_that_nobody_reads_is_full_and_holds_nobody_up() -> None:
    link, large = HostLink(), replace(row(1, 1), step=b"\0" * 8 * 1000, values=b"\0" * 4 * 1000)
    with HostDesk(HOST) as desk:
        for seq in range(1000):  # far more than the kernel keeps
            link.hand(HOST, replace(large, seq=seq))
        assert link.receipt() is None
        assert len(desk.collect("run")) <= 1
        link.close()


def test_without_a_desk_handing_over_does_nothing() -> None:
    link = HostLink()
    link.hand(HOST, row(1, 1))
    assert link.receipt() is None
    with HostDesk(HOST) as desk:
        link.hand(HOST, row(1, 2))
        assert desk.collect("run") == [row(1, 2)]
    link.hand(HOST, row(1, 3))
    link.hand(HOST, row(1, 4))
    assert link.receipt() is None
    with HostDesk(HOST) as desk:
        link.hand(HOST, row(1, 5))
        assert desk.collect("run") == [row(1, 5)], "the next writer is found"


def test_a_writer_that_is_not_there_is_looked_for_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    turn = 0
    monkeypatch.setattr("ddpmon.probe.host_link.usable_folder", lambda: looked.append(turn))
    link = HostLink()
    for turn in range(100):
        link.hand(HOST, row(1, turn))
    assert looked == [0, 1, 3, 7, 15, 31, 61, 91]


def test_a_socket_that_a_killed_writer_left_is_replaced(folder: Path) -> None:
    with Folder(folder, make=True) as private:  # a long name of the test's folder is too long for a socket's address
        private.listen(f"{stem(HOST)}.sock").close()
    link = HostLink()
    link.hand(HOST, row(1, 1))
    with HostDesk(HOST) as desk:
        link.hand(HOST, row(1, 2))
        assert desk.collect("run") == [row(1, 2)]
    assert [*folder.iterdir()] == []


def test_a_path_that_is_squatted_means_no_writer_and_no_trouble(folder: Path) -> None:
    (folder / f"{stem(HOST)}.sock").mkdir(parents=True)
    folder.chmod(0o700)
    with pytest.raises(OSError, match="in use"):
        HostDesk(HOST)
    link = HostLink()
    link.hand(HOST, row(1, 1))
    assert link.receipt() is None


def test_a_folder_that_is_open_to_others_is_not_used(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(OSError, match="no private folder"):
        HostDesk(HOST)
    HostLink().hand(HOST, row(1, 1))
