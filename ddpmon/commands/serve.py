"""`ddpmon serve`: the dashboard in a browser, on this host's loopback, for whoever has the address with its token."""

from __future__ import annotations

import logging
import secrets
import shlex
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from ddpmon.commands.console import NO_RUN, OK, USAGE, complain
from ddpmon.commands.recordings import recording_at
from ddpmon.commands.target import here
from ddpmon.store.base import StoreUnavailable, TargetError
from ddpmon.store.connect import parse_target

HOME = "127.0.0.1"
FIRST_PORT, PORTS = 8480, 20  # the next free one is taken
MOST_VIEWS = 8  # each is a process with a dashboard
_HEADERS = {
    # The page asks for a font elsewhere: nothing of a run leaves this host, and nothing is loaded from outside.
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline' data:; connect-src 'self' ws://127.0.0.1:*",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


def serve(target: str | None, port: int | None, ssh: str | None = None, slurm: str | None = None) -> int:
    """Serve the dashboard until SIGTERM or SIGINT; returns the exit code."""
    from ddpmon.recording.layout import RecordingError

    try:
        from aiohttp import web
        from textual_serve.server import Server
    except ImportError:
        complain("serving needs textual-serve: pip install textual-serve")
        return USAGE
    try:
        _check(target, ssh, slurm)
        listener = _listen(port)
    except (TargetError, RecordingError) as error:
        complain(str(error))
        return USAGE
    except StoreUnavailable as error:
        complain(str(error))
        return NO_RUN
    url = f"http://{HOME}:{listener.getsockname()[1]}"
    door = Door(url)
    app = _Site(Server(watch_command(target, ssh, slurm), HOME, public_url=url, title="ddpmon"), door, web)
    logging.basicConfig(level=logging.ERROR)
    print(f"the dashboard, for one browser: {url}/?token={door.token}", flush=True)
    web.run_app(app.make(), sock=listener, print=None)
    return OK


def watch_command(target: str | None, ssh: str | None, slurm: str | None) -> str:
    """The command line of the dashboard, for a shell."""
    options = [*(["--ssh", ssh] if ssh else []), *(["--slurm", slurm] if slurm else [])]
    named = ["--", target] if target is not None else []
    return shlex.join([sys.executable, "-m", "ddpmon.cli", "watch", *options, *named])


def _check(target: str | None, ssh: str | None, slurm: str | None) -> None:
    """Refuse what the dashboard in the page would refuse; a run that `watch` waits for may come.

    Raises:
        TargetError: the words make no sense, or there are several runs to choose from.
        RecordingError: the recording cannot be read.
        StoreUnavailable: no run on this host has that name.
    """
    if ssh is not None and slurm is not None:
        raise TargetError("--ssh and --slurm exclude each other: the hosts of a job are reached through Slurm")
    if target is not None and "://" in target:
        parse_target(target)
    elif ssh is None and slurm is None and recording_at(target) is None:
        here(target)


def _listen(port: int | None) -> socket.socket:
    """A socket on the port, or on the first free one.

    Raises:
        TargetError: it is taken, or none is free.
    """
    for each in range(FIRST_PORT, FIRST_PORT + PORTS) if port is None else [port]:
        with suppress(OSError):
            return socket.create_server((HOME, each))
    if port is not None:
        raise TargetError(f"port {port} on {HOME} is taken: leave --port out for a free one")
    raise TargetError(f"ports {FIRST_PORT} to {FIRST_PORT + PORTS - 1} on {HOME} are taken: name another with --port")


class Door:
    """Lets in the first browser that comes with the token, and nobody else.

    Args:
        url: where the dashboard is.

    Attributes:
        token: what the first request must have; it opens once.
        cookie: the name under which the browser keeps the key. A browser sends all cookies of 127.0.0.1 to each port,
            so two servers need two names.
    """

    def __init__(self, url: str) -> None:
        self.url, self.token = url, secrets.token_urlsafe(24)
        self.cookie = f"ddpmon-{urlsplit(url).port}-{secrets.token_hex(4)}"
        self._key, self._is_open = secrets.token_urlsafe(24), True

    def enter(self, token: str) -> str | None:
        """The key for the browser that has the token; None for a wrong one, or one that has been used."""
        if not self._is_open or not secrets.compare_digest(token.encode(), self.token.encode()):
            return None
        self._is_open = False
        return self._key

    def knows(self, key: str) -> bool:
        """Whether it is the key that was given out."""
        return not self._is_open and secrets.compare_digest(key.encode(), self._key.encode())

    def is_ours(self, host: str, origin: str | None) -> bool:
        """Whether the request is for this address and comes from a page of it: a foreign page sends the cookie, too."""
        return f"http://{host}" == self.url and origin in (None, self.url)


class _Site:
    """The pages of textual-serve behind the door.

    Args:
        server: textual-serve's.
        door: who is let in.
        web: the module `aiohttp.web`.
    """

    def __init__(self, server: Any, door: Door, web: Any) -> None:
        self._server, self._door, self._web = server, door, web
        self._views = 0

    async def make(self) -> Any:
        """The application."""

        async def guard(request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
            return await self._guard(request, handler)

        self._server.on_startup = _nothing  # which prints
        site = await self._server._make_app()
        site.middlewares.append(self._web.middleware(guard))
        return site

    async def _guard(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Answer only a browser with the key, and give the key for the token."""
        door, web = self._door, self._web
        if not door.is_ours(request.host, request.headers.get("Origin")):
            raise web.HTTPForbidden(text="This is not the address that ddpmon serve has printed.", headers=_HEADERS)
        if "token" in request.query and request.path == "/":
            return self._enter(request.query["token"], request.cookies.get(door.cookie, ""))
        if not door.knows(request.cookies.get(door.cookie, "")):
            raise web.HTTPForbidden(text=_CLOSED, headers=_HEADERS)
        if request.path == "/ws":
            return await self._view(request, handler)
        answer = await handler(request)
        answer.headers.update(_HEADERS)
        return answer

    def _enter(self, token: str, key: str) -> Any:
        new = self._door.enter(token)
        if new is None and not self._door.knows(key):
            return self._web.Response(status=403, text=_CLOSED, headers=_HEADERS)
        answer = self._web.HTTPFound("/", headers=_HEADERS)
        if new is not None:
            answer.set_cookie(self._door.cookie, new, httponly=True, samesite="Strict", path="/")
        return answer

    async def _view(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """One dashboard in one page."""
        if self._views >= MOST_VIEWS:
            raise self._web.HTTPServiceUnavailable(text=f"{MOST_VIEWS} pages at once are the most.")
        self._views += 1
        try:
            return await handler(request)
        finally:
            self._views -= 1


_CLOSED = "The token is wrong, or a browser has used it. Start `ddpmon serve` again for another one."


async def _nothing(_app: Any) -> None:
    return None
