"""Frames come back as they were sent; whatever else is in the store is refused, with the key and the reason."""

from __future__ import annotations

import random
import struct
from typing import Any

import msgspec
import pytest

from ddpmon.codec import decode, encode
from ddpmon.figures import FIGURES
from ddpmon.machine import GpuFigures, GpuProcess, HostFigures, HostProcess, Process, ProcessFigures
from ddpmon.parts import Stack, StackFrame, Stall
from ddpmon.schema import (
    HOST_COLUMNS,
    MAX_FRAME_BYTES,
    MAX_ROWS,
    OLDEST_READ,
    SCHEMA_VERSION,
    STEP_COLUMNS,
    BucketColumns,
    Frame,
    FrameError,
    HistoryFrame,
    HostFrame,
    Mark,
    NodeFrame,
    RankFrame,
    RunInfo,
    SchemaMismatchError,
    StepColumns,
    StepRows,
)


def steps(count: int = 3, **columns: bytes) -> StepColumns:
    codes = {name: "e" if name in HOST_COLUMNS else "f" for name in STEP_COLUMNS}
    values = {name: struct.pack(f"<{count}{code}", *range(count)) for name, code in codes.items()}
    return StepColumns(struct.pack(f"<{count}q", *range(count)), {**values, **columns}, stride=2)


STRANGER = Process(8123, [1], "bob", "python train.py", 2.0)
GPU = GpuFigures(
    0, "GPU-1", "H200", 87.5, 1 << 36, 1 << 37, 61.0, 640.0, 700.0, 1980.0, processes=[GpuProcess(STRANGER, 1 << 30)]
)
RUN = RunInfo(
    run_id="r",
    name="näme ✓",
    world_size=2,
    node_keys=[0],
    backend="gloo",
    device="cpu",
    parameters=10,
    gradient_bytes=40,
    bucket_detail=True,
    started_at=1.5,
    host="h",
    pid=7,
    versions={"torch": "2.13"},
)
RANK = RankFrame(
    run_id="r",
    rank=1,
    seq=9,
    sent_at=2.5,
    host="h",
    node=-1,
    pid=8,
    local_rank=1,
    gpu_uuid="GPU-1",
    state="running",
    phase="forward",
    step=2,
    phase_s=0.25,
    steps=steps(),
    buckets=BucketColumns(struct.pack("<2q", 0, 1), [16, 24], struct.pack("<4f", 1, 2, 3, 4)),
    marks=[Mark(1, "eval", 3.0)],
    process=ProcessFigures(99.0, 1 << 30, 12),
    cost_us=11.0,
    notes=["no bucket detail"],
)
HISTORY = HistoryFrame(run_id="r", rank=1, recent=steps(), older=steps(1))
HOST = HostFigures(50.0, 8, 1.5, processes=[HostProcess(STRANGER, 190.0, "0-3")], unread={"pressure": "no PSI"})
PLACES = struct.pack("<3H", 0, 1, 1)
ROWS = [
    StepRows(3, PLACES, struct.pack("<3q", 4, 4, 5), struct.pack("<6f", *range(6))),
    StepRows(1 << len(STEP_COLUMNS) - 1, PLACES[:2], struct.pack("<q", 4), b"", struct.pack("<e", 2)),
]
FIGURE_BYTES = struct.pack(f"<{2 * len(FIGURES)}d", *range(2 * len(FIGURES)))
RANKS = struct.pack("<2i", 3, 1)
TOLD = HostFrame(
    run_id="r", rank=1, seq=2, sent_at=1.5, ranks=RANKS, figures=FIGURE_BYTES, phases=["forward"], steps=ROWS
)
NODE = NodeFrame(run_id="r", node=0, seq=1, sent_at=1.0, host="h", figures=HOST, gpus=[GPU], notes=["n"])
FRAMES: list[Any] = [RUN, RANK, HISTORY, TOLD, NODE]
KINDS: list[Any] = [RunInfo, RankFrame, HistoryFrame, HostFrame, NodeFrame]
every_frame = pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)


def refused(data: bytes, kind: Any = RankFrame) -> str:
    with pytest.raises(FrameError) as caught:
        decode("ddpmon/r/rank/1", data, kind)
    assert str(caught.value).startswith("ddpmon/r/rank/1: ")
    return str(caught.value)


def changed(frame: Frame, **fields: Any) -> bytes:
    """The frame as a sender without our checks would write it."""
    told = {**{name: getattr(frame, name) for name in frame.__struct_fields__}, **fields}
    plain = msgspec.to_builtins([*told.values()] if isinstance(frame, HostFrame) else told, builtin_types=(bytes,))
    return msgspec.msgpack.encode(plain)


@every_frame
def test_a_frame_comes_back_as_it_was_sent(frame: Any) -> None:
    assert decode("k", encode(frame), type(frame)) == frame


