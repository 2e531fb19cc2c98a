"""What rank 0 says once of the software that it runs, and of how it was started."""

from __future__ import annotations

import platform
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

import ddpmon
from ddpmon.parts import wire_text

_DRIVER = Path("/proc/driver/nvidia/version")
_SECRET = re.compile("key|token|secret|passw|credential|auth", re.IGNORECASE)
_NAMED_SECRET = re.compile(rf"({_SECRET.pattern})[^=:]*[=:]", re.IGNORECASE)  # as in k=v, JSON and a URL's query
_USER = re.compile(r"://[^/\s]+@")
_NUMBER = re.compile(r"\s(\d{3,}\.\d[\d.]*)\s")


def versions(device: str) -> dict[str, str]:
    """Name -> version of ddpmon, torch and Python; on a CUDA device also of CUDA, NCCL and the driver. Never raises.

    Args:
        device: the type of the model's device, such as "cuda".
    """
    found = {"ddpmon": ddpmon.__version__, "torch": str(torch.__version__), "python": platform.python_version()}
    if device == "cuda":
        found |= {"cuda": str(torch.version.cuda or ""), "nccl": _nccl(), "driver": driver(_DRIVER)}
    return {name: wire_text(version) for name, version in found.items() if version}


def _nccl() -> str:
    try:
        return ".".join(str(part) for part in torch.cuda.nccl.version())
    except Exception:  # a torch that was built without it
        return ""


def driver(path: Path) -> str:
    """The version of NVIDIA's kernel module as its file in /proc says it; empty where there is none."""
    try:
        found = _NUMBER.search(path.read_text(errors="replace")[:1024])
    except OSError:
        return ""
    return found.group(1) if found else ""


def command(words: Sequence[str] | None = None) -> str:
    """The words that started this process, as a shell would take them, at most 256 characters, without secrets.

    Whoever can read the store can read them. So the value of an option whose name says that it is a secret, such as
    `--api-key`, the rest of a word behind such a name, and what stands before the @ of an address are left out.
    """
    found = [*(getattr(sys, "orig_argv", sys.argv) if words is None else words)]
    shown = [_without_secret(word, before) for word, before in zip(found, ["", *found], strict=False)]
    return wire_text(shlex.join(shown))


def _without_secret(word: str, before: str) -> str:
    if found := _NAMED_SECRET.search(word):
        return f"{_USER.sub('://...@', word[: found.end()])}..."
    if before.startswith("-") and "=" not in before and _SECRET.search(before) and not word.startswith("-"):
        return "..."
    return _USER.sub("://...@", word)
