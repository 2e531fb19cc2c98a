"""Checkpoints: written whole or not at all, and the same for every rank when read."""

from __future__ import annotations

import io
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .config import ConfigError

State = dict[str, Any]


def prepare(path: Path) -> None:
    """Make the checkpoint's folder.

    Raises:
        ConfigError: there can be no such file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--checkpoint {path} cannot be written: {error.strerror}") from None
    if path.is_dir():
        raise ConfigError(f"--checkpoint {path} is a folder: name a file")


def save(path: Path, state: State) -> bool:
    """Replace the checkpoint by `state`.

    Returns:
        False when the disk refused: then one line on stderr says so, and the previous checkpoint stands.
    """
    # Serialised in memory first: the file is then plain bytes, and a full disk an OSError at a known place.
    buffer = io.BytesIO()
    torch.save(state, buffer)
    temporary = path.with_name(path.name + ".tmp")
    try:
        _write_through(temporary, buffer.getbuffer())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        kept = "the previous one is intact" if path.exists() else "there is none yet"
        print(f"trainer: checkpoint {path} not written ({error.strerror}); {kept}, training continues", file=sys.stderr)
        return False
    return True


def _write_through(path: Path, content: memoryview) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def load(path: Path) -> State | None:
    """Read the checkpoint on rank 0 and hand it to every rank, tensors on the CPU.

    Returns:
        None when the file does not exist.

    Raises:
        ConfigError: the file is no checkpoint of this trainer (on every rank).
    """
    if not dist.is_initialized():
        found = _read(path)
    else:
        box = [_read(path) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(box, src=0)
        found = box[0]
    if isinstance(found, str):
        raise ConfigError(f"{path} {found}: move it away, or name another file with --checkpoint")
    return found


def _read(path: Path) -> State | str | None:
    """Return the state, None if there is no file, or what is wrong with it."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except (RuntimeError, EOFError, pickle.UnpicklingError, ValueError, KeyError):
        return "is not a checkpoint, or only part of one"
    if not isinstance(state, dict) or "step" not in state or "shape" not in state:
        return "is not a checkpoint of this trainer"
    return state