@every_frame
def test_another_schema_version_is_named_with_the_key(frame: Any) -> None:
    newer = rf"^ddpmon/r/x: schema version {SCHEMA_VERSION + 1}, newer than the {SCHEMA_VERSION} that"
    with pytest.raises(SchemaMismatchError, match=newer):
        decode("ddpmon/r/x", changed(frame, schema_version=SCHEMA_VERSION + 1), type(frame))


def test_a_frame_of_the_future_is_a_mismatch_even_if_nothing_else_is_understood() -> None:
    with pytest.raises(SchemaMismatchError):
        decode("k", msgspec.msgpack.encode({"schema_version": SCHEMA_VERSION + 1, "steps": "elsewhere"}), RankFrame)


@every_frame
def test_every_truncation_is_refused(frame: Any) -> None:
    data = encode(frame)
    for length in range(len(data)):
        refused(data[:length], type(frame))


@every_frame
def test_frames_with_damaged_bytes_are_read_or_refused_and_nothing_else(frame: Any) -> None:
    dice, data = random.Random(1), encode(frame)
    outcomes = set()
    for _ in range(2000):
        damaged = bytearray(data)
        for _ in range(dice.randint(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        try:
            outcomes.add(type(decode("k", bytes(damaged), type(frame))))
        except FrameError as error:
            outcomes.add(FrameError if str(error).startswith("k: ") else Exception)
    assert outcomes == {type(frame), FrameError}


@pytest.mark.parametrize("kind", KINDS)
def test_random_bytes_are_refused(kind: Any) -> None:
    dice = random.Random(2)
    for _ in range(2000):
        refused(dice.randbytes(dice.randrange(80)), kind)


@pytest.mark.parametrize(
    "data",
    [
        b"\x91" * 500_000,  # a list in a list in a list ...
        b"\x81\xa1a" * 100_000,  # a map in a map ...
        b"\x81\xaeschema_version" + b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",  # a list of 2^32 - 1 entries
        b"\xdf\xff\xff\xff\xff\xa1a",
        b"\xc6\xff\xff\xff\xffabc",  # 4 GiB of bytes
        b"\xdb\xff\xff\xff\xff\xff",  # text that is not UTF-8
        b"\x81\xae" + b"\xff" * 14 + b"\x01",
        b"",
        b"\xc1",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["lists", "maps", "deep_version", "long_list", "long_map", "long_bytes", "text", "key", "empty", "c1", "http"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_bytes_are_refused(data: bytes, kind: Any) -> None:
    refused(data, kind)


def test_nesting_inside_an_unknown_field_is_refused() -> None:
    body = encode(NODE)
    assert body[0] == 0xDE or 0x80 <= body[0] <= 0x8F
    count = body[0] & 0x0F if body[0] != 0xDE else int.from_bytes(body[1:3], "big")
    rest = body[1:] if body[0] != 0xDE else body[3:]
    refused(b"\xde" + (count + 1).to_bytes(2, "big") + rest + b"\xa4deep" + b"\x91" * 200_000, NodeFrame)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"steps": {"step": b"1234567"}}, "7 bytes of step numbers"),
        ({"steps": {"step": b"\0" * 8, "values": {"loss": b"\0" * 8}}}, "column loss has 8 bytes for 1 steps"),
        ({"steps": {"step": b"\0" * 8, "values": {"lost": b"\0" * 4}}}, "unknown step column 'lost'"),
        ({"steps": {"step": b"\0" * 8 * (MAX_ROWS + 1)}}, "bytes of step numbers"),
        ({"steps": {"stride": 0}}, "stride"),
        ({"steps": {"colour": 1}}, "colour"),
        ({"buckets": {"step": b"\0" * 8, "sizes": [4, 4], "ms": b"\0" * 4}}, "bucket columns of 8 and 4 bytes"),
        ({"buckets": {"step": b"\0" * 9, "sizes": [], "ms": b""}}, "bucket columns of 9 and 0 bytes"),
        ({"rank": -1}, "rank"),
        ({"rank": 1 << 17}, "rank"),
        ({"state": "tired"}, "state"),
        ({"host": "x" * 257}, "host"),
        ({"notes": ["x"] * 17}, "notes"),
        ({"marks": [[1, "eval", 1.0]] * 65}, "marks"),
        ({"seq": "9"}, "seq"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], reason: str) -> None:
    assert reason in refused(changed(RANK, **fields))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"ranks": b""}, "0 bytes of ranks"),
        ({"ranks": RANKS[:-1]}, "7 bytes of ranks"),
        ({"ranks": RANKS * 1024}, "bytes of ranks"),
        ({"figures": FIGURE_BYTES[:-8]}, "of figures"),
        ({"phases": ["x" * 257]}, "phases"),
        ({"steps": [[3, PLACES, b"\0" * 24, b"\0" * 20, b""]]}, "20 and 0 bytes for 3 steps"),
        ({"steps": [[3, PLACES, b"\0" * 23, b"\0" * 24, b""]]}, "bytes for 2 steps"),
        ({"steps": [[3, PLACES[:4], b"\0" * 24, b"\0" * 24, b""]]}, "bytes for 3 steps"),
        ({"steps": [[3, PLACES, b"\0" * 24, b"\0" * 24, b"\0"]]}, "24 and 1 bytes for 3 steps"),
        ({"steps": [[1 << len(STEP_COLUMNS), b"", b"", b"", b""]]}, "steps"),
        ({"steps": [[-1, b"", b"", b"", b""]]}, "steps"),
        ({"steps": [[0, b"", b"", b"", b""]] * 65}, "steps"),
        ({"steps": [[0, b"\0\0" * 2049, b"\0" * 8 * 2049, b"", b""]]}, "2049 steps of 2 ranks, more than 1024 of each"),
        ({"seq": -1}, "seq"),
        ({"rank": 1 << 17}, "rank"),
    ],
)
def test_a_wrong_field_of_a_host_frame_is_named(fields: dict[str, Any], reason: str) -> None:
    said = refused(changed(TOLD, **fields), HostFrame)
    places = {name: f"$[{place}]" for place, name in enumerate(HostFrame.__struct_fields__)}
    assert reason in said or places[reason] in said


