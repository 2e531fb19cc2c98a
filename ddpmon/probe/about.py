"""What rank 0 says once of the software that it runs, and of how it was started."""

from __future__ import annotations

import platform
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

import ddpmon
from ddpmon.parts import wire_text

_DRIVER = Path("/proc/driver/nvidia/version")
_SECRET = (  # a name with one of these in it; argparse takes the beginning of a name, too, such as --tok
    r"(?:key|tok|secr|pass|pwd|cred|auth|private|bearer|cookie|session|jwt|webhook|signature|license|salt|connection"
    r"|(?<!/)(?:user|login)|(?<![a-z])(?:api|pat|pin|pw|sas|dsn|otp|sig|basic)(?![a-z]))"
)
_NAMED = re.compile(rf"{_SECRET}[\w.-]*(?:[\"'\])]*\s*[=:])?", re.IGNORECASE)  # as in k=v, JSON and a URL's query
_SHORT = re.compile(r"-[pkt]", re.IGNORECASE)  # mostly a password, a key, a token or a port
_OPTION = re.compile(r"--[a-z][\w.-]*(=.*)?|-[a-z]", re.IGNORECASE | re.DOTALL)
_SCRIPT = re.compile(r"[\w./+-]+\.py")
_SHAPED = re.compile(  # as services make them, a UUID, and what is too long and mixed for a name
    r"\b(?:sk-|hf_|gh[a-z]_|github_pat_|glpat-|xox[a-z]-|AKIA|ASIA|AIza|eyJ)[\w-]{8,}"
    r"|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
    r"|(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{20,}"
    r"|(?<![\w/.])(?=\w*[/+])(?=[^0-9]*[0-9])(?=[^A-Z]*[A-Z])[A-Za-z0-9+][A-Za-z0-9+/]{39,}"
)
_HIDDEN = "..."
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

    Whoever can read the store can read them, so that what may be a secret is left out: the values of an option whose
    name has a part such as "key", "tok" or "pass", or is -p, -k or -t; the rest of a word behind such a name; the word
    behind a name that stands alone; what stands before the @ of an address; and what looks like a key.
    """
    found = [*(getattr(sys, "orig_argv", sys.argv) if words is None else words)]
    return wire_text(shlex.join([*found[:1], *_without_secrets(found[1:])]))


def _without_secrets(words: Sequence[str]) -> Iterator[str]:
    hidden = 0  # how many of the next words, up to an option, may be a secret
    for word in words:
        if hidden and not _OPTION.fullmatch(word):
            hidden = max(hidden - 1, int(_NAMED.search(word) is not None))  # such as "Bearer" behind "Authorization:"
            yield _HIDDEN
        else:
            shown, hidden = _shown(word, len(words))
            yield shown


def _shown(word: str, every: int) -> tuple[str, int]:
    """What may be shown of a word, and how many words behind it may be a secret."""
    if _SHORT.match(word):
        return (word, every) if len(word) == 2 else (word[:2] + _HIDDEN, 0)
    named = _NAMED.search(word)
    if named is None or _SCRIPT.fullmatch(word):
        return _plain(word), 0
    if named.end() < len(word):
        return _plain(word[: named.end()]) + _HIDDEN, 0
    return _plain(word), every if word.startswith("-") else 1


def _plain(text: str) -> str:
    """Without the user and the password of an address, and without what looks like a key."""
    before, at, behind = text.rpartition("@")
    if "://" in before:
        before = f"{before.partition('://')[0]}://{_HIDDEN}"
    elif ":" in before:
        name, equals, _ = before.partition(":")[0].rpartition("=")
        before = f"{name}{equals}{_HIDDEN}"
    return _SHAPED.sub(_HIDDEN, f"{before}{at}{behind}")
