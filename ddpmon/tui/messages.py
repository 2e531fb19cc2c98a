"""What the reader tells the dashboard."""

from __future__ import annotations

from textual.message import Message

from ddpmon.snapshot import Snapshot


class Arrived(Message):
    """The reader has a new picture."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class ReaderFailed(Message):
    """The reader died of an error, which is a defect of ours."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
