"""`ddpmon diagnose --flight-recorder`: real dumps over Gloo, dumps as NCCL's are described, and files that are none.

The dumps of NCCL are made up after torch's own description of the format (torch.distributed.flight_recorder); there is
no GPU here that could make one.
"""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from ddpmon.commands.flight_recorder import diagnose_flight_recorder
from ddpmon.flight import dumps, unpickle
from ddpmon.flight.dumps import NoDumpsError, read_folder
from ddpmon.flight.verdict import judge_dumps
from ddpmon.snapshot import Finding

USER = {"name": "train", "filename": "/home/me/train.py", "line": 41}


def entry(number: int, state: str = "completed", operation: str = "nccl:all_reduce", **other: Any) -> dict[str, Any]:
    usual = {"pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": number, "state": state}
    usual |= {"profiling_name": operation, "input_sizes": [[4, 2]], "retired": False, "is_p2p": False}
    return usual | {"frames": [{"name": "f", "filename": "/usr/lib/python3/x.py", "line": 1}, USER]} | other


def write(folder: Path, ranks: dict[int, list[dict[str, Any]]], world: int | None = None) -> None:
    """Dumps as NCCL's recorder writes them."""
    members = json.dumps([*range(world or len(ranks))])
    for rank, entries in ranks.items():
        dump = {
            "version": "2.10",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": members}},
            "pg_status": {
                "0": {"last_enqueued_collective": max((e["collective_seq_id"] for e in entries), default=-1)}
            },
            "entries": entries,
        }
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, 2))


def found(folder: Path) -> list[Finding]:
    return judge_dumps(read_folder(folder))


@pytest.mark.live
def test_real_ranks_over_gloo_name_the_one_that_did_not_join(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from tests.ranks import Group, running

    for name in ("missing", "unlike"):
        (tmp_path / name).mkdir()
    log = tmp_path / "log"
    variables = {"TORCH_FR_BUFFER_SIZE": "2000"}
    with running(Group(3, "tests.flight.dumping_ranks", [str(tmp_path)], [log], environment=variables)) as group:
        assert group.wait(240) == 0, log.read_text()
    (missing,) = found(tmp_path / "missing")
    assert (missing.severity, missing.ranks) == ("critical", (2,))
    assert missing.summary.startswith("rank 2 did not join all_reduce [7], number 2 of group ")
    assert "ranks 0, 1 wait in it" in missing.summary
    assert "dumping_ranks.py" in missing.summary
    unlike = next(finding for finding in found(tmp_path / "unlike") if "called" in finding.summary)
    assert unlike.ranks == (2,)
    assert "rank 2 called broadcast [5]" in unlike.summary
    assert "ranks 0, 1 called all_reduce [5]" in unlike.summary
    assert diagnose_flight_recorder(str(tmp_path / "missing"), False, "critical") == 1
    assert "rank 2 did not join" in capsys.readouterr().out
    assert diagnose_flight_recorder(str(tmp_path / "missing"), True, None) == 0
    assert json.loads(capsys.readouterr().out)["findings"][0]["evidence"]["waiting"] == "ranks 0, 1"


def test_a_rank_that_waits_in_another_group_is_not_the_root(tmp_path: Path) -> None:
    other: dict[str, Any] = {"pg_id": 1, "process_group": ("1", "tp")}
    write(
        tmp_path,
        {
            0: [entry(1), entry(2, "started")],
            1: [entry(1), entry(1, "started", **other)],
            2: [entry(1), entry(2, "started"), entry(1, **other)],
            3: [entry(1), entry(2, "started")],
        },
    )
    for rank in (1, 2):
        file = tmp_path / f"nccl_trace_rank_{rank}"
        dump = pickle.loads(file.read_bytes())
        dump["pg_config"]["1"] = {"name": "1", "desc": "tp", "ranks": "[1, 2]"}
        file.write_bytes(pickle.dumps(dump, 2))
    root = next(finding for finding in found(tmp_path) if finding.evidence["group"] == "0 (default_pg)")
    assert root.ranks == (1,)
    assert root.severity == "warning"
    assert "waits in another group" in root.summary


def test_a_rank_without_a_dump_is_named_where_the_others_wait_for_it(tmp_path: Path) -> None:
    write(tmp_path, {rank: [entry(8), entry(9, "started")] for rank in (0, 1, 3)}, world=4)
    (finding,) = found(tmp_path)
    assert finding.ranks == (2,)
    assert finding.summary.startswith("rank 2 left no dump, and all_reduce [4, 2], number 9 of group 0 (default_pg)")


def test_where_all_have_come_no_rank_is_accused_but_an_idle_device_is(tmp_path: Path) -> None:
    write(tmp_path, {rank: [entry(9, "started")] for rank in range(3)})
    (finding,) = found(tmp_path)
    assert finding.ranks == ()
    assert "no rank is missing" in finding.summary
    write(tmp_path, {0: [entry(9, "started")], 1: [entry(9, "scheduled")], 2: [entry(9, "started")]})
    (finding,) = found(tmp_path)
    assert finding.ranks == (1,)
    assert "its device has not begun it" in finding.summary


def test_what_has_completed_and_point_to_point_calls_are_no_trouble(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, {0: [entry(3), entry(4, "scheduled", is_p2p=True)], 1: [entry(3, "started", retired=True)]})
    assert found(tmp_path) == []
    assert diagnose_flight_recorder(str(tmp_path), False, "info") == 0
    assert "no collective is pending" in capsys.readouterr().out


class Payload:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.system, (f"touch '{self.file}'",)


def deep(depth: int) -> bytes:
    return b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b"."


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (lambda folder: pickle.dumps({"entries": [Payload(folder / "done")]}), "names posix.system"),
        (lambda folder: pickle.dumps(Payload(folder / "done"), 0), "names posix.system"),
        (lambda _: pickle.dumps({"entries": "x"}), "holds no entries"),
        (lambda _: pickle.dumps(["x"]), "holds no entries"),
        (lambda _: pickle.dumps({"entries": []})[:-4], "cannot be read"),
        (lambda _: b"", "cannot be read"),
        (lambda _: b"hello", "cannot be read"),
        (lambda _: b'{"entries": 1}', "holds no entries"),
        (lambda _: deep(2_000_000), "cannot be read"),
        (lambda _: b"\x80\x02\x8e" + (1 << 40).to_bytes(8, "little") + b".", "cannot be read"),
        (lambda _: b"\x80\x02X\x01\x00\x00\x00ar" + (1 << 31).to_bytes(4, "little") + b".", "cannot be read"),
    ],
)
def test_a_hostile_file_is_refused_in_words_and_runs_nothing(tmp_path: Path, data: Any, said: str) -> None:
    (tmp_path / "rank_0").write_bytes(data(tmp_path))
    with pytest.raises(NoDumpsError, match=said):
        read_folder(tmp_path)
    assert not (tmp_path / "done").exists()


