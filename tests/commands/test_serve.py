"""`ddpmon serve`: the dashboard in a real browser, and who is not let in."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("textual_serve")
import aiohttp

from ddpmon.commands import serve as commands
from ddpmon.commands.serve import Door, serve, watch_command
from tests.commands.browser import PROGRAM, page
from tests.commands.served_runs import host_with_runs

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def served(target: str) -> Iterator[str]:
    """The command on a run; yields the address that it prints."""
    command = [sys.executable, "-m", "ddpmon.cli", "serve", target]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
            assert process.wait(60) == 0


def test_the_token_opens_once_and_the_key_stays_with_its_browser() -> None:
    door = Door("http://127.0.0.1:8480")
    assert door.enter("wrong") is None
    assert not door.knows("")
    key = door.enter(door.token)
    assert key is not None
    assert door.enter(door.token) is None
    assert door.knows(key)
    assert not door.knows(door.token)
    assert door.is_ours("127.0.0.1:8480", None)
    assert door.is_ours("127.0.0.1:8480", "http://127.0.0.1:8480")
    assert not door.is_ours("127.0.0.1:8480", "http://evil.example")
    assert not door.is_ours("evil.example", None)


def test_nobody_gets_in_without_the_token_or_from_a_foreign_page() -> None:
    async def knock(address: str) -> None:
        base = address.partition("/?")[0]
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            for url, headers in (
                (base, {}),
                (f"{base}/static/js/textual.js", {}),
                (f"{base}/ws", {}),
                (f"{base}/?token=wrong", {}),
                (address, {"Host": "evil.example"}),
                (address, {"Origin": "http://evil.example"}),
            ):
                async with session.get(url, headers=headers) as answer:
                    assert answer.status == 403, url
            async with session.get(address) as answer:
                assert answer.status == 200
                assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await session.ws_connect(f"{base}/ws", headers={"Origin": "http://evil.example"})
        async with aiohttp.ClientSession() as another, another.get(address) as answer:
            assert answer.status == 403

    with served("tcp://127.0.0.1:1") as address:
        asyncio.run(knock(address))


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium")
def test_a_browser_shows_the_dashboard_and_takes_keys(tmp_path: Path) -> None:
    async def look(address: str) -> None:
        async with page(tmp_path / "profile", address) as opened:
            await opened.until_received("costs")
            await opened.call("Runtime.evaluate", expression="document.querySelector('textarea').focus()")
            await opened.picture(tmp_path / "overview.png")
            before = len(opened.received)
            await opened.press("?")
            await opened.until_received("How to find the straggler", before)
            await opened.picture(Path(os.environ.get("SERVE_PICTURE", tmp_path / "help.png")))
            assert opened.asked_elsewhere == []

    with host_with_runs(tmp_path / "host", "gpt") as (url,), served(url) as address:
        asyncio.run(look(address))


def test_a_name_that_is_no_run_here_is_told_before_anything_listens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:  # so that what listens first ends, too
        assert serve("nosuch", taken.getsockname()[1]) == 3
    assert "'nosuch' is neither an address nor a run on this host: `ddpmon ls` lists runs" in capsys.readouterr().err


def test_a_target_is_quoted_and_no_option() -> None:
    assert watch_command("--x; rm", "user@host", None).endswith("watch --ssh user@host -- '--x; rm'")


def test_two_servers_do_not_take_each_others_cookie() -> None:
    doors = [Door("http://127.0.0.1:8480"), Door("http://127.0.0.1:8481"), Door("http://127.0.0.1:8480")]
    assert len({door.cookie for door in doors}) == 3
    assert doors[1].cookie.startswith("ddpmon-8481-")


def test_a_port_that_is_taken_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert serve("tcp://127.0.0.1:1", port) == 2
        assert f"port {port} on 127.0.0.1 is taken" in capsys.readouterr().err
        monkeypatch.setattr(commands, "FIRST_PORT", port)
        monkeypatch.setattr(commands, "PORTS", 1)
        assert serve("tcp://127.0.0.1:1", None) == 2
        assert f"ports {port} to {port} on 127.0.0.1 are taken" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "ssh", "slurm", "said"),
    [
        ("http://host", None, None, "unknown scheme"),
        ("host:29480", None, None, "tcp://host:29480"),
        (None, "host", "17", "exclude each other"),
    ],
)
def test_a_target_that_makes_no_sense_is_told_before_anything_listens(
    target: str | None, ssh: str | None, slurm: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # so that what listens first ends, too
        assert serve(target, taken.getsockname()[1], ssh, slurm) == 2
    assert said in capsys.readouterr().err
