"""Where a user's settings are, and what ddpmon remembers for them."""

from __future__ import annotations

import os
from pathlib import Path


def settings_file() -> Path | None:
    """The settings file, whether or not there is one; None for a user without a home directory."""
    folder = _folder("XDG_CONFIG_HOME", ".config")
    return None if folder is None else folder / "config.toml"


def state_folder() -> Path | None:
    """Where guards and dashboards remember; None for a user without a home directory."""
    return _folder("XDG_STATE_HOME", ".local/state")


def _folder(variable: str, usual: str) -> Path | None:
    """`ddpmon` below what the variable names, which counts only as an absolute path (XDG Base Directory 0.8)."""
    named = os.environ.get(variable, "")
    try:
        return (Path(named) if named.startswith("/") else Path.home() / usual) / "ddpmon"
    except RuntimeError:
        return None
