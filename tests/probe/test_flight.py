"""The flight recorder's dump, as NCCL writes it and as nobody should."""

from __future__ import annotations

import json
import pickle
import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
import torch

import ddpmon
from ddpmon.parts import Flight
from ddpmon.probe.stacks import FlightRecorder, is_own, summarise


def entry(sequence: int, state: str, **other: Any) -> dict[str, Any]:
    usual = {"pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": sequence, "state": state}
    return usual | {"profiling_name": "nccl:all_reduce", "input_sizes": [[4, 2]], "retired": False} | other


def test_nccls_completed_collectives_need_not_be_retired() -> None:
    dump = {"entries": [entry(7, "completed", retired=True), entry(8, "completed"), entry(9, "started")]}
    assert summarise(dump) == [Flight("0 (default_pg)", 9, 8, "nccl:all_reduce [4, 2]")]


def test_point_to_point_calls_do_not_count() -> None:
    status = {"0": {"last_enqueued_collective": 3, "last_completed_collective": 3}}
    dump = {"entries": [entry(3, "completed"), entry(4, "scheduled", is_p2p=True)], "pg_status": status}
    assert summarise(dump) == [Flight("0 (default_pg)", 3, 3, "nccl:all_reduce [4, 2]")]


def test_groups_are_told_apart_in_order() -> None:
    entries = [entry(2, "started"), entry(5, "completed", pg_id=1, process_group=("1", "undefined"))]
    status = {n: {"last_enqueued_collective": 5, "last_completed_collective": 5} for n in ("10", "1")}
    found = summarise({"entries": entries, "pg_status": status})
    assert [(flight.group, flight.last_enqueued, flight.last_completed) for flight in found] == [
        ("0 (default_pg)", 2, 1),
        ("1", 5, 5),
        ("10", 5, 5),
    ]


@pytest.mark.parametrize("dump", [None, 7, [], {}, {"entries": 7, "pg_status": []}, {"entries": [7, {}, None]}])
def test_what_is_no_dump_is_no_flight(dump: object) -> None:
    assert summarise(dump) == []


@pytest.mark.parametrize("bad", [None, "x", -1, 1 << 60, [], {}, 1.5])
@pytest.mark.parametrize("key", [*entry(1, "started"), "is_p2p"])
def test_no_value_in_a_dump_is_trusted(key: str, bad: Any) -> None:
    summarise({"entries": [entry(1, "started") | {key: bad}], "pg_status": {"0": bad, "x": {key: bad}}})


class EventLog:
    """Torch's recorder, as one process group fills it; notes whether its entries were asked for."""

    def __init__(self) -> None:
        self.entered, self.status_is_told = 8, True
        self.asked: list[bool] = []

    def dump(self, *, includeCollectives: bool, includeStackTraces: bool) -> bytes:  # noqa: N803 (torch's names)
        assert not includeStackTraces
        self.asked.append(includeCollectives)
        status = {"0": {"last_enqueued_collective": self.entered, "last_completed_collective": self.entered - 1}}
        told = {"pg_status": status} if self.status_is_told else {}
        return pickle.dumps(told | ({"entries": [entry(self.entered, "started")]} if includeCollectives else {}))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> EventLog:
    recorder = EventLog()
    stand_in = SimpleNamespace(_dump_fr_trace=recorder.dump)
    monkeypatch.setattr(torch._C, "_distributed_c10d", stand_in)
    return recorder


def test_the_entries_are_read_once_a_stall(recorder: EventLog) -> None:
    flights = FlightRecorder()
    found = [flights.look() for _ in range(4)]
    assert found == [[Flight("0 (default_pg)", 8, 7, "nccl:all_reduce [4, 2]")]] * 4
    assert recorder.asked == [False, True, False, False, False]
    flights.clear()
    assert flights.look() == found[0]
    assert recorder.asked[-2:] == [False, True], "another stall"


def test_entries_are_read_again_once_collectives_that_went_on_have_come_to_rest(recorder: EventLog) -> None:
    flights = FlightRecorder()
    flights.look()
    recorder.asked.clear()
    for _ in range(3):
        recorder.entered += 1
        assert flights.look() == []
    assert recorder.asked == [False] * 3
    (flight,) = flights.look()
    assert (flight.last_enqueued, recorder.asked[-1]) == (11, True)


def test_a_recorder_without_counters_is_read_as_ever(recorder: EventLog) -> None:
    flights, recorder.status_is_told = FlightRecorder(), False
    for entered in (8, 9):
        recorder.entered = entered
        assert flights.look()[0].last_enqueued == entered


def test_the_users_files_are_own_and_nobody_elses() -> None:
    stdlib = sysconfig.get_paths()["stdlib"]
    assert all(map(is_own, [__file__, "/home/me/train.py", "<string>", "<ipython-input-1-2>"]))
    assert is_own(f"{Path(ddpmon.__file__).parent}/trainer/data.py")
    others = [json.__file__, torch.__file__, f"{stdlib}/threading.py", "/x/site-packages/y.py", "<frozen runpy>"]
    assert not any(map(is_own, [*others, ddpmon.__file__, "/usr/lib/python3/dist-packages/z.py"]))
