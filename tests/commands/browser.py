"""A real headless Chromium, driven by its own protocol."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0")


class Page:
    """One page, and all that its web sockets have received.

    Attributes:
        received: the texts and bytes of its web sockets, one after the other.
        asked_elsewhere: addresses outside of loopback that it has asked for and got.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._numbers = socket, itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.received = ""
        self.asked_elsewhere: list[str] = []
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said.get("result", {}))
            elif said["method"] == "Network.webSocketFrameReceived":
                self._take(said["params"]["response"])
            elif said["method"] == "Network.responseReceived":
                url = said["params"]["response"]["url"]
                self.asked_elsewhere += [] if url.startswith(("http://127.0.0.1", "data:")) else [url]

    def _take(self, frame: dict[str, Any]) -> None:
        data = frame["payloadData"]
        self.received += base64.b64decode(data).decode("utf-8", "replace") if frame["opcode"] == 2 else data

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        return await self._answers[number]

    async def until_received(self, text: str, after: int = 0) -> None:
        """Wait until a web socket has brought this text."""
        deadline = time.monotonic() + 120
        while text not in self.received[after:]:
            assert time.monotonic() < deadline, self.received[-2000:]
            await asyncio.sleep(0.1)

    async def press(self, key: str) -> None:
        """Press and release a key."""
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def picture(self, file: Path) -> None:
        """Write a PNG of it."""
        shot = await self.call("Page.captureScreenshot")
        file.write_bytes(base64.b64decode(shot["data"]))


@contextlib.asynccontextmanager
async def page(folder: Path, url: str) -> AsyncIterator[Page]:
    """A browser with one page, at an address."""
    assert PROGRAM is not None
    command = [PROGRAM, *OPTIONS, f"--user-data-dir={folder}", "--window-size=1300,800", "about:blank"]
    browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port_file, deadline = folder / "DevToolsActivePort", time.monotonic() + 60
        while not (port_file.exists() and len(port_file.read_text().splitlines()) == 2):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        port = port_file.read_text().splitlines()[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                address = next(each for each in await answer.json() if each["type"] == "page")["webSocketDebuggerUrl"]
            async with session.ws_connect(address, max_msg_size=0) as socket:
                opened = Page(socket)
                await opened.call("Network.enable")
                await opened.call("Page.enable")
                await opened.call("Page.navigate", url=url)
                yield opened
    finally:
        browser.kill()
        browser.wait()
