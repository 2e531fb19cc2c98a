"""Brings messages out, one after the other, in a thread of its own: a channel that hangs holds up nobody else."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ddpmon.guard.channels import NotDeliveredError
from ddpmon.guard.memory import Channel, Outgoing

PAUSES_S = (1.0, 5.0, 30.0, 120.0, 300.0)  # between attempts; the last one repeats
GIVE_UP_S = 3600.0  # after its beginning a message is old news; chosen


class Sender(Protocol):
    """Brings one message out."""

    def send(self, message: dict[str, Any], /) -> None:
        """Try once.

        Raises:
            NotDeliveredError: it was not taken.
        """


@dataclass(frozen=True, slots=True)
class Delivery:
    """How it went with a message.

    Attributes:
        trouble: why it was not taken, "" if it was.
        is_left: the guard ends, and its next start tries again.
    """

    outgoing: Outgoing
    trouble: str = ""
    is_left: bool = False


class Courier(threading.Thread):
    """Delivers in order.

    Args:
        channel: what it serves.
        sender: how.
        report: is called in this thread with each message that is done with.
        warn: is called with a sentence when an attempt fails and another will be made.
        pauses_s: between attempts.
    """

    def __init__(
        self,
        channel: Channel,
        sender: Sender,
        report: Callable[[Delivery], None],
        warn: Callable[[str], None],
        pauses_s: tuple[float, ...] = PAUSES_S,
    ) -> None:
        super().__init__(name=f"ddpmon-{channel}", daemon=True)
        self.channel = channel
        self._sender, self._report, self._warn, self._pauses_s = sender, report, warn, pauses_s
        self._queue: queue.SimpleQueue[Outgoing] = queue.SimpleQueue()
        self._hurry = threading.Event()

    def put(self, outgoing: Outgoing) -> None:
        """Take a message to deliver."""
        self._queue.put(outgoing)

    def hurry(self) -> None:
        """The guard ends: each message left gets one more attempt, without a pause."""
        self._hurry.set()

    def run(self) -> None:
        """Deliver for as long as the process lives."""
        while True:
            self._report(self._deliver(self._queue.get()))

    def _deliver(self, outgoing: Outgoing) -> Delivery:
        """Try until it is taken, or given up, or left."""
        attempt = 0
        while True:
            last = self._hurry.is_set()
            try:
                self._sender.send(outgoing.message)
            except NotDeliveredError as error:
                if not error.again or time.time() - outgoing.created_at > GIVE_UP_S:
                    return Delivery(outgoing, str(error))
                if last:
                    return Delivery(outgoing, str(error), is_left=True)
                if attempt == 0:
                    self._warn(f"a message waits for the {self.channel}: {error}")
            except Exception as error:  # a defect of ours must not end the thread that all later messages need
                return Delivery(outgoing, f"{type(error).__name__}: {error}")
            else:
                return Delivery(outgoing)
            self._hurry.wait(self._pauses_s[min(attempt, len(self._pauses_s) - 1)])
            attempt += 1
