"""A live run that can be rewound over what has been seen of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ddpmon.recording.player import Player
from ddpmon.recording.reader import Recording
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.travel import Travel
from ddpmon.run.model import Run
from ddpmon.snapshot import Metric, Snapshot


class Followed(Protocol):
    """What follows a live run and tells a recorder of it, such as an Observer."""

    focus: int | None
    metric: Metric

    @property
    def run(self) -> Run | None:
        """What is known of the run; None before it was read."""

    def tick(self) -> Snapshot:
        """Read the store and build a snapshot of what is known now."""

    def rebuild(self) -> Snapshot:
        """Build a snapshot of what is known, without reading."""

    def close(self) -> None:
        """Let go of the store."""


class Rewindable:
    """A live run that can be rewound over what its recorder has taken down; reading goes on meanwhile.

    Args:
        observer: follows the run, and tells the recorder.
        recorder: what is rewound over.

    Attributes:
        travel: where it stands once it has been rewound.
        closed: set once the recording has been closed.
    """

    def __init__(self, observer: Followed, recorder: Recorder) -> None:
        self._observer, self._recorder = observer, recorder
        self.travel = Travel(Recording(recorder.book), Path())  # a folder that was deleted has no name
        self.closed = threading.Event()
        self._is_behind = False

    @property
    def focus(self) -> int | None:
        """The rank whose detail the next snapshot carries."""
        return self._observer.focus

    @focus.setter
    def focus(self, rank: int | None) -> None:
        self._observer.focus = rank

    @property
    def metric(self) -> Metric:
        """What the heat-map of the next snapshot shows."""
        return self._observer.metric

    @metric.setter
    def metric(self, metric: Metric) -> None:
        self._observer.metric = metric

    def tick(self) -> Snapshot:
        """Read the run, and build a snapshot of it, or of the moment that it has been rewound to."""
        return self._of_moment(self._observer.tick)

    def rebuild(self) -> Snapshot:
        """The same without reading."""
        return self._of_moment(self._observer.rebuild)

    def close(self) -> None:
        """Let go of the store, and end the recording."""
        self._observer.close()
        self._recorder.close()
        self.closed.set()

    def _of_moment(self, live: Callable[[], Snapshot]) -> Snapshot:
        now = live()
        travel = self.travel
        if not (self._is_behind or travel.is_asked):
            return self._noted(now)
        travel.recording.refresh()
        if not self._is_behind:
            travel.wants_end = False
        travel.tick(ends_live=True)
        snapshot = None if travel.wants_end else travel.player.picture(self.focus, self.metric)
        view = travel.view(is_live=True)
        self._is_behind = snapshot is not None and view is not None
        if snapshot is None or view is None:
            travel.wants_end, travel.player = False, Player(travel.recording)
            return self._noted(now)
        return travel.finish(replace(snapshot, replay=view, own_host=now.own_host, findings_now=now.findings))

    def _noted(self, snapshot: Snapshot) -> Snapshot:
        """The live picture, with what the recorder has to say."""
        trouble = self._recorder.trouble
        run = self._observer.run
        snapshot = self.travel.finish(snapshot, None if run is None else run.info)
        if not trouble:
            return snapshot
        return replace(snapshot, notices=(*snapshot.notices, f"not recorded: {trouble}"))
