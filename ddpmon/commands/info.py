"""`ddpmon info`: the version, and where ddpmon reads and writes on this host."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from ddpmon.commands.console import OK, printable
from ddpmon.commands.user_folders import settings_file, state_folder
from ddpmon.format import json_line
from ddpmon.version import __version__

_OF_USERS = ("DDPMON", "NO_COLOR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "TMPDIR")
_SECRETS = ("DDPMON_TOKEN", "DDPMON_WEBHOOK")


def info(as_json: bool) -> int:
    """Print it; returns the exit code. Nothing is created, and torch is looked for but not loaded."""
    found = dict(_facts())
    if as_json:
        print(json_line({"schema_version": 1, **found}))
        return OK
    width = max(len(name) for name in found)
    for name, value in found.items():
        print(printable(f"{name.replace('_', ' '):<{width}}  {'-' if value is None else value}"))
    return OK


def _facts() -> Iterator[tuple[str, str | None]]:
    from ddpmon.store.private import existing_folders, folders, squatted

    existing = next((str(folder.path) for folder in existing_folders()), None)
    yield "version", __version__
    yield "python", f"{platform.python_version()}, {sys.executable}"
    yield "package", str(Path(__file__).parents[1])
    yield "torch", _torch()
    yield "runtime_folder", squatted() or existing or f"{next(iter(folders()), None)} (not there)"
    yield "settings_file", _file(settings_file())
    yield "state_folder", _file(state_folder())
    yield "environment", ", ".join(_environment()) or None


def _torch() -> str | None:
    try:
        return None if find_spec("torch") is None else version("torch")
    except (ImportError, ValueError, PackageNotFoundError):
        return "found, of unknown version"


def _file(path: Path | None) -> str | None:
    return None if path is None else f"{path}{'' if path.exists() else ' (not there)'}"


def _environment() -> Iterator[str]:
    """The variables that ddpmon reads; secrets by name only, and no password of an address."""
    for name, value in sorted(os.environ.items()):
        if name.startswith(_OF_USERS):
            is_secret = name in _SECRETS or "@" in value
            yield f"{name}={'(set)' if is_secret else value}"
