"""The address of a Redis server: understood, refused in words, and never shown with its password."""

from __future__ import annotations

import traceback

import pytest

from ddpmon.store.base import TargetError
from ddpmon.store.connect import external_store_of_environment, parse_target
from ddpmon.store.redis_url import RedisAddress, parse_redis, redacted

SECRET = "p4ss/w@rd?"
CODED = "p4ss%2Fw%40rd%3F"


@pytest.mark.parametrize(
    ("text", "address", "run"),
    [
        ("redis://h", RedisAddress("h"), None),
        ("redis://h:7000/", RedisAddress("h", 7000), None),
        ("redis://[::1]:7000/3", RedisAddress("::1", 7000, 3), None),
        (f"redis://ada:{CODED}@h/2?run=gpt-1", RedisAddress("h", 6379, 2, "ada", SECRET), "gpt-1"),
        (f"redis://:{CODED}@h", RedisAddress("h", password=SECRET), None),
        ("rediss://h", RedisAddress("h", tls=True), None),
        (f"rediss://h?ca={__file__}", RedisAddress("h", tls=True, ca=__file__), None),
    ],
)
def test_an_address_is_understood_and_shown_without_its_password(
    text: str, address: RedisAddress, run: str | None
) -> None:
    assert parse_redis(text) == (address, run)
    target = parse_target(text)
    assert (target.redis, target.run_id) == (address, run)
    shown = (target.url, repr(target), repr(address), address.url_of("r"), redacted(text))
    assert not any(secret in word for word in shown for secret in (SECRET, CODED, "p4ss"))
    again, again_run = parse_redis(address.url_of("gpt 1&x=é"))
    assert (again.url, again_run) == (address.url.replace("ada@", ""), "gpt 1&x=é")


@pytest.mark.parametrize(
    "text",
    [
        "redis://",
        "redis://:hunter2@",
        "redis://u:hunter2@h:port",
        "redis://u:hunter2@h:0",
        "redis://u:hunter2@h:99999",
        "redis://u:hunter2@[::1",
        "redis://u:hunter2",
        "redis://u:x@hunter2@h/nodb",
        "redis://u:a/hunter2@h",
        "redis://u:hunter2@h/1/2",
        "redis://u:hunter2@h/99999999999999999999",
        "redis://u:hunter2@h#part",
        "redis://u:hunter2@h?run=",
        "redis://u:hunter2@h?run=a/b",
        "redis://u:hunter2@h?run=-h",
        "redis://u:hunter2@h?run=a%1b",
        "redis://u:hunter2@h?run",
        "redis://u:hunter2@h?password=x",
        "redis://u:hunter2@h?ca=/etc/passwd",
        "rediss://u:hunter2@h?ca=/no/such/file",
        "rediss://u:hunter2@h?ca=%00",
        "redis+tls://u:hunter2@h:1",
        "tcp://u:hunter2@h",
    ],
)
def test_what_makes_no_sense_is_one_sentence_without_the_password(text: str) -> None:
    with pytest.raises(TargetError) as caught:
        parse_target(text)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert "hunter2" not in message
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_the_store_of_the_environment_lends_its_password_to_the_same_server_only() -> None:
    mine = parse_redis("rediss://ada:pw@h:1/2")[0]
    assert parse_redis("rediss://h:1/3")[0].with_password_of(mine).password == "pw"
    assert parse_redis("rediss://h:1/3")[0].with_password_of(mine).db == 3
    assert parse_redis("rediss://ada@h:1")[0].with_password_of(mine).password == "pw"
    for other in ("rediss://bob@h:1", "rediss://g:1", "rediss://h:2", "redis://h:1"):
        assert parse_redis(other)[0].with_password_of(mine).password is None
    assert parse_redis("rediss://ada:own@h:1")[0].with_password_of(mine).password == "own"


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "rendezvous"):
        monkeypatch.setenv("DDPMON_STORE", value)
        assert external_store_of_environment() is None
    for value in ("tcp://h:1", "redis:/localhost", "http://u:hunter2@x", "Rendezvous"):
        monkeypatch.setenv("DDPMON_STORE", value)
        with pytest.raises(TargetError, match="is not a store that ranks can publish to: it is redis") as caught:
            external_store_of_environment()
        assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("DDPMON_STORE", "redis://u:hunter2@h/db")
    with pytest.raises(TargetError, match=r"^DDPMON_STORE: ") as caught:
        external_store_of_environment()
    assert "hunter2" not in str(caught.value)
