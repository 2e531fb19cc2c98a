"""The publisher: one thread a rank that turns finished steps into frames and puts them into the store.

A frame goes out once a second (`probe/host_share.py` says which way), a history every five seconds, or sooner where
frames would leave out steps between two.

It is the only part of the probe that does I/O. The training thread never waits for it: when the store is slow, gone
or full, frames are dropped and counted.
"""

from __future__ import annotations

import threading
from time import monotonic

from ddpmon.probe.failure import unheard_s
from ddpmon.probe.frame_builder import FrameBuilder
from ddpmon.probe.host_share import HostShare
from ddpmon.probe.registration import say
from ddpmon.probe.uplink import Uplink
from ddpmon.store.base import StoreUnavailable

PUBLISHER = "ddpmon-publisher"
INTERVAL_S = 1.0
LINGER_S = 0.8  # rank 0 keeps the store up this long, so that watchers read the last frames
_HISTORY_EVERY_S = 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0


class Publisher(threading.Thread):
    """Publishes `draft` through `uplink` until it is stopped; `share` puts the frames.

    Attributes:
        dropped_frames: frames that could not be put into the store.
        leaving: set when the process ends: nothing is waited for any longer.
    """

    def __init__(self, draft: FrameBuilder, uplink: Uplink, share: HostShare) -> None:
        super().__init__(name=PUBLISHER, daemon=True)
        self._draft = draft
        self._uplink, self._share = uplink, share
        self._stopping, self.leaving = threading.Event(), threading.Event()
        self._final_state = "finished"
        self._next_history = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self.dropped_frames = 0

    def stop(self, state: str = "finished") -> None:
        """Ask for a last frame with `state` and the end; does not wait."""
        self._final_state = state
        self._stopping.set()

    def run(self) -> None:
        """Connect, publish, back off, and end with a last frame."""
        self._draft.read_here()
        try:
            while not self._stopping.is_set():
                self._stopping.wait(self._turn())
            # A rank that fails at once has not met the others yet; its word is worth one attempt.
            if self._uplink.connected or (self._final_state == "failed" and self._uplink.connect()):
                self._publish(self._final_state, history=True)
                self._uplink.linger(max(LINGER_S, unheard_s()), self.leaving)
        except StoreUnavailable:
            pass
        except Exception as error:
            say(f"stopped publishing ({type(error).__name__}: {error}); training is not affected")
        finally:
            self._share.close()
            # While the process lives its launcher starts nothing again: it may try again by itself, with another store.
            self._uplink.close(to_successor=self._final_state == "failed" and self.leaving.is_set())

    def _turn(self) -> float:
        """One attempt to connect or to publish; returns the seconds until the next."""
        began = monotonic()
        self._draft.collect()
        self._draft.watchdog.look(self._stopping.wait)  # before the store, which may take its time
        try:
            if not self._uplink.connected and not self._uplink.connect():
                return self._back_off()
            due = monotonic() >= self._next_history or self._draft.outgrown
            self._publish(None, history=due)
        except StoreUnavailable as error:
            self.dropped_frames += 1
            self._uplink.drop(error)
            self._share.forget()
            self._next_history = 0.0  # the store may come back empty
            return self._back_off()
        self._pause_s = _FIRST_PAUSE_S
        return self._share.wait_s(max(0.0, INTERVAL_S - (monotonic() - began)))

    def _back_off(self) -> float:
        pause, self._pause_s = self._pause_s, min(_LONGEST_PAUSE_S, self._pause_s * 2)
        return pause

    def _publish(self, final: str | None, *, history: bool) -> None:
        self._draft.collect()
        word = self._draft.word(final or self._draft.state(), self.dropped_frames)
        self._share.put(word, monotonic() + INTERVAL_S, whole=final is not None or history)
        if history:
            self._next_history = monotonic() + _HISTORY_EVERY_S
            self._uplink.put_history(self._draft.history_frame())
        if (node := self._draft.node_frame()) is not None:
            self._uplink.put_node(node)