def test_a_rank_that_knows_no_host_frames_is_read() -> None:
    older = changed(RANK, schema_version=OLDEST_READ)
    del (fields := msgspec.msgpack.decode(older))["writer"]
    assert decode("k", msgspec.msgpack.encode(fields), RankFrame) == msgspec.structs.replace(
        RANK, schema_version=OLDEST_READ
    )


STALL = {"seconds": 12.0, "stacks": [], "flights": [], "moves": True, "write_bytes_s": 0.0}


def test_a_stall_without_and_with_what_later_releases_say_of_it_is_read() -> None:
    """A rank with an older ddpmon knows nothing of its device; one with a newer may say more."""
    older = decode("k", changed(RANK, stall=STALL), RankFrame)
    assert older.stall == Stall(12.0, moves=True)
    newer = decode("k", changed(RANK, stall=STALL | {"device_phase": "levitating", "device_mood": 7}), RankFrame)
    assert newer.stall == Stall(12.0, moves=True, device_phase="levitating")


@pytest.mark.parametrize(
    ("frame", "fields"),
    [
        (RUN, {"bucket_cap_bytes": 25 << 20}),
        (RANK, {"sources": {"clock": "perf_counter", "gc": "gc.callbacks"}}),
        (NODE, {"by_rank": 1}),
    ],
    ids=["run", "rank", "node"],
)
def test_what_earlier_builds_said_as_well_is_ignored(frame: Any, fields: dict[str, Any]) -> None:
    assert decode("k", changed(frame, **fields), type(frame)) == frame


@pytest.mark.parametrize(
    "wrong", [{"device_phase": 7}, {"device_phase": "x" * 300}, {"device_error": None}, {"graph_replay_s": 1e300}]
)
def test_a_wrong_word_of_the_device_is_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    assert f"stall.{name}" in refused(changed(RANK, stall=STALL | wrong))


def test_of_stacks_that_would_fill_a_watchers_memory_the_first_are_kept() -> None:
    def kept(lines: int, width: int) -> int:
        line = "\N{SNAKE}" + "x" * (width - 1)  # one such letter makes four bytes of each other one
        frames = [StackFrame(file=line, line=1, function="f", source=line)] * lines
        sent = msgspec.structs.replace(RANK, stall=Stall(9.0, [Stack(f"thread {n}", frames) for n in range(8)]))
        stall = decode("key", encode(sent), RankFrame).stall
        assert stall is not None
        assert [stack.thread for stack in stall.stacks] == [f"thread {n}" for n in range(len(stall.stacks))]
        return len(stall.stacks)

    assert kept(lines=4, width=60) == 8
    assert 0 < kept(lines=20, width=60) < 8
    assert kept(lines=64, width=900) == 0


@pytest.mark.parametrize("part", ["recent", "older"])
def test_both_parts_of_a_history_are_checked(part: str) -> None:
    wrong = {"step": b"\0" * 8, "values": {"duration": b""}}
    assert "column duration has 0 bytes for 1 steps" in refused(changed(HISTORY, **{part: wrong}), HistoryFrame)


def test_a_frame_beyond_the_bound_is_refused_unread() -> None:
    assert "more than the 1048576 allowed" in refused(encode(RANK) + b"\0" * MAX_FRAME_BYTES)


@every_frame
def test_a_frame_is_not_taken_for_one_of_another_kind(frame: Any) -> None:
    for kind in KINDS:
        if kind is not type(frame):
            assert f"not a {kind.__name__}" in refused(encode(frame), kind)
