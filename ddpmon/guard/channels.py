"""The two ways out: a command that reads the message on its standard input, and a web address."""

from __future__ import annotations

import http.client
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from ddpmon.format import json_line
from ddpmon.guard.message import Form, body_of
from ddpmon.store.base import TargetError
from ddpmon.version import __version__

COMMAND_S = 30.0  # that a command may take; chosen: a mail or a page is sent in a few
_END_S = 2.0  # between asking it to end and ending it
WEB_S = 10.0  # that an answer may take; chosen: Slack and Discord answer within one
_MOST_READ = 1 << 12


class NotDeliveredError(Exception):
    """The message was not taken; the text says why, without the address, which may be a secret.

    Attributes:
        again: whether another attempt makes sense.
    """

    def __init__(self, why: str, *, again: bool) -> None:
        super().__init__(why)
        self.again = again


class Command:
    """Runs `sh -c COMMAND` with the message as one line of JSON on its standard input.

    What it prints goes to the guard's standard error. Nothing of the message is put into the command line.
    """

    def __init__(self, command: str, limit_s: float = COMMAND_S) -> None:
        self._command, self._limit_s = command, limit_s

    def send(self, message: dict[str, Any]) -> None:
        """Run it once.

        Raises:
            NotDeliveredError: it cannot be started, fails, or does not end in time and is ended.
        """
        process = self._start(message)
        try:
            code = process.wait(self._limit_s)
        except subprocess.TimeoutExpired:
            _end(process)
            raise NotDeliveredError(f"it did not end within {self._limit_s:.0f} s and was ended", again=False) from None
        if code:
            raise NotDeliveredError(f"it ended with exit code {code}", again=False)

    def _start(self, message: dict[str, Any]) -> subprocess.Popen[bytes]:
        try:
            with tempfile.TemporaryFile() as file:
                file.write(f"{json_line(message)}\n".encode())
                file.seek(0)
                return subprocess.Popen(
                    ["/bin/sh", "-c", self._command],
                    stdin=file,
                    stdout=sys.__stderr__ or subprocess.DEVNULL,
                    start_new_session=True,
                )
        except OSError as error:  # such as a full disk below /tmp
            raise NotDeliveredError(f"it cannot be started: {error.strerror or error}", again=True) from None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it and all that it has started in its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nothing: a message goes to the address that the user has named, and nowhere else."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Webhook:
    """Posts the message to a web address; through a proxy where the environment names one.

    Args:
        url: http or https. It may hold a secret and is never printed.
        form: of the body.
        limit_s: seconds that one attempt may take in all.

    Raises:
        TargetError: the address makes no sense.
    """

    def __init__(self, url: str, form: Form = "json", limit_s: float = WEB_S) -> None:
        try:
            parts = urlsplit(url)
            bad = parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii() or " " in url
            _ = parts.port
        except ValueError:
            bad = True
        if bad:
            raise TargetError("the webhook's address is not understood: give http://HOST/PATH or https://HOST/PATH")
        self._url, self._form, self._limit_s = url, form, limit_s
        self._opener = urllib.request.build_opener(_NoRedirect)

    def send(self, message: dict[str, Any]) -> None:
        """Post it once.

        Raises:
            NotDeliveredError: it was refused, or there was no answer in time.
        """
        request = urllib.request.Request(
            self._url,
            data=body_of(message, self._form),
            headers={
                "Content-Type": "application/json",
                "User-Agent": f"ddpmon/{__version__}",
                "Idempotency-Key": str(message["id"]),
            },
            method="POST",
        )
        _within(self._limit_s, lambda: self._post(request))

    def _post(self, request: urllib.request.Request) -> None:
        try:
            with self._opener.open(request, timeout=self._limit_s) as answer:
                answer.read(_MOST_READ)
        except urllib.error.HTTPError as error:
            error.close()
            if 300 <= error.code < 400:
                raise NotDeliveredError(
                    f"it answered {error.code}, a redirect, which is not followed: give the address itself", again=False
                ) from None
            again = error.code >= 500 or error.code in (408, 429)
            raise NotDeliveredError(f"it answered {error.code}", again=again) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise _late(self._limit_s) from None
            raise NotDeliveredError(f"it cannot be reached: {_words(error.reason)}", again=True) from None
        except TimeoutError:
            raise _late(self._limit_s) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NotDeliveredError(f"it gave no proper answer: {_words(error)}", again=True) from None


def _words(error: object) -> str:
    """What went wrong, without an address."""
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else type(error).__name__


def _late(seconds: float) -> NotDeliveredError:
    return NotDeliveredError(f"it did not answer within {seconds:.0f} s", again=True)


def _within(seconds: float, job: Callable[[], None]) -> None:
    """Run the job in a thread of its own, which is left behind if it takes longer: a server may answer for hours.

    Raises:
        NotDeliveredError: the job's own, or that it took too long.
    """
    done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            job()
        except BaseException as error:
            done.put(error)
        else:
            done.put(None)

    threading.Thread(target=run, name="ddpmon-webhook", daemon=True).start()
    try:
        error = done.get(timeout=seconds)
    except queue.Empty:
        raise _late(seconds) from None
    if error is not None:
        raise error
