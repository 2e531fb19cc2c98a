"""One answer about a run, within a limit."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from queue import Empty, SimpleQueue

from ddpmon.commands.looks import Looks
from ddpmon.schema import RunInfo
from ddpmon.snapshot import Snapshot
from ddpmon.store.base import StoreUnavailable, TargetError
from ddpmon.watcher.way import Way

# On a link with a round trip of 1 s the first picture takes ten of them, and the lookup of a name may take 6 s besides.
LIMIT_S = 15.0
Answer = tuple[Snapshot, RunInfo | None]


def look_once(target: str | None, looks: Looks | None = None, way: Way | None = None) -> Snapshot:
    """A snapshot of the run at `target`, or where `way` leads, after as many `looks` as are needed, by default one.

    Raises:
        TargetError: a TARGET that makes no sense.
        StoreUnavailable: nothing was read within the limit.
    """
    return look_with_info(target, looks, way)[0]


def look_with_info(target: str | None, looks: Looks | None = None, way: Way | None = None) -> Answer:
    """The same, with what the run says of itself.

    It is read in a thread of its own, so that a store that hangs cannot hang us.

    Raises:
        TargetError: a TARGET that makes no sense.
        StoreUnavailable: nothing was read within the limit.
    """
    looks = looks or Looks(for_s=0.0)
    import ddpmon.watcher.observer  # noqa: F401 (a second on a cold disk, which is no fault of the store's)

    answers: SimpleQueue[Answer | BaseException] = SimpleQueue()
    threading.Thread(target=_look, args=(target, way, looks, answers), daemon=True).start()
    try:
        answer = answers.get(timeout=LIMIT_S + looks.limit_s)
    except Empty:
        raise StoreUnavailable(
            f"nothing could be read within {LIMIT_S:.0f} s: the store is silent, or the link to it is very slow"
        ) from None
    if isinstance(answer, TargetError):
        raise answer
    if isinstance(answer, BaseException):
        raise StoreUnavailable(f"the run cannot be read: {answer}") from answer
    return answer


def look_at_recording(path: Path) -> Snapshot:
    """The last moment of a recording.

    Raises:
        RecordingError: the file is no recording, or nothing of it can be read.
    """
    from ddpmon.recording.travel import Replay

    with closing(Replay(path)) as replay:
        return replay.tick()


def _look(target: str | None, way: Way | None, looks: Looks, answers: SimpleQueue[Answer | BaseException]) -> None:
    from ddpmon.watcher.observer import Observer

    try:
        observer = Observer(target, way)
        snapshot = looks.at(observer.tick)
        answers.put((snapshot, None if observer.run is None else observer.run.info))
        observer.close()
    except BaseException as error:  # whatever it is, the main thread tells it in a sentence
        answers.put(error)
