"""`ddpmon export`: the steps of a run or a recording as CSV, or as a trace for Perfetto."""

from __future__ import annotations

import gzip
import io
import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ddpmon.commands.console import NO_RUN, OK, USAGE, complain, printable
from ddpmon.commands.recordings import recording_at
from ddpmon.commands.target import reached
from ddpmon.recording.layout import RecordingError
from ddpmon.recording.looks import DamageError
from ddpmon.recording.perfetto import TooManySteps, write_trace
from ddpmon.recording.reader import Recording
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.step_table import StepTable
from ddpmon.report.new_file import replacing
from ddpmon.report.verdicts import is_reading
from ddpmon.store.base import StoreUnavailable, TargetError

_SPAN = re.compile(r"(\d{0,15}):(\d{0,15})", re.ASCII)
_GOOD_LINKS = ("live", "gone")


def export(
    target: str | None,
    csv: str | None,
    perfetto: str | None,
    steps: str | None,
    ssh: str | None = None,
    slurm: str | None = None,
) -> int:
    """Write what is asked for; returns the exit code."""
    if (csv is None) == (perfetto is None):
        complain("say what to export: one of --csv OUT.csv, --perfetto OUT.json.gz and --prometheus HOST:PORT")
        return USAGE
    try:
        span = _span(steps)
        with _recording(target, ssh, slurm) as recording:
            return _csv(recording, csv, span) if csv is not None else _trace(recording, str(perfetto), span)
    except (TargetError, RecordingError, TooManySteps) as error:
        complain(str(error))
        return USAGE
    except DamageError as error:
        complain(f"the recording is damaged: {error}")
        return USAGE
    except StoreUnavailable as error:
        complain(str(error))
        return NO_RUN
    except OSError as error:
        complain(f"{error.filename or 'the output'} cannot be written: {error.strerror or error}")
        return USAGE


def _span(steps: str | None) -> tuple[int, int] | None:
    """The first and the last step of `A:B`; either may be left out.

    Raises:
        TargetError: it makes no sense.
    """
    if steps is None:
        return None
    found = _SPAN.fullmatch(steps)
    first, last = (0, 1 << 62) if found is None else (int(found[1] or 0), int(found[2] or 1 << 62))
    if found is None or first > last:
        raise TargetError(f"--steps {steps!r} is not A:B, such as 100:200, with A no larger than B")
    return first, last


@contextmanager
def _recording(target: str | None, ssh: str | None, slurm: str | None) -> Iterator[Recording]:
    """The recording, or what a live run remembers of its last steps."""
    path = recording_at(target) if ssh is None and slurm is None else None
    if path is not None:
        with closing(Recording(path)) as recording:
            yield recording
        return
    from ddpmon.watcher.observer import Observer

    with reached(target, ssh, slurm) as route, closing(Recorder(None)) as recorder:
        with closing(Observer(route.target, route.way, recorder)) as observer:
            snapshot = observer.tick()
            while is_reading(snapshot):
                snapshot = observer.tick()
        if snapshot.run is None or snapshot.link.state not in _GOOD_LINKS:
            raise StoreUnavailable(snapshot.link.message or "no run was found")
        recorder.catch_up()
        yield Recording(recorder.book)


def _csv(recording: Recording, out: str, span: tuple[int, int] | None) -> int:
    steps = StepTable(recording, span)
    if out == "-":
        steps.write_csv(sys.stdout)
        return OK
    with replacing(Path(out)) as raw, io.TextIOWrapper(raw, encoding="utf-8", errors="replace", newline="") as file:
        rows = steps.write_csv(file)
    print(f"wrote {rows:,} rows to {printable(out)}")
    return _noted(recording)


def _trace(recording: Recording, out: str, span: tuple[int, int] | None) -> int:
    with replacing(Path(out)) as raw:
        packed = gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, mtime=0) if out.endswith(".gz") else raw
        with io.TextIOWrapper(packed, encoding="utf-8", errors="replace") as file:
            events = write_trace(recording, file, span)
    print(f"wrote {events:,} events to {printable(out)}; open it in https://ui.perfetto.dev")
    return _noted(recording)


def _noted(recording: Recording) -> int:
    for note in recording.notes:
        complain(note)
    return OK
