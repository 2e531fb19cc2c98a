"""What rank 0 says once of the software that it runs, and of how it was started."""

from __future__ import annotations

import platform
import re
import shlex
import sys
from pathlib import Path

import torch

import ddpmon
from ddpmon.parts import wire_text

_DRIVER = Path("/proc/driver/nvidia/version")
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


def command() -> str:
    """The words that started this process, as a shell would take them, at most 256 characters."""
    return wire_text(shlex.join(getattr(sys, "orig_argv", sys.argv)))