def test_nonsense_inside_a_dump_is_passed_over_and_bad_files_are_noted(tmp_path: Path) -> None:
    write(tmp_path, {0: [entry(9, "started")], 1: [entry(8)]})
    nonsense: Any = {
        "version": 7,
        "pg_config": {"0": 4, 5: {"ranks": "[[["}, "x": {"ranks": "__import__('os')"}},
        "pg_status": {"0": {"last_enqueued_collective": "x"}, 1: None},
        "entries": [1, None, {}, entry(1 << 90, "\x1b"), entry(1, "completed", frames=[3, {}], input_sizes=[1, [-1]])],
    }
    (tmp_path / "nccl_trace_rank_2").write_bytes(pickle.dumps(nonsense))
    (tmp_path / "nccl_trace_rank_3").write_bytes(b"nothing")
    (tmp_path / "README").write_text("not a dump")
    dumps = read_folder(tmp_path)
    assert sorted(dumps.of) == [0, 1, 2]
    assert any("nccl_trace_rank_3 cannot be read" in note for note in dumps.notes)
    assert judge_dumps(dumps)[0].ranks == (1, 2)


def test_the_newest_of_several_sets_is_read_and_json_too(tmp_path: Path) -> None:
    write(tmp_path, {0: [entry(1)], 1: [entry(1)]})
    for rank in range(2):
        os.utime(tmp_path / f"nccl_trace_rank_{rank}", (1000, 1000))
        again = {"version": "2.10", "entries": [entry(5 - rank, "scheduled" if rank == 0 else "completed")]}
        (tmp_path / f"second_{rank}.json").write_text(json.dumps(again))
    dumps = read_folder(tmp_path)
    assert any("only the newest files are read, second_*" in note for note in dumps.notes)
    assert judge_dumps(dumps)[0].ranks == (1,)


@pytest.mark.parametrize(("name", "said"), [("nowhere", "cannot be read"), ("", "no file whose name ends in a rank")])
def test_a_folder_without_dumps_is_said(tmp_path: Path, name: str, said: str, capsys: Any) -> None:
    assert diagnose_flight_recorder(str(tmp_path / name), False, None) == 2
    assert said in capsys.readouterr().err


def test_a_large_dump_is_cut_to_its_newest_entries() -> None:
    entries = [entry(number) for number in range(1, unpickle.MOST_ENTRIES + 100)]
    read = unpickle.read(pickle.dumps({"entries": entries}))
    assert len(read["entries"]) == unpickle.MOST_ENTRIES
    assert read["entries"][-1]["number"] == len(entries)


def test_a_reader_that_says_too_much_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {0: [entry(1)]})
    program = tmp_path / "endless.py"
    program.write_text("import sys\nwhile True:\n    sys.stdout.write('x' * 65536)\n")
    monkeypatch.setattr(dumps, "_PROGRAM", program)
    monkeypatch.setattr(dumps, "MOST_ANSWER", 1 << 20)
    monkeypatch.setattr(dumps, "LIMIT_S", 60.0)
    with pytest.raises(dumps.NoDumpsError, match="its reader's answer is larger than 1 MiB"):
        dumps.read_folder(tmp_path)
    program.write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr(dumps, "LIMIT_S", 0.2)
    with pytest.raises(dumps.NoDumpsError, match="it took longer than 0 s"):
        dumps.read_folder(tmp_path)
