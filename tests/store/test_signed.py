"""Signed frames: what is forged, replayed, moved or not signed is dropped and counted, whatever the bytes are."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence

import pytest

from ddpmon.codec import decode, encode
from ddpmon.schema import RunInfo
from ddpmon.store.base import RUNS_KEY, rank_key, run_key
from ddpmon.store.signed import (
    FORGED,
    MARK,
    REPLAYED,
    UNSIGNED,
    CheckedStore,
    Checks,
    SignedStore,
    Signer,
    signed,
    signer_of_environment,
    token_of_environment,
)
from tests.made_frames import run_info

TOKEN, KEY, OTHER = "a long and random token", rank_key("run", 3), rank_key("run", 4)
FRAME = encode(run_info(4))


class Shelf:
    """A store in this process."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def put(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return [self.values.get(key) or None for key in keys]

    def close(self) -> None:
        self.values.clear()


def test_what_is_signed_is_read_by_who_has_the_token() -> None:
    signer, checks = Signer(TOKEN), Checks(TOKEN)
    for value in (FRAME, b"", b"\0" * 5000):
        assert checks.open(KEY, signer.seal(KEY, value)) == value
    assert checks.notices() == []


def test_a_wrong_token_another_key_and_changed_bytes_are_forged() -> None:
    sealed = Signer(TOKEN).seal(KEY, FRAME)
    assert Checks("another token").open(KEY, sealed) is None
    checks = Checks(TOKEN)
    assert checks.open(OTHER, sealed) is None, "another rank's bytes moved here"
    assert checks.open(rank_key("other-run", 3), sealed) is None
    for at in range(len(MARK), len(sealed), 7):
        changed = bytearray(sealed)
        changed[at] ^= 1
        assert checks.open(KEY, bytes(changed)) is None
    assert set(checks.refused) == {FORGED}
    assert checks.open(KEY, sealed) == FRAME


def test_an_older_frame_is_a_replay_and_a_restart_is_not() -> None:
    checks, first = Checks(TOKEN), Signer(TOKEN, start=1_000)
    old, new = first.seal(KEY, b"old"), first.seal(KEY, b"new")
    assert checks.open(KEY, new) == b"new"
    assert checks.open(KEY, new) == b"new", "the same frame read again is no replay"
    assert checks.open(KEY, old) is None
    again = Signer(TOKEN, start=2_000)
    assert checks.open(KEY, again.seal(KEY, b"restarted")) == b"restarted"
    assert checks.open(KEY, new) is None
    assert checks.open(OTHER, first.seal(OTHER, b"x")) == b"x", "every key has its own order"
    assert checks.refused == {REPLAYED: 2}


def test_a_later_process_is_newer_without_being_told() -> None:
    checks = Checks(TOKEN)
    first, second = Signer(TOKEN), Signer(TOKEN)
    late = [first.seal(KEY, b"1") for _ in range(9)]
    assert checks.open(KEY, second.seal(KEY, b"2")) == b"2"
    assert checks.open(KEY, late[-1]) is None


def test_what_is_not_signed_is_dropped_and_counted_once() -> None:
    checks = Checks(TOKEN)
    for _ in range(5):
        assert checks.open(KEY, FRAME) is None
    assert checks.open(KEY, FRAME + b"2") is None
    assert checks.refused == {UNSIGNED: 2}
    assert checks.notices() == [f"2 frames dropped: {UNSIGNED}"]


def test_what_is_refused_under_ever_new_names_is_counted_in_little_memory() -> None:
    checks, many = Checks(TOKEN), 150_000
    tracemalloc.start()
    for number in range(many):
        assert checks.open(run_key(f"{number:0200}"), b"unsigned") is None
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert checks.refused == {UNSIGNED: many}
    assert grown < 16 << 20
    assert checks.open(run_key(f"{many - 1:0200}"), b"unsigned") is None
    assert checks.refused == {UNSIGNED: many}, "the latest are remembered"


def test_without_a_token_signed_frames_are_shown_and_that_is_said() -> None:
    checks = Checks(None)
    assert checks.open(KEY, FRAME) == FRAME
    assert checks.notices() == []
    assert checks.open(KEY, Signer(TOKEN).seal(KEY, FRAME)) == FRAME
    (notice,) = checks.notices()
    assert "cannot be checked" in notice


def test_a_store_signs_and_another_checks() -> None:
    shelf = Shelf()
    writer, reader = SignedStore(shelf, Signer(TOKEN)), CheckedStore(shelf, Checks(TOKEN))
    writer.put(run_key("run"), FRAME)
    writer.put(KEY, b"")
    writer.put(RUNS_KEY, b"run")
    shelf.put(OTHER, b"forged")
    assert shelf.values[RUNS_KEY] == b"run", "a hint that every watcher reads"
    assert FRAME in shelf.values[run_key("run")]
    assert shelf.values[run_key("run")] != FRAME
    frame, empty, runs, forged = reader.get_many([run_key("run"), KEY, RUNS_KEY, OTHER])
    assert frame is not None
    assert decode("run", frame, RunInfo).world_size == 4
    assert (empty, runs, forged) == (None, b"run", None)
    assert reader.ages([KEY]) == [None]


def test_the_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf()
    for nothing in (None, ""):
        monkeypatch.delenv("DDPMON_TOKEN", raising=False)
        if nothing is not None:
            monkeypatch.setenv("DDPMON_TOKEN", nothing)
        assert token_of_environment() is None
        assert signed(shelf, signer_of_environment()) is shelf
    monkeypatch.setenv("DDPMON_TOKEN", TOKEN)
    signed(shelf, signer_of_environment()).put(KEY, FRAME)
    assert Checks(token_of_environment()).open(KEY, shelf.values[KEY]) == FRAME
    monkeypatch.setenv("DDPMON_TOKEN", "\udcff odd \udc80")
    signed(shelf, signer_of_environment()).put(KEY, FRAME)
    assert Checks(token_of_environment()).open(KEY, shelf.values[KEY]) == FRAME


def test_thousands_of_spoilt_envelopes_are_dropped_and_nothing_breaks() -> None:
    dice, signer, checks, blind = random.Random(5), Signer(TOKEN), Checks(TOKEN), Checks(None)
    for turn in range(6000):
        sealed = bytearray(signer.seal(KEY, dice.randbytes(dice.randrange(200))))
        good = bytes(sealed)
        kind = turn % 4
        if kind == 0:
            sealed[dice.randrange(len(sealed))] ^= 1 << dice.randrange(8)
        elif kind == 1:
            del sealed[dice.randrange(len(sealed)) :]
        elif kind == 2:
            sealed += dice.randbytes(1 + dice.randrange(50))
        else:
            sealed = bytearray(dice.randbytes(dice.randrange(1, 300)))
        assert checks.open(KEY, bytes(sealed)) is None
        blind.open(KEY, bytes(sealed))
        assert checks.refused.total() <= turn + 1
        assert checks.open(KEY, good) is not None, "a good frame is believed whatever came before it"
    assert set(checks.refused) == {FORGED, UNSIGNED}
    assert checks.refused.total() > 5900


def test_who_takes_a_key_over_is_believed_although_it_started_earlier() -> None:
    first, second, checks = Signer(TOKEN, 1), Signer(TOKEN, 2), Checks(TOKEN)
    assert checks.open(KEY, second.seal(KEY, b"of the one that has died")) is not None
    assert checks.open(KEY, first.seal(KEY, b"of its heir")) is None
    first.begin()
    assert checks.open(KEY, first.seal(KEY, b"of its heir")) == b"of its heir"
    assert checks.open(KEY, second.seal(KEY, b"replayed")) is None
