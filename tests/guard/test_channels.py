"""The ways out, with real servers and real commands: what they get, and what becomes of those that misbehave."""

from __future__ import annotations

import json
import queue
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import psutil
import pytest

from ddpmon.guard.channels import Command, NotDeliveredError, Webhook
from ddpmon.guard.courier import Courier, Delivery
from ddpmon.guard.ledger import Notice
from ddpmon.guard.memory import OpenAlert, Outgoing, RunMemory
from ddpmon.guard.message import Form, body_of, message_of
from ddpmon.store.base import TargetError
from tests.guard.web_server import answer, web_server

FINDING = {
    "kind": "straggler",
    "severity": "critical",
    "summary": "rank 5 (node1) is late <!channel> @everyone & so on",
    "advice": "look at node1",
}


def made_message(**finding: Any) -> dict[str, Any]:
    alert = OpenAlert("a1", "straggler", "critical", 1000.0, ranks=(5,), finding={**FINDING, **finding})
    run = RunMemory("gpt-1", "gpt\x1b[31m", "tcp://127.0.0.1:29480", world_size=8, step=7)
    return message_of(Notice("firing", alert), run, 1010.0)


def test_a_webhook_gets_the_finding_and_a_key_by_which_it_knows_a_repetition() -> None:
    message = made_message()
    with web_server(answer(204)) as server:
        Webhook(server.url).send(message)
    ((path, headers, body),) = server.got
    assert path == "/hook/SECRET"
    assert headers["Idempotency-Key"] == message["id"]
    assert headers["Content-Type"] == "application/json"
    assert body["event"] == "firing"
    assert body["finding"]["kind"] == "straggler"
    assert body["run"]["id"] == "gpt-1"
    assert body["watch"] == "ddpmon watch tcp://127.0.0.1:29480/gpt-1"


@pytest.mark.parametrize(("form", "field"), [("slack", "text"), ("discord", "content")])
def test_chat_gets_one_text_in_which_a_run_mentions_nobody(form: Form, field: str) -> None:
    with web_server(answer(200)) as server:
        Webhook(server.url, form).send(made_message())
    text = server.got[0][2][field]
    assert "rank 5 (node1) is late" in text
    assert "\x1b" not in text
    assert "ddpmon watch" in text
    if form == "slack":
        assert "<!channel>" not in text
    else:
        assert server.got[0][2]["allowed_mentions"] == {"parse": []}
        assert len(json.loads(body_of(made_message(summary="x" * 9000), form))["content"]) <= 2000


def test_a_redirect_is_not_followed_and_the_address_is_not_told() -> None:
    with web_server(answer(200)) as other, web_server(answer(307, Location=other.url)) as server:
        with pytest.raises(NotDeliveredError, match="redirect") as caught:
            Webhook(server.url).send(made_message())
        assert other.got == []
    assert not caught.value.again
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(("code", "again"), [(500, True), (503, True), (429, True), (404, False), (400, False)])
def test_what_a_server_refuses_is_tried_again_if_that_makes_sense(code: int, again: bool) -> None:
    with web_server(answer(code)) as server, pytest.raises(NotDeliveredError, match=str(code)) as caught:
        Webhook(server.url).send(made_message())
    assert caught.value.again is again


def test_a_server_that_hangs_and_one_that_answers_by_drops_are_left() -> None:
    def hang(_handler: BaseHTTPRequestHandler, _number: int) -> None:
        server.released.wait(60)

    def drip(handler: BaseHTTPRequestHandler, _number: int) -> None:
        while not dripping.released.wait(0.05):
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-More: x\r\n"[:1])

    with web_server(hang) as server, web_server(drip) as dripping:
        for each in (server, dripping):
            with pytest.raises(NotDeliveredError, match="not answer") as caught:
                Webhook(each.url, limit_s=0.5).send(made_message())
            assert caught.value.again


