"""A real web server on loopback that takes messages, and answers as a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler, int], None]


def answer(code: int, **headers: str) -> Answer:
    """Answers each request with this code."""

    def say(handler: BaseHTTPRequestHandler, _number: int) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return say


class WebServer:
    """Takes requests until it is closed.

    Attributes:
        url: its address.
        got: path, headers and body of each request, the body as what its JSON says.
        released: lets those go that hang.
    """

    def __init__(self, say: Answer) -> None:
        self.got: list[tuple[str, dict[str, str], Any]] = []
        self.released = threading.Event()
        here = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                here.got.append((self.path, dict(self.headers), json.loads(body)))
                say(self, len(here.got))

            do_GET = do_POST  # noqa: N815 (the name is the server's)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook/SECRET"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def web_server(say: Answer) -> Iterator[WebServer]:
    server = WebServer(say)
    try:
        yield server
    finally:
        server.close()
