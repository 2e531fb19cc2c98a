"""Two hosts with a network between them: namespaces on a bridge, whose second link can be throttled (needs root)."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

BRIDGE = "ddpmonbr"
INTERFACE = "ddpmon"
ADDRESSES = ("10.77.31.1", "10.77.31.2")
_RATE = ("rate", "200mbit", "burst", "64kb", "latency", "100ms")


def why_not() -> str:
    """Why this machine cannot have such a network, empty if it can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    return f"needs {' and '.join(missing)}" if missing else ""


@contextlib.contextmanager
def network() -> Iterator[None]:
    """Two namespaces on a bridge with the watcher, gone at the end.

    Raises:
        subprocess.CalledProcessError: the kernel refused.
    """
    _clean()
    try:
        _do(f"ip link add {BRIDGE} type bridge")
        _do(f"ip addr add 10.77.31.254/24 dev {BRIDGE}")
        _do(f"ip link set {BRIDGE} up")
        for i, address in enumerate(ADDRESSES):
            space = _space(i)
            _do(f"ip netns add {space}")
            _do(f"ip link add {_outside(i)} type veth peer name {INTERFACE} netns {space}")
            _do(f"ip link set {_outside(i)} master {BRIDGE} up")
            _do(f"ip -n {space} addr add {address}/24 dev {INTERFACE}")
            _do(f"ip -n {space} link set {INTERFACE} up")
            _do(f"ip -n {space} link set lo up")
        yield
    finally:
        _clean()


def throttle() -> None:
    """Slow the second host's link down, in both directions."""
    for prefix, device in ((["tc"], _outside(1)), (["tc", "-n", _space(1)], INTERFACE)):
        subprocess.run([*prefix, "qdisc", "add", "dev", device, "root", "tbf", *_RATE], check=True, capture_output=True)


def release() -> None:
    """Let the link run free again."""
    for prefix, device in ((["tc"], _outside(1)), (["tc", "-n", _space(1)], INTERFACE)):
        subprocess.run([*prefix, "qdisc", "del", "dev", device, "root"], check=False, capture_output=True)


def enter(i: int) -> list[str]:
    """The command that runs another one on host i."""
    return ["ip", "netns", "exec", _space(i)]


def _space(i: int) -> str:
    return f"ddpmon{i}"


def _outside(i: int) -> str:
    return f"ddpmonv{i}"


def _do(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True, text=True)


def _clean() -> None:
    for i in range(len(ADDRESSES)):
        subprocess.run(["ip", "netns", "del", _space(i)], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", _outside(i)], check=False, capture_output=True)
    subprocess.run(["ip", "link", "del", BRIDGE], check=False, capture_output=True)
