"""Where dashboards were left, by run, so that the next one on the same run begins there."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ddpmon.commands.user_folders import state_folder
from ddpmon.tui.draw.columns import SORTS
from ddpmon.tui.draw.order import HOST_SORTS
from ddpmon.tui.filter.parse import parse
from ddpmon.tui.filter.tree import FilterError
from ddpmon.tui.preferences import Session

_FILE = "views.json"
_KEPT = 50  # runs, the ones left last
_LARGEST = 1 << 20
_Sessions = dict[str, Any]  # each is checked once its run is watched


def remembered(run_id: str) -> Session | None:
    """Where a dashboard on this run was left; None if none was, or if that cannot be read."""
    with suppress(msgspec.ValidationError, FilterError):
        session = msgspec.convert(_read().get(run_id), Session)
        parse(session.filter)
        if session.sort in SORTS and session.hosts_sort in HOST_SORTS:
            return session
    return None


def remember(run_id: str, session: Session) -> None:
    """Note where a dashboard on this run is left; where that cannot be written, it is forgotten."""
    folder = state_folder()
    if folder is None:
        return
    sessions = _read()
    sessions.pop(run_id, None)
    sessions[run_id] = session
    kept = dict(list(sessions.items())[-_KEPT:])
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _replace(folder / _FILE, msgspec.json.encode(kept))


def _read() -> _Sessions:
    folder = state_folder()
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # damaged, or none
        if folder is not None:
            with (folder / _FILE).open("rb") as file:
                return msgspec.json.decode(file.read(_LARGEST), type=_Sessions)
    return {}


def _replace(path: Path, data: bytes) -> None:
    """Put data in the place of a file in one step: another dashboard reads the old or the new one."""
    number, name = tempfile.mkstemp(prefix=_FILE, dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