def test_nobody_there_is_said_without_the_address() -> None:
    with web_server(answer(200)) as server:
        url = server.url
    with pytest.raises(NotDeliveredError, match="cannot be reached") as caught:
        Webhook(url).send(made_message())
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://host/x", "http://", "http://host:x/", "host/path", "http://a b/"]
)
def test_an_address_that_makes_no_sense_is_refused_in_words(url: str) -> None:
    with pytest.raises(TargetError, match="webhook's address is not understood"):
        Webhook(url)


def test_a_command_reads_the_message_and_none_of_it_reaches_the_shell(tmp_path: Path) -> None:
    out = tmp_path / "out"
    Command(f"cat > '{out}'").send(made_message(summary="$(touch x); `touch y`"))
    assert json.loads(out.read_text())["finding"]["summary"] == "$(touch x); `touch y`"
    Command("true").send(made_message(summary="x" * 1_000_000))  # it does not read
    with pytest.raises(NotDeliveredError, match="exit code 3") as caught:
        Command("exit 3").send(made_message())
    assert not caught.value.again


def test_a_command_that_never_ends_is_ended_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with pytest.raises(NotDeliveredError, match="was ended"):
        Command(f"trap '' TERM; sleep 600 & echo $$ $! > '{pids}'; wait; sleep 600", limit_s=1.0).send(made_message())
    deadline = time.monotonic() + 60.0
    while any(_lives(int(pid)) for pid in pids.read_text().split()):  # the kernel ends a killed process in its own time
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def courier_for(webhook: Webhook, warned: list[str]) -> tuple[Courier, queue.SimpleQueue[Delivery]]:
    done: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
    return Courier("webhook", webhook, done.put, warned.append, pauses_s=(0.01,)), done


def test_a_courier_tries_again_and_keeps_the_order() -> None:
    warned: list[str] = []

    def fail_twice(handler: BaseHTTPRequestHandler, number: int) -> None:
        answer(500 if number <= 2 else 200)(handler, number)

    with web_server(fail_twice) as server:
        courier, done = courier_for(Webhook(server.url), warned)
        messages = [made_message(summary=str(number)) for number in range(3)]
        for message in messages:
            courier.put(Outgoing("webhook", time.time(), message))
        courier.start()
        assert [done.get(timeout=60).trouble for _ in messages] == ["", "", ""]
    assert [body["id"] for _, _, body in server.got] == [messages[0]["id"]] * 2 + [each["id"] for each in messages]
    assert len(warned) == 1


def test_a_courier_gives_up_what_is_refused_and_what_is_old_and_leaves_the_rest_when_the_guard_ends() -> None:
    with web_server(answer(500)) as server, web_server(answer(404)) as refusing:
        courier, done = courier_for(Webhook(server.url), [])
        courier.start()
        courier.put(Outgoing("webhook", time.time() - 7200, made_message()))
        old = done.get(timeout=60)
        assert (old.trouble, old.is_left) == ("it answered 500", False)
        courier.put(Outgoing("webhook", time.time(), made_message()))
        threading.Timer(0.2, courier.hurry).start()
        assert done.get(timeout=60).is_left
        other, refused = courier_for(Webhook(refusing.url), [])
        other.start()
        other.put(Outgoing("webhook", time.time(), made_message()))
        assert refused.get(timeout=60).trouble == "it answered 404"
    assert len(refusing.got) == 1


def test_a_courier_outlives_a_full_disk_and_a_sender_that_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaks:
        def send(self, message: dict[str, Any]) -> None:
            if "bad" in message:
                raise RuntimeError("a defect")
            Command("true").send(message)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    done: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
    waits: queue.SimpleQueue[str] = queue.SimpleQueue()
    courier = Courier("command", Breaks(), done.put, waits.put, pauses_s=(0.01,))
    courier.start()
    courier.put(Outgoing("command", time.time(), {"id": "1", "bad": True}))
    courier.put(Outgoing("command", time.time(), {"id": "2"}))
    assert "a defect" in done.get(timeout=60).trouble
    assert "cannot be started: No such file" in waits.get(timeout=60)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert done.get(timeout=60).trouble == ""
